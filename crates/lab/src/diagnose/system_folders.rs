//! Reads what the kernel says of processes and of the machine, from /proc and /sys/fs/cgroup, or
//! from folders that look the same.

use std::collections::HashSet;
use std::fs;
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

impl SystemFolders {
    fn process(&self, process: u32) -> PathBuf {
        self.proc.join(process.to_string())
    }

    /// Returns the threads of a process; none if it has gone, or may not be looked at.
    pub(super) fn threads(&self, process: u32) -> Vec<ThreadReading> {
        let tasks = numbered_entries(&self.process(process).join("task"));
        let read = |(place, (id, path)): (usize, (u32, PathBuf))| {
            let text = fs::read_to_string(path.join("schedstat")).ok()?;
            let mut words = text.split_whitespace();
            let on_cpu_ns = words.next()?.parse().ok()?;
            let waited_ns = words.next()?.parse().ok()?;
            let name = fs::read_to_string(path.join("comm")).unwrap_or_default();
            Some(ThreadReading {
                id,
                name: name.trim().to_owned(),
                on_cpu_ns,
                waited_ns,
                migrations: (place < LOOKED_AT_THREADS)
                    .then(|| migrations(&path))
                    .flatten(),
            })
        };
        tasks.enumerate().filter_map(read).collect()
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
        let sockets = self.listening_sockets(port);
        if sockets.is_empty() {
            return Vec::new();
        }
        let listens = |(_, path): &(u32, PathBuf)| {
            let opened = fs::read_dir(path.join("fd")).into_iter().flatten();
            opened.flatten().any(|entry| {
                let target = fs::read_link(entry.path()).unwrap_or_default();
                sockets.contains(&*target.to_string_lossy())
            })
        };
        let processes = numbered_entries(&self.proc).take(SEARCHED_PROCESSES);
        processes.filter(listens).map(|(id, _)| id).collect()
    }

    /// Returns sockets that listen, as links to them look.
    fn listening_sockets(&self, port: u16) -> HashSet<String> {
        const LISTEN: &str = "0A";
        let suffix = format!(":{port:04X}");
        let mut sockets = HashSet::new();
        for file in ["net/tcp", "net/tcp6"] {
            let text = fs::read_to_string(self.proc.join(file)).unwrap_or_default();
            for line in text.lines().skip(1) {
                let words: Vec<&str> = line.split_whitespace().collect();
                if let [_, local, _, LISTEN, _, _, _, _, _, inode, ..] = *words.as_slice()
                    && local.ends_with(&suffix)
                {
                    sockets.insert(format!("socket:[{inode}]"));
                }
            }
        }
        sockets
    }
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
    entries.filter_map(|entry| {
        let id = entry.file_name().to_str()?.parse().ok()?;
        Some((id, entry.path()))
    })
}
