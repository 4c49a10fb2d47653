//! Keys, and their random order.

/// Returns the key of a number, as `pelton load` names its keys.
pub fn key(mut number: u64) -> Vec<u8> {
    for factor in [0xbf58_476d_1ce4_e5b9_u64, 0x94d0_49bb_1331_11eb] {
        number = (number ^ (number >> 32)).wrapping_mul(factor);
    }
    number ^= number >> 32;
    format!("{number:016x}").into_bytes()
}

/// Random numbers by xorshift64.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Returns those that begin with a seed; 0 is taken for 1.
    pub fn new(seed: u64) -> Random {
        Random(seed.max(1))
    }

    /// Returns the next number, less than `bound`.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}
