//! Random numbers for tests. Printed in an assertion it says its seed.

/// A seeded generator (xorshift64*).
pub(crate) struct Random {
    seed: u64,
    state: u64,
}

impl std::fmt::Debug for Random {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "seed {:#x}, state {:#x}", self.seed, self.state)
    }
}

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        Random {
            seed,
            state: seed | 1,
        }
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.state ^= self.state >> 12;
        self.state ^= self.state << 25;
        self.state ^= self.state >> 27;
        self.state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    /// Fewer than `bound` bytes, each made by `byte`.
    pub(crate) fn bytes(
        &mut self,
        bound: usize,
        mut byte: impl FnMut(&mut Random) -> u8,
    ) -> Vec<u8> {
        (0..self.below(bound as u64)).map(|_| byte(self)).collect()
    }
}
