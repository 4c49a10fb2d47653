//! Random groups of random sizes come back as they were, whatever the segments.

mod common;

use common::{Owned, config, open_with};
use testkit::{OnFailure, Random};
use wal::{GroupBuffer, LogConfig};

/// CommitLoop, unless the environment variable `PELTON_ROUNDS` says otherwise.
const ROUNDS: u64 = 150;

#[test]
fn what_is_written_is_read() {
    let variable = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let first = variable("PELTON_SEED").unwrap_or(1);
    for seed in first..first + variable("PELTON_ROUNDS").unwrap_or(ROUNDS) {
        let _on_failure = OnFailure(format!("PELTON_SEED={seed} PELTON_ROUNDS=1"));
        round(seed);
    }
}

fn round(seed: u64) {
    let mut random = Random::new(seed);
    let disk = testkit::simulated_disk(seed);
    let segment_bytes = random.pick(&[8_192, 8_193, 20_000, 65_536]);
    let largest_value = random.pick(&[0, 100, 5_000, 70_000]);
    let config = LogConfig {
        segment_bytes,
        ..config(1)
    };
    let mut written: Vec<Owned> = Vec::new();
    for _ in 0..3 {
        let (mut log, mut stock, recovered, records) =
            open_with(&disk, &config).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(records, written);
        let mut sequence = recovered.next_sequence;
        if let Some(wanted) = log.wanted_segment() {
            log.take_segment(stock.prepare(wanted).expect("there is room"));
        }
        // Two take turns, as when one is written while the other is filled.
        let mut buffers = [GroupBuffer::new(), GroupBuffer::new()];
        for turn in 0..random.below(40) {
            let group = &mut buffers[turn % 2];
            for _ in 0..1 + random.below(6) {
                let record = Owned::random(&mut random, sequence, largest_value);
                group.push(&record.record());
                written.push(record);
                sequence += random.below(2) as u64;
            }
            sequence += 1;
            let position = log.write_group(group, 1).expect("there is room");
            assert!(group.is_empty());
            assert!(log.durable() < position);
            if let Some(wanted) = log.wanted_segment() {
                log.take_segment(stock.prepare(wanted).expect("there is room"));
            }
            if random.once_in(3) {
                assert_eq!(log.sync().expect("the disk is whole"), position);
            }
        }
        match random.below(3) {
            0 => log.close(sequence, 1).expect("there is room"),
            1 => {
                log.sync().expect("the disk is whole");
                disk.lose_power();
            }
            _ => disk.kill(),
        }
    }
    let mut read = Vec::new();
    let mut visit = |_, group: &wal::LogGroup<'_>| {
        let records = group.records().map(|record| record.expect("it is whole"));
        read.extend(records.map(|record| Owned::of(&record)));
        Ok(())
    };
    let report = wal::verify(&disk, &mut visit).expect("it can be read");
    read.retain(|record| record.kind != wal::RawRecord::MARK);
    assert_eq!(read, written);
    assert_eq!(report.records, written.len() as u64 + 3, "and three marks");
}
