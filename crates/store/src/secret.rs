//! The secret of a data folder.

use std::fmt;

/// Random bytes that belong to a data folder, and are in no backup of it. The layer above derives
/// keys from them.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct FolderSecret([u8; FolderSecret::BYTES]);

impl FolderSecret {
    /// Its length: as much as nobody can try out.
    pub const BYTES: usize = 32;

    /// Where there is none.
    pub const NONE: FolderSecret = FolderSecret([0; FolderSecret::BYTES]);

    /// A secret of bytes that were drawn at random.
    pub const fn new(drawn: [u8; FolderSecret::BYTES]) -> FolderSecret {
        FolderSecret(drawn)
    }

    /// Returns the bytes, which belong in no message.
    pub const fn bytes(&self) -> &[u8; FolderSecret::BYTES] {
        &self.0
    }

    /// Returns whether there is none.
    pub(crate) fn is_none(&self) -> bool {
        *self == FolderSecret::NONE
    }

    /// Reads what [`FolderSecret::hex`] wrote.
    pub fn from_hex(text: &str) -> Option<FolderSecret> {
        let is_hex = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        if text.len() != 2 * FolderSecret::BYTES || !text.bytes().all(is_hex) {
            return None;
        }
        let mut secret = FolderSecret::NONE;
        for (byte, digits) in secret.0.iter_mut().zip(text.as_bytes().chunks(2)) {
            let digits = std::str::from_utf8(digits).ok()?;
            *byte = u8::from_str_radix(digits, 16).ok()?;
        }
        Some(secret)
    }

    /// Returns it in hexadecimal digits, for the file of the folder.
    pub fn hex(&self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

impl Default for FolderSecret {
    fn default() -> FolderSecret {
        FolderSecret::NONE
    }
}

/// Without the bytes.
impl fmt::Debug for FolderSecret {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("FolderSecret(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_read_as_it_was_written_and_shown_to_nobody() {
        let secret = FolderSecret::new(std::array::from_fn(|at| (at as u8).wrapping_mul(9)));
        assert_eq!(FolderSecret::from_hex(&secret.hex()), Some(secret));
        for wrong in ["", "00", &secret.hex().to_uppercase(), &"+1".repeat(32)] {
            assert_eq!(FolderSecret::from_hex(wrong), None, "{wrong}");
        }
        assert_eq!(format!("{secret:?}"), "FolderSecret(..)");
        assert!(FolderSecret::default().is_none() && !secret.is_none());
    }
}
