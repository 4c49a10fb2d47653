//! CRC32C as baidu_std sends it: masked, so that the checksum of data that hold checksums is as
//! good as of others.

const MASK_DELTA: u32 = 0xa282_ead8;

/// Returns the masked form of a CRC32C, as it travels.
pub fn masked(crc: u32) -> [u8; 4] {
    crc.rotate_right(15).wrapping_add(MASK_DELTA).to_be_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_of_a_brpc_client_is_that_of_its_message() {
        let crc = crc32c::crc32c(b"\x0a\x0bhello world");
        assert_eq!(crc, 0xe037_1884);
        assert_eq!(masked(crc), [0xd3, 0x8c, 0xab, 0x46]);
    }
}
