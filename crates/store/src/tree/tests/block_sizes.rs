//! What a read takes is known before it.

use std::collections::BTreeMap;

use super::{GENERATION, Logged, TempFolder, apply, flush_all};
use crate::tree::{TreeConfig, Trees};

const LARGE: usize = 1_000_000;

#[test]
fn a_read_of_a_large_value_is_known_to_be_one_before_it() {
    let folder = TempFolder::new("block-sizes");
    let config = TreeConfig {
        table_bytes: 4 << 20,
        ..TreeConfig::default()
    };
    let trees = Trees::open(&folder.0, config).expect("the folder is new");
    let mut writer = trees.create(GENERATION).expect("there is room");
    for round in 0..2 {
        let mut changes = BTreeMap::new();
        for number in 0..1_000 {
            changes.insert(
                format!("small/{number:04}").into_bytes(),
                Some((vec![1; 100], 0)),
            );
        }
        for number in 0..10 {
            changes.insert(
                format!("large/{number}").into_bytes(),
                Some((vec![2; LARGE], 0)),
            );
        }
        let sequence = GENERATION.sequence + 1 + round;
        apply(&mut writer, &Logged { sequence, changes });
        let view = writer.index().view();
        // What is in memory is there already.
        if round == 0 {
            assert_eq!(view.read_bytes(b"large/3"), 0);
        }
        flush_all(&mut writer);
        while writer.index().compact().expect("there is room") {}
        for _ in 0..2 {
            let view = writer.index().view();
            for number in 0..10 {
                let bytes = view.read_bytes(format!("large/{number}").as_bytes());
                assert!((LARGE..LARGE + 8_192).contains(&bytes), "{bytes}");
            }
            for key in ["small/0000", "small/0500", "small/0999", "none", "", "z"] {
                let bytes = view.read_bytes(key.as_bytes());
                // What lies before the first small one may be in the block of the last large one.
                assert!(
                    bytes == 0 || key < "small/0001" && bytes < LARGE + 8_192,
                    "{key} {bytes}"
                );
            }
        }
    }
}
