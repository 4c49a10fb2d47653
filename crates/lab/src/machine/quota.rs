//! The share of the CPUs that a control group allows.

use super::files::SystemFiles;

/// Returns how many CPUs' time the control groups of this process allow together; `None`: no quota
/// binds it. Each group up to the top binds, so the smallest counts.
pub(super) fn quota_cpus(files: &dyn SystemFiles) -> Option<f64> {
    let groups = files.read("/proc/self/cgroup")?;
    let quotas = groups.lines().flat_map(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, path) = (parts.next().unwrap_or(""), parts.next().unwrap_or(""));
        let is_cpu = controllers.split(',').any(|name| name == "cpu");
        folders(path)
            .into_iter()
            .filter_map(move |folder| match (controllers, is_cpu) {
                ("", _) => quota_v2(&files.read(&format!("/sys/fs/cgroup{folder}/cpu.max"))?),
                (_, true) => {
                    let read = |name: &str| {
                        let path = format!("/sys/fs/cgroup/cpu{folder}/cpu.cfs_{name}_us");
                        files.read(&path)?.trim().parse::<f64>().ok()
                    };
                    quota(read("quota")?, read("period")?)
                }
                _ => None,
            })
    });
    quotas.min_by(f64::total_cmp)
}

/// A group and those above it, down to the top, which is the empty path.
fn folders(path: &str) -> Vec<&str> {
    let mut folder = path.trim_end_matches('/');
    let mut folders = vec![folder];
    while let Some((above, _)) = folder.rsplit_once('/') {
        folder = above;
        folders.push(folder);
    }
    folders
}

/// `max 100000`, or `150000 100000`.
fn quota_v2(text: &str) -> Option<f64> {
    let (quota_us, period_us) = text.trim().split_once(' ')?;
    quota(quota_us.parse().ok()?, period_us.parse().ok()?)
}

fn quota(quota_us: f64, period_us: f64) -> Option<f64> {
    (quota_us > 0.0 && period_us > 0.0).then(|| quota_us / period_us)
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
