//! The file of `--save`.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use lab::sweep::{SavedSweep, SweepHeader, SweepRun, limits};

use crate::exit::Failure;

/// A file to which each run is appended.
#[derive(Debug)]
pub(super) struct SaveFile {
    file: File,
    path: PathBuf,
}

impl SaveFile {
    /// Appends a line.
    pub(super) fn append(&mut self, line: &str) -> Result<(), Failure> {
        let written = self.file.write_all(line.as_bytes());
        written.map_err(|error| {
            failed(&self.path, &format!("cannot be written: {error}"))
                .with("--resume goes on once that is mended")
        })
    }

    /// Leaves so many bytes.
    fn cut(&self, bytes: usize) -> Result<(), Failure> {
        let cut = self.file.set_len(bytes as u64);
        cut.map_err(|error| failed(&self.path, &format!("cannot be cut: {error}")))
    }
}

/// Begins a file, or goes on with one. Returns what is swept and the runs that were made: those of
/// the file, if it has any.
pub(super) fn open(
    path: &Path,
    may_resume: bool,
    wanted: SweepHeader,
) -> Result<(Option<SaveFile>, SweepHeader, Vec<SweepRun>), Failure> {
    let opened = OpenOptions::new()
        .create(true)
        .read(true)
        .append(true)
        .open(path);
    let mut file = opened.map_err(|error| failed(path, &format!("cannot be opened: {error}")))?;
    lock(path, &file)?;
    let bytes =
        read(&mut file).map_err(|error| failed(path, &format!("cannot be read: {error}")))?;
    let mut file = SaveFile {
        file,
        path: path.to_owned(),
    };
    let saved = SavedSweep::read(&bytes);
    let has_runs = !matches!(&saved, Ok(saved) if saved.runs.is_empty());
    if bytes.is_empty() || (!may_resume && !has_runs) {
        file.cut(0)?;
        let begun = file.append(&wanted.line());
        if begun.is_err() {
            // A part of the first line is no sweep that could be gone on with.
            file.cut(0)?;
        }
        begun?;
        return Ok((Some(file), wanted, Vec::new()));
    }
    if !may_resume {
        return Err(Failure::Usage(format!(
            "--save: {} is there already: --resume goes on with its sweep; or name another file",
            path.display()
        )));
    }
    let saved = saved.map_err(|error| failed(path, &format!("is not gone on with: {error}")))?;
    check_same(path, &saved.header, &wanted)?;
    // A line that was torn is measured again.
    file.cut(saved.whole_bytes)?;
    Ok((Some(file), saved.header, saved.runs))
}

/// Keeps another sweep from writing the same file. Whatever has no locks needs none.
fn lock(path: &Path, file: &File) -> Result<(), Failure> {
    match file.try_lock() {
        Ok(()) | Err(TryLockError::Error(_)) => Ok(()),
        Err(TryLockError::WouldBlock) => Err(Failure::Usage(format!(
            "--save: another sweep writes {} at the moment: wait for its end, or name another file",
            path.display()
        ))),
    }
}

/// Reads all of a file, whose length need not be what the system says, as that of a device.
fn read(file: &mut File) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(limits::MAX_SAVED_BYTES + 1)
        .read_to_end(&mut bytes)?;
    match bytes.len() as u64 > limits::MAX_SAVED_BYTES {
        true => Err(io::Error::other("it is larger than any sweep")),
        false => Ok(bytes),
    }
}

/// Refuses to mix two sweeps in one file.
fn check_same(path: &Path, there: &SweepHeader, here: &SweepHeader) -> Result<(), Failure> {
    let mut differing = Vec::new();
    if there.target != here.target {
        differing.push(format!("its server is {}", there.target));
    }
    let only = |one: &SweepHeader, other: &SweepHeader| {
        let flags = one.flags.iter().filter(|flag| !other.flags.contains(flag));
        flags.cloned().collect::<Vec<_>>().join(" ")
    };
    if there.axes != here.axes {
        differing.push("it has other values".to_owned());
    }
    let (only_there, only_here) = (only(there, here), only(here, there));
    if !only_there.is_empty() {
        differing.push(format!("it has {only_there}"));
    }
    if !only_here.is_empty() {
        differing.push(format!("it has not {only_here}"));
    }
    match differing.is_empty() {
        true => Ok(()),
        false => Err(Failure::Usage(format!(
            "--resume: {} is of another sweep: {}; give the same flags, or name another file",
            path.display(),
            differing.join(", ")
        ))),
    }
}

fn failed(path: &Path, what: &str) -> Failure {
    Failure::Failed(format!("--save: {} {what}", path.display()))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::time::Duration;

    use lab::sweep::{SweepAxes, SweepAxis, SweepParameter, SweepTimes};

    use super::*;

    fn header(flags: &[&str], seed: u64) -> SweepHeader {
        let axis = SweepAxis {
            parameter: SweepParameter::InFlight,
            values: vec!["1".into(), "2".into()],
        };
        SweepHeader {
            flags: flags.iter().map(ToString::to_string).collect(),
            target: "127.0.0.1:1978".into(),
            axes: SweepAxes::new(vec![axis]).expect("one"),
            times: SweepTimes {
                runs: 1,
                warm_up: Duration::ZERO,
                measured: Duration::from_millis(500),
            },
            seed,
            machine: serde_json::Map::new(),
        }
    }

    fn file(name: &str) -> PathBuf {
        let name = format!("pelton-sweep-{name}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let _ = fs::remove_file(&path);
        path
    }

    #[test]
    fn a_file_is_begun_once_and_gone_on_with() {
        let path = file("resume");
        let (first, ..) = open(&path, false, header(&["--keys 1"], 7)).expect("it is new");
        drop(first);
        let run = concat!(
            r#"{"cell":["2"],"run":0,"at_ms":5,"result":{"calls_per_s":1.5,"succeeded":2}}"#,
            "\n"
        );
        let first = fs::read_to_string(&path).expect("it is there");
        drop(open(&path, false, header(&["--keys 1"], 7)).expect("no run is in it"));
        assert_eq!(fs::read_to_string(&path).expect("there"), first);
        let whole = first + run;
        fs::write(&path, format!("{whole}{{\"cell\":[\"1")).expect("written");
        let refused = open(&path, false, header(&["--keys 1"], 8)).expect_err("it is there");
        assert!(
            refused.to_string().contains("--resume goes on"),
            "{refused}"
        );
        let (again, header_there, runs) =
            open(&path, true, header(&["--keys 1"], 8)).expect("the same flags");
        assert_eq!(
            (header_there.seed, runs.len()),
            (7, 1),
            "the order is that of the file"
        );
        let mut again = again.expect("a file");
        assert_eq!(
            fs::read_to_string(&path).expect("there"),
            whole,
            "the torn line is cut"
        );
        again.append("{}\n").expect("it can be written");
        assert_eq!(
            fs::read_to_string(&path).expect("there"),
            format!("{whole}{{}}\n")
        );
        fs::remove_file(&path).expect("removed");
    }

    #[test]
    fn a_file_is_written_by_one_sweep_at_a_time() {
        let path = file("locked");
        let (first, ..) = open(&path, false, header(&[], 7)).expect("it is new");
        let refused = open(&path, true, header(&[], 7)).expect_err("it is being written");
        let text = refused.to_string();
        assert!(text.contains("another sweep writes"), "{text}");
        drop(first);
        open(&path, true, header(&[], 7)).expect("the other one has ended");
        fs::remove_file(&path).expect("removed");
    }

    #[test]
    fn other_values_than_its_flags_say_are_refused() {
        let path = file("values");
        drop(open(&path, false, header(&[], 7)).expect("it is new"));
        let changed = fs::read_to_string(&path).expect("there");
        fs::write(&path, changed.replace("[\"1\",\"2\"]", "[\"1\",\"3\"]")).expect("written");
        let refused = open(&path, true, header(&[], 7)).expect_err("other values");
        let text = refused.to_string();
        assert!(text.contains("it has other values"), "{text}");
        fs::remove_file(&path).expect("removed");
    }

    #[test]
    fn another_sweep_or_another_file_is_refused() {
        let path = file("other");
        drop(open(&path, false, header(&["--keys 1"], 7)).expect("it is new"));
        let other = open(&path, true, header(&["--keys 2"], 7)).expect_err("other flags");
        let text = other.to_string();
        assert!(
            text.contains("it has --keys 1, it has not --keys 2"),
            "{text}"
        );
        let mut elsewhere = header(&["--keys 1"], 7);
        elsewhere.target = "h:1".into();
        let text = open(&path, true, elsewhere)
            .expect_err("another server")
            .to_string();
        assert!(text.contains("its server is 127.0.0.1:1978"), "{text}");
        fs::write(&path, "my notes\n").expect("written");
        let notes = open(&path, true, header(&[], 7))
            .expect_err("no sweep")
            .to_string();
        assert!(notes.contains("none of a sweep"), "{notes}");
        assert_eq!(fs::read_to_string(&path).expect("there"), "my notes\n");
        fs::remove_file(&path).expect("removed");
    }
}
