//! The file that says that a data folder is that of a replica, and what is to be done with it.

use std::io;

use store::durable::REPLICA_MARK_NAME;
use wal::disk::{Disk, write_whole};

/// Its name while it is written.
const NEW_NAME: &str = "pelton-replica.new";

const HEADING: &str = "pelton-replica\nformat 1\n";

/// Bytes of the file that are read: more than any of them has.
const BYTES_MAX: usize = 200;

/// What is to be done with the folder of a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplicaMark {
    /// Nothing: it has a copy, and follows behind it.
    Following,
    /// It gets a copy, of which some may be there.
    Copying,
    /// What is in it is removed, and it gets a copy.
    Renew,
    /// What is in it is set aside, as it belongs to another history, and it gets a copy.
    RenewAside,
}

impl ReplicaMark {
    const ALL: [ReplicaMark; 4] = [
        ReplicaMark::Following,
        ReplicaMark::Copying,
        ReplicaMark::Renew,
        ReplicaMark::RenewAside,
    ];

    fn text(self) -> String {
        let word = match self {
            ReplicaMark::Following => "following",
            ReplicaMark::Copying => "copying",
            ReplicaMark::Renew => "renew",
            ReplicaMark::RenewAside => "renew-aside",
        };
        format!("{HEADING}state {word}\n")
    }

    /// Reads that of a folder; `None`: it is no folder of a replica.
    pub fn read(disk: &dyn Disk) -> io::Result<Option<ReplicaMark>> {
        let file = match disk.open(REPLICA_MARK_NAME) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let mut bytes = vec![0; BYTES_MAX];
        let count = file.read_up_to(&mut bytes, 0)?;
        bytes.truncate(count);
        let found = ReplicaMark::ALL
            .into_iter()
            .find(|mark| mark.text().as_bytes() == bytes);
        let other = || {
            let file = disk.describe(REPLICA_MARK_NAME);
            io::Error::other(format!(
                "{file} is damaged, or of another version of pelton"
            ))
        };
        found.map(Some).ok_or_else(other)
    }

    /// Writes it, and returns when it is on the device.
    pub fn write(self, disk: &dyn Disk) -> io::Result<()> {
        write_whole(disk, NEW_NAME, REPLICA_MARK_NAME, self.text().as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_read_as_it_was_written_and_nothing_else_is_one() {
        let name = format!("pelton-mark-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        let disk = wal::disk::RealDisk::open_or_create(&folder).expect("a writable folder");
        assert_eq!(ReplicaMark::read(&disk).expect("it can be read"), None);
        for mark in ReplicaMark::ALL.into_iter().chain(ReplicaMark::ALL) {
            mark.write(&disk).expect("there is room");
            let read = ReplicaMark::read(&disk).expect("it can be read");
            assert_eq!(read, Some(mark));
        }
        let file = disk.open(REPLICA_MARK_NAME).expect("it is there");
        file.write_all_at(b"x", 3).expect("there is room");
        assert!(ReplicaMark::read(&disk).is_err());
        std::fs::remove_dir_all(&folder).expect("it is there");
    }
}
