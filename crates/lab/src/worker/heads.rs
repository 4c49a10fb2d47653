//! What goes with each call.

use client::{Credentials, Metadata};

use crate::random::Random;

/// A field of metadata.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetadataField {
    /// Its name, in lower case.
    pub name: String,
    /// Its value.
    pub value: MetadataValue,
}

/// The value of a field of metadata.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MetadataValue {
    /// Always the same.
    Same(String),
    /// Another in each call: 32 hexadecimal digits.
    Random,
}

impl MetadataField {
    /// The same as the client keeps it, to see whether it may be sent.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn check(&self) -> Result<(), String> {
        let mut metadata = Metadata::new();
        self.push(&mut metadata)
    }

    fn push(&self, metadata: &mut Metadata) -> Result<(), String> {
        let value = match &self.value {
            MetadataValue::Same(value) => value.clone(),
            MetadataValue::Random => "0".repeat(DIGITS),
        };
        let pushed = metadata.push_ascii(self.name.clone(), value);
        pushed.map_err(|error| format!("{error:?}"))
    }
}

const DIGITS: usize = 32;

/// The metadata of the calls of one worker.
pub(super) struct Heads {
    metadata: Metadata,
    random_fields: Vec<usize>,
    random: Random,
}

impl Heads {
    /// Fields that may not be sent are left out; the caller has checked them.
    pub(super) fn new(
        fields: &[MetadataField],
        credentials: Option<&Credentials>,
        random: Random,
    ) -> Heads {
        let mut metadata = Metadata::new();
        let mut random_fields = Vec::new();
        for field in fields {
            let at = metadata.len();
            if field.push(&mut metadata).is_ok() && field.value == MetadataValue::Random {
                random_fields.push(at);
            }
        }
        if let Some(credentials) = credentials {
            credentials.push_to(&mut metadata);
        }
        Heads {
            metadata,
            random_fields,
            random,
        }
    }

    /// The next call's.
    #[inline]
    pub(super) fn next(&mut self) -> Option<&Metadata> {
        if self.metadata.is_empty() {
            return None;
        }
        for &field in &self.random_fields {
            let mut text = [0; DIGITS];
            for half in text.chunks_exact_mut(16) {
                let number = self.random.next();
                for (at, digit) in half.iter_mut().enumerate() {
                    *digit = b"0123456789abcdef"[(number >> (at * 4)) as usize & 15];
                }
            }
            let set = self.metadata.set_text(field, &text);
            debug_assert_eq!(set, Ok(()), "digits are text");
        }
        Some(&self.metadata)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_fields_differ_from_call_to_call() {
        let fields = [
            MetadataField {
                name: "x-same".into(),
                value: MetadataValue::Same("v".into()),
            },
            MetadataField {
                name: "x-trace".into(),
                value: MetadataValue::Random,
            },
        ];
        let mut heads = Heads::new(&fields, None, Random::new(1));
        let mut next = || {
            let metadata = heads.next().expect("there are fields");
            assert_eq!(metadata.get("x-same"), Some(&b"v"[..]));
            metadata.get("x-trace").expect("it is there").to_vec()
        };
        let (one, two) = (next(), next());
        assert_ne!(one, two);
        assert_eq!((one.len(), two.len()), (32, 32));
        assert!(Heads::new(&[], None, Random::new(1)).next().is_none());
    }

    /// All bits of two numbers, the lowest digit first: no two calls have the same by chance.
    #[test]
    fn random_fields_are_two_numbers() {
        let fields = [MetadataField {
            name: "x-trace".into(),
            value: MetadataValue::Random,
        }];
        let mut heads = Heads::new(&fields, None, Random::new(7));
        let metadata = heads.next().expect("there is a field");
        let mut numbers = Random::new(7);
        let mut half = || -> String { format!("{:016x}", numbers.next()).chars().rev().collect() };
        let expected = half() + &half();
        assert_eq!(metadata.get("x-trace"), Some(expected.as_bytes()));
    }

    #[test]
    fn fields_that_may_not_be_sent_are_told() {
        let field = |name: &str| MetadataField {
            name: name.into(),
            value: MetadataValue::Random,
        };
        assert!(field("x-ok").check().is_ok());
        for bad in ["", "Upper", ":path", "a b", "x-bin"] {
            assert!(field(bad).check().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_token_goes_with_each_call_beside_the_fields() {
        let credentials = Credentials::token("pelton_x").expect("it can be sent");
        for fields in [
            vec![],
            vec![MetadataField {
                name: "x-trace".into(),
                value: MetadataValue::Random,
            }],
        ] {
            let mut heads = Heads::new(&fields, Some(&credentials), Random::new(1));
            for _ in 0..2 {
                let metadata = heads.next().expect("there is a token");
                let token = metadata.get("authorization");
                assert_eq!(token, Some(&b"Bearer pelton_x"[..]));
                assert_eq!(metadata.len(), fields.len() + 1);
            }
        }
    }
}
