//! What a diagnosis comes to.

use std::ops::RangeInclusive;

use super::agent_presence::AgentPresence;
use super::cause::Cause;
use super::evidence::{EarlyEnd, LoadEvidence, MachineUse, ProcessUse, ThreadUse};

/// What is to be changed, and what that brings.
#[derive(Clone, Debug, PartialEq)]
pub struct ProposedChange {
    /// What to change.
    pub text: String,
    /// How many times the throughput it should bring, by what was measured before.
    pub predicted: Option<f64>,
    /// How many times it brought, where it was tried.
    pub measured: Option<f64>,
}

/// What evidence comes to.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub enum Conclusion {
    /// It does not decide.
    #[default]
    Undecided,
    /// There is no limit below what was allowed.
    NoLimit,
    /// These are the causes, the strongest first.
    Named(Vec<Cause>),
}

/// What a diagnosis comes to.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Diagnosis {
    /// The causes, if any.
    pub conclusion: Conclusion,
    /// The same in a sentence.
    pub sentence: String,
    /// Figures that prove it.
    pub evidence_for: Vec<String>,
    /// Figures that speak against it, and what is not known.
    pub evidence_against: Vec<String>,
    /// What would have to be known to decide.
    pub needs: Vec<String>,
    /// What to change.
    pub change: Option<ProposedChange>,
}

impl Diagnosis {
    pub(super) fn named(cause: Cause, sentence: String) -> Diagnosis {
        Diagnosis {
            conclusion: Conclusion::Named(vec![cause]),
            sentence: format!("{}: {sentence}", cause.words()),
            ..Diagnosis::default()
        }
    }

    pub(super) fn undecided(sentence: String, need: impl Into<String>) -> Diagnosis {
        Diagnosis {
            sentence: format!("undecided: {sentence}"),
            needs: vec![need.into()],
            ..Diagnosis::default()
        }
    }

    pub(super) fn no_limit(sentence: String) -> Diagnosis {
        Diagnosis {
            conclusion: Conclusion::NoLimit,
            sentence: format!("no limit found: {sentence}"),
            ..Diagnosis::default()
        }
    }

    pub(super) fn supported(mut self, text: String) -> Diagnosis {
        self.evidence_for.push(text);
        self
    }

    pub(super) fn doubted(mut self, text: String) -> Diagnosis {
        self.evidence_against.push(text);
        self
    }

    pub(super) fn changed(
        mut self,
        text: String,
        predicted: Option<f64>,
        measured: Option<f64>,
    ) -> Diagnosis {
        self.change = Some(ProposedChange {
            text,
            predicted,
            measured,
        });
        self
    }

    /// The causes, the strongest first.
    pub fn causes(&self) -> &[Cause] {
        match &self.conclusion {
            Conclusion::Named(causes) => causes,
            _ => &[],
        }
    }

    /// Names another cause beside the first, with its evidence. What is undecided without this
    /// cause speaks against it.
    pub(super) fn joined(mut self, other: Diagnosis) -> Diagnosis {
        if other.conclusion == Conclusion::Undecided {
            self.evidence_for.extend(other.evidence_for);
            self.evidence_against.extend(other.evidence_against);
            let without = format!("without that it is {}", other.sentence);
            return self.doubted(without);
        }
        if let (Conclusion::Named(causes), [cause, ..]) = (&mut self.conclusion, other.causes())
            && !causes.contains(cause)
        {
            causes.push(*cause);
            self.sentence = format!("{}; and {}", self.sentence, other.sentence);
            self.evidence_for.extend(other.evidence_for);
            self.evidence_against.extend(other.evidence_against);
        }
        self
    }

    /// Notes that the agent was lost, if it was.
    pub(super) fn watched_by(self, agent: Option<&AgentPresence>) -> Diagnosis {
        match agent.and_then(AgentPresence::loss_words) {
            Some(words) => self.doubted(words),
            None => self,
        }
    }

    /// Notes that the experiments ended early.
    pub(super) fn ended_early(self, end: Option<&EarlyEnd>) -> Diagnosis {
        match end {
            None => self,
            Some(EarlyEnd::User) => self.doubted("it was ended before all was tried".into()),
            Some(EarlyEnd::Time) => {
                self.doubted("the time was over before all was tried; --max-time gives more".into())
            }
            Some(EarlyEnd::Failures(first)) => self.doubted(format!(
                "calls failed, so that no more load was added; the first: {first}"
            )),
            Some(EarlyEnd::NoRun(why)) => self.doubted(format!(
                "a run of the client could not be made, so that no further one was: {why}"
            )),
        }
    }
}

/// Nothing was measured with load.
pub(super) fn nothing_measured(evidence: &LoadEvidence) -> Diagnosis {
    let text = match &evidence.early_end {
        Some(EarlyEnd::Failures(first) | EarlyEnd::NoRun(first)) => {
            format!("calls failed: {first}")
        }
        Some(EarlyEnd::User) => "it was ended before anything was measured".to_owned(),
        _ => "no call ended in the time that was given".to_owned(),
    };
    Diagnosis::undecided(text, "calls that succeed")
}

/// The part of the looks at which a sync went on, from which on it is what is waited for.
const SYNC_SHARE: f64 = 0.6;

/// The part of the time for which a thread may be busy and still has time left.
const BUSY_THREAD: f64 = 0.85;

/// The part of its CPUs that a process uses that has none left.
const BUSY_CPUS: f64 = 0.85;

/// The CPUs of a process that has most of them left.
pub(super) const IDLE_CPUS: f64 = 0.5;

/// The CPUs for which a process waits that others keep from its work.
const STARVED_CPUS: f64 = 0.4;

/// The CPUs that threads use together of which one runs at a time.
const ONE_CPU: RangeInclusive<f64> = 0.95..=1.1;

/// What such threads use and wait for together is less than this: more would run at once if they
/// could.
const TURNS_WANTED_CPUS: f64 = 1.5;

/// What they use and wait for together where they use less than [`ONE_CPU`].
const ALMOST_ONE_CPU: RangeInclusive<f64> = 0.85..=1.25;

/// The CPUs that they wait for at least in that case: a thread that is to have the next turn does,
/// and one that waits for something else does not.
const TURNS_WAITED_CPUS: f64 = 0.2;

/// The part of the periods in which a quota is used up, or of the time that a hypervisor takes,
/// from which on it is named.
const KEPT_FROM_RUNNING: f64 = 0.1;

/// What a process waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ProcessLimit {
    /// Its quota, its CPUs, its one thread, or a disk.
    Known(Cause),
    /// Something else than CPU and disk.
    Waiting,
    /// The figures do not say.
    Unclear,
}

/// Returns what limits a process that has as much to do as it can take. `one_thread`, `all_cpus`:
/// the causes that one busy thread and busy CPUs are in this process.
pub(super) fn process_limit(
    process: &ProcessUse,
    machine: Option<&MachineUse>,
    (one_thread, all_cpus): (Cause, Cause),
) -> ProcessLimit {
    if process
        .throttled
        .is_some_and(|part| part >= KEPT_FROM_RUNNING)
    {
        return ProcessLimit::Known(Cause::Quota);
    }
    let wants_cpu = process.cpus + process.waited_for_cpus >= IDLE_CPUS;
    let is_stolen = machine.is_some_and(|machine| machine.steal >= KEPT_FROM_RUNNING);
    if is_stolen && wants_cpu {
        return ProcessLimit::Known(Cause::Steal);
    }
    let most = most_cpus(process, machine);
    // On a machine that others use too a busy thread waits for its CPU for a part of the time.
    let is_busy = |thread: &&ThreadUse| {
        thread.busy >= IDLE_CPUS && thread.busy + thread.waited >= BUSY_THREAD
    };
    let busiest = process.busiest.as_ref().filter(is_busy);
    let is_alone = busiest.is_some_and(|thread| process.cpus - thread.busy < IDLE_CPUS);
    if is_alone && most.is_none_or(|most| most > 1.5) {
        return ProcessLimit::Known(one_thread);
    }
    if has_no_cpu_left(process, machine) {
        return ProcessLimit::Known(all_cpus);
    }
    if busiest.is_some() {
        return ProcessLimit::Known(one_thread);
    }
    let is_working = process.cpus >= IDLE_CPUS;
    match process.in_sync {
        Some(share) if share >= SYNC_SHARE && !is_working => ProcessLimit::Known(Cause::DiskSync),
        Some(share) if share >= SYNC_SHARE / 4.0 => ProcessLimit::Unclear,
        _ if takes_turns(process) => ProcessLimit::Known(all_cpus),
        _ if is_working => ProcessLimit::Unclear,
        // What it does when it gets a CPU is not known while others have them.
        _ if process.waited_for_cpus >= STARVED_CPUS => ProcessLimit::Unclear,
        _ => ProcessLimit::Waiting,
    }
}

/// Whether its threads use about one CPU together, as those of Python do, which take turns. The
/// next one waits for its CPU while the last one gives its turn back. Threads of a pool that
/// happen to use as much look the same by these figures alone.
fn takes_turns(process: &ProcessUse) -> bool {
    let wanted = process.cpus + process.waited_for_cpus;
    let is_one_cpu = ONE_CPU.contains(&process.cpus) && wanted < TURNS_WANTED_CPUS;
    let is_almost_one = process.cpus >= IDLE_CPUS
        && process.waited_for_cpus >= TURNS_WAITED_CPUS
        && ALMOST_ONE_CPU.contains(&wanted);
    is_one_cpu || is_almost_one
}

/// Whether one CPU is all that is named of a process whose machine has more for it: by threads
/// that take turns, and not by CPUs that are used up.
pub(super) fn is_named_by_turns(process: &ProcessUse, machine: Option<&MachineUse>) -> bool {
    takes_turns(process) && !has_no_cpu_left(process, machine)
}

/// The CPUs that a process can have at most; `None`: not known.
fn most_cpus(process: &ProcessUse, machine: Option<&MachineUse>) -> Option<f64> {
    let of_machine = machine.map(|machine| machine.cpus as f64);
    of_machine
        .into_iter()
        .chain(process.quota_cpus)
        .reduce(f64::min)
}

/// Whether a process has used up its CPUs, or its machine has none left.
fn has_no_cpu_left(process: &ProcessUse, machine: Option<&MachineUse>) -> bool {
    let most = most_cpus(process, machine);
    let is_full = machine.is_some_and(|machine| machine.idle <= 1.0 - BUSY_CPUS)
        && process.cpus >= most.unwrap_or(1.0) / 2.0;
    is_full || most.is_some_and(|most| process.cpus >= most * BUSY_CPUS)
}

/// Returns a sentence for a limit of a process, and its evidence.
pub(super) fn of_process(
    cause: Cause,
    who: &str,
    process: &ProcessUse,
    machine: Option<&MachineUse>,
) -> Diagnosis {
    let cpus = process.cpus;
    let sentence = match cause {
        Cause::Quota => format!(
            "the {who} has a quota of {:.2} CPUs, which was used up in {} of its periods",
            process.quota_cpus.unwrap_or_default(),
            percent(process.throttled.unwrap_or_default())
        ),
        Cause::Steal => format!(
            "for {} of the time the hypervisor gave the CPUs of this machine to others",
            percent(machine.map_or(0.0, |machine| machine.steal))
        ),
        Cause::ServerThread | Cause::ClientThread => format!(
            "a thread of the {who} was on its CPU for {} of the time, and the others wait for it",
            percent(process.busiest.as_ref().map_or(0.0, |thread| thread.busy))
        ),
        Cause::DiskSync => format!(
            "for {} of the time the {who} waited for a sync of a file",
            percent(process.in_sync.unwrap_or_default())
        ),
        _ => format!("the {who} used {cpus:.2} CPUs, all that it can use"),
    };
    let mut it = Diagnosis::named(cause, sentence).supported(process_words(who, process));
    if let Some(machine) = machine {
        it = it.supported(format!(
            "its machine: {} CPUs, idle for {} of the time, {} taken by the hypervisor",
            machine.cpus,
            percent(machine.idle),
            percent(machine.steal)
        ));
    }
    let has_others = machine.is_some_and(|machine| machine.idle > 1.0 - BUSY_CPUS);
    let is_cpu = matches!(cause, Cause::ServerCpu | Cause::ClientCpu);
    if is_cpu && has_others && machine.is_some_and(|machine| machine.cpus as f64 > cpus + 0.5) {
        it = it.supported(
            "other CPUs are idle: its threads take turns, as if one lock let one of them run"
                .into(),
        );
    }
    it
}

/// What a process did, in words.
pub(super) fn process_words(who: &str, process: &ProcessUse) -> String {
    let busiest = process.busiest.as_ref().map_or_else(String::new, |thread| {
        let (name, busy) = (&thread.name, percent(thread.busy));
        format!(", its busiest thread ({name}) was busy for {busy} of the time")
    });
    let in_sync = process.in_sync.map_or_else(
        || ", whether it syncs files is not known".to_owned(),
        |share| format!(", in a sync of a file for {}", percent(share)),
    );
    let starved = match process.waited_for_cpus {
        ..0.2 => String::new(),
        waited => format!(", ready and without a CPU for {}", percent(waited)),
    };
    format!(
        "{who}: {:.2} CPUs used{starved}{busiest}{in_sync}",
        process.cpus
    )
}

/// A share in words.
pub(super) fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

/// Calls a second in words.
pub(super) fn rate(rate: f64) -> String {
    match rate {
        ..10.0 => format!("{rate:.1}/s"),
        _ => format!("{rate:.0}/s"),
    }
}

/// A number of times in words.
pub(super) fn times(ratio: f64) -> String {
    match ratio {
        ..10.0 => format!("{ratio:.1} times"),
        _ => format!("{ratio:.0} times"),
    }
}
