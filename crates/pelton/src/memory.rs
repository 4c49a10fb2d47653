//! How much memory this process may use.

use std::fmt;
use std::fs;
use std::path::Path;

use lab::machine::{GroupVersion, group_folders};

use crate::limits::{RESOURCE_LIMIT_LEAST_BYTES, RESOURCE_LIMIT_PERCENT};
use crate::size::Size;

/// What bounds the memory of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryBound {
    /// What the machine has.
    Machine,
    /// The limit of a control group, such as a container's.
    ControlGroup,
    /// The limit on its address space (RLIMIT_AS, `ulimit -v`), or on its data (RLIMIT_DATA,
    /// `ulimit -d`).
    ResourceLimit,
}

impl fmt::Display for MemoryBound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            MemoryBound::Machine => "the memory of this machine",
            MemoryBound::ControlGroup => "the limit of its control group",
            MemoryBound::ResourceLimit => {
                "its limit on address space or data (ulimit -v, ulimit -d)"
            }
        })
    }
}

/// Asks for pages of the usual size only, from here on and in all threads.
///
/// The allocator gives each thread memory of its own, and asks the system to back it with pages of
/// 2 MiB. With few threads that pays: a large store is read with fewer misses of the address cache.
/// With a thread for each connection it makes the first large buffer of each of them cost
/// megabytes; and where memory is short, what is freed in part does not go back. Where it cannot be
/// had, nothing but that is lost.
pub fn forgo_huge_pages() {
    if let Err(error) = rustix::thread::disable_transparent_huge_pages(true) {
        tracing::debug!("huge pages stay in use: {error}");
    }
}

/// Bytes of memory that this process may use: what its control group and its resource limits allow,
/// or what the machine has, whichever is least. `root` is `/` outside tests. `None` where none can
/// be found out.
pub fn allowed_bytes(root: &Path) -> Option<(u64, MemoryBound)> {
    let known = bounds(root)
        .into_iter()
        .filter_map(|(bytes, bound)| Some((bytes?, bound)));
    known.min_by_key(|(bytes, _)| *bytes)
}

/// Returns what each bound leaves, in bytes; `None`: it bounds nothing, or cannot be found out.
pub fn bounds(root: &Path) -> [(Option<u64>, MemoryBound); 3] {
    [
        (machine_bytes(root), MemoryBound::Machine),
        (control_group_bytes(root), MemoryBound::ControlGroup),
        (resource_limit_bytes(root), MemoryBound::ResourceLimit),
    ]
}

/// A resource limit beyond which the kernel gives no memory, so that the process ends.
struct ResourceLimit {
    /// Its line in `/proc/self/limits`.
    line: &'static str,
    /// What it bounds.
    bounded: &'static str,
    /// The flag of the shell's `ulimit`.
    flag: &'static str,
    /// The setting of systemd.
    setting: &'static str,
    /// The parts of the program that count, in `/proc/self/status`.
    program: &'static [&'static str],
}

/// Of its address space the program itself, its libraries and its stack have taken a part at the
/// start. What the allocator has set aside does not count: it is for data.
const ADDRESS_SPACE: ResourceLimit = ResourceLimit {
    line: "Max address space",
    bounded: "the address space",
    flag: "-v",
    setting: "LimitAS",
    program: &["VmExe:", "VmLib:", "VmStk:"],
};

/// Private memory that can be written, the stacks of threads included (setrlimit(2), RLIMIT_DATA).
const DATA: ResourceLimit = ResourceLimit {
    line: "Max data size",
    bounded: "the data",
    flag: "-d",
    setting: "LimitDATA",
    program: &[],
};

impl ResourceLimit {
    /// Returns the soft limit in bytes, and what the program itself takes of it; `None`: there is
    /// no limit.
    fn read(&self, root: &Path) -> Option<(u64, u64)> {
        let limit = soft_limit(root, self.line)?;
        Some((limit, taken_bytes(root, self.program)))
    }

    /// Returns what of it may be used for memory. There is more that counts: stacks of threads,
    /// mapped files, and what the allocator has set aside.
    fn allowed_bytes(&self, root: &Path) -> Option<u64> {
        let (limit, taken) = self.read(root)?;
        Some(limit.saturating_sub(taken) / 100 * RESOURCE_LIMIT_PERCENT)
    }

    /// Fails where it leaves too little for a server, in words.
    fn check(&self, root: &Path) -> Result<(), String> {
        let Some((limit, taken)) = self.read(root) else {
            return Ok(());
        };
        let least = taken.saturating_add(RESOURCE_LIMIT_LEAST_BYTES);
        if limit >= least {
            return Ok(());
        }
        Err(format!(
            "the limit on {} of this process is {}, too little for a server: it needs {} at \
             least; raise it (`ulimit {} {}`, {}= of systemd), or bound the memory with a control \
             group (MemoryMax= of systemd)",
            self.bounded,
            Size::rounded(limit),
            Size::rounded(least),
            self.flag,
            least.div_ceil(1024),
            self.setting
        ))
    }
}

/// Fails where a limit on the address space, or on data, leaves too little for a server, in words.
pub fn check_resource_limits(root: &Path) -> Result<(), String> {
    ADDRESS_SPACE.check(root)?;
    DATA.check(root)
}

fn resource_limit_bytes(root: &Path) -> Option<u64> {
    let limits = [ADDRESS_SPACE, DATA];
    let allowed = limits.iter().filter_map(|limit| limit.allowed_bytes(root));
    allowed.min()
}

/// `None`: there is none.
fn soft_limit(root: &Path, name: &str) -> Option<u64> {
    let text = fs::read_to_string(root.join("proc/self/limits")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

/// The sum of these lines of `/proc/self/status`, and nothing where that cannot be read.
fn taken_bytes(root: &Path, parts: &[&str]) -> u64 {
    let status = fs::read_to_string(root.join("proc/self/status")).unwrap_or_default();
    let kib = |line: &str| {
        let text = parts.iter().find_map(|part| line.strip_prefix(part))?;
        text.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()
    };
    let kib = status.lines().filter_map(kib).fold(0, u64::saturating_add);
    kib.saturating_mul(1024)
}

/// `MemTotal` of `/proc/meminfo`.
fn machine_bytes(root: &Path) -> Option<u64> {
    let text = fs::read_to_string(root.join("proc/meminfo")).ok()?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

/// The least limit of the control groups of this process.
fn control_group_bytes(root: &Path) -> Option<u64> {
    let groups = fs::read_to_string(root.join("proc/self/cgroup")).ok()?;
    let folders = group_folders(&root.join("sys/fs/cgroup"), &groups, "memory");
    let limits = folders.into_iter().filter_map(|(version, folder)| {
        let file = match version {
            GroupVersion::V1 => "memory.limit_in_bytes",
            GroupVersion::V2 => "memory.max",
        };
        // "max" and unreadable files mean: no limit here.
        let text = fs::read_to_string(folder.join(file)).ok()?;
        text.trim().parse::<u64>().ok()
    });
    limits.min()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_machine::machine;

    const MEMINFO: (&str, &str) = ("proc/meminfo", "MemTotal:       16384 kB\nMemFree: 1 kB\n");

    #[test]
    fn without_a_group_the_machine_counts() {
        let root = machine("bare", &[MEMINFO]);
        assert_eq!(allowed_bytes(&root), Some((16 << 20, MemoryBound::Machine)));
        assert_eq!(allowed_bytes(&root.join("nowhere")), None);
    }

    #[test]
    fn the_least_limit_on_the_way_up_counts() {
        let root = machine(
            "v2",
            &[
                MEMINFO,
                ("proc/self/cgroup", "0::/a/b\n"),
                ("sys/fs/cgroup/a/b/memory.max", "max\n"),
                ("sys/fs/cgroup/a/memory.max", "4096000\n"),
                ("sys/fs/cgroup/memory.max", "9999999999\n"),
            ],
        );
        assert_eq!(
            allowed_bytes(&root),
            Some((4_096_000, MemoryBound::ControlGroup))
        );
    }

    #[test]
    fn a_container_sees_its_own_top() {
        let root = machine(
            "container",
            &[
                MEMINFO,
                ("proc/self/cgroup", "0::/../gone\n"),
                ("sys/fs/cgroup/memory.max", "1000\n"),
            ],
        );
        assert_eq!(
            allowed_bytes(&root),
            Some((1000, MemoryBound::ControlGroup))
        );
    }

    #[test]
    fn the_first_version_of_groups_is_understood() {
        let root = machine(
            "v1",
            &[
                MEMINFO,
                ("proc/self/cgroup", "7:cpu,cpuacct:/x\n5:memory:/box\n"),
                ("sys/fs/cgroup/memory/box/memory.limit_in_bytes", "2000\n"),
                (
                    "sys/fs/cgroup/memory/memory.limit_in_bytes",
                    "9223372036854771712\n",
                ),
            ],
        );
        assert_eq!(
            allowed_bytes(&root),
            Some((2000, MemoryBound::ControlGroup))
        );
    }

    #[test]
    fn limits_on_address_space_and_data_count() {
        let limits = |space: &str, data: &str| {
            format!(
                "Limit                     Soft Limit           Hard Limit           Units     \n\
                 Max cpu time              unlimited            unlimited            seconds   \n\
                 Max data size             {data}            unlimited            bytes     \n\
                 Max address space         {space}             unlimited            bytes     \n"
            )
        };
        for (space, data, expected) in [
            ("unlimited", "unlimited", (16 << 20, MemoryBound::Machine)),
            (
                "1000000",
                "unlimited",
                (10_000 * RESOURCE_LIMIT_PERCENT, MemoryBound::ResourceLimit),
            ),
            (
                "1000000",
                "4100",
                (41 * RESOURCE_LIMIT_PERCENT, MemoryBound::ResourceLimit),
            ),
            (
                "unlimited",
                "1000000",
                (10_000 * RESOURCE_LIMIT_PERCENT, MemoryBound::ResourceLimit),
            ),
            (
                "unlimited",
                "900000000000",
                (16 << 20, MemoryBound::Machine),
            ),
        ] {
            let files = [MEMINFO, ("proc/self/limits", &limits(space, data))];
            let root = machine("limits", &files);
            assert_eq!(allowed_bytes(&root), Some(expected), "{space} {data}");
        }
    }

    #[test]
    fn what_is_mapped_at_the_start_does_not_count_and_too_little_beyond_is_refused() {
        let check = |space: &str| {
            let limits =
                format!("Max address space         {space}            unlimited    bytes\n");
            let memory = ("proc/meminfo", "MemTotal:       16384000 kB\n");
            let status = (
                "proc/self/status",
                "VmSize:\t 99999 kB\nVmExe:\t 30000 kB\nVmLib:\t 10000 kB\n",
            );
            let root = machine("space", &[memory, status, ("proc/self/limits", &limits)]);
            (
                allowed_bytes(&root).expect("it is known").0,
                check_resource_limits(&root),
            )
        };
        let mapped = 40_000 * 1024;
        let least = mapped + RESOURCE_LIMIT_LEAST_BYTES;
        let (allowed, checked) = check(&least.to_string());
        assert_eq!(checked, Ok(()));
        assert_eq!(
            allowed,
            RESOURCE_LIMIT_LEAST_BYTES / 100 * RESOURCE_LIMIT_PERCENT
        );
        let (_, checked) = check(&(least - 1).to_string());
        let words = checked.expect_err("it is too little");
        assert!(
            words.contains("ulimit -v 564288") && words.contains("LimitAS="),
            "{words}"
        );
        assert!(check("1000").1.is_err());
        assert_eq!(check("1000").0, 0);
        assert_eq!(check("unlimited"), (16_384_000 * 1024, Ok(())));
    }

    #[test]
    fn a_limit_on_data_that_leaves_too_little_is_refused() {
        for (missing, is_enough) in [(0, true), (1, false), (0, true), (1, false)] {
            let limit = RESOURCE_LIMIT_LEAST_BYTES - missing;
            let limits = format!("Max data size             {limit}   unlimited    bytes\n");
            let root = machine("data", &[MEMINFO, ("proc/self/limits", &limits)]);
            match check_resource_limits(&root) {
                Ok(()) => assert!(is_enough),
                Err(words) => {
                    assert!(!is_enough);
                    let is_named =
                        words.contains("ulimit -d 524288") && words.contains("LimitDATA=");
                    assert!(is_named && words.contains("on the data"), "{words}");
                }
            }
        }
    }
}
