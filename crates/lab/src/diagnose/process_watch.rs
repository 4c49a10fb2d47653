//! Watches processes while an experiment runs.

use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;

use net::monotonic_ns;

use super::evidence::{MachineUse, ProcessUse, ThreadUse};
use super::limits::{COUNTED_THREADS, LOOK_EVERY};
use super::system_folders::{MachineReading, SystemFolders, ThreadReading};
use crate::machine::CpuQuota;

/// Looks after which the threads are counted once more, so that what a thread did is known although
/// it ended.
const COUNT_EVERY: u64 = 10;

/// What is watched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WatchedProcesses {
    /// These.
    Each(Vec<u32>),
    /// All of a process group, whoever joins it.
    Group(u32),
}

/// What was seen of processes, and of the machine meanwhile.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WatchedUse {
    /// `None`: there was none, or it may not be looked at.
    pub process: Option<ProcessUse>,
    /// `None`: the kernel does not say.
    pub machine: Option<MachineUse>,
}

/// A watch that goes on.
#[derive(Debug)]
pub(crate) struct ProcessWatch {
    folders: SystemFolders,
    watched: WatchedProcesses,
    begin_ns: u64,
    first: HashMap<(u32, u32), ThreadReading>,
    last: HashMap<(u32, u32), ThreadReading>,
    looks: u64,
    sync_looks: u64,
    syncs: u64,
    machine: Option<MachineReading>,
    /// Of the control group of each process, and of those above it.
    quotas: HashMap<u32, Vec<CpuQuota>>,
    /// Why threads could not be read, if that happened: what is known of them is old then.
    failure: Option<io::Error>,
}

impl ProcessWatch {
    /// Begins to watch.
    pub(crate) fn begin(
        folders: &SystemFolders,
        watched: WatchedProcesses,
        now_ns: u64,
    ) -> ProcessWatch {
        let mut watch = ProcessWatch {
            folders: folders.clone(),
            watched,
            begin_ns: now_ns,
            first: HashMap::new(),
            last: HashMap::new(),
            looks: 0,
            sync_looks: 0,
            syncs: 0,
            machine: folders.machine(),
            quotas: HashMap::new(),
            failure: None,
        };
        watch.count_threads();
        watch.first = watch.last.clone();
        let of = |process| (process, folders.quotas(process));
        watch.quotas = watch.processes().into_iter().map(of).collect();
        watch
    }

    fn processes(&self) -> Vec<u32> {
        match &self.watched {
            WatchedProcesses::Each(processes) => processes.clone(),
            WatchedProcesses::Group(group) => self.folders.members(*group),
        }
    }

    fn count_threads(&mut self) {
        for process in self.processes() {
            let threads = self.folders.threads(process).unwrap_or_else(|error| {
                self.failure = Some(error);
                Vec::new()
            });
            for thread in threads {
                let key = (process, thread.id);
                if self.last.len() < COUNTED_THREADS || self.last.contains_key(&key) {
                    self.last.insert(key, thread);
                }
            }
        }
    }

    /// Looks what the threads do now.
    pub(crate) fn look(&mut self) {
        self.looks += 1;
        let known: HashSet<u32> = self.last.keys().map(|(process, _)| *process).collect();
        let in_sync = known
            .into_iter()
            .filter_map(|process| self.folders.is_in_sync(process));
        if let Some(is_any) = in_sync.reduce(|one, two| one || two) {
            self.sync_looks += 1;
            self.syncs += u64::from(is_any);
        }
        if self.looks.is_multiple_of(COUNT_EVERY) {
            self.count_threads();
        }
    }

    /// Returns what was seen until now.
    pub(crate) fn seen(&mut self, now_ns: u64) -> WatchedUse {
        self.count_threads();
        let machine = self.machine.zip(self.folders.machine());
        WatchedUse {
            machine: machine.and_then(|(before, after)| machine_use(&before, &after)),
            process: (!self.last.is_empty()).then(|| self.process_use(now_ns)),
        }
    }

    /// For each thread how long it ran, and was ready without a CPU, since the watch began.
    fn thread_times(&self) -> impl Iterator<Item = (u64, u64, &str)> {
        self.last.iter().map(|(key, after)| {
            // A thread that began meanwhile began with nothing.
            let before = self.first.get(key);
            let (ran_ns, late_ns) =
                before.map_or((0, 0), |thread| (thread.on_cpu_ns, thread.waited_ns));
            (
                after.on_cpu_ns.saturating_sub(ran_ns),
                after.waited_ns.saturating_sub(late_ns),
                after.name.as_str(),
            )
        })
    }

    /// Returns what each thread has done by the last look at it, the busiest first.
    pub(crate) fn threads(&self, now_ns: u64) -> Vec<ThreadUse> {
        let wall_ns = self.wall_ns(now_ns);
        let mut times: Vec<_> = self.thread_times().collect();
        times.sort_by(|one, two| two.0.cmp(&one.0).then_with(|| one.2.cmp(two.2)));
        let of = |times| thread_use(times, wall_ns);
        times.into_iter().map(of).collect()
    }

    fn wall_ns(&self, now_ns: u64) -> f64 {
        now_ns.saturating_sub(self.begin_ns).max(1) as f64
    }

    /// Returns whether any of the processes is still there.
    ///
    /// # Errors
    /// If that cannot be seen: why.
    pub(crate) fn is_alive(&self) -> io::Result<bool> {
        for process in self.processes() {
            if self.folders.is_there(process)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Returns why threads could not be read since the last call, if that happened.
    pub(crate) fn take_failure(&mut self) -> Option<io::Error> {
        self.failure.take()
    }

    fn process_use(&self, now_ns: u64) -> ProcessUse {
        let wall_ns = self.wall_ns(now_ns);
        let (mut on_cpu_ns, mut waited_ns) = (0, 0);
        let mut busiest: Option<(u64, u64, &str)> = None;
        for times in self.thread_times() {
            let (ran_ns, late_ns, _) = times;
            on_cpu_ns += ran_ns;
            waited_ns += late_ns;
            if busiest.is_none_or(|(most_ns, _, _)| ran_ns > most_ns) {
                busiest = Some(times);
            }
        }
        let (quota_cpus, throttled) = self.quota_use().unzip();
        ProcessUse {
            cpus: on_cpu_ns as f64 / wall_ns,
            busiest: busiest.map(|times| thread_use(times, wall_ns)),
            waited_for_cpus: waited_ns as f64 / wall_ns,
            in_sync: (self.sync_looks > 0).then(|| self.syncs as f64 / self.sync_looks as f64),
            quota_cpus,
            throttled,
            migrations_per_s: self.migrations().map(|moves| moves as f64 * 1e9 / wall_ns),
        }
    }

    /// How often threads moved from CPU to CPU, as far as the kernel says.
    fn migrations(&self) -> Option<u64> {
        let of_thread = |(key, after): (&(u32, u32), &ThreadReading)| {
            // A thread that began meanwhile began with none.
            let before = match self.first.get(key) {
                Some(thread) => thread.migrations?,
                None => 0,
            };
            Some(after.migrations?.saturating_sub(before))
        };
        self.last
            .iter()
            .filter_map(of_thread)
            .reduce(|one, two| one.saturating_add(two))
    }

    /// Returns the quota that was used up in the largest part of its periods, and that part; of
    /// several the tightest one. A larger quota of a group above may be the one that others use up.
    fn quota_use(&self) -> Option<(f64, f64)> {
        let uses = self.quotas.iter().flat_map(|(process, before)| {
            let after = self.folders.quotas(*process);
            let of_group = |(before, after): (&CpuQuota, CpuQuota)| {
                let periods = after.periods.saturating_sub(before.periods).max(1);
                let throttled = after.throttled.saturating_sub(before.throttled);
                (after.cpus, throttled as f64 / periods as f64)
            };
            let pairs = before.iter().zip(after).map(of_group);
            pairs.collect::<Vec<_>>()
        });
        uses.max_by(|one, two| one.1.total_cmp(&two.1).then(two.0.total_cmp(&one.0)))
    }
}

fn thread_use((ran_ns, late_ns, name): (u64, u64, &str), wall_ns: f64) -> ThreadUse {
    ThreadUse {
        name: name.to_owned(),
        busy: ran_ns as f64 / wall_ns,
        waited: late_ns as f64 / wall_ns,
    }
}

fn machine_use(before: &MachineReading, after: &MachineReading) -> Option<MachineUse> {
    let total = after.total.saturating_sub(before.total);
    let share = |after: u64, before: u64| after.saturating_sub(before) as f64 / total as f64;
    (total > 0).then(|| MachineUse {
        cpus: after.cpus,
        steal: share(after.steal, before.steal),
        idle: share(after.idle, before.idle),
    })
}

/// When a watch on a thread of its own goes on.
#[derive(Debug, Default)]
pub struct WatchSwitch {
    is_on: AtomicBool,
    is_over: AtomicBool,
}

impl WatchSwitch {
    /// Returns whether it has begun.
    pub(crate) fn has_begun(&self) -> bool {
        self.is_on.load(Relaxed)
    }

    /// Returns whether nothing more is to be watched.
    pub(crate) fn is_over(&self) -> bool {
        self.is_over.load(Relaxed)
    }

    /// From now on it is watched.
    pub fn begin(&self) {
        self.is_on.store(true, Relaxed);
    }

    /// Nothing more is to be watched.
    pub fn end(&self) {
        self.is_over.store(true, Relaxed);
    }
}

/// Watches from [`WatchSwitch::begin`] to [`WatchSwitch::end`], and no longer than `most_ns`.
/// Returns what was seen of each.
pub fn watch_processes(
    folders: &SystemFolders,
    watched: &[WatchedProcesses],
    switch: &WatchSwitch,
    most_ns: u64,
) -> Vec<WatchedUse> {
    while !switch.has_begun() {
        if switch.is_over() {
            return watched.iter().map(|_| WatchedUse::default()).collect();
        }
        thread::sleep(LOOK_EVERY);
    }
    let begin_ns = monotonic_ns();
    let mut watches: Vec<ProcessWatch> = watched
        .iter()
        .map(|watched| ProcessWatch::begin(folders, watched.clone(), begin_ns))
        .collect();
    while !switch.is_over() && monotonic_ns().saturating_sub(begin_ns) < most_ns {
        thread::sleep(LOOK_EVERY);
        watches.iter_mut().for_each(ProcessWatch::look);
    }
    let end_ns = monotonic_ns();
    (watches.iter_mut())
        .map(|watch| watch.seen(end_ns))
        .collect()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::{Path, PathBuf};

    use super::*;

    /// Folders that look as those of the kernel; removed at the end.
    struct Recorded(PathBuf);

    impl Recorded {
        fn new(test: &str) -> Recorded {
            let name = format!("pelton-diagnose-{test}-{}", std::process::id());
            Recorded(std::env::temp_dir().join(name))
        }

        fn write(&self, path: &str, text: &str) {
            let path = self.0.join(path);
            fs::create_dir_all(path.parent().expect("it has one")).expect("it is ours");
            fs::write(path, text).expect("it is ours");
        }

        fn folders(&self) -> SystemFolders {
            SystemFolders {
                proc: self.0.join("proc"),
                cgroup: self.0.join("cgroup"),
            }
        }
    }

    impl Drop for Recorded {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    const STAT: &str = "cpu  100 0 100 800 0 0 0 0 0 0\ncpu0 1 1 1 1 1 1 1 1 0 0\n\
                        cpu1 1 1 1 1 1 1 1 1 0 0\nintr 1\n";

    #[test]
    fn steal_is_told_from_idleness() {
        let recorded = Recorded::new("steal");
        recorded.write("proc/stat", STAT);
        let folders = recorded.folders();
        let mut watch = ProcessWatch::begin(&folders, WatchedProcesses::Each(vec![]), 0);
        // 100 ticks more: 25 stolen, 40 idle, 5 waited for a disk.
        recorded.write(
            "proc/stat",
            &STAT.replace("100 0 100 800 0 0 0 0", "115 0 115 840 5 0 0 25"),
        );
        let seen = watch.seen(1_000);
        let machine = seen.machine.expect("it was read");
        assert_eq!((machine.cpus, machine.steal, machine.idle), (2, 0.25, 0.45));
        assert_eq!(seen.process, None, "there was none to watch");
    }

    #[test]
    fn threads_that_come_and_go_are_counted() {
        let recorded = Recorded::new("threads");
        let schedstat = |thread: u32, ran: u64, waited: u64| {
            let folder = format!("proc/7/task/{thread}");
            recorded.write(
                &format!("{folder}/schedstat"),
                &format!("{ran} {waited} 9\n"),
            );
            recorded.write(&format!("{folder}/comm"), &format!("worker-{thread}\n"));
        };
        let moved = |thread: u32, times: u64| {
            let text = format!("x (8)\n---\nse.nr_migrations   :   {times}\nnr_switches : 9\n");
            recorded.write(&format!("proc/7/task/{thread}/sched"), &text);
        };
        schedstat(7, 1_000, 500);
        schedstat(8, 5_000, 0);
        moved(7, 20);
        let folders = recorded.folders();
        let mut watch = ProcessWatch::begin(&folders, WatchedProcesses::Each(vec![7]), 10_000);
        schedstat(9, 300, 0);
        moved(9, 2);
        moved(7, 23);
        schedstat(8, 5_800, 100);
        watch.count_threads();
        fs::remove_dir_all(recorded.0.join("proc/7/task/8")).expect("it was there");
        schedstat(7, 1_100, 500);
        let seen = watch.seen(11_000).process.expect("it is there");
        assert_eq!(seen.cpus, 1.2, "{seen:?}");
        assert_eq!(seen.waited_for_cpus, 0.1);
        let busiest = seen.busiest.expect("there are threads");
        assert_eq!((busiest.name.as_str(), busiest.busy), ("worker-8", 0.8));
        assert_eq!((seen.in_sync, seen.throttled), (None, None));
        // Five in a microsecond.
        assert_eq!(seen.migrations_per_s.map(f64::round), Some(5e6));
    }

    /// Of a thread whose moves were not known in the beginning.
    #[test]
    fn moves_from_before_the_watch_are_not_counted() {
        let recorded = Recorded::new("moves");
        recorded.write("proc/7/task/7/schedstat", "1 1 1");
        let folders = recorded.folders();
        let mut watch = ProcessWatch::begin(&folders, WatchedProcesses::Each(vec![7]), 0);
        recorded.write("proc/7/task/7/sched", "se.nr_migrations : 1000000\n");
        let seen = watch.seen(1_000).process.expect("it is there");
        assert_eq!(seen.migrations_per_s, None);
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn a_sync_is_seen_by_its_system_call() {
        let recorded = Recorded::new("sync");
        recorded.write("proc/7/task/7/schedstat", "1 1 1");
        recorded.write("proc/7/task/7/syscall", "202 0x1 0x2\n");
        recorded.write("proc/7/task/8/schedstat", "1 1 1");
        let folders = recorded.folders();
        let mut watch = ProcessWatch::begin(&folders, WatchedProcesses::Each(vec![7]), 0);
        for (text, looks) in [("running\n", 1), ("75 0x4 0x0\n", 2), ("74 0x4\n", 1)] {
            recorded.write("proc/7/task/8/syscall", text);
            (0..looks).for_each(|_| watch.look());
        }
        let seen = watch.seen(1_000).process.expect("it is there");
        assert_eq!(seen.in_sync, Some(0.75));
    }

    fn throttled(recorded: &Recorded, path: &str, cgroup: &str, quota: &[(&str, &str)]) {
        recorded.write("proc/7/task/7/schedstat", "1 1 1");
        recorded.write("proc/7/cgroup", cgroup);
        for (name, text) in quota {
            recorded.write(&format!("{path}/{name}"), text);
        }
        let statistics = |periods: u64, throttled: u64| {
            let text = format!("nr_periods {periods}\nnr_throttled {throttled}\nburst 0\n");
            recorded.write(&format!("{path}/cpu.stat"), &text);
        };
        statistics(100, 10);
        let folders = recorded.folders();
        let mut watch = ProcessWatch::begin(&folders, WatchedProcesses::Each(vec![7]), 0);
        statistics(120, 25);
        let seen = watch.seen(1_000).process.expect("it is there");
        assert_eq!((seen.quota_cpus, seen.throttled), (Some(0.5), Some(0.75)));
    }

    #[test]
    fn quotas_of_both_versions_of_control_groups_are_read() {
        let quota = [("cpu.max", "50000 100000\n")];
        throttled(&Recorded::new("v2"), "cgroup/a", "0::/a/b\n", &quota);
        let quota = [
            ("cpu.cfs_quota_us", "50000\n"),
            ("cpu.cfs_period_us", "100000\n"),
        ];
        let cgroup = "9:memory:/\n4:cpu,cpuacct:/x\n0::/\n";
        throttled(&Recorded::new("v1"), "cgroup/cpu/x", cgroup, &quota);
        let recorded = Recorded::new("none");
        recorded.write("proc/7/cgroup", "0::/a\n");
        recorded.write("cgroup/a/cpu.max", "max 100000\n");
        recorded.write("cgroup/a/cpu.stat", "nr_periods 0\n");
        assert!(recorded.folders().quotas(7).is_empty());
    }

    /// The group above has more, which others use up.
    #[test]
    fn the_quota_of_a_group_above_may_be_the_one_that_is_used_up() {
        let recorded = Recorded::new("above");
        recorded.write("proc/7/task/7/schedstat", "1 1 1");
        recorded.write("proc/7/cgroup", "0::/a/b\n");
        recorded.write("cgroup/a/b/cpu.max", "100000 100000\n");
        recorded.write("cgroup/a/cpu.max", "150000 100000\n");
        let throttled = |path: &str, periods: u64, throttled: u64| {
            let text = format!("nr_periods {periods}\nnr_throttled {throttled}\n");
            recorded.write(&format!("{path}/cpu.stat"), &text);
        };
        throttled("cgroup/a/b", 10, 0);
        throttled("cgroup/a", 10, 0);
        let folders = recorded.folders();
        let mut watch = ProcessWatch::begin(&folders, WatchedProcesses::Each(vec![7]), 0);
        throttled("cgroup/a/b", 20, 0);
        throttled("cgroup/a", 20, 8);
        let seen = watch.seen(1_000).process.expect("it is there");
        assert_eq!((seen.quota_cpus, seen.throttled), (Some(1.5), Some(0.8)));
    }

    #[test]
    fn a_group_is_found_whatever_its_programs_are_called() {
        let recorded = Recorded::new("group");
        recorded.write("proc/7/stat", "7 (sh) S 1 7 7 0\n");
        recorded.write("proc/8/stat", "8 (a ) b) R 7 7 7 0\n");
        recorded.write("proc/9/stat", "9 (c) S 7 9 7 0\n");
        recorded.write("proc/self/stat", "9 (c) S 7 7 7 0\n");
        let mut members = recorded.folders().members(7);
        members.sort_unstable();
        assert_eq!(members, [7, 8]);
    }

    #[test]
    fn the_process_that_listens_is_found_by_its_port() {
        let recorded = Recorded::new("port");
        let line = "0: 0100007F:07E8 00000000:0000 0A 0:0 00:0 0 0 0 4242 1 0 100\n";
        let other = "1: 0100007F:07E8 0100007F:9999 01 0:0 00:0 0 0 0 4243 1 0 100\n";
        recorded.write("proc/net/tcp", &format!("sl local\n{line}{other}"));
        for (process, socket) in [(7, 4242), (8, 4243)] {
            let folder = recorded.0.join(format!("proc/{process}/fd"));
            fs::create_dir_all(&folder).expect("it is ours");
            let target = format!("socket:[{socket}]");
            std::os::unix::fs::symlink(Path::new(&target), folder.join("3")).expect("it is new");
        }
        assert_eq!(recorded.folders().listeners(2_024), [7]);
        assert!(recorded.folders().listeners(2_025).is_empty());
    }

    #[test]
    fn this_process_can_be_watched() {
        let folders = SystemFolders::default();
        let switch = WatchSwitch::default();
        switch.begin();
        let own = WatchedProcesses::Each(vec![std::process::id()]);
        let seen = watch_processes(&folders, &[own], &switch, 30_000_000);
        assert!(seen[0].process.is_some(), "{seen:?}");
        let unused = WatchSwitch::default();
        unused.end();
        let seen = watch_processes(&folders, &[WatchedProcesses::Group(1)], &unused, 1);
        assert_eq!(seen, [WatchedUse::default()]);
    }
}
