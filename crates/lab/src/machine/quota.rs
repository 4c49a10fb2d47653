//! The share of the CPUs that a control group allows.

use std::path::Path;

use super::control_group::{cpu_quota, group_folders};
use super::files::SystemFiles;

/// Returns how many CPUs' time the control groups of this process allow together; `None`: no quota
/// binds it. Each group up to the top binds, so the smallest counts.
pub(super) fn quota_cpus(files: &dyn SystemFiles) -> Option<f64> {
    let groups = files.read("/proc/self/cgroup")?;
    let folders = group_folders(Path::new("/sys/fs/cgroup"), &groups, "cpu");
    let quotas = folders.into_iter().filter_map(|(version, folder)| {
        let read = |name: &str| files.read(folder.join(name).to_str()?);
        Some(cpu_quota(version, &read)?.cpus)
    });
    quotas.min_by(f64::total_cmp)
}

#[cfg(test)]
mod tests {
    use super::super::files::RecordedFiles;
    use super::*;

    #[test]
    fn the_smallest_quota_up_to_the_top_binds() {
        for (files, expected) in [
            (
                vec![
                    ("/proc/self/cgroup", "0::/a/b\n"),
                    ("/sys/fs/cgroup/a/b/cpu.max", "max 100000\n"),
                    ("/sys/fs/cgroup/a/cpu.max", "150000 100000\n"),
                ],
                Some(1.5),
            ),
            (
                vec![
                    ("/proc/self/cgroup", "0::/a\n"),
                    ("/sys/fs/cgroup/a/cpu.max", "400000 100000\n"),
                    ("/sys/fs/cgroup/cpu.max", "50000 100000\n"),
                ],
                Some(0.5),
            ),
            (
                vec![
                    ("/proc/self/cgroup", "5:memory:/m\n4:cpu,cpuacct:/box\n"),
                    ("/sys/fs/cgroup/cpu/box/cpu.cfs_quota_us", "200000\n"),
                    ("/sys/fs/cgroup/cpu/box/cpu.cfs_period_us", "100000\n"),
                    ("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n"),
                    ("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n"),
                ],
                Some(2.0),
            ),
            (vec![("/proc/self/cgroup", "0::/\n")], None),
            (
                vec![
                    ("/proc/self/cgroup", "nonsense\n0::/\n"),
                    ("/sys/fs/cgroup/cpu.max", "max\n"),
                ],
                None,
            ),
            (vec![], None),
        ] {
            let recorded = RecordedFiles::new(files.clone());
            assert_eq!(quota_cpus(&recorded), expected, "{files:?}");
        }
    }
}
