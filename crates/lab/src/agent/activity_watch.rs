//! Watches a server and its machine, and makes reports of that.

use api::agent::{AgentReport, MachineActivity, NetworkActivity, ProcessActivity, ThreadActivity};
use thiserror::Error;

use super::agent_subject::{AgentSubject, SubjectError, UnreadableSystem};
use super::cpu_share::CpuClock;
use super::limits::{AGENT_MIGRATIONS_OF_CPU, AGENT_THREADS};
use super::network_reading::{NetworkReading, buffered_bytes};
use super::socket_look::{BufferedBytes, SocketLook};
use crate::diagnose::limits::COUNTED_THREADS;
use crate::diagnose::{ProcessWatch, SystemFolders, ThreadUse, WatchedProcesses, WatchedUse};

/// Why a watch does not go on.
#[derive(Debug, Error)]
pub(super) enum ReportError {
    /// The processes have ended.
    #[error("the process that is watched has ended")]
    Ended,
    /// The system does not let the agent look.
    #[error(transparent)]
    Unreadable(UnreadableSystem),
}

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
    /// Begins to watch these processes of a server.
    ///
    /// # Errors
    /// If none of them is there, or they cannot be looked at.
    pub(super) fn begin(
        folders: &SystemFolders,
        (subject, processes): (AgentSubject, Vec<u32>),
        now_ns: u64,
    ) -> Result<ActivityWatch, SubjectError> {
        let mut watch = watch(folders, &processes, now_ns);
        match (watch.take_failure(), watch.is_alive()) {
            (Some(error), _) | (None, Err(error)) => return Err(subject.unseen(error)),
            (None, Ok(false)) => return Err(SubjectError::NotThere(subject)),
            (None, Ok(true)) => {}
        }
        Ok(ActivityWatch {
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

    /// Returns what lies in the buffers of the server's connections; `None`: its port or the sizes
    /// are not known.
    pub(super) fn buffers(
        &self,
        (sockets, clock): (&mut SocketLook, &CpuClock),
        now_ns: u64,
    ) -> Option<BufferedBytes> {
        let port = self.subject.port()?;
        sockets.buffered(clock, now_ns, || buffered_bytes(&self.folders, port))
    }

    /// Appends a report to `out`, or nothing where it fails. `buffers`: what
    /// [`ActivityWatch::buffers`] has returned.
    ///
    /// # Errors
    /// If the processes have ended, or cannot be looked at any more.
    pub(super) fn report(
        &mut self,
        buffers: Option<BufferedBytes>,
        now_ns: u64,
        out: &mut Vec<u8>,
    ) -> Result<(), ReportError> {
        let unreadable = |error| ReportError::Unreadable(UnreadableSystem::of(error));
        if !self.watch.is_alive().map_err(unreadable)? {
            return Err(ReportError::Ended);
        }
        let seen = self.watch.seen(now_ns);
        if let Some(error) = self.watch.take_failure() {
            return Err(unreadable(error));
        }
        let threads = self.watch.threads(now_ns);
        let network = NetworkReading::read(&self.folders);
        let elapsed_ns = now_ns.saturating_sub(self.begin_ns);
        let network = network.since(&self.network, buffers);
        encode(elapsed_ns, &seen, &threads, network, out);
        Ok(())
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
    // Threads are read a moment after the time of the report, and may have gone on meanwhile: no
    // figure is above what is possible for that.
    let most_cpus = seen.machine.map_or(f64::MAX, |machine| machine.cpus as f64);
    let most_moves = most_cpus * f64::from(AGENT_MIGRATIONS_OF_CPU);
    let report = AgentReport {
        elapsed_ns,
        process: seen.process.as_ref().map(|process| ProcessActivity {
            cpus: process.cpus.min(most_cpus),
            waited_for_cpus: process.waited_for_cpus.min(COUNTED_THREADS as f64),
            in_sync: process.in_sync,
            quota_cpus: process.quota_cpus,
            throttled: process.throttled,
            migrations_per_s: process.migrations_per_s.map(|moves| moves.min(most_moves)),
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
    let busy = thread.busy.min(1.0);
    ThreadActivity {
        name: &thread.name,
        busy,
        waited: thread.waited.min(1.0 - busy),
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::super::report_figures::read_report;
    use super::*;
    use crate::diagnose::{MachineUse, ProcessUse};

    fn own() -> AgentSubject {
        AgentSubject::Process(std::process::id())
    }

    fn begin(
        folders: &SystemFolders,
        subject: AgentSubject,
    ) -> Result<ActivityWatch, SubjectError> {
        let processes = subject.processes(folders)?;
        ActivityWatch::begin(folders, (subject, processes), 0)
    }

    #[test]
    fn a_watch_of_this_process_comes_back_from_its_reports() {
        let folders = SystemFolders::default();
        let mut watch = begin(&folders, own()).expect("it is there");
        let begin = Instant::now();
        let mut sum = 0_u64;
        while begin.elapsed() < Duration::from_millis(30) {
            sum = sum.wrapping_mul(31).wrapping_add(7);
        }
        watch.look();
        let now_ns = begin.elapsed().as_nanos() as u64;
        let mut message = Vec::new();
        let report = watch.report(None, now_ns, &mut message);
        assert!(report.is_ok(), "{sum} {report:?}");
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
        // Longer than other tests, which are threads of this process, can have used by now.
        const LATER_NS: u64 = 1_000_000_000;
        let report = watch.report(None, now_ns + LATER_NS, &mut message);
        report.expect("it is there");
        let (elapsed_ns, _) = read_report(&message).expect("what is reported is possible");
        assert_eq!(elapsed_ns, LATER_NS);
    }

    /// Threads go on while they are read, after the time of the report.
    #[test]
    fn what_is_reported_is_possible_though_it_was_read_late() {
        let thread = ThreadUse {
            name: "late".into(),
            busy: 1.4,
            waited: 0.3,
        };
        let process = ProcessUse {
            cpus: 2.9,
            waited_for_cpus: 1e9,
            migrations_per_s: Some(1e9),
            ..ProcessUse::default()
        };
        let machine = MachineUse {
            cpus: 2,
            steal: 0.0,
            idle: 0.0,
        };
        let seen = WatchedUse {
            process: Some(process),
            machine: Some(machine),
        };
        let mut message = Vec::new();
        encode(
            7,
            &seen,
            &[thread],
            NetworkActivity::default(),
            &mut message,
        );
        let (_, seen) = read_report(&message).expect("it is believed");
        let process = seen.process.expect("it is there");
        assert_eq!(process.cpus, 2.0);
        let busiest = process.busiest.expect("it is there");
        assert_eq!((busiest.busy, busiest.waited), (1.0, 0.0));
    }

    #[test]
    fn a_process_that_is_not_there_is_not_watched() {
        let folders = SystemFolders::default();
        for none in [AgentSubject::Process(u32::MAX), AgentSubject::Port(1)] {
            let begun = begin(&folders, none);
            assert!(matches!(begun, Err(SubjectError::NotThere(_))), "{begun:?}");
        }
        let mut watch = begin(&folders, own()).expect("it is there");
        watch.watch = super::watch(&folders, &[u32::MAX], 0);
        let mut message = Vec::new();
        let report = watch.report(None, 1, &mut message);
        assert!(matches!(report, Err(ReportError::Ended)), "{report:?}");
        assert!(message.is_empty());
    }

    /// A folder that cannot be read at all, a loop of links, stands for a system without
    /// descriptors.
    #[test]
    fn what_cannot_be_read_is_not_called_absent() {
        let path = std::env::temp_dir().join(format!("pelton-agent-loop-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        std::os::unix::fs::symlink(&path, &path).expect("it is ours");
        let folders = SystemFolders {
            proc: path.clone(),
            cgroup: path.clone(),
        };
        for subject in [AgentSubject::Process(7), AgentSubject::Port(7)] {
            let begun = begin(&folders, subject);
            assert!(
                matches!(begun, Err(SubjectError::Unreadable(_))),
                "{begun:?}"
            );
        }
        let mut watch = begin(&SystemFolders::default(), own()).expect("it is there");
        watch.watch = super::watch(&folders, &[7], 0);
        let mut message = Vec::new();
        let report = watch.report(None, 1, &mut message);
        assert!(
            matches!(report, Err(ReportError::Unreadable(_))),
            "{report:?}"
        );
        assert!(message.is_empty());
        std::fs::remove_file(&path).expect("it is ours");
    }
}
