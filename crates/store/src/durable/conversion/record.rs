//! What the log says of a conversion.

use crate::database::DatabaseConfig;

/// What the log says of a conversion.
pub(in crate::durable) struct Converted {
    pub(in crate::durable) config: DatabaseConfig,
    /// The sequence in the name of the tree. `None`: it is in memory, or the name has that of the
    /// record, as it was in earlier versions.
    pub(in crate::durable) tree_sequence: Option<u64>,
}

impl Converted {
    /// As it is logged: the configuration, and behind it the sequence as a little-endian number of
    /// eight bytes.
    pub(in crate::durable) fn encode(&self) -> Vec<u8> {
        let mut bytes = self.config.encode().to_vec();
        bytes.extend(self.tree_sequence.map(u64::to_le_bytes).iter().flatten());
        bytes
    }

    /// `None`: this version does not know it.
    pub(in crate::durable) fn decode(bytes: &[u8]) -> Option<Converted> {
        let (config, rest) = bytes.split_at_checked(DatabaseConfig::ENCODED_BYTES)?;
        let tree_sequence = match rest {
            [] => None,
            rest => Some(u64::from_le_bytes(rest.try_into().ok()?)),
        };
        let config = DatabaseConfig::decode_logged(config)?;
        Some(Converted {
            config,
            tree_sequence,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With a name of the tree, as this version writes it; without, as earlier ones did; and
    /// nothing else.
    #[test]
    fn what_the_log_says_of_a_conversion_is_read_in_both_forms() {
        let config = DatabaseConfig::default();
        for tree_sequence in [None, Some(0), Some(7), Some(u64::MAX)] {
            let converted = Converted {
                config,
                tree_sequence,
            };
            let bytes = converted.encode();
            let read = Converted::decode(&bytes).expect("it was just written");
            assert_eq!((read.config, read.tree_sequence), (config, tree_sequence));
            for cut in [1, 63, 65, 71, 73] {
                let mut other = bytes.clone();
                other.resize(cut, 0);
                assert!(Converted::decode(&other).is_none(), "{cut} bytes");
            }
        }
        let earlier = config.encode();
        let read = Converted::decode(&earlier).expect("earlier versions wrote this");
        assert_eq!(read.tree_sequence, None);
        // Which is why an earlier version refuses the new form: it reads the configuration alone.
        let now = Converted {
            config,
            tree_sequence: Some(7),
        };
        assert_eq!(DatabaseConfig::decode_logged(&now.encode()), None);
    }
}
