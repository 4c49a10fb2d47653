//! Why a header block cannot be decoded.

use super::integer::IntegerError;

/// Why a header block could not be decoded. Each is a connection error of type COMPRESSION_ERROR
/// (RFC 9113 section 4.3), also the limits: the two sides no longer agree about the table, or the
/// peer means harm.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HpackError {
    /// The block ends inside a field.
    #[error("the header block ends inside a field")]
    Truncated,
    /// An integer is longer or larger than anything HPACK needs (RFC 7541 section 5.1).
    #[error("an integer in the header block is too large")]
    IntegerTooLarge,
    /// An index is 0 or beyond the tables (RFC 7541 sections 2.3.3 and 6.1).
    #[error("the header block names a table entry that does not exist")]
    BadIndex,
    /// A string is not valid Huffman code (RFC 7541 section 5.2).
    #[error("a string in the header block is not valid Huffman code")]
    BadHuffman,
    /// A size update does not stand at the beginning of the block (RFC 7541 section 4.2).
    #[error("a table size update stands inside the header block")]
    SizeUpdateMisplaced,
    /// There are more than two size updates (RFC 7541 section 4.2).
    #[error("the header block begins with more than two table size updates")]
    TooManySizeUpdates,
    /// A size update asks for more than was advertised (RFC 7541 section 6.3).
    #[error("a table size update is larger than the advertised table")]
    SizeUpdateTooLarge,
    /// More fields than [`super::FieldLimits::max_fields`].
    #[error("the header block has too many fields")]
    TooManyFields,
    /// More bytes than [`super::FieldLimits::max_list_bytes`].
    #[error("the header list is too large")]
    ListTooLarge,
}

impl HpackError {
    /// Whether the block was too much rather than wrong.
    pub fn is_limit(self) -> bool {
        matches!(
            self,
            HpackError::TooManyFields | HpackError::ListTooLarge | HpackError::TooManySizeUpdates
        )
    }
}

impl From<IntegerError> for HpackError {
    fn from(error: IntegerError) -> HpackError {
        match error {
            IntegerError::Truncated => HpackError::Truncated,
            IntegerError::TooLarge => HpackError::IntegerTooLarge,
        }
    }
}
