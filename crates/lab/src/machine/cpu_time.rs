//! What all CPUs did, and how much of it a host took away.

use super::files::SystemFiles;

/// The counters of all CPUs together, in ticks since the machine started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuTimes {
    busy: u64,
    steal: u64,
    all: u64,
}

/// What CPUs did between two readings, in percent of all of them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CpuShares {
    /// Time in which programs or the kernel had them.
    pub busy_percent: f64,
    /// Time in which something was to run, and the host ran something else.
    pub steal_percent: f64,
}

impl CpuTimes {
    /// Reads the first line of `/proc/stat`: user, nice, system, idle, iowait, irq, softirq and
    /// steal (proc_stat(5)). What follows is contained in user and nice.
    pub fn read(files: &dyn SystemFiles) -> Option<CpuTimes> {
        let text = files.read("/proc/stat")?;
        let line = text.lines().find_map(|line| line.strip_prefix("cpu "))?;
        let ticks: Vec<u64> = line
            .split_whitespace()
            .map_while(|word| word.parse().ok())
            .take(8)
            .collect();
        let [user, nice, system, idle, iowait, irq, softirq, steal] = *ticks.as_slice() else {
            return None;
        };
        let busy = user + nice + system + irq + softirq;
        Some(CpuTimes {
            busy,
            steal,
            all: busy + steal + idle + iowait,
        })
    }

    /// What was done since an earlier reading; `None`: no tick has passed.
    pub fn since(&self, earlier: &CpuTimes) -> Option<CpuShares> {
        let all = self.all.checked_sub(earlier.all).filter(|&all| all > 0)?;
        let percent =
            |now: u64, before: u64| now.saturating_sub(before) as f64 * 100.0 / all as f64;
        Some(CpuShares {
            busy_percent: percent(self.busy, earlier.busy),
            steal_percent: percent(self.steal, earlier.steal),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::files::RecordedFiles;
    use super::*;

    fn at(line: &str) -> Option<CpuTimes> {
        CpuTimes::read(&RecordedFiles::new([("/proc/stat", line)]))
    }

    #[test]
    fn shares_are_of_what_passed_between() {
        let before = at("cpu  100 0 50 800 10 5 5 30 0 0\ncpu0 1 2 3\n").expect("a line");
        let after = at("cpu  150 0 80 870 20 5 15 60 0 0\n").expect("a line");
        let shares = after.since(&before).expect("ticks have passed");
        // 200 ticks: 50 user, 30 system, 10 softirq, 30 steal, 80 idle and waiting.
        assert_eq!((shares.busy_percent, shares.steal_percent), (45.0, 15.0));
        assert_eq!(before.since(&before), None);
    }

    #[test]
    fn other_forms_say_nothing() {
        for text in [
            "",
            "cpu 1 2 3\n",
            "cpu0 1 2 3 4 5 6 7 8\n",
            "cpu a b c d e f g h\n",
        ] {
            assert_eq!(at(text), None, "{text:?}");
        }
    }
}
