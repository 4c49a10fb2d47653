//! Watches a server and its machine, and makes reports of that; and reads such reports.

use api::agent::{AgentReport, MachineActivity, NetworkActivity, ProcessActivity, ThreadActivity};

use super::agent_subject::AgentSubject;
use super::limits::{AGENT_CPUS_MAX, AGENT_NAME_CHARACTERS, AGENT_THREADS};
use super::network_reading::NetworkReading;
use crate::diagnose::{
    MachineUse, ProcessUse, ProcessWatch, SystemFolders, ThreadUse, WatchedProcesses, WatchedUse,
};
use crate::terminal_text::without_controls;

/// A watch that goes on.
#[derive(Debug)]
pub(super) struct ActivityWatch {
    folders: SystemFolders,
    subject: AgentSubject,
    processes: Vec<u32>,
    watch: ProcessWatch,
    begin_ns: u64,
    network: NetworkReading,
}

impl ActivityWatch {
    /// Begins to watch; `None`: there is no such process, or it may not be looked at.
    pub(super) fn begin(
        folders: &SystemFolders,
        subject: AgentSubject,
        now_ns: u64,
    ) -> Option<ActivityWatch> {
        let processes = subject.processes(folders);
        let watch = watch(folders, &processes, now_ns);
        watch.is_alive().then(|| ActivityWatch {
            folders: folders.clone(),
            subject,
            processes,
            watch,
            begin_ns: now_ns,
            network: NetworkReading::read(folders),
        })
    }

    /// Looks what the threads do now.
    pub(super) fn look(&mut self) {
        self.watch.look();
    }

    /// Appends a report to `out`; returns false, and appends nothing, if the processes have ended.
    pub(super) fn report(&mut self, now_ns: u64, out: &mut Vec<u8>) -> bool {
        if !self.watch.is_alive() {
            return false;
        }
        let seen = self.watch.seen(now_ns);
        let threads = self.watch.threads(now_ns);
        let network = NetworkReading::read(&self.folders);
        let place = (&self.folders, self.subject.port());
        let elapsed_ns = now_ns.saturating_sub(self.begin_ns);
        encode(
            elapsed_ns,
            &seen,
            &threads,
            network.since(&self.network, place),
            out,
        );
        true
    }

    /// From now on it is about what comes.
    pub(super) fn restart(&mut self, now_ns: u64) {
        self.watch = watch(&self.folders, &self.processes, now_ns);
        self.network = NetworkReading::read(&self.folders);
        self.begin_ns = now_ns;
    }
}

fn watch(folders: &SystemFolders, processes: &[u32], now_ns: u64) -> ProcessWatch {
    ProcessWatch::begin(folders, WatchedProcesses::Each(processes.to_vec()), now_ns)
}

fn encode(
    elapsed_ns: u64,
    seen: &WatchedUse,
    threads: &[ThreadUse],
    network: NetworkActivity,
    out: &mut Vec<u8>,
) {
    let threads = threads.iter().take(AGENT_THREADS).map(thread_activity);
    let threads: Vec<ThreadActivity<'_>> = threads.collect();
    let report = AgentReport {
        elapsed_ns,
        process: seen.process.as_ref().map(|process| ProcessActivity {
            cpus: process.cpus,
            waited_for_cpus: process.waited_for_cpus,
            in_sync: process.in_sync,
            quota_cpus: process.quota_cpus,
            throttled: process.throttled,
            migrations_per_s: process.migrations_per_s,
        }),
        machine: seen.machine.map(|machine| MachineActivity {
            cpus: u32::try_from(machine.cpus).unwrap_or(u32::MAX),
            steal: machine.steal,
            idle: machine.idle,
        }),
        threads: threads.as_slice().into(),
        network: Some(network),
    };
    report.encode(out);
}

fn thread_activity(thread: &ThreadUse) -> ThreadActivity<'_> {
    ThreadActivity {
        name: &thread.name,
        busy: thread.busy,
        waited: thread.waited,
    }
}

/// What a report says, as far as it is possible; with how long the time was that it is about.
pub(super) fn read_report(message: &[u8]) -> Option<(u64, WatchedUse)> {
    let report = AgentReport::decode(message).ok()?;
    let busiest = report.threads.iter().next().and_then(Result::ok);
    let busiest = busiest.and_then(|thread| {
        let name: String = thread.name.chars().take(AGENT_NAME_CHARACTERS).collect();
        Some(ThreadUse {
            name: without_controls(&name),
            busy: possible(thread.busy)?,
            waited: possible(thread.waited)?,
        })
    });
    let process = report.process.and_then(|process| {
        Some(ProcessUse {
            cpus: possible(process.cpus)?,
            busiest,
            waited_for_cpus: possible(process.waited_for_cpus)?,
            in_sync: process.in_sync.and_then(possible),
            quota_cpus: process.quota_cpus.and_then(possible),
            throttled: process.throttled.and_then(possible),
            migrations_per_s: process.migrations_per_s.filter(|moves| *moves >= 0.0),
        })
    });
    let machine = report.machine.and_then(|machine| {
        Some(MachineUse {
            cpus: (1..=AGENT_CPUS_MAX)
                .contains(&machine.cpus)
                .then_some(machine.cpus as usize)?,
            steal: possible(machine.steal)?,
            idle: possible(machine.idle)?,
        })
    });
    Some((report.elapsed_ns, WatchedUse { process, machine }))
}

/// A number of CPUs or a share of time; `None`: it is neither, and so not known.
fn possible(figure: f64) -> Option<f64> {
    (0.0..=f64::from(AGENT_CPUS_MAX))
        .contains(&figure)
        .then_some(figure)
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    fn own() -> AgentSubject {
        AgentSubject::Process(std::process::id())
    }

    #[test]
    fn a_watch_of_this_process_comes_back_from_its_reports() {
        let folders = SystemFolders::default();
        let mut watch = ActivityWatch::begin(&folders, own(), 0).expect("it is there");
        let begin = Instant::now();
        let mut sum = 0_u64;
        while begin.elapsed() < Duration::from_millis(30) {
            sum = sum.wrapping_mul(31).wrapping_add(7);
        }
        watch.look();
        let now_ns = begin.elapsed().as_nanos() as u64;
        let mut message = Vec::new();
        assert!(watch.report(now_ns, &mut message), "{sum}");
        let (elapsed_ns, seen) = read_report(&message).expect("it is a report");
        assert_eq!(elapsed_ns, now_ns);
        let process = seen.process.expect("it is there");
        assert!(process.cpus > 0.0, "{process:?}");
        assert!(process.busiest.is_some_and(|thread| thread.busy > 0.0));
        let report = AgentReport::decode(&message).expect("it is a report");
        assert!((1..=AGENT_THREADS).contains(&report.threads.len()));
        let network = report.network.expect("there is one");
        assert_eq!(network.tcp_unread_bytes, None, "it was given no port");
        watch.restart(now_ns);
        message.clear();
        assert!(watch.report(now_ns + 5, &mut message));
        assert_eq!(read_report(&message).map(|(elapsed, _)| elapsed), Some(5));
    }

    #[test]
    fn a_process_that_is_not_there_is_not_watched() {
        let folders = SystemFolders::default();
        let none = AgentSubject::Process(u32::MAX);
        assert!(ActivityWatch::begin(&folders, none, 0).is_none());
        assert!(ActivityWatch::begin(&folders, AgentSubject::Port(1), 0).is_none());
        let mut watch = ActivityWatch::begin(&folders, own(), 0).expect("it is there");
        watch.watch = super::watch(&folders, &[u32::MAX], 0);
        let mut message = Vec::new();
        assert!(!watch.report(1, &mut message));
        assert!(message.is_empty());
    }

    #[test]
    fn figures_that_cannot_be_are_not_known() {
        let threads = [ThreadActivity {
            name: "a\u{1b}[2J",
            busy: f64::NAN,
            waited: 0.0,
        }];
        let mut report = AgentReport {
            elapsed_ns: 7,
            process: Some(ProcessActivity {
                cpus: 1.5,
                waited_for_cpus: 0.0,
                in_sync: Some(-1.0),
                quota_cpus: Some(f64::INFINITY),
                throttled: None,
                migrations_per_s: Some(f64::NAN),
            }),
            machine: Some(MachineActivity {
                cpus: 0,
                steal: 0.0,
                idle: 0.5,
            }),
            threads: (&threads).into(),
            network: None,
        };
        let read = |report: &AgentReport<'_>| {
            let mut message = Vec::new();
            report.encode(&mut message);
            read_report(&message).expect("it is a report").1
        };
        let seen = read(&report);
        assert_eq!(seen.machine, None);
        let process = seen.process.expect("it has its figures");
        assert_eq!((process.cpus, process.in_sync), (1.5, None));
        assert_eq!((process.busiest, process.quota_cpus), (None, None));
        assert_eq!(process.migrations_per_s, None);
        report.process = Some(ProcessActivity {
            cpus: -0.5,
            ..ProcessActivity::default()
        });
        assert_eq!(read(&report).process, None);
        assert_eq!(read_report(b"\xff"), None);
    }
}
