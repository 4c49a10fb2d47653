//! The device of the data folder: its file system, its room, and how long a sync takes.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{fdatasync, statfs, statvfs};
use serde_json::Value;

use super::fact::MachineFact;
use super::folder::{DataPlace, advice_of_write};
use crate::limits::{
    CHECK_DEVICE_WAIT_MS, CHECK_LONGEST_SYNC_US, CHECK_ROOM_BYTES, CHECK_SLOW_SYNC_US, CHECK_SYNCS,
    CHECK_SYNCS_MS, CHECK_WRITE_BYTES,
};
use crate::size::Size;

/// How often it is looked, while a device is measured, whether the user has had enough.
const LOOK: Duration = Duration::from_millis(20);

/// Returns whether the user has had enough.
pub trait IsStopped: Fn() -> bool + Clone + Send + 'static {}

impl<F: Fn() -> bool + Clone + Send + 'static> IsStopped for F {}

/// Returns what there is to say of the device of a data folder.
pub(super) fn facts(
    data: &Path,
    place: &DataPlace,
    is_stopped: &impl IsStopped,
) -> [MachineFact; 3] {
    if let DataPlace::Closed(_) = place {
        return closed();
    }
    let (folder, is_there) = match place {
        DataPlace::Parent(parent) => (parent.as_path(), false),
        _ => (data, true),
    };
    let shown = match is_there {
        true => folder.display().to_string(),
        false => format!("{}, as there is no {}", folder.display(), data.display()),
    };
    let magic = statfs(folder).ok().map(|found| found.f_type as u64);
    let room = statvfs(folder).ok();
    let room = room.map(|found| found.f_bavail.saturating_mul(found.f_frsize));
    let segments = wal::limits::SEGMENT_BYTES.saturating_mul(2);
    [
        file_system(magic, &shown),
        // A folder that is there may have its log already.
        free_room(room, if is_there { 0 } else { segments }),
        sync_times(measure_in_time(folder, is_stopped)),
    ]
}

/// What is known of a device that this user does not get at.
fn closed() -> [MachineFact; 3] {
    ["file system", "free room", "sync"].map(|name| {
        MachineFact::ok(name, "not looked at")
            .note("this user does not get there: see `data folder`")
    })
}

/// Returns the kind of a file system, by the number that statfs(2) gives it.
fn file_system(magic: Option<u64>, shown: &str) -> MachineFact {
    const NAME: &str = "file system";
    let Some(magic) = magic else {
        return MachineFact::ok(NAME, format!("none at {shown}"))
            .problem("the folder cannot be read; --data names another one, or make it");
    };
    // The upper half is the sign on machines where the type of the field has one.
    let magic = magic & 0xffff_ffff;
    let network = "locks and syncs are those of another machine, and may promise less than a \
                   device here; prefer a local file system";
    let memory = "what is there is lost when the machine stops; keep data on a device";
    let (name, advice) = match magic {
        0xef53 => ("ext4", ""),
        0x5846_5342 => ("xfs", ""),
        0x9123_683e => ("btrfs", ""),
        0x2fc1_2fc1 => ("zfs", ""),
        0xf2f5_2010 => ("f2fs", ""),
        0xca45_1a4e => ("bcachefs", ""),
        0x0102_1994 => ("tmpfs", memory),
        0x8584_58f6 => ("ramfs", memory),
        0x794c_7630 => (
            "overlay",
            "what is there is lost with the container; mount a volume for the data",
        ),
        0x6969 => ("nfs", network),
        0xff53_4d42 | 0xfe53_4d42 | 0x517b => ("smb", network),
        0x0102_1997 => ("9p", network),
        0x00c3_6400 => ("ceph", network),
        0x6573_5546 => (
            "fuse",
            "what a sync promises depends on the program behind it; prefer a file system of the \
             kernel",
        ),
        _ => ("", ""),
    };
    let value = match name {
        "" => format!("number {magic:#x}, at {shown}"),
        name => format!("{name}, at {shown}"),
    };
    match advice {
        "" => MachineFact::ok(NAME, value),
        advice => MachineFact::ok(NAME, value).note(advice),
    }
}

/// Returns how much room there is for new data, of which a server needs so much at its start.
fn free_room(bytes: Option<u64>, needed: u64) -> MachineFact {
    const NAME: &str = "free room";
    let Some(bytes) = bytes else {
        return MachineFact::unknown(NAME);
    };
    let fact =
        MachineFact::ok(NAME, Size::rounded(bytes)).with_numbers([("free_bytes", bytes.into())]);
    if bytes < needed {
        return fact.problem(format!(
            "a new data folder takes {} at once; make room, or give a smaller --log-segment",
            Size::rounded(needed)
        ));
    }
    match bytes < CHECK_ROOM_BYTES {
        true => fact.note("about three times of what is in memory is needed; make room"),
        false => fact,
    }
}

/// Why a device was not measured.
#[derive(Debug, thiserror::Error)]
enum MeasureError {
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("it did not come back within {} s", CHECK_DEVICE_WAIT_MS / 1_000)]
    Late,
    #[error("the user has ended it")]
    Stopped,
}

/// Returns how long a device takes for a sync.
fn sync_times(measured: Result<Vec<Duration>, MeasureError>) -> MachineFact {
    const NAME: &str = "sync";
    let mut times = match measured {
        Ok(times) => times,
        Err(MeasureError::Io(error)) => {
            return MachineFact::ok(NAME, format!("not measured: {error}"))
                .problem(advice_of_write(&error));
        }
        Err(error @ MeasureError::Late) => {
            return MachineFact::ok(NAME, format!("not measured: {error}"))
                .problem("the device hangs; look at `dmesg`, and remove `.pelton-self-check-…`");
        }
        Err(error) => return MachineFact::ok(NAME, format!("not measured: {error}")).note(""),
    };
    times.sort_unstable();
    let (Some(median), Some(longest)) = (times.get(times.len() / 2), times.last()) else {
        return MachineFact::unknown(NAME);
    };
    let value = format!(
        "median {median:.1?}, longest {longest:.1?}, of {}",
        times.len()
    );
    let fact = MachineFact::ok(NAME, value).with_numbers([
        ("median_us", us(*median)),
        ("longest_us", us(*longest)),
        ("syncs", times.len().into()),
    ]);
    if median.as_micros() >= u128::from(CHECK_SLOW_SYNC_US) {
        return fact.note(
            "each synced write with one in flight waits as long; a quicker device, many in \
             flight, or a looser --durability",
        );
    }
    if longest.as_micros() >= u128::from(CHECK_LONGEST_SYNC_US) {
        return fact.note("the device pauses: others may use it, or its share is used up");
    }
    fact
}

fn us(time: Duration) -> Value {
    (time.as_nanos() as f64 / 1_000.0).into()
}

/// Measures on another thread: a device that hangs cannot be interrupted.
fn measure_in_time(
    folder: &Path,
    is_stopped: &impl IsStopped,
) -> Result<Vec<Duration>, MeasureError> {
    let (sender, receiver) = mpsc::channel();
    let (folder, stopped) = (folder.to_owned(), is_stopped.clone());
    thread::Builder::new()
        .name("pelton-check".into())
        .spawn(move || {
            // Whoever does not wait any more does not need it.
            let _ = sender.send(measure(&folder, &stopped));
        })?;
    let begin = Instant::now();
    loop {
        match receiver.recv_timeout(LOOK) {
            Ok(measured) => return Ok(measured?),
            Err(RecvTimeoutError::Disconnected) => return Err(MeasureError::Late),
            Err(RecvTimeoutError::Timeout) => {}
        }
        if begin.elapsed() >= Duration::from_millis(CHECK_DEVICE_WAIT_MS) {
            return Err(match is_stopped() {
                true => MeasureError::Stopped,
                false => MeasureError::Late,
            });
        }
    }
}

/// A file that is removed when it is not needed any more.
struct RemovedFile {
    path: PathBuf,
    file: File,
}

impl RemovedFile {
    fn create(folder: &Path) -> io::Result<RemovedFile> {
        let path = folder.join(format!(".pelton-self-check-{}", std::process::id()));
        let mut options = OpenOptions::new();
        let file = options.write(true).create_new(true).open(&path)?;
        Ok(RemovedFile { path, file })
    }
}

impl Drop for RemovedFile {
    fn drop(&mut self) {
        // Where it cannot be removed it could hardly have been made.
        let _ = fs::remove_file(&self.path);
    }
}

/// Writes into a file whose blocks are there, as the log does, and syncs each write.
fn measure(folder: &Path, is_stopped: &impl IsStopped) -> io::Result<Vec<Duration>> {
    let mut probe = RemovedFile::create(folder)?;
    let block = [0xa5; CHECK_WRITE_BYTES];
    for _ in 0..CHECK_SYNCS {
        probe.file.write_all(&block)?;
    }
    probe.file.sync_all()?;
    io::Seek::rewind(&mut probe.file)?;
    let begin = Instant::now();
    let mut times = Vec::with_capacity(CHECK_SYNCS);
    while times.len() < CHECK_SYNCS {
        let is_over = begin.elapsed() >= Duration::from_millis(CHECK_SYNCS_MS);
        if is_stopped() || is_over && !times.is_empty() {
            break;
        }
        let written = Instant::now();
        probe.file.write_all(&block)?;
        fdatasync(&probe.file)?;
        times.push(written.elapsed());
    }
    Ok(times)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::self_check::Judgement;

    fn folder(name: &str) -> PathBuf {
        let name = format!("pelton-check-device-{name}-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        fs::create_dir_all(&folder).expect("folder is made");
        folder
    }

    #[test]
    fn a_measured_folder_is_empty_again() {
        let folder = folder("empty");
        for _ in 0..2 {
            let times = measure(&folder, &|| false).expect("it can be written");
            assert!((1..=CHECK_SYNCS).contains(&times.len()));
            assert_eq!(fs::read_dir(&folder).expect("it is there").count(), 0);
        }
        let times = measure(&folder, &|| true).expect("it can be written");
        assert!(times.is_empty());
        assert_eq!(fs::read_dir(&folder).expect("it is there").count(), 0);
    }

    #[test]
    fn a_folder_that_is_not_there_is_measured_in_its_parent() {
        let parent = folder("parent");
        let missing = parent.join("data");
        let facts = |data: &Path| super::facts(data, &DataPlace::find(data), &|| false);
        let [file_system, _, sync] = facts(&missing);
        assert!(
            file_system.value.contains("as there is no"),
            "{file_system:?}"
        );
        assert!(sync.value.starts_with("median "), "{sync:?}");
        assert!(!missing.exists());
        let [file_system, room, sync] = facts(&missing.join("deeper"));
        assert_eq!(file_system.judgement, Judgement::Problem);
        assert_eq!(room.value, "unknown");
        assert_eq!(sync.judgement, Judgement::Problem);
        let here = DataPlace::find(Path::new("data-that-is-not-there"));
        assert!(matches!(here, DataPlace::Parent(parent) if parent == Path::new(".")));
    }

    #[test]
    fn what_is_in_the_way_of_a_write_is_said() {
        for (kind, words) in [
            (io::ErrorKind::PermissionDenied, "`data folder`"),
            (io::ErrorKind::ReadOnlyFilesystem, "ReadWritePaths="),
            (io::ErrorKind::StorageFull, "make room"),
            (io::ErrorKind::FileTooLarge, "LimitFSIZE="),
            (io::ErrorKind::Other, "--data"),
        ] {
            let fact = sync_times(Err(io::Error::from(kind).into()));
            assert_eq!(fact.judgement, Judgement::Problem);
            assert!(fact.advice.contains(words), "{kind}: {fact:?}");
        }
        for fact in closed() {
            assert_eq!(fact.judgement, Judgement::Note);
        }
    }

    #[test]
    fn file_systems_are_named_and_judged() {
        let of = |magic| {
            let fact = file_system(Some(magic), "x");
            (fact.value, fact.judgement)
        };
        assert_eq!(of(0xef53), ("ext4, at x".into(), Judgement::Ok));
        assert_eq!(of(0x0102_1994), ("tmpfs, at x".into(), Judgement::Note));
        assert_eq!(of(0x794c_7630), ("overlay, at x".into(), Judgement::Note));
        assert_eq!(of(0x6969), ("nfs, at x".into(), Judgement::Note));
        // As a field with a sign has it.
        assert_eq!(
            of(0xffff_ffff_9123_683e),
            ("btrfs, at x".into(), Judgement::Ok)
        );
        assert_eq!(of(0x1234), ("number 0x1234, at x".into(), Judgement::Ok));
    }

    #[test]
    fn room_for_the_first_files_of_the_log_is_needed() {
        let judged = |bytes| free_room(Some(bytes), 128 << 20).judgement;
        assert_eq!(judged(CHECK_ROOM_BYTES), Judgement::Ok);
        assert_eq!(judged(CHECK_ROOM_BYTES - 1), Judgement::Note);
        assert_eq!(judged((128 << 20) - 1), Judgement::Problem);
        assert_eq!(free_room(Some(0), 0).judgement, Judgement::Note);
        assert_eq!(free_room(None, 1).value, "unknown");
    }

    #[test]
    fn median_and_longest_of_the_syncs_are_judged() {
        let of = |us: &[u64]| {
            let times = us.iter().copied().map(Duration::from_micros).collect();
            sync_times(Ok(times))
        };
        let fact = of(&[300, 100, 200]);
        assert_eq!(fact.value, "median 200.0µs, longest 300.0µs, of 3");
        assert_eq!(fact.judgement, Judgement::Ok);
        let slow = of(&[1, CHECK_SLOW_SYNC_US, CHECK_SLOW_SYNC_US]);
        assert_eq!(slow.judgement, Judgement::Note);
        let pauses = of(&[1, 1, CHECK_LONGEST_SYNC_US]);
        assert!(pauses.advice.contains("pauses"), "{pauses:?}");
        assert_eq!(of(&[]).value, "unknown");
        let late = sync_times(Err(MeasureError::Late));
        assert_eq!(late.judgement, Judgement::Problem);
        let us = fact
            .numbers
            .iter()
            .map(|(name, value)| (*name, value.as_f64()));
        let expected = [
            ("median_us", Some(200.0)),
            ("longest_us", Some(300.0)),
            ("syncs", Some(3.0)),
        ];
        assert!(us.eq(expected), "{fact:?}");
    }
}
