//! Control groups: the folders in which limits of a process stand, and its share of the CPUs.

use std::path::{Path, PathBuf};

/// The version of the interface of control groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupVersion {
    /// A hierarchy for each controller.
    V1,
    /// One hierarchy for all.
    V2,
}

/// What the kernel says of a control group's share of the CPUs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CpuQuota {
    /// CPUs' time that it allows.
    pub cpus: f64,
    /// Periods so far in which something was to run; 0 where the kernel does not say.
    pub periods: u64,
    /// Those of them in which it was used up.
    pub throttled: u64,
}

/// Returns the folders of the control groups that bound a process in one respect, from its own up
/// to the top: each of them binds. `groups` is the text of `/proc/PID/cgroup`, `mount` where the
/// groups stand, usually `/sys/fs/cgroup`. In a container the path in it may not exist there; then
/// the walk up finds the container's own top.
pub fn group_folders(mount: &Path, groups: &str, controller: &str) -> Vec<(GroupVersion, PathBuf)> {
    let mut found = Vec::new();
    for line in groups.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else {
            continue;
        };
        match controllers {
            "" => add_folders(&mut found, GroupVersion::V2, mount, path),
            _ if controllers.split(',').any(|name| name == controller) => {
                // Usually a link from the one to the other; some machines have only the latter.
                add_folders(&mut found, GroupVersion::V1, &mount.join(controller), path);
                if controllers != controller {
                    add_folders(&mut found, GroupVersion::V1, &mount.join(controllers), path);
                }
            }
            _ => {}
        }
    }
    found
}

fn add_folders(
    found: &mut Vec<(GroupVersion, PathBuf)>,
    version: GroupVersion,
    mount: &Path,
    path: &str,
) {
    let mut folder = mount.join(path.trim_start_matches('/'));
    while folder.starts_with(mount) {
        found.push((version, folder.clone()));
        if !folder.pop() {
            break;
        }
    }
}

/// Returns a control group's quota; `None`: it has none. `read` reads one of its files.
pub fn cpu_quota(version: GroupVersion, read: &dyn Fn(&str) -> Option<String>) -> Option<CpuQuota> {
    let number = |text: &str| text.trim().parse::<f64>().ok();
    let (quota_us, period_us) = match version {
        // `max 100000`, or `150000 100000`.
        GroupVersion::V2 => {
            let text = read("cpu.max")?;
            let (quota, period) = text.trim().split_once(' ')?;
            (number(quota)?, number(period)?)
        }
        GroupVersion::V1 => (
            number(&read("cpu.cfs_quota_us")?)?,
            number(&read("cpu.cfs_period_us")?)?,
        ),
    };
    let is_quota = quota_us.is_finite() && quota_us > 0.0 && period_us > 0.0;
    is_quota.then(|| {
        let statistics = read("cpu.stat").unwrap_or_default();
        let count = |name: &str| {
            let mut lines = statistics.lines();
            let value = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
            value
                .and_then(|value| value.trim().parse().ok())
                .unwrap_or(0)
        };
        CpuQuota {
            cpus: quota_us / period_us,
            periods: count("nr_periods"),
            throttled: count("nr_throttled"),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNT: &str = "/sys/fs/cgroup";

    fn folders(groups: &str, controller: &str) -> Vec<(GroupVersion, PathBuf)> {
        group_folders(Path::new(MOUNT), groups, controller)
    }

    #[test]
    fn all_groups_up_to_the_top_bind() {
        let paths = ["/sys/fs/cgroup/a/b", "/sys/fs/cgroup/a", "/sys/fs/cgroup"];
        let expected = paths.map(|path| (GroupVersion::V2, PathBuf::from(path)));
        assert_eq!(folders("0::/a/b\n", "memory"), expected);
        let paths = [
            "/sys/fs/cgroup/cpu/x",
            "/sys/fs/cgroup/cpu",
            "/sys/fs/cgroup/cpu,cpuacct/x",
            "/sys/fs/cgroup/cpu,cpuacct",
        ];
        let expected = paths.map(|path| (GroupVersion::V1, PathBuf::from(path)));
        assert_eq!(
            folders("7:cpu,cpuacct:/x\n5:memory:/box\n", "cpu"),
            expected
        );
    }

    #[test]
    fn lines_of_another_form_are_passed_over() {
        for text in ["", "\n", "0", "0:", "x:y", "1:cpu", "5:memory:/box"] {
            assert_eq!(folders(text, "cpu"), [], "{text:?}");
        }
    }

    #[test]
    fn a_quota_is_a_share_of_its_period() {
        let v2 = |text: &'static str| {
            let read = move |name: &str| (name == "cpu.max").then(|| text.to_owned());
            cpu_quota(GroupVersion::V2, &read).map(|quota| quota.cpus)
        };
        assert_eq!(v2("50000 100000\n"), Some(0.5));
        assert_eq!(v2("250000 100000"), Some(2.5));
        for text in [
            "",
            "max 100000",
            "max",
            "5",
            "1 0",
            "-1 100000",
            "a b",
            "inf 5",
            "NaN 1",
        ] {
            assert_eq!(v2(text), None, "{text}");
        }
    }
}
