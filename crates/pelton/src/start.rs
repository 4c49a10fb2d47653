//! A start that takes long says how far it has come.

use std::fs;
use std::path::Path;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use wal::ReadProgress;

use crate::limits::START_PROGRESS_MS;
use crate::size::Size;

/// A process starts one server.
static PROGRESS: ReadProgress = ReadProgress::new();

/// Where the log that is read at the start is counted.
pub fn progress() -> &'static ReadProgress {
    &PROGRESS
}

/// Ends the lines when it is dropped. Nothing is ever sent.
pub struct StartWatch(
    #[expect(dead_code, reason = "dropped, it ends the thread")] Option<Sender<()>>,
);

/// From now on the log says every few seconds how far the start has come, as long as the returned
/// value lives. That there is no thread for it is no reason not to start.
pub fn watch(folder: Option<&Path>) -> StartWatch {
    let Some(folder) = folder else {
        return StartWatch(None);
    };
    let (end, ended) = channel();
    let log_bytes = log_bytes(folder);
    let name = folder.display().to_string();
    let thread = thread::Builder::new().name("pelton-start".into());
    let spawned = thread.spawn(move || {
        let begin = Instant::now();
        let span = Duration::from_millis(START_PROGRESS_MS);
        while ended.recv_timeout(span) == Err(RecvTimeoutError::Timeout) {
            tracing::info!("{}", line(&name, begin.elapsed(), progress(), log_bytes));
        }
    });
    StartWatch(spawned.is_ok().then_some(end))
}

/// Bytes of the files of the log; 0 if they cannot be had: the start itself says why.
fn log_bytes(folder: &Path) -> u64 {
    let files = fs::read_dir(folder).into_iter().flatten().flatten();
    files
        .filter(|file| {
            file.path()
                .extension()
                .is_some_and(|ending| ending == "log")
        })
        .filter_map(|file| file.metadata().ok())
        .map(|metadata| metadata.len())
        .sum()
}

fn line(folder: &str, since: Duration, progress: &ReadProgress, log_bytes: u64) -> String {
    let seconds = since.as_secs();
    let (bytes, records) = (progress.bytes(), progress.records());
    let (read, all) = (Size::rounded(bytes), Size::rounded(log_bytes));
    match bytes {
        0 => format!(
            "still starting after {seconds} s: reading {folder}; of its log, at most {all}, \
             nothing was read yet, but a snapshot may be"
        ),
        // The last file is as large as it will be, not as full.
        _ => format!(
            "still starting after {seconds} s: {read} of at most {all} of the log in {folder} were \
             read, {records} records"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_tells_how_much_of_the_log_was_read() {
        let progress = ReadProgress::new();
        let text = line("data", Duration::from_secs(4), &progress, 3 << 20);
        assert!(
            text.contains("after 4 s") && text.contains("at most 3 MiB"),
            "{text}"
        );
        let folder = std::env::temp_dir().join(format!("pelton-start-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a writable folder");
        for (name, bytes) in [("a.log", 10), ("b.log", 20), ("lock", 40)] {
            fs::write(folder.join(name), vec![0; bytes]).expect("there is room");
        }
        assert_eq!(log_bytes(&folder), 30);
        assert_eq!(log_bytes(&folder.join("nowhere")), 0);
        fs::remove_dir_all(&folder).expect("it is there");
    }
}
