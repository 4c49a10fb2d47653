//! How many rows are read at once, so that their bytes are bounded.

use crate::limits;
use crate::rows::HeadsPage;

/// How many rows without values are read of a bucket at once: few at first, then as many as have
/// some bytes by the lengths of the keys that came before.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RowsAtOnce {
    rows: usize,
    bytes: usize,
}

impl RowsAtOnce {
    /// Takes note of rows that have come.
    pub(crate) fn note(&mut self, page: &HeadsPage) {
        self.rows = self.rows.saturating_add(page.rows.len());
        self.bytes = self.bytes.saturating_add(page.bytes());
    }

    /// Returns how many rows to read, at most `wanted`.
    pub(crate) fn get(&self, wanted: usize) -> usize {
        let rows = match self.bytes.checked_div(self.rows) {
            None => limits::FIRST_ROWS,
            Some(mean) => limits::BUCKET_BYTES / mean.max(1),
        };
        let most = limits::BUCKET_ROWS.min(wanted.max(1));
        rows.clamp(limits::FIRST_ROWS, limits::BUCKET_ROWS)
            .min(most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::EntryHead;
    use crate::rows::HeadRow;

    fn page(rows: usize, key_bytes: usize) -> HeadsPage {
        let row = || HeadRow {
            key: vec![b'k'; key_bytes],
            head: EntryHead {
                version: 1,
                expires_ms: 0,
                value_bytes: 0,
            },
        };
        HeadsPage {
            rows: (0..rows).map(|_| row()).collect(),
            is_last: false,
            share: None,
        }
    }

    #[test]
    fn rows_are_read_by_the_bytes_of_their_keys() {
        let mut at_once = RowsAtOnce::default();
        assert_eq!(at_once.get(1_000), limits::FIRST_ROWS);
        assert_eq!((at_once.get(3), at_once.get(0)), (3, 1));
        at_once.note(&page(0, 0));
        assert_eq!(at_once.get(1_000), limits::FIRST_ROWS);
        at_once.note(&page(16, 100));
        assert_eq!(at_once.get(1_000), limits::BUCKET_ROWS);
        let mut long = RowsAtOnce::default();
        long.note(&page(limits::FIRST_ROWS, store::remote::limits::KEY_BYTES));
        let longest = page(long.get(1_000), store::remote::limits::KEY_BYTES);
        assert!(longest.bytes() <= 2 * limits::BUCKET_BYTES);
        let mut middle = RowsAtOnce::default();
        middle.note(&page(10, 8_000));
        assert!((100..200).contains(&middle.get(1_000)));
    }
}
