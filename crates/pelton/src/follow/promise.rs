//! The epoch that a replica has confirmed: it acknowledges nothing to a leader of an older one.

use std::io;

use store::{REPLICA_ID_BYTES, ReplicaId};
use wal::disk::{Disk, read_at_most, write_whole};

/// Its file in the data folder.
pub const PROMISE_NAME: &str = "pelton-epoch";

/// Its name while it is written: what is left of it when that was cut is in nobody's way.
pub const NEW_PROMISE_NAME: &str = "pelton-epoch.new";

const HEADING: &str = "pelton-epoch\nformat 2\n";

/// That of the format that says nothing of the history: it is that of whatever is in the folder.
const HEADING_1: &str = "pelton-epoch\nformat 1\n";

/// Bytes of the file that are read: more than any of them has.
const BYTES_MAX: usize = 600;

/// An epoch that a replica has confirmed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EpochPromise {
    /// The history of the epoch; `None`: it is not known.
    pub history_id: Option<u64>,
    /// The epoch.
    pub epoch: u64,
    /// The replica that leads in it, if any does.
    pub candidate: ReplicaId,
    /// Where clients reach that; empty: nobody has said.
    pub address: String,
}

impl EpochPromise {
    fn text(&self) -> String {
        let heading = match self.history_id {
            Some(history) => format!("{HEADING}history {history:016x}\n"),
            None => HEADING_1.to_owned(),
        };
        format!(
            "{heading}epoch {}\ncandidate {:032x}\naddress {}\n",
            self.epoch,
            u128::from_be_bytes(self.candidate),
            self.address
        )
    }

    fn parse(text: &str) -> Option<EpochPromise> {
        let (rest, has_history) = match text.strip_prefix(HEADING) {
            Some(rest) => (rest, true),
            None => (text.strip_prefix(HEADING_1)?, false),
        };
        let mut lines = rest.lines();
        let mut value = |name: &str| lines.next()?.strip_prefix(name)?.strip_prefix(' ');
        let history_id = match has_history {
            true => Some(u64::from_str_radix(value("history")?, 16).ok()?),
            false => None,
        };
        let epoch = value("epoch")?.parse().ok()?;
        let candidate = value("candidate")?;
        let candidate = u128::from_str_radix(candidate, 16).ok()?.to_be_bytes();
        let address = value("address")?.to_owned();
        let promise = EpochPromise {
            history_id,
            epoch,
            candidate,
            address,
        };
        // Not a byte more, less or other than was written.
        (promise.text() == text).then_some(promise)
    }

    /// Whether it is of a history.
    pub fn is_of(&self, history_id: u64) -> bool {
        self.history_id.is_none_or(|own| own == history_id)
    }

    /// Reads that of a folder; `None`: nothing was confirmed.
    pub fn read(disk: &dyn Disk) -> io::Result<Option<EpochPromise>> {
        let Some(bytes) = read_at_most(disk, PROMISE_NAME, BYTES_MAX)? else {
            return Ok(None);
        };
        let found = std::str::from_utf8(&bytes).ok();
        let found = found.and_then(EpochPromise::parse);
        let damaged = || {
            let file = disk.describe(PROMISE_NAME);
            io::Error::other(format!(
                "{file} is damaged, or of another version of pelton: move the whole data folder \
                 away, and start again with an empty one"
            ))
        };
        found.map(Some).ok_or_else(damaged)
    }

    /// Writes it, and returns when it is on the device.
    pub fn write(&self, disk: &dyn Disk) -> io::Result<()> {
        let text = self.text();
        write_whole(disk, NEW_PROMISE_NAME, PROMISE_NAME, text.as_bytes())
    }
}

/// Nobody.
pub const NOBODY: ReplicaId = [0; REPLICA_ID_BYTES];

#[cfg(test)]
mod tests {
    use service::limits::REPLICA_ADDRESS_BYTES_MAX;
    use wal::disk::RealDisk;

    use super::*;

    #[test]
    fn a_promise_is_read_as_it_was_written_and_nothing_else_is_one() {
        let name = format!("pelton-promise-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        let disk = RealDisk::open_or_create(&folder).expect("a writable folder");
        assert_eq!(EpochPromise::read(&disk).expect("it can be read"), None);
        let long = "x".repeat(REPLICA_ADDRESS_BYTES_MAX);
        let histories = [Some(0x12), None, Some(u64::MAX)];
        for (address, history_id) in ["", "leader:1978", &long].into_iter().zip(histories) {
            let promise = EpochPromise {
                history_id,
                epoch: u64::MAX,
                candidate: [0xab; REPLICA_ID_BYTES],
                address: address.into(),
            };
            promise.write(&disk).expect("there is room");
            let read = EpochPromise::read(&disk).expect("it can be read");
            assert_eq!(read, Some(promise.clone()));
            let text = promise.text();
            for cut in 0..text.len() {
                assert_eq!(EpochPromise::parse(&text[..cut]), None, "{cut}");
            }
            assert_eq!(promise.is_of(0x13), history_id.is_none());
            assert!(history_id.is_none_or(|history_id| promise.is_of(history_id)));
            assert_eq!(
                EpochPromise::parse(&text.replace("epoch 1", "epoch 01")),
                None
            );
        }
        let file = disk.open(PROMISE_NAME).expect("it is there");
        file.write_all_at(b"x", 3).expect("there is room");
        assert!(EpochPromise::read(&disk).is_err());
        std::fs::remove_dir_all(&folder).expect("it is there");
    }
}
