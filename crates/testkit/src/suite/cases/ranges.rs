//! Scans and counts.

use std::ops::{Bound, ControlFlow};

use store::{CountSlice, DatabaseId, Direction, Range, ScanEnd};

use super::Case;
use crate::suite::{Bench, Make};

pub(super) const CASES: &[Case] = &[
    (
        "scans go both ways and resume",
        scans_go_both_ways_and_resume,
    ),
    ("counts are exact and resume", counts_are_exact_and_resume),
];

fn scans_go_both_ways_and_resume(make: Make<'_>) {
    let mut bench = Bench::new(make);
    for key in [&b""[..], b"a", b"a\0", b"b", b"ba", b"c", b"\xff"] {
        bench.put(key, key);
    }
    let view = bench.view(DatabaseId::DEFAULT);
    let scan = |range: Range<'_>, direction| {
        let mut keys = Vec::new();
        let end = view.scan(&range, direction, 1, u32::MAX, &mut |entry| {
            assert_eq!(entry.key, entry.value.bytes());
            keys.push(entry.key);
            ControlFlow::Continue(())
        });
        assert_eq!(end, ScanEnd::Complete);
        keys
    };
    use Direction::{Backward, Forward};
    let all: Vec<&[u8]> = vec![b"", b"a", b"a\0", b"b", b"ba", b"c", b"\xff"];
    assert_eq!(scan(Range::ALL, Forward), all);
    assert_eq!(
        scan(Range::ALL, Backward),
        all.iter().rev().copied().collect::<Vec<_>>()
    );
    assert_eq!(
        scan(Range::new(b"a", Some(b"b")), Forward),
        [&b"a"[..], b"a\0"]
    );
    assert_eq!(
        scan(Range::new(b"a", Some(b"b")), Backward),
        [&b"a\0"[..], b"a"]
    );
    assert_eq!(
        scan(Range::prefix(b"b", &mut Vec::new()), Forward),
        [&b"b"[..], b"ba"]
    );
    assert_eq!(
        scan(Range::prefix(b"\xff", &mut Vec::new()), Backward),
        [b"\xff"]
    );
    assert_eq!(scan(Range::new(b"b", Some(b"a")), Forward), [b""; 0]);
    let beyond = Range::new(b"", Some(b"c")).beyond(b"a\0", Forward);
    assert_eq!(scan(beyond, Forward), [&b"b"[..], b"ba"]);
    let before = Range::new(b"a", Some(b"c")).beyond(b"b", Backward);
    assert_eq!(scan(before, Backward), [&b"a\0"[..], b"a"]);
    let from_hole = Range {
        start: Bound::Excluded(b"aa"),
        end: Bound::Included(b"ba"),
    };
    assert_eq!(scan(from_hole, Forward), [&b"b"[..], b"ba"]);

    let mut visited = 0;
    let stop_at_two = &mut |_: &store::Entry<'_>| {
        visited += 1;
        if visited == 2 {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    };
    assert_eq!(
        view.scan(&Range::ALL, Forward, 1, 100, stop_at_two),
        ScanEnd::Stopped
    );
    let go_on = &mut |_: &store::Entry<'_>| ControlFlow::Continue(());
    assert_eq!(
        view.scan(&Range::ALL, Forward, 1, 2, go_on),
        ScanEnd::BudgetSpent(b"a")
    );
    assert_eq!(
        view.scan(&Range::ALL, Backward, 1, 0, go_on),
        ScanEnd::BudgetSpent(b"\xff")
    );
    assert_eq!(
        view.scan(&Range::ALL, Forward, 1, 7, go_on),
        ScanEnd::Complete
    );
}

fn counts_are_exact_and_resume(make: Make<'_>) {
    let mut bench = Bench::new(make);
    for number in 0..100u8 {
        bench.put(&[number], b"");
    }
    let view = bench.view(DatabaseId::DEFAULT);
    assert_eq!(
        view.count(&Range::ALL, 1, 1),
        CountSlice {
            count: 100,
            passed: None
        }
    );
    let range = Range::new(&[10], Some(&[50]));
    assert_eq!(
        view.count(&range, 1, 40),
        CountSlice {
            count: 40,
            passed: None
        }
    );
    assert_eq!(
        view.count(&range, 1, 15),
        CountSlice {
            count: 15,
            passed: Some(&[24])
        }
    );
    let rest = range.beyond(&[24], Direction::Forward);
    assert_eq!(
        view.count(&rest, 1, 40),
        CountSlice {
            count: 25,
            passed: None
        }
    );
    assert_eq!(view.entries(), 100);
}
