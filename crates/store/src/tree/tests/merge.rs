//! The order of a merge, and what it reads for it.

use std::cell::Cell;

use lsm_tree::{InternalValue, Slice, ValueType};
use testkit::Random;

use crate::range::Direction;
use crate::tree::merge::{Ahead, EntrySource, Merge};

/// A key and a number.
type Version = (u8, u64);

fn entry((key, number): Version) -> Ahead {
    let (key, value) = (Slice::from([key]), Slice::from([]));
    let entry = InternalValue::from_components(key, value, number, ValueType::Value);
    Ahead::Entry(entry)
}

fn not_before(key: u8) -> Ahead {
    Ahead::NotBefore(Slice::from([key]))
}

/// Counts the entries that are read of some.
fn counted(ahead: Vec<Ahead>, count: &Cell<u32>) -> EntrySource<'_> {
    Box::new(ahead.into_iter().map(|ahead| {
        if matches!(ahead, Ahead::Entry(_)) {
            count.set(count.get() + 1);
        }
        Ok(ahead)
    }))
}

fn version(entry: lsm_tree::Result<InternalValue>) -> Version {
    let entry = entry.expect("no source fails");
    (entry.key.user_key[0], entry.key.seqno)
}

#[test]
fn a_source_is_read_when_its_next_entry_may_be_the_next_of_all() {
    for direction in [Direction::Forward, Direction::Backward] {
        // Keys in the order of the walk.
        let key = |place: u8| match direction {
            Direction::Forward => place,
            Direction::Backward => 100 - place,
        };
        let counts = [Cell::new(0), Cell::new(0)];
        let first = [1, 2, 5].map(|place| entry((key(place), 7)));
        let second = [
            not_before(key(2)),
            entry((key(3), 7)),
            not_before(key(4)),
            entry((key(6), 7)),
        ];
        let sources = vec![
            counted(first.into(), &counts[0]),
            counted(second.into(), &counts[1]),
        ];
        let mut merge = Merge::new(sources, direction);
        let mut read = Vec::new();
        let mut note = || read.push((counts[0].get(), counts[1].get()));
        note();
        for place in [1, 2, 3, 5, 6] {
            assert_eq!(merge.next().map(version), Some((key(place), 7)));
            note();
        }
        assert!(merge.next().is_none() && merge.next().is_none());
        let expected = [(0, 0), (1, 0), (2, 1), (3, 1), (3, 2), (3, 2)];
        assert_eq!(read, expected, "{direction:?}");
    }
}

#[test]
fn a_merge_has_all_versions_in_the_order_of_the_walk() {
    for seed in 0..200 {
        let mut random = Random::new(seed);
        let direction = random.pick(&[Direction::Forward, Direction::Backward]);
        let mut sources: Vec<Vec<Version>> = vec![Vec::new(); 1 + random.below(5)];
        let mut all = Vec::new();
        for number in 0..random.below(60) as u64 {
            let version = (random.below(8) as u8, number);
            let place = random.below(sources.len());
            sources[place].push(version);
            all.push(version);
        }
        let sort = |versions: &mut Vec<Version>| {
            versions.sort_by_key(|&(key, number)| (key, u64::MAX - number));
            if direction == Direction::Backward {
                versions.reverse();
            }
        };
        sort(&mut all);
        let sources = sources.into_iter().map(|mut source| {
            sort(&mut source);
            let mut ahead = Vec::new();
            for version in source {
                if random.once_in(3) {
                    ahead.push(not_before(version.0));
                }
                ahead.push(entry(version));
            }
            let ahead = ahead.into_iter().map(Ok);
            Box::new(ahead) as EntrySource<'_>
        });
        let merge = Merge::new(sources.collect(), direction);
        let merged: Vec<_> = merge.map(version).collect();
        assert_eq!(merged, all, "seed {seed}");
    }
}
