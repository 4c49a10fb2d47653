//! The names of calls.

/// Names a call of this loop; a late completion for a call that ended is recognised by the
/// generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct CallId {
    pub index: u32,
    pub generation: u32,
}

impl CallId {
    /// The form in which the id travels through the store as the tag of a commit.
    pub fn tag(self) -> u64 {
        joined(self.generation, self.index)
    }

    pub fn from_tag(tag: u64) -> CallId {
        let (generation, index) = halves(tag);
        CallId { index, generation }
    }
}

/// Two numbers as one.
pub(crate) fn joined(high: u32, low: u32) -> u64 {
    (u64::from(high) << 32) + u64::from(low)
}

/// The two numbers of which one was joined.
pub(crate) fn halves(joined: u64) -> (u32, u32) {
    ((joined >> 32) as u32, joined as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A tag that named another call would answer it with the outcome of a commit that is not its
    /// own.
    #[test]
    fn a_tag_names_one_call() {
        for (index, generation, tag) in [
            (0, 0, 0),
            (7, 0, 7),
            (u32::MAX, 0, 0xffff_ffff),
            (0, 1, 0x1_0000_0000),
            (5, 3, 0x3_0000_0005),
            (3, 5, 0x5_0000_0003),
            (u32::MAX, u32::MAX, u64::MAX),
        ] {
            let id = CallId { index, generation };
            assert_eq!(id.tag(), tag, "{id:?}");
            assert_eq!(CallId::from_tag(tag), id);
        }
    }
}
