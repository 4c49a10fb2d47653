//! Names for uploads that come without one.

use std::sync::atomic::{AtomicU64, Ordering};

use time::OffsetDateTime;

/// What generated names begin with.
pub(crate) const GENERATED: &str = "gupload/";

/// Generates names: `gupload/20261121T205912.345Z-00000007-3f9a2c4b7e1d0a55`. The time makes them
/// sort, the number tells apart those of one millisecond, and the start those of a server that was
/// started anew while its clock went back.
#[derive(Debug, Default)]
pub struct NameGenerator {
    start: u64,
    count: AtomicU64,
}

impl NameGenerator {
    /// `start` names the start of a server: draw it at random.
    pub fn new(start: u64) -> NameGenerator {
        NameGenerator {
            start,
            count: AtomicU64::new(0),
        }
    }

    /// The next one. `now_ms` is in milliseconds since 1970.
    pub(crate) fn next(&self, now_ms: u64) -> String {
        // Relaxed: it counts, and guards nothing.
        let count = self.count.fetch_add(1, Ordering::Relaxed);
        // Only a clock that is off by thousands of years is outside of what dates are for.
        let time = i64::try_from(now_ms / 1_000).unwrap_or(i64::MAX);
        let time = OffsetDateTime::from_unix_timestamp(time).unwrap_or(OffsetDateTime::UNIX_EPOCH);
        let (year, month, day) = time.to_calendar_date();
        let (hour, minute, second) = time.to_hms();
        format!(
            "{GENERATED}{year:04}{:02}{day:02}T{hour:02}{minute:02}{second:02}.{:03}Z-{count:08}\
             -{:016x}",
            u8::from(month),
            now_ms % 1_000,
            self.start,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_say_when_and_sort_so() {
        let names = NameGenerator::new(0xab);
        let said = [
            (0, "gupload/19700101T000000.000Z-00000000-00000000000000ab"),
            (
                951_782_400_001,
                "gupload/20000229T000000.001Z-00000001-00000000000000ab",
            ),
            (
                1_795_291_152_345,
                "gupload/20261121T195912.345Z-00000002-00000000000000ab",
            ),
            (
                1_795_291_152_345,
                "gupload/20261121T195912.345Z-00000003-00000000000000ab",
            ),
            (
                1_798_761_599_999,
                "gupload/20261231T235959.999Z-00000004-00000000000000ab",
            ),
        ];
        for (now_ms, name) in said {
            assert_eq!(names.next(now_ms), name);
        }
        assert!(said.is_sorted_by_key(|(_, name)| name));
        // No clock makes it fail, or give a name twice.
        assert_ne!(names.next(u64::MAX), names.next(u64::MAX));
        assert_ne!(
            NameGenerator::new(1).next(5),
            NameGenerator::new(2).next(5),
            "another start"
        );
        assert!(store::blob::check_name(&names.next(u64::MAX)).is_ok());
    }
}
