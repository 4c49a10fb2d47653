//! Tokens of the first administrator that were revoked: a start is given a token by a file or a
//! variable, which may still have one of them when nobody is an administrator any more.

use super::identity::IssuedToken;
use super::record_reader::RecordReader;
use super::token::TokenHash;
use crate::limits::REVOKED_TOKENS_MAX;

/// The key of their entry. No name of an identity has a colon. Versions that do not know it count
/// it as one that makes no sense, and let nobody in for it.
pub(crate) const REVOKED_KEY: &[u8] = b"revoked:admin";

/// The first byte of the value.
const FORMAT: u8 = 1;

/// The hashes of tokens of the first administrator that were revoked or rotated away, the oldest
/// first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RevokedTokens(Vec<TokenHash>);

impl RevokedTokens {
    /// Returns them with these tokens as the latest. Of more than [`REVOKED_TOKENS_MAX`] the oldest
    /// are left out.
    pub(crate) fn with(&self, tokens: &[IssuedToken]) -> RevokedTokens {
        let mut hashes = self.0.clone();
        for token in tokens {
            hashes.retain(|hash| *hash != token.hash);
            hashes.push(token.hash);
        }
        let surplus = hashes.len().saturating_sub(REVOKED_TOKENS_MAX);
        RevokedTokens(hashes.split_off(surplus))
    }

    /// Returns whether a token with this hash was revoked.
    pub(super) fn contains(&self, hash: &TokenHash) -> bool {
        self.0.contains(hash)
    }

    /// Returns the value of their entry.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut value = vec![FORMAT];
        for hash in &self.0 {
            value.extend(hash.as_bytes());
        }
        value
    }

    /// Reads the value of their entry; `None`: it makes no sense.
    pub(super) fn decode(value: &[u8]) -> Option<RevokedTokens> {
        let mut reader = RecordReader::new(value);
        if reader.byte()? != FORMAT {
            return None;
        }
        let mut hashes = Vec::new();
        while !reader.is_at_end() {
            if hashes.len() == REVOKED_TOKENS_MAX {
                return None;
            }
            hashes.push(TokenHash::from_bytes(reader.array()?));
        }
        Some(RevokedTokens(hashes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identities::NEVER_MS;

    fn token(number: u8) -> IssuedToken {
        IssuedToken {
            hash: TokenHash::from_bytes([number; 32]),
            expires_ms: NEVER_MS,
        }
    }

    #[test]
    fn the_latest_are_kept_and_each_once() {
        let mut revoked = RevokedTokens::default();
        for round in 0..2 {
            for number in 0..200 {
                revoked = revoked.with(&[token(number), token(number)]);
                assert!(revoked.contains(&token(number).hash));
                assert!(revoked.0.len() <= REVOKED_TOKENS_MAX, "round {round}");
            }
        }
        assert_eq!(revoked.0.len(), REVOKED_TOKENS_MAX);
        assert!(!revoked.contains(&token(0).hash), "it is the oldest");
        let again = revoked.with(&[token(150)]);
        assert_eq!(again.0.len(), REVOKED_TOKENS_MAX);
        assert_eq!(again.0.last(), Some(&token(150).hash));
    }

    #[test]
    fn they_are_read_as_they_were_written_and_nothing_else_is() {
        for count in [0, 1, 2, REVOKED_TOKENS_MAX as u8] {
            let tokens: Vec<IssuedToken> = (0..count).map(token).collect();
            let revoked = RevokedTokens::default().with(&tokens);
            let value = revoked.encode();
            assert_eq!(RevokedTokens::decode(&value), Some(revoked));
            assert_eq!(RevokedTokens::decode(&[&value[..], &[0]].concat()), None);
            let other = [&[FORMAT + 1], value.get(1..).expect("a format")].concat();
            assert_eq!(RevokedTokens::decode(&other), None);
        }
        assert_eq!(RevokedTokens::decode(&[]), None);
        let too_many = [&[FORMAT][..], &[7; 32 * (REVOKED_TOKENS_MAX + 1)]].concat();
        assert_eq!(RevokedTokens::decode(&too_many), None);
    }
}
