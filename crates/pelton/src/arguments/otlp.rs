//! What flags say of the export of spans.

use std::convert::Infallible;
use std::fmt;
use std::str::FromStr;

/// A header as it was written. It may be a secret: it is not looked at before nothing can show it
/// any more as something that is wrong.
#[derive(Clone, PartialEq, Eq)]
pub struct OtlpHeaderText(String);

impl OtlpHeaderText {
    /// Returns name and value; `None`: it is no `NAME=VALUE`.
    pub fn parts(&self) -> Option<(&str, &str)> {
        self.0.split_once('=')
    }
}

impl FromStr for OtlpHeaderText {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<OtlpHeaderText, Infallible> {
        Ok(OtlpHeaderText(text.to_owned()))
    }
}

impl fmt::Debug for OtlpHeaderText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OtlpHeaderText(…)")
    }
}

/// An attribute of the process that spans come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OtlpResourceAttribute {
    pub key: String,
    pub value: String,
}

impl FromStr for OtlpResourceAttribute {
    type Err = String;

    fn from_str(text: &str) -> Result<OtlpResourceAttribute, String> {
        match text.split_once('=') {
            Some((key, value)) if !key.trim().is_empty() => Ok(OtlpResourceAttribute {
                key: key.trim().to_owned(),
                value: value.trim().to_owned(),
            }),
            _ => Err(format!(
                "`{text}` is no KEY=VALUE; write one such as deployment.environment.name=staging"
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_not_shown() {
        let header: OtlpHeaderText = "x-key=a=s3cret".parse().expect("any text");
        assert_eq!(header.parts(), Some(("x-key", "a=s3cret")));
        assert!(!format!("{header:?}").contains("s3cret"));
    }

    #[test]
    fn an_attribute_has_a_key_and_a_value() {
        let read = |text: &str| text.parse::<OtlpResourceAttribute>();
        let one = read(" a.b = c=d ").expect("valid");
        assert_eq!((&*one.key, &*one.value), ("a.b", "c=d"));
        for text in ["", "a", "=a", " =a"] {
            let message = read(text).expect_err(text);
            assert!(message.contains("KEY=VALUE"), "{message}");
        }
    }
}
