//! What this machine gives a server, and what to change: functions of the texts of the system.

mod device;
mod fact;
mod folder;
mod kernel;
mod process;
pub mod service;
mod user;

pub use device::IsStopped;
pub use fact::{Judgement, MachineFact};

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::thread;

use lab::machine::{cpu_quota, group_folders};
use rustix::system::uname;

use crate::limits::CHECK_FILE_BYTES;

/// Finds out all there is to say. `root` is `/` outside tests. It ends early when the user has had
/// enough.
pub fn facts(root: &Path, data: &Path, is_stopped: &impl IsStopped) -> Vec<MachineFact> {
    let limits = text(root, "proc/self/limits");
    let groups = text(root, "proc/self/cgroup");
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let users = user::Users::read(root);
    let place = folder::DataPlace::find(data);
    let mut facts = vec![
        users.fact(),
        process::descriptors(&limits, threads, net::LoopConfig::default().max_connections),
        process::memory(root),
        kernel::huge_pages(&text(root, "sys/kernel/mm/transparent_hugepage/enabled")),
        kernel::cpus(
            &text(root, "sys/devices/system/cpu/online"),
            &text(root, "proc/self/status"),
            least_quota_percent(root, &groups),
        ),
    ];
    facts.push(folder::fact(data, &place, &users));
    facts.extend(device::facts(data, &place, is_stopped));
    facts.extend([
        process::file_size(&limits, wal::limits::SEGMENT_BYTES),
        kernel::clock(
            &text(
                root,
                "sys/devices/system/clocksource/clocksource0/current_clocksource",
            ),
            kernel::is_clock_monotonic(),
        ),
        process::core_dumps(&limits, &text(root, "proc/sys/kernel/core_pattern")),
        kernel::backlog(&text(root, "proc/sys/net/core/somaxconn")),
        kernel::version(&uname().release().to_string_lossy()),
    ]);
    facts
}

/// Returns the beginning of a file of the system; empty: it cannot be read.
fn text(root: &Path, path: &str) -> String {
    read_beginning(&root.join(path)).unwrap_or_default()
}

fn read_beginning(path: &Path) -> std::io::Result<String> {
    let mut bytes = Vec::new();
    File::open(path)?
        .take(CHECK_FILE_BYTES)
        .read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Returns the least share of CPU time that the control groups allow, in hundredths of a CPU.
fn least_quota_percent(root: &Path, groups: &str) -> Option<u64> {
    let folders = group_folders(&root.join("sys/fs/cgroup"), groups, "cpu");
    let quotas = folders.into_iter().filter_map(|(version, folder)| {
        let quota = cpu_quota(version, &|name| read_beginning(&folder.join(name)).ok());
        quota.map(|quota| (quota.cpus * 100.0).round() as u64)
    });
    quotas.min()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_machine::machine;

    #[test]
    fn the_least_quota_of_all_groups_counts() {
        let root = machine(
            "quota-v2",
            &[
                ("sys/fs/cgroup/a/b/cpu.max", "max 100000\n"),
                ("sys/fs/cgroup/a/cpu.max", "150000 100000\n"),
            ],
        );
        assert_eq!(least_quota_percent(&root, "0::/a/b\n"), Some(150));
        assert_eq!(least_quota_percent(&root, "0::/c\n"), None);
        for (name, inner, outer) in [("inner", 50, 150), ("outer", 150, 50)] {
            let quota = |percent| format!("{percent}000 100000\n");
            let (inner, outer) = (quota(inner), quota(outer));
            let root = machine(
                &format!("quotas-{name}"),
                &[
                    ("sys/fs/cgroup/a/b/cpu.max", &inner),
                    ("sys/fs/cgroup/a/cpu.max", &outer),
                ],
            );
            assert_eq!(least_quota_percent(&root, "0::/a/b\n"), Some(50), "{name}");
        }
        // What no binary fraction is, is not less than it says.
        for percent in [29, 57, 115] {
            let text = format!("{percent}000 100000\n");
            let root = machine("quota-odd", &[("sys/fs/cgroup/a/cpu.max", &text)]);
            assert_eq!(least_quota_percent(&root, "0::/a\n"), Some(percent));
        }
        let root = machine(
            "quota-v1",
            &[
                ("sys/fs/cgroup/cpu/box/cpu.cfs_quota_us", "50000\n"),
                ("sys/fs/cgroup/cpu/box/cpu.cfs_period_us", "100000\n"),
                ("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n"),
                ("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n"),
            ],
        );
        assert_eq!(least_quota_percent(&root, "4:cpu,cpuacct:/box\n"), Some(50));
    }

    #[test]
    fn a_machine_that_says_nothing_or_garbage_has_a_line_for_each_fact() {
        let garbage = "\u{0}\u{fffd} 18446744073709551616 -1 [[] ]\n\n:::\n";
        let paths = [
            "proc/self/limits",
            "proc/self/cgroup",
            "proc/self/status",
            "proc/meminfo",
            "proc/sys/kernel/core_pattern",
            "proc/sys/net/core/somaxconn",
            "sys/kernel/mm/transparent_hugepage/enabled",
            "sys/devices/system/cpu/online",
            "sys/devices/system/clocksource/clocksource0/current_clocksource",
        ];
        let files = paths.map(|path| (path, garbage));
        let (silent, odd) = (machine("silent", &[]), machine("odd", &files));
        let data = std::env::temp_dir();
        let names = |root: &Path| -> Vec<_> {
            let facts = facts(root, &data, &|| false);
            facts.into_iter().map(|fact| fact.name).collect()
        };
        let expected = names(&silent);
        assert_eq!(expected.len(), 14);
        assert_eq!(names(&odd), expected);
    }
}
