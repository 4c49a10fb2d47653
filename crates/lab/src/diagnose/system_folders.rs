//! Reads what the kernel says of processes and of the machine, from /proc and /sys/fs/cgroup, or
//! from folders that look the same.

use std::collections::HashSet;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use super::limits::{LOOKED_AT_THREADS, SEARCHED_PROCESSES};
use crate::machine::{CpuQuota, GroupVersion, cpu_quota, group_folders};

/// System calls that wait until a disk has written, by their numbers.
#[cfg(target_arch = "x86_64")]
const SYNC_CALLS: &[u32] = &[26, 74, 75, 162, 277, 306];
#[cfg(target_arch = "aarch64")]
const SYNC_CALLS: &[u32] = &[81, 82, 83, 84, 227, 267];
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
const SYNC_CALLS: &[u32] = &[];

/// Where the kernel says what it knows.
#[derive(Clone, Debug)]
pub struct SystemFolders {
    /// `/proc`.
    pub proc: PathBuf,
    /// `/sys/fs/cgroup`.
    pub cgroup: PathBuf,
}

impl Default for SystemFolders {
    fn default() -> SystemFolders {
        SystemFolders {
            proc: "/proc".into(),
            cgroup: "/sys/fs/cgroup".into(),
        }
    }
}

/// Times of a thread since it began, in nanoseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ThreadReading {
    pub(super) id: u32,
    pub(super) name: String,
    pub(super) on_cpu_ns: u64,
    /// Ready to run, without a CPU.
    pub(super) waited_ns: u64,
    /// How often it moved from one CPU to another; `None`: the kernel does not say, or it is one of
    /// too many threads.
    pub(super) migrations: Option<u64>,
}

/// Ticks of all CPUs since the machine began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MachineReading {
    pub(super) cpus: usize,
    pub(super) total: u64,
    pub(super) idle: u64,
    pub(super) steal: u64,
}

/// Which processes listen on a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PortListeners {
    /// None does.
    Nobody,
    /// Some do, and none of them may be looked at.
    Hidden,
    /// These do.
    Found(Vec<u32>),
}

impl SystemFolders {
    /// Whether these are the kernel's own, so that it can be asked for the same in other ways.
    pub(crate) fn are_of_kernel(&self) -> bool {
        self.proc == Path::new("/proc")
    }

    fn process(&self, process: u32) -> PathBuf {
        self.proc.join(process.to_string())
    }

    /// Returns the threads of a process; none if it has gone.
    ///
    /// # Errors
    /// If it cannot be looked at: it may not be, or the system has no descriptor or no memory left.
    pub(super) fn threads(&self, process: u32) -> io::Result<Vec<ThreadReading>> {
        let folder = self.process(process).join("task");
        let Some(entries) = found(fs::read_dir(&folder))? else {
            return Ok(Vec::new());
        };
        let mut threads = Vec::new();
        for entry in entries {
            let Some((id, path)) = found(entry)?.as_ref().and_then(numbered) else {
                continue;
            };
            let with_migrations = threads.len() < LOOKED_AT_THREADS;
            threads.extend(thread(id, &path, with_migrations)?);
        }
        Ok(threads)
    }

    /// Returns whether a process has a thread.
    ///
    /// # Errors
    /// As those of [`SystemFolders::threads`].
    pub(super) fn is_there(&self, process: u32) -> io::Result<bool> {
        let folder = self.process(process).join("task");
        let Some(entries) = found(fs::read_dir(&folder))? else {
            return Ok(false);
        };
        for entry in entries {
            let Some((id, path)) = found(entry)?.as_ref().and_then(numbered) else {
                continue;
            };
            if thread(id, &path, false)?.is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Returns whether a thread of the process is within a system call that waits for a disk;
    /// `None`: the kernel does not say.
    pub(super) fn is_in_sync(&self, process: u32) -> Option<bool> {
        if SYNC_CALLS.is_empty() {
            return None;
        }
        let tasks = numbered_entries(&self.process(process).join("task"));
        let mut known = None;
        for (_, path) in tasks.take(LOOKED_AT_THREADS) {
            let Ok(text) = fs::read_to_string(path.join("syscall")) else {
                continue;
            };
            let number = text.split_whitespace().next();
            let number: Option<u32> = number.and_then(|word| word.parse().ok());
            if number.is_some_and(|number| SYNC_CALLS.contains(&number)) {
                return Some(true);
            }
            known = Some(false);
        }
        known
    }

    /// Returns what all CPUs did.
    pub(super) fn machine(&self) -> Option<MachineReading> {
        let text = fs::read_to_string(self.proc.join("stat")).ok()?;
        let line = text.lines().find_map(|line| line.strip_prefix("cpu "))?;
        // user nice system idle iowait irq softirq steal; guests are a part of user and nice.
        let ticks: Vec<u64> = line
            .split_whitespace()
            .take(8)
            .map_while(|word| word.parse().ok())
            .collect();
        let [_, _, _, idle, iowait, _, _, steal] = *ticks.as_slice() else {
            return None;
        };
        let is_cpu = |line: &&str| {
            let rest = line.strip_prefix("cpu").unwrap_or_default();
            rest.starts_with(|c: char| c.is_ascii_digit())
        };
        Some(MachineReading {
            cpus: text.lines().filter(is_cpu).count(),
            total: ticks.iter().sum(),
            idle: idle + iowait,
            steal,
        })
    }

    /// Returns the quotas of the control group of a process and of those above it: each binds.
    pub(super) fn quotas(&self, process: u32) -> Vec<CpuQuota> {
        let text = fs::read_to_string(self.process(process).join("cgroup")).unwrap_or_default();
        let folders = group_folders(&self.cgroup, &text, "cpu").into_iter();
        let quota = |(version, folder): (GroupVersion, PathBuf)| {
            cpu_quota(version, &|name| fs::read_to_string(folder.join(name)).ok())
        };
        folders.filter_map(quota).collect()
    }

    /// Returns the processes of a process group.
    pub(super) fn members(&self, group: u32) -> Vec<u32> {
        let group = group.to_string();
        let is_member = |(_, path): &(u32, PathBuf)| {
            let text = fs::read_to_string(path.join("stat")).unwrap_or_default();
            // Behind the name, which may hold anything: state, parent, group.
            let after_name = text.rsplit(')').next().unwrap_or_default();
            after_name.split_whitespace().nth(2) == Some(group.as_str())
        };
        let processes = numbered_entries(&self.proc).take(SEARCHED_PROCESSES);
        processes.filter(is_member).map(|(id, _)| id).collect()
    }

    /// Returns the processes that listen on a TCP port of this machine, as far as they may be
    /// looked at.
    pub fn listeners(&self, port: u16) -> Vec<u32> {
        match self.port_listeners(port) {
            Ok(PortListeners::Found(processes)) => processes,
            Ok(PortListeners::Nobody | PortListeners::Hidden) | Err(_) => Vec::new(),
        }
    }

    /// Returns the processes that listen on a TCP port of this machine.
    ///
    /// # Errors
    /// If the system has no descriptor or no memory left to look for them.
    pub(crate) fn port_listeners(&self, port: u16) -> io::Result<PortListeners> {
        let sockets = self.listening_sockets(port)?;
        if sockets.is_empty() {
            return Ok(PortListeners::Nobody);
        }
        let mut processes = Vec::new();
        for (id, path) in numbered_entries(&self.proc).take(SEARCHED_PROCESSES) {
            if has_opened(&path, &sockets)? {
                processes.push(id);
            }
        }
        Ok(match processes.is_empty() {
            true => PortListeners::Hidden,
            false => PortListeners::Found(processes),
        })
    }

    /// Returns sockets that listen, as links to them look.
    fn listening_sockets(&self, port: u16) -> io::Result<HashSet<String>> {
        const LISTEN: &str = "0A";
        let suffix = format!(":{port:04X}");
        let mut sockets = HashSet::new();
        for file in ["net/tcp", "net/tcp6"] {
            let text = found(fs::read_to_string(self.proc.join(file)))?.unwrap_or_default();
            for line in text.lines().skip(1) {
                let words: Vec<&str> = line.split_whitespace().collect();
                if let [_, local, _, LISTEN, _, _, _, _, _, inode, ..] = *words.as_slice()
                    && local.ends_with(&suffix)
                {
                    sockets.insert(format!("socket:[{inode}]"));
                }
            }
        }
        Ok(sockets)
    }
}

/// What was read, if it is there: a process or a thread may end at any time.
fn found<T>(read: io::Result<T>) -> io::Result<Option<T>> {
    const NO_SUCH_PROCESS: i32 = 3;
    match read {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) if error.raw_os_error() == Some(NO_SUCH_PROCESS) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Reads one thread; `None`: it has ended.
fn thread(id: u32, path: &Path, with_migrations: bool) -> io::Result<Option<ThreadReading>> {
    let Some(text) = found(fs::read_to_string(path.join("schedstat")))? else {
        return Ok(None);
    };
    let mut words = text.split_whitespace().map_while(|word| word.parse().ok());
    let (Some(on_cpu_ns), Some(waited_ns)) = (words.next(), words.next()) else {
        return Ok(None);
    };
    let name = found(fs::read_to_string(path.join("comm")))?.unwrap_or_default();
    Ok(Some(ThreadReading {
        id,
        name: name.trim().to_owned(),
        on_cpu_ns,
        waited_ns,
        migrations: with_migrations.then(|| migrations(path)).flatten(),
    }))
}

/// Whether a process has opened one of these sockets. One that may not be looked at has not.
fn has_opened(process: &Path, sockets: &HashSet<String>) -> io::Result<bool> {
    let opened = match found(fs::read_dir(process.join("fd"))) {
        Err(error) if error.kind() == ErrorKind::PermissionDenied => None,
        opened => opened?,
    };
    let is_socket = |path: PathBuf| {
        let target = fs::read_link(path).unwrap_or_default();
        sockets.contains(&*target.to_string_lossy())
    };
    let mut opened = opened.into_iter().flatten().flatten();
    Ok(opened.any(|entry| is_socket(entry.path())))
}

/// `se.nr_migrations` of the file `sched` of a thread.
fn migrations(thread: &Path) -> Option<u64> {
    let text = fs::read_to_string(thread.join("sched")).ok()?;
    let line = text
        .lines()
        .find(|line| line.starts_with("se.nr_migrations"))?;
    line.rsplit(':').next()?.trim().parse().ok()
}

/// The entries of a folder whose names are numbers.
fn numbered_entries(folder: &Path) -> impl Iterator<Item = (u32, PathBuf)> + use<> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| numbered(&entry))
}

/// An entry whose name is a number.
fn numbered(entry: &fs::DirEntry) -> Option<(u32, PathBuf)> {
    let id = entry.file_name().to_str()?.parse().ok()?;
    Some((id, entry.path()))
}
