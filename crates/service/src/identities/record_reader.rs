//! The parts of which entries in the store are made.

use super::identity::IssuedToken;
use super::token::TokenHash;
use crate::limits::GRANTS_MAX;
use crate::rights::Grant;

/// Adds a text with its length, which is below 2^16.
pub(super) fn push_text(value: &mut Vec<u8>, text: &str) {
    value.extend((text.len() as u16).to_le_bytes());
    value.extend(text.as_bytes());
}

/// Reads values, as far as they are there.
pub(super) struct RecordReader<'a>(&'a [u8]);

impl<'a> RecordReader<'a> {
    pub(super) fn new(value: &'a [u8]) -> RecordReader<'a> {
        RecordReader(value)
    }

    pub(super) fn is_at_end(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn grants(&mut self) -> Option<Vec<Grant>> {
        let count = usize::from(self.byte()?);
        if count > GRANTS_MAX {
            return None;
        }
        let mut grants = Vec::with_capacity(count);
        for _ in 0..count {
            grants.push(self.text()?.parse::<Grant>().ok()?);
        }
        Some(grants)
    }

    pub(super) fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    pub(super) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    pub(super) fn byte(&mut self) -> Option<u8> {
        self.array().map(|[byte]| byte)
    }

    pub(super) fn number(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    pub(super) fn tokens(&mut self) -> Option<Vec<IssuedToken>> {
        let mut tokens = Vec::new();
        for _ in 0..self.byte()? {
            let hash = TokenHash::from_bytes(self.array()?);
            let expires_ms = self.number()?;
            tokens.push(IssuedToken { hash, expires_ms });
        }
        Some(tokens)
    }

    pub(super) fn text(&mut self) -> Option<&'a str> {
        let count = u16::from_le_bytes(self.array()?);
        std::str::from_utf8(self.take(usize::from(count))?).ok()
    }
}
