//! The name of a replica, by which its leader knows it whatever its connections.

use std::io;
use std::path::Path;

use store::durable::REPLICA_ID_NAME;
use store::{REPLICA_ID_BYTES, ReplicaId};
use wal::disk::{Disk, RealDisk, read_at_most, write_whole};

use crate::randomness::random;

/// Its name while it is written.
const NEW_NAME: &str = "pelton-replica-id.new";

/// Returns the id that is kept in the data folder of a replica; draws one where there is none.
///
/// # Errors
/// If it cannot be read or written, or makes no sense.
pub fn replica_id(folder: &Path) -> io::Result<ReplicaId> {
    let disk = RealDisk::open(folder)?;
    let Some(bytes) = read_at_most(&disk, REPLICA_ID_NAME, 2 * REPLICA_ID_BYTES + 2)? else {
        let id = draw();
        write_whole(&disk, NEW_NAME, REPLICA_ID_NAME, text(&id).as_bytes())?;
        return Ok(id);
    };
    parse(&bytes).ok_or_else(|| {
        let file = disk.describe(REPLICA_ID_NAME);
        io::Error::other(format!("{file} is damaged: remove it, and start again"))
    })
}

fn draw() -> ReplicaId {
    let number = (u128::from(random()) << 64) | u128::from(random());
    number.to_be_bytes()
}

fn text(id: &ReplicaId) -> String {
    format!("{:032x}\n", u128::from_be_bytes(*id))
}

fn parse(bytes: &[u8]) -> Option<ReplicaId> {
    let line = std::str::from_utf8(bytes).ok()?;
    let id = u128::from_str_radix(line.strip_suffix('\n')?, 16).ok()?;
    let id = id.to_be_bytes();
    (text(&id) == line).then_some(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_drawn_once_for_a_folder() {
        let name = format!("pelton-replica-id-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&folder).expect("a writable folder");
        let first = replica_id(&folder).expect("it is drawn");
        assert_eq!(replica_id(&folder).expect("it is there"), first);
        assert_ne!(draw(), first);
        let file = folder.join(REPLICA_ID_NAME);
        for damaged in ["", "x\n", "00\n", "+0112233445566778899aabbccddeeff\n"] {
            std::fs::write(&file, damaged).expect("it is there");
            assert!(replica_id(&folder).is_err(), "{damaged:?}");
        }
        std::fs::remove_dir_all(&folder).expect("it is there");
    }
}
