//! Messages of gzip that no honest program makes.

/// Returns a gzip member (RFC 1952) that becomes nothing, with so many empty blocks before its last
/// one: ten bits each, "fixed codes, end of block" (RFC 1951 section 3.2.6).
pub fn gzip_of_empty_blocks(blocks: usize) -> Vec<u8> {
    const HEADER: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255];
    /// The bits of a block, the first the lowest: not the last one, type 1, seven zeros.
    const BLOCK: u16 = 0b00_0000_0010;
    let mut bits = Vec::new();
    for _ in 0..blocks {
        bits.extend((0..10).map(|at| BLOCK >> at & 1));
    }
    bits.extend([1, 1, 0, 0, 0, 0, 0, 0, 0, 0]);
    let bytes = bits.chunks(8);
    let bytes = bytes.map(|bits| {
        bits.iter()
            .rev()
            .fold(0, |byte, &bit| byte << 1 | bit as u8)
    });
    let mut member = HEADER.to_vec();
    member.extend(bytes);
    member.extend([0; 8]);
    member
}
