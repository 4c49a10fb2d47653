//! Crashes and damage: copies of a tree's folder as they can lie on the device.

use testkit::{Files, read_folder, write_folder};

use super::*;

/// States of the device in the midst of a change of the set of tables. Before `current` is
/// replaced, everything new may be there, in part or whole; afterwards everything old may still be
/// there.
fn between(random: &mut Random, before: &Files, after: &Files) -> Vec<Files> {
    let is_current = |name: &Path| name.file_name().is_some_and(|name| name == "current");
    let mut states = vec![before.clone(), after.clone()];
    for _ in 0..3 {
        let mut state = before.clone();
        for (name, bytes) in after.iter().filter(|(name, _)| !is_current(name)) {
            if !before.contains_key(name) && !random.once_in(3) {
                let whole = random.once_in(2);
                let len = if whole {
                    bytes.len()
                } else {
                    random.below(bytes.len() + 1)
                };
                state.insert(name.clone(), bytes[..len].to_vec());
            }
        }
        if random.once_in(2) {
            let name = after
                .keys()
                .find(|name| is_current(name))
                .expect("each tree has one");
            state.insert(name.with_file_name(".tmpAbc123"), vec![1; random.below(40)]);
        }
        states.push(state);
        let mut state = after.clone();
        for (name, bytes) in before.iter().filter(|(name, _)| !is_current(name)) {
            if !random.once_in(3) {
                state.entry(name.clone()).or_insert_with(|| bytes.clone());
            }
        }
        states.push(state);
    }
    states
}

/// A start from such a state, with a log that may end at any commit from there on, is what the log
/// says; and what is written afterwards stays too.
fn check_start(random: &mut Random, files: &Files, log: &[Logged], least: u64) {
    let folder = TempFolder::new("crash");
    write_folder(&folder.0, files);
    let durable: Vec<_> = (0..=log.len())
        .filter(|&end| end == log.len() || log[end].sequence > least)
        .collect();
    let mut log = log[..random.pick(&durable)].to_vec();
    for _ in 0..2 {
        let mut writer = open(&folder.0);
        assert!(
            log.last()
                .is_none_or(|last| writer.index().persisted_sequence() <= last.sequence)
        );
        replay(&mut writer, &log);
        assert_eq!(all_of(&writer.index().view()), content(&log));
        let last = log
            .last()
            .map_or(GENERATION.sequence, |commit| commit.sequence);
        let commit = random_commit(random, last);
        apply(&mut writer, &commit);
        log.push(commit);
        assert_eq!(all_of(&writer.index().view()), content(&log));
        if random.once_in(2) {
            writer.seal(u64::MAX);
            writer.index().flush().expect("there is room");
            while writer.index().compact().expect("there is room") {}
            assert_eq!(all_of(&writer.index().view()), content(&log));
        }
    }
}

/// Power is lost at each flush and compaction and in the midst of it; the log is any later one. 100
/// rounds and more, each of which writes after the start.
#[test]
fn power_loss_leaves_what_the_log_says() {
    let mut rounds = 0;
    for seed in 0..2 {
        println!("seed {seed}");
        let mut random = Random::new(seed);
        let folder = TempFolder::new("power");
        let trees = Trees::open(&folder.0, small()).expect("the folder is new");
        let mut writer = trees.create(GENERATION).expect("there is room");
        let mut log: Vec<Logged> = Vec::new();
        for _ in 0..4 {
            let mut states = Vec::new();
            for _ in 0..1 + random.below(25) {
                let last = log
                    .last()
                    .map_or(GENERATION.sequence, |commit| commit.sequence);
                let commit = random_commit(&mut random, last);
                apply(&mut writer, &commit);
                log.push(commit);
            }
            // The log is durable through what is sealed: that is the least that a start finds.
            let least = log[log.len() - 1].sequence;
            let before = read_folder(&folder.0);
            writer.seal(least);
            writer.index().flush().expect("there is room");
            let flushed = read_folder(&folder.0);
            states.extend(between(&mut random, &before, &flushed));
            while writer.index().compact().expect("there is room") {}
            let compacted = read_folder(&folder.0);
            // One step each, as far as the device is concerned: what came between is among what is
            // left over.
            states.extend(between(&mut random, &flushed, &compacted));
            for _ in 0..3 {
                let commit = random_commit(&mut random, log[log.len() - 1].sequence);
                apply(&mut writer, &commit);
                log.push(commit);
            }
            for state in &states {
                check_start(&mut random, state, &log, least);
                rounds += 1;
            }
        }
    }
    assert!(rounds >= 100, "{rounds}");
}

/// A changed or cut file is told as what it is, or does not matter: no other value is read.
#[test]
fn damage_is_told() {
    let mut random = Random::new(9);
    let folder = TempFolder::new("damage");
    let trees = Trees::open(&folder.0, small()).expect("the folder is new");
    let mut writer = trees.create(GENERATION).expect("there is room");
    let mut log = Vec::new();
    for round in 0..60 {
        let commit = random_commit(&mut random, 5 + 4 * round);
        apply(&mut writer, &commit);
        log.push(commit);
    }
    writer.seal(u64::MAX);
    writer.index().flush().expect("there is room");
    drop(writer);
    let whole = read_folder(&folder.0);
    let expected = content(&log);
    // What else is known of the tables is of no use for reading them.
    let names = whole
        .keys()
        .filter(|name| !format!("{name:?}").contains("known-tables"));
    let names: Vec<_> = names.cloned().collect();
    let mut told = 0;
    for round in 0..300 {
        let mut files = whole.clone();
        let name = random.pick(&names);
        let bytes = files.get_mut(&name).expect("it was listed");
        if bytes.is_empty() {
            continue;
        }
        let place = random.below(bytes.len());
        if random.once_in(4) {
            bytes.truncate(place);
        } else {
            bytes[place] ^= 1 << random.below(8);
        }
        let damaged = TempFolder::new("damaged");
        write_folder(&damaged.0, &files);
        let outcome = std::panic::catch_unwind(|| read_all(&damaged.0, &expected));
        match outcome {
            Ok(is_told) => told += usize::from(is_told),
            Err(_) => panic!("round {round}: byte {place} of {name:?}"),
        }
    }
    assert!(told > 200, "{told}");
}

/// Reads a tree that may be damaged: whether it says so.
fn read_all(folder: &Path, expected: &Content) -> bool {
    let trees = Trees::open(folder, small()).expect("it is a folder");
    let Ok(writer) = trees.open_generation(GENERATION) else {
        return true;
    };
    let view = writer.index().view();
    let mut is_told = false;
    for (key, value) in expected {
        match view.find(key) {
            Ok(Some(entry)) => {
                assert_eq!((&entry.value.to_vec(), entry.version), (&value.0, value.1));
            }
            Ok(None) => panic!("an entry is gone without a word"),
            Err(_) => is_told = true,
        }
    }
    let mut found = Content::new();
    let end = view.scan(&Range::ALL, Direction::Forward, 0, u32::MAX, &mut |entry| {
        let rest = (entry.value.to_vec(), entry.version, entry.expires_ms);
        found.insert(entry.key.to_vec(), rest);
        ControlFlow::Continue(())
    });
    assert!(end.is_err() || found == *expected);
    is_told || end.is_err()
}
