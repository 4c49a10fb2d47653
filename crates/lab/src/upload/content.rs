//! What is uploaded.

use crate::random::Random;

/// Bytes after which the content repeats itself: far more than the window of gzip, 32 KiB.
const BLOCK_BYTES: usize = 4 << 20;

/// Text like that of logs, which gzip makes about a third of; always the same.
pub(super) fn content(bytes: usize) -> Vec<u8> {
    let mut random = Random::new(1);
    let mut content = Vec::with_capacity(bytes + 128);
    let mut number = 0_u64;
    while content.len() < bytes.min(BLOCK_BYTES) {
        let line = format!(
            "{{\"id\": {number}, \"visitor\": \"{:016x}\", \"path\": \"/shop/{}\", \"took_ms\": \
             {:.3}}}\n",
            random.next(),
            random.below(1_000),
            random.unit()
        );
        content.extend_from_slice(line.as_bytes());
        number += 1;
    }
    content.truncate(bytes.min(BLOCK_BYTES));
    while content.len() < bytes {
        let missing = bytes - content.len();
        content.extend_from_within(..missing.min(BLOCK_BYTES));
    }
    content
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_has_the_size_asked_for_and_is_the_same_each_time() {
        for bytes in [1, 100, BLOCK_BYTES, 2 * BLOCK_BYTES + 7] {
            let made = content(bytes);
            assert_eq!(made.len(), bytes);
            assert!(made == content(bytes));
            assert!(made.starts_with(b"{"));
        }
        let made = content(2 * BLOCK_BYTES + 7);
        assert!(made[BLOCK_BYTES..2 * BLOCK_BYTES] == made[..BLOCK_BYTES]);
        assert!(made[..BLOCK_BYTES].starts_with(b"{\"id\": 0, "));
    }
}
