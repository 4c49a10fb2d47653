//! Makes the experiments of our own generator.

use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use net::monotonic_ns;

use super::compression::{is_uncompressed_worth_trying, still_compressed};
use super::evidence::{EarlyEnd, LoadCeiling, LoadEvidence, LoadPoint};
use super::ladder::{LoadShape, best, next_in_flight, pace, shape};
use super::limits::{
    DIAGNOSE_DEADLINE, EXPERIMENT, EXPERIMENT_CALLS, EXPERIMENT_MAX, EXPERIMENT_WARM_UP,
    FIRST_CALLS, FIRST_CALLS_TIME, PADDING_FACTOR, PADDING_LEAST_BYTES, PADDING_MOST_BYTES,
    SPREAD_CONNECTIONS, STOP_ERRORS_LEAST, STOP_ERRORS_PERCENT,
};
use super::process_watch::{WatchSwitch, WatchedProcesses, WatchedUse, watch_processes};
use super::small_messages::lacks_cpu;
use super::system_folders::SystemFolders;
use super::way_verdict::{is_larger_worth_trying, is_spread_worth_trying};
use crate::load_plan::{Length, LoadPlan};
use crate::pacing::Pace;
use crate::process::thread_cpu_ns;
use crate::run::{LoadOutcome, run};
use crate::run_watch::LoadProgress;
use crate::worker::LoadRunError;
use crate::workload::{ExperimentCalls, KeptAnswers, PeltonWorkload, Workload};

/// What is loaded, and how much.
#[derive(Clone, Debug)]
pub struct LoadSubject {
    /// How calls are made; connections, calls in flight, pace and times are filled in.
    pub plan: LoadPlan,
    /// What is allowed.
    pub ceiling: LoadCeiling,
    /// The server's processes on this machine; empty: not known.
    pub server_processes: Vec<u32>,
    /// There and back to the server; `None`: it is on this machine.
    pub round_trip_ns: Option<u64>,
}

/// Watches the server from the switch's begin to its end, and no longer than so many nanoseconds:
/// an agent on its machine does.
pub type ServerWatch<'a> = &'a (dyn Fn(&WatchSwitch, u64) -> WatchedUse + Sync);

/// Makes a workload of a Pelton server with several operations in each message.
pub type MakeBatches<'a> = &'a (dyn Fn() -> PeltonWorkload + Sync);

/// Experiments that go on.
pub struct LoadDiagnosis<'a> {
    subject: &'a LoadSubject,
    folders: &'a SystemFolders,
    is_stopped: &'a dyn Fn() -> bool,
    /// Watches in the place of this machine.
    server_watch: Option<ServerWatch<'a>>,
    /// Makes the same operations, several in each message.
    batches: Option<MakeBatches<'a>>,
    begin_ns: u64,
    /// The first calls, which are too few to be evidence.
    first: Vec<LoadPoint>,
    /// Answers of the experiment without compression.
    kept: Mutex<KeptAnswers>,
    evidence: LoadEvidence,
    /// The last experiment was ended, as its calls came faster than is allowed.
    is_above_ceiling: bool,
    /// How long the last experiment was measured, in nanoseconds.
    measured_ns: u64,
}

/// What experiments differ in.
#[derive(Clone, Copy)]
struct ExperimentShape {
    connections: usize,
    /// Calls in flight on each.
    in_flight: usize,
    /// Bytes that requests have more.
    padding_bytes: usize,
    /// The server may compress its responses.
    accepts_gzip: bool,
}

impl ExperimentShape {
    /// The user's calls as they are.
    fn plain(connections: usize, in_flight: usize) -> ExperimentShape {
        ExperimentShape {
            connections,
            in_flight,
            padding_bytes: 0,
            accepts_gzip: true,
        }
    }
}

/// What one experiment does.
#[derive(Clone, Copy)]
struct Experiment {
    shape: ExperimentShape,
    pace: Pace,
    length: Length,
    most_ns: u64,
}

impl<'a> LoadDiagnosis<'a> {
    /// Experiments that have not begun. `is_stopped`: the user wants no more.
    pub fn new(
        subject: &'a LoadSubject,
        folders: &'a SystemFolders,
        is_stopped: &'a dyn Fn() -> bool,
    ) -> LoadDiagnosis<'a> {
        LoadDiagnosis {
            subject,
            folders,
            is_stopped,
            server_watch: None,
            batches: None,
            begin_ns: monotonic_ns(),
            first: Vec::new(),
            kept: Mutex::default(),
            evidence: LoadEvidence {
                ceiling: subject.ceiling,
                one: Vec::new(),
                spread: None,
                again: None,
                alone: None,
                larger: None,
                uncompressed: None,
                still_compressed: None,
                batched: None,
                round_trip_ns: subject.round_trip_ns,
                agent: None,
                early_end: None,
            },
            is_above_ceiling: false,
            measured_ns: 0,
        }
    }

    /// Has the server watched by somebody else than this machine.
    #[must_use]
    pub fn watched_by(self, watch: Option<ServerWatch<'a>>) -> LoadDiagnosis<'a> {
        LoadDiagnosis {
            server_watch: watch,
            ..self
        }
    }

    /// Has the same operations tried several in one message, where that can tell anything.
    #[must_use]
    pub fn with_batches(self, batches: Option<MakeBatches<'a>>) -> LoadDiagnosis<'a> {
        LoadDiagnosis { batches, ..self }
    }

    /// Makes all experiments that are needed, and returns what they measured. `make` makes the
    /// workload of an experiment; `show` is given each of them when it is over.
    ///
    /// # Errors
    /// If the first connection cannot be made, or no call can be made at all.
    pub fn run<W: Workload>(
        mut self,
        make: impl Fn() -> W + Sync,
        show: &mut dyn FnMut(&LoadPoint),
    ) -> Result<LoadEvidence, LoadRunError> {
        let first = Experiment {
            shape: ExperimentShape::plain(1, 1),
            pace: Pace::Closed,
            length: Length::Calls(FIRST_CALLS),
            most_ns: FIRST_CALLS_TIME.as_nanos() as u64,
        };
        let point = self.measure(&first, &make)?;
        // What a call takes, and not what the first ones took together, says how fast they can be.
        self.first.extend(point.map(|point| LoadPoint {
            rate: 1e9 / point.p50_ns.max(1) as f64,
            ..point
        }));
        if self.first.is_empty() || self.evidence.early_end.is_some() {
            return Ok(self.evidence);
        }
        while let Some(in_flight) = next_in_flight(&self.evidence.one, &self.subject.ceiling) {
            match self.experiment(ExperimentShape::plain(1, in_flight), &make, show) {
                Some(point) => self.evidence.one.push(point),
                None => return Ok(self.evidence),
            }
        }
        self.compare(&make, show);
        Ok(self.evidence)
    }

    /// Where one connection brings no more: several of them, and the best of one once more.
    fn compare<W: Workload>(
        &mut self,
        make: &(impl Fn() -> W + Sync),
        show: &mut dyn FnMut(&LoadPoint),
    ) {
        let one = &self.evidence.one;
        let is_saturated = matches!(
            shape(one, &self.subject.ceiling),
            LoadShape::Saturated { .. }
        );
        let (Some(last), Some(best)) = (one.last(), best(one)) else {
            return;
        };
        if last.in_flight < 2 || !(is_saturated || is_spread_worth_trying(&self.evidence)) {
            return;
        }
        let best_in_flight = best.in_flight;
        let connections = last.in_flight.min(SPREAD_CONNECTIONS);
        let in_flight = last.in_flight / connections;
        let shape = ExperimentShape::plain(connections, in_flight);
        self.evidence.spread = self.experiment(shape, make, show);
        if self.evidence.spread.is_some() && is_saturated {
            let shape = ExperimentShape::plain(1, best_in_flight);
            self.evidence.again = self.experiment(shape, make, show);
            self.evidence.alone = self.experiment(ExperimentShape::plain(1, 1), make, show);
        }
        if is_saturated && is_larger_worth_trying(&self.evidence) {
            self.make_larger(best_in_flight, make, show);
        }
        if !is_saturated || !lacks_cpu(&self.evidence) {
            return;
        }
        if is_uncompressed_worth_trying(&self.evidence) {
            self.forgo_compression(best_in_flight, make, show);
        }
        if let Some(batches) = self.batches {
            let shape = ExperimentShape::plain(1, best_in_flight);
            self.evidence.batched = self.experiment(shape, &batches, show);
        }
    }

    /// Makes the best experiment on one connection, and accepts no compressed responses. There are
    /// servers that compress them all the same: what that costs is measured with some of them.
    fn forgo_compression<W: Workload>(
        &mut self,
        in_flight: usize,
        make: &(impl Fn() -> W + Sync),
        show: &mut dyn FnMut(&LoadPoint),
    ) {
        let shape = ExperimentShape {
            accepts_gzip: false,
            ..ExperimentShape::plain(1, in_flight)
        };
        self.evidence.uncompressed = self.experiment(shape, make, show);
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let point = self.evidence.uncompressed.as_ref();
        self.evidence.still_compressed =
            point.and_then(|point| still_compressed(point, &kept, &thread_cpu_ns));
    }

    /// Makes the best experiment on one connection with larger requests. A server that refuses them
    /// is no failure of the others.
    fn make_larger<W: Workload>(
        &mut self,
        in_flight: usize,
        make: &(impl Fn() -> W + Sync),
        show: &mut dyn FnMut(&LoadPoint),
    ) {
        let Some(best) = best(&self.evidence.one) else {
            return;
        };
        let request_bytes = best.bytes_per_s.0 / best.rate.max(1e-9);
        let padding_bytes = (request_bytes * PADDING_FACTOR) as usize;
        let padding_bytes = padding_bytes.clamp(PADDING_LEAST_BYTES, PADDING_MOST_BYTES);
        let early_end = self.evidence.early_end.clone();
        let shape = ExperimentShape {
            padding_bytes,
            ..ExperimentShape::plain(1, in_flight)
        };
        self.evidence.larger = self.experiment(shape, make, show);
        if let Some(EarlyEnd::Failures(_)) = &self.evidence.early_end {
            self.evidence.early_end = early_end;
        }
    }

    /// Makes one experiment; `None`: it was not to be, or came to nothing, which is noted.
    fn experiment<W: Workload>(
        &mut self,
        shape: ExperimentShape,
        make: &(impl Fn() -> W + Sync),
        show: &mut dyn FnMut(&LoadPoint),
    ) -> Option<LoadPoint> {
        if self.evidence.early_end.is_some() {
            return None;
        }
        let known = [self.first.as_slice(), self.evidence.one.as_slice()].concat();
        let last_ns = known.last().map_or(0, |point| point.mean_ns);
        let length = Duration::from_nanos(last_ns)
            .saturating_mul(EXPERIMENT_CALLS)
            .clamp(EXPERIMENT, EXPERIMENT_MAX);
        let most_ns = (length + EXPERIMENT_WARM_UP).as_nanos() as u64;
        let spent_ns = monotonic_ns().saturating_sub(self.begin_ns);
        if spent_ns.saturating_add(most_ns) > self.subject.ceiling.time_ns {
            self.evidence.early_end = Some(EarlyEnd::Time);
            return None;
        }
        let mut experiment = Experiment {
            shape,
            pace: pace(
                &known,
                shape.connections * shape.in_flight,
                &self.subject.ceiling,
            ),
            length: Length::Duration(length),
            most_ns: u64::MAX,
        };
        let mut measured = self.measure(&experiment, make);
        if self.is_above_ceiling && self.evidence.early_end.is_none() {
            // What was measured before was slower than the service is: with a schedule, then.
            self.first.extend(measured.ok().flatten());
            experiment.pace = self.subject.ceiling.pace();
            measured = self.measure(&experiment, make);
        }
        match measured {
            Ok(point) => {
                let point = point.filter(|point| !self.is_cut_off(point, length));
                point.iter().for_each(show);
                point
            }
            Err(error) => {
                self.evidence.early_end = Some(EarlyEnd::Failures(error.to_string()));
                None
            }
        }
    }

    /// Whether an experiment was ended before it could be compared with others. What the first one
    /// has measured is reported all the same: there is nothing else.
    fn is_cut_off(&self, point: &LoadPoint, length: Duration) -> bool {
        let is_short = u128::from(self.measured_ns) * 2 < length.as_nanos();
        let fails = point.failed_share() * 100.0 >= STOP_ERRORS_PERCENT as f64;
        self.evidence.early_end.is_some() && !self.evidence.one.is_empty() && (is_short || fails)
    }

    /// Runs an experiment; `None`: nothing ended in it.
    fn measure<W: Workload>(
        &mut self,
        experiment: &Experiment,
        make: &(impl Fn() -> W + Sync),
    ) -> Result<Option<LoadPoint>, LoadRunError> {
        let plan = self.plan(experiment);
        let switch = WatchSwitch::default();
        let mut ended = None;
        let (is_stopped, folders) = (self.is_stopped, self.folders);
        let watched = WatchedProcesses::Each(self.subject.server_processes.clone());
        let records_per_call = make().records_per_call();
        let begin_ns = monotonic_ns();
        let may_exceed = experiment.pace == Pace::Closed && experiment.most_ns == u64::MAX;
        let kept = (!experiment.shape.accepts_gzip).then_some(&self.kept);
        let rate = self.subject.ceiling.rate;
        let mut is_above = false;
        let mut show = |progress: &LoadProgress| {
            if progress.is_measuring {
                switch.begin();
            }
            let is_late = monotonic_ns().saturating_sub(begin_ns) >= experiment.most_ns;
            if is_stopped() {
                ended.get_or_insert(EarlyEnd::User);
            } else if fails_too_often(progress) {
                ended.get_or_insert(EarlyEnd::Failures(String::new()));
            } else {
                is_above |= may_exceed && is_too_fast(progress, rate);
                return !is_late && !is_above;
            }
            false
        };
        let (outcome, seen) = thread::scope(|scope| {
            let by = (folders, self.server_watch);
            let watching = watch(scope, by, (watched, &switch), plan.length);
            let make = |_| ExperimentCalls::new(make(), experiment.shape.padding_bytes, kept);
            let outcome = run(&plan, make, &mut show);
            switch.end();
            let seen = watching.and_then(|thread| thread.join().ok());
            (outcome, seen.unwrap_or_default())
        });
        self.is_above_ceiling = is_above;
        let outcome = match outcome {
            Err(LoadRunError::Stopped) => {
                self.evidence.early_end = Some(EarlyEnd::User);
                return Ok(None);
            }
            outcome => outcome?,
        };
        self.evidence.early_end = end_of(ended, &outcome);
        self.measured_ns = outcome.elapsed_ns;
        let point = LoadPoint {
            records_per_call,
            ..point(experiment, &plan, &outcome, seen)
        };
        Ok((point.succeeded > 0).then_some(point))
    }

    fn plan(&self, experiment: &Experiment) -> LoadPlan {
        let mut plan = self.subject.plan.clone();
        plan.threads = 1;
        plan.connections = experiment.shape.connections;
        plan.worker.in_flight = experiment.shape.in_flight;
        plan.accepts_gzip = experiment.shape.accepts_gzip;
        plan.worker.pace = experiment.pace;
        plan.worker.deadline_ns = Some(DIAGNOSE_DEADLINE.as_nanos() as u64);
        plan.length = experiment.length;
        plan.warm_up = match experiment.length {
            Length::Duration(_) => EXPERIMENT_WARM_UP,
            Length::Calls(_) => Duration::ZERO,
        };
        plan.stop_on_failure = false;
        plan
    }
}

/// Watches the server's processes on a thread of its own, while an experiment is measured.
fn watch<'scope, 'env>(
    scope: &'scope thread::Scope<'scope, 'env>,
    (folders, server_watch): (&'env SystemFolders, Option<ServerWatch<'env>>),
    (watched, switch): (WatchedProcesses, &'env WatchSwitch),
    length: Length,
) -> Option<thread::ScopedJoinHandle<'scope, WatchedUse>> {
    let Length::Duration(length) = length else {
        return None;
    };
    let watch = move || {
        let most_ns = length.as_nanos() as u64;
        if let Some(watch) = server_watch {
            return watch(switch, most_ns);
        }
        let seen = watch_processes(folders, &[watched], switch, most_ns);
        seen.into_iter().next().unwrap_or_default()
    };
    thread::Builder::new().spawn_scoped(scope, watch).ok()
}

/// Whether so many calls fail that no more are made.
fn fails_too_often(progress: &LoadProgress) -> bool {
    progress.failed >= STOP_ERRORS_LEAST
        && progress.failed * 100 >= progress.ended * STOP_ERRORS_PERCENT
}

/// Whether more calls have ended than a schedule of this rate would have had begin.
fn is_too_fast(progress: &LoadProgress, rate: f64) -> bool {
    progress.ended as f64 > rate * progress.elapsed_ns as f64 / 1e9
}

/// Returns why no further experiment is made, after one has ended: for `early`, if that is
/// something, or for its failures.
fn end_of(early: Option<EarlyEnd>, outcome: &LoadOutcome) -> Option<EarlyEnd> {
    let tally = &outcome.tally;
    let failed = tally.failures();
    let is_bad = failed > 0 && failed * 100 >= (failed + tally.succeeded) * STOP_ERRORS_PERCENT;
    let is_bad = (is_bad && failed >= STOP_ERRORS_LEAST) || tally.succeeded == 0;
    match early {
        Some(EarlyEnd::Failures(_)) => {}
        None if is_bad => {}
        other => return other,
    }
    let text = tally.first_failure.clone();
    let text = text.unwrap_or_else(|| "no call ended any more".to_owned());
    Some(EarlyEnd::Failures(text))
}

fn point(
    experiment: &Experiment,
    plan: &LoadPlan,
    outcome: &LoadOutcome,
    seen: WatchedUse,
) -> LoadPoint {
    let tally = &outcome.tally;
    let seconds = outcome.elapsed_ns.max(1) as f64 / 1e9;
    let failed = tally.failures();
    let rate = tally.ended_in_window.saturating_sub(failed) as f64 / seconds;
    let latency_ns = &tally.uncorrected_ns;
    let of_call = |bytes: u64| bytes as f64 / outcome.counters.ended.max(1) as f64;
    let loaded_ns = outcome.elapsed_ns + plan.warm_up.as_nanos() as u64;
    let shape = &experiment.shape;
    let all_ns = (loaded_ns as f64 * shape.connections as f64).max(1.0);
    LoadPoint {
        connections: shape.connections,
        in_flight: shape.connections * shape.in_flight,
        padding_bytes: shape.padding_bytes,
        accepts_gzip: shape.accepts_gzip,
        records_per_call: 1,
        rate,
        mean_ns: latency_ns.mean() as u64,
        p50_ns: latency_ns.value_at_quantile(0.5),
        p99_ns: latency_ns.value_at_quantile(0.99),
        succeeded: tally.succeeded,
        failed,
        bytes_per_s: (
            of_call(outcome.counters.bytes_out) * rate,
            of_call(outcome.counters.bytes_in) * rate,
        ),
        segments_per_s: outcome.tcp.map(|tcp| {
            let each_second = |segments: u64| segments as f64 / seconds;
            (each_second(tcp.segments_out), each_second(tcp.segments_in))
        }),
        generator_busy: outcome.busiest_percent.map(|percent| percent / 100.0),
        window_wait: (outcome.counters.window_wait_ns as f64 / all_ns).min(1.0),
        stream_limit: (tally.server_allows != u64::MAX).then_some(tally.server_allows),
        server: seen.process,
        machine: seen.machine,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_that_follow_each_other_too_fast_are_noticed() {
        let progress = |ended, ms: u64| LoadProgress {
            ended,
            elapsed_ns: ms * 1_000_000,
            ..LoadProgress::default()
        };
        assert!(!is_too_fast(&progress(100, 200), 500.0));
        assert!(is_too_fast(&progress(101, 200), 500.0));
        assert!(!is_too_fast(&progress(0, 0), 500.0));
    }

    #[test]
    fn a_few_failures_are_an_accident_and_one_in_a_hundred_is_none() {
        let progress = |ended, failed| LoadProgress {
            ended,
            failed,
            ..LoadProgress::default()
        };
        for (ended, failed, is_too_many) in [
            (2, 2, false),
            (3, 3, true),
            (300, 3, true),
            (301, 3, false),
            (0, 0, false),
        ] {
            assert_eq!(fails_too_often(&progress(ended, failed)), is_too_many);
        }
    }
}
