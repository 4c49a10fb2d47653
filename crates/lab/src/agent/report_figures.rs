//! Reads reports of an agent, and believes no figure that cannot be.

use api::agent::{AgentReport, MachineActivity, ProcessActivity, ThreadActivity};
use thiserror::Error;

use super::limits::{
    AGENT_CPUS_MAX, AGENT_LONGEST, AGENT_MIGRATIONS_OF_CPU, AGENT_NAME_CHARACTERS, AGENT_TOLERANCE,
};
use crate::diagnose::limits::COUNTED_THREADS;
use crate::diagnose::{MachineUse, ProcessUse, ThreadUse, WatchedUse};
use crate::terminal_text::without_controls;

/// Why a report is not taken.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(super) enum ReportReadError {
    /// It is none.
    #[error("its message is no report")]
    NoReport,
    /// It has a figure that nothing can have.
    #[error("{name} is {value}")]
    Impossible {
        /// The field.
        name: &'static str,
        /// What stands there.
        value: String,
    },
}

/// What a report says, with how long the time was that it is about.
///
/// # Errors
/// If it is no report, or one of its figures cannot be.
pub(super) fn read_report(message: &[u8]) -> Result<(u64, WatchedUse), ReportReadError> {
    let report = AgentReport::decode(message).map_err(|_| ReportReadError::NoReport)?;
    let longest_ns = AGENT_LONGEST.as_nanos() as f64;
    figure("elapsed_ns", report.elapsed_ns as f64, longest_ns)?;
    if report.elapsed_ns == 0 {
        return Err(impossible("elapsed_ns", "0"));
    }
    let machine = report.machine.as_ref().map(machine_use).transpose()?;
    let mut busiest = None;
    for thread in report.threads.iter() {
        let thread = thread.map_err(|_| ReportReadError::NoReport)?;
        let thread = thread_use(&thread)?;
        busiest = busiest.or(Some(thread));
    }
    let process = report.process.as_ref();
    let process = process.map(|process| process_use(process, machine.as_ref(), busiest));
    let process = process.transpose()?;
    Ok((report.elapsed_ns, WatchedUse { process, machine }))
}

fn machine_use(machine: &MachineActivity) -> Result<MachineUse, ReportReadError> {
    if !(1..=AGENT_CPUS_MAX).contains(&machine.cpus) {
        return Err(impossible("machine.cpus", machine.cpus));
    }
    figure("machine.steal", machine.steal, 1.0)?;
    figure("machine.idle", machine.idle, 1.0)?;
    let both = machine.steal + machine.idle;
    figure("machine.steal plus machine.idle", both, 1.0)?;
    Ok(MachineUse {
        cpus: machine.cpus as usize,
        steal: machine.steal,
        idle: machine.idle,
    })
}

fn thread_use(thread: &ThreadActivity<'_>) -> Result<ThreadUse, ReportReadError> {
    figure("threads.busy", thread.busy, 1.0)?;
    figure("threads.waited", thread.waited, 1.0)?;
    let both = thread.busy + thread.waited;
    figure("threads.busy plus threads.waited", both, 1.0)?;
    let name: String = thread.name.chars().take(AGENT_NAME_CHARACTERS).collect();
    Ok(ThreadUse {
        name: without_controls(&name),
        busy: thread.busy,
        waited: thread.waited,
    })
}

fn process_use(
    process: &ProcessActivity,
    machine: Option<&MachineUse>,
    busiest: Option<ThreadUse>,
) -> Result<ProcessUse, ReportReadError> {
    let most_cpus = machine.map_or(f64::from(AGENT_CPUS_MAX), |machine| machine.cpus as f64);
    let most_moves = most_cpus * f64::from(AGENT_MIGRATIONS_OF_CPU);
    let known = |name, value: Option<f64>, most| {
        let checked = value.map(|value| figure(name, value, most));
        checked.transpose()
    };
    let quota_cpus = process.quota_cpus;
    if quota_cpus == Some(0.0) {
        return Err(impossible("process.quota_cpus", "0"));
    }
    let waiting_max = COUNTED_THREADS as f64;
    let name = "process.waited_for_cpus";
    let waited_for_cpus = figure(name, process.waited_for_cpus, waiting_max)?;
    let moves = process.migrations_per_s;
    Ok(ProcessUse {
        cpus: figure("process.cpus", process.cpus, most_cpus)?,
        busiest,
        waited_for_cpus,
        in_sync: known("process.in_sync", process.in_sync, 1.0)?,
        // A quota may be above what the machine has.
        quota_cpus: known("process.quota_cpus", quota_cpus, AGENT_CPUS_MAX.into())?,
        throttled: known("process.throttled", process.throttled, 1.0)?,
        migrations_per_s: known("process.migrations_per_s", moves, most_moves)?,
    })
}

/// Returns a figure that may be: 0, or a positive number up to `most` and its tolerance.
fn figure(name: &'static str, value: f64, most: f64) -> Result<f64, ReportReadError> {
    let is_possible = value.is_sign_positive() && value <= most * (1.0 + AGENT_TOLERANCE);
    match is_possible {
        true => Ok(value),
        false => Err(impossible(name, value)),
    }
}

fn impossible(name: &'static str, value: impl ToString) -> ReportReadError {
    ReportReadError::Impossible {
        name,
        value: value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POSSIBLE_PROCESS: ProcessActivity = ProcessActivity {
        cpus: 1.5,
        waited_for_cpus: 3.0,
        in_sync: Some(1.0),
        quota_cpus: Some(200.0),
        throttled: Some(0.5),
        migrations_per_s: Some(50.0),
    };
    const POSSIBLE_MACHINE: MachineActivity = MachineActivity {
        cpus: 2,
        steal: 0.25,
        idle: 0.75,
    };
    const POSSIBLE_THREAD: ThreadActivity<'_> = ThreadActivity {
        name: "a\u{1b}[2J",
        busy: 1.0,
        waited: 0.0,
    };

    fn read(
        elapsed_ns: u64,
        process: ProcessActivity,
        machine: MachineActivity,
        thread: ThreadActivity<'_>,
    ) -> Result<(u64, WatchedUse), ReportReadError> {
        let threads = [POSSIBLE_THREAD, thread];
        let report = AgentReport {
            elapsed_ns,
            process: Some(process),
            machine: Some(machine),
            threads: (&threads).into(),
            network: None,
        };
        let mut message = Vec::new();
        report.encode(&mut message);
        read_report(&message)
    }

    fn refused(read: Result<(u64, WatchedUse), ReportReadError>) -> &'static str {
        match read {
            Err(ReportReadError::Impossible { name, .. }) => name,
            other => panic!("it was taken: {other:?}"),
        }
    }

    #[test]
    fn a_report_with_figures_that_may_be_is_read() {
        let (elapsed_ns, seen) = read(7, POSSIBLE_PROCESS, POSSIBLE_MACHINE, POSSIBLE_THREAD)
            .expect("all of it is possible");
        assert_eq!(elapsed_ns, 7);
        let process = seen.process.expect("it is there");
        let busiest = process.busiest.expect("there is one");
        assert_eq!((busiest.name.as_str(), busiest.busy), ("a?[2J", 1.0));
        assert_eq!((process.cpus, process.quota_cpus), (1.5, Some(200.0)));
        assert_eq!(seen.machine.map(|machine| machine.cpus), Some(2));
        let slightly_late = ProcessActivity {
            cpus: 2.1,
            ..POSSIBLE_PROCESS
        };
        assert!(read(7, slightly_late, POSSIBLE_MACHINE, POSSIBLE_THREAD).is_ok());
        assert_eq!(read_report(b"\xff"), Err(ReportReadError::NoReport));
        let nothing = read_report(b"");
        assert_eq!(
            refused(nothing),
            "elapsed_ns",
            "of no time nothing is known"
        );
    }

    /// Each figure by itself: below what can be, above it, and no number.
    #[test]
    fn a_figure_that_cannot_be_is_refused_by_its_name() {
        type SetProcess = fn(&mut ProcessActivity, f64);
        let of_process: [(&str, f64, SetProcess); 6] = [
            ("process.cpus", 2.3, |it, value| it.cpus = value),
            ("process.waited_for_cpus", 5e3, |it, value| {
                it.waited_for_cpus = value;
            }),
            ("process.in_sync", 1.2, |it, value| it.in_sync = Some(value)),
            ("process.quota_cpus", 1e5, |it, value| {
                it.quota_cpus = Some(value);
            }),
            ("process.throttled", 1.2, |it, value| {
                it.throttled = Some(value);
            }),
            ("process.migrations_per_s", 3e6, |it, value| {
                it.migrations_per_s = Some(value);
            }),
        ];
        for (name, high, set) in of_process {
            for value in [high, 1e308, -1.0, -0.0, f64::NAN, f64::INFINITY] {
                let mut process = POSSIBLE_PROCESS;
                set(&mut process, value);
                let taken = read(7, process, POSSIBLE_MACHINE, POSSIBLE_THREAD);
                assert_eq!(refused(taken), name, "{value}");
            }
        }
        for value in [1.2, -0.5, -0.0, f64::NAN, f64::NEG_INFINITY] {
            let steal = MachineActivity {
                steal: value,
                idle: 0.0,
                ..POSSIBLE_MACHINE
            };
            let idle = MachineActivity {
                idle: value,
                steal: 0.0,
                ..POSSIBLE_MACHINE
            };
            for (name, machine) in [("machine.steal", steal), ("machine.idle", idle)] {
                let taken = read(7, POSSIBLE_PROCESS, machine, POSSIBLE_THREAD);
                assert_eq!(refused(taken), name, "{value}");
            }
            let busy = ThreadActivity {
                busy: value,
                ..POSSIBLE_THREAD
            };
            let waited = ThreadActivity {
                busy: 0.0,
                waited: value,
                ..POSSIBLE_THREAD
            };
            for (name, thread) in [("threads.busy", busy), ("threads.waited", waited)] {
                let taken = read(7, POSSIBLE_PROCESS, POSSIBLE_MACHINE, thread);
                assert_eq!(refused(taken), name, "{value}");
            }
        }
    }

    #[test]
    fn figures_that_cannot_be_together_are_refused() {
        let machine = MachineActivity {
            steal: 0.9,
            idle: 0.9,
            ..POSSIBLE_MACHINE
        };
        let taken = read(7, POSSIBLE_PROCESS, machine, POSSIBLE_THREAD);
        assert_eq!(refused(taken), "machine.steal plus machine.idle");
        let thread = ThreadActivity {
            busy: 0.9,
            waited: 0.9,
            ..POSSIBLE_THREAD
        };
        let taken = read(7, POSSIBLE_PROCESS, POSSIBLE_MACHINE, thread);
        assert_eq!(refused(taken), "threads.busy plus threads.waited");
        for cpus in [0, u32::MAX] {
            let machine = MachineActivity {
                cpus,
                ..POSSIBLE_MACHINE
            };
            let taken = read(7, POSSIBLE_PROCESS, machine, POSSIBLE_THREAD);
            assert_eq!(refused(taken), "machine.cpus");
        }
        let process = ProcessActivity {
            quota_cpus: Some(0.0),
            ..POSSIBLE_PROCESS
        };
        let taken = read(7, process, POSSIBLE_MACHINE, POSSIBLE_THREAD);
        assert_eq!(refused(taken), "process.quota_cpus");
        for elapsed_ns in [0, u64::MAX] {
            let taken = read(
                elapsed_ns,
                POSSIBLE_PROCESS,
                POSSIBLE_MACHINE,
                POSSIBLE_THREAD,
            );
            assert_eq!(refused(taken), "elapsed_ns");
        }
    }
}
