//! The name of a stream.

/// Names a stream of one connection: the place in its slab, and the HTTP/2 stream identifier. As
/// identifiers are never used again, a key that has outlived its stream finds nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct StreamKey {
    /// Place in the slab.
    pub slot: u32,
    /// RFC 9113 section 5.1.1.
    pub id: u32,
}
