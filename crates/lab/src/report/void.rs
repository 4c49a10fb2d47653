//! When a result says more about the generator than about the server.

use crate::limits;
use crate::load_plan::{Length, LoadPlan};
use crate::pacing::Pace;
use crate::run::LoadOutcome;

/// Why a result must not be believed; empty: it may.
pub(super) fn reasons(plan: &LoadPlan, outcome: &LoadOutcome) -> Vec<String> {
    let mut reasons = Vec::new();
    if let (true, Length::Calls(calls)) = (outcome.tally.is_server_gone, plan.length) {
        reasons.push(format!(
            "the server is gone: no connection to {} could be made for {} s, and the run ended \
             after {} of {calls} calls",
            plan.address,
            limits::SERVER_GONE.as_secs(),
            outcome.tally.succeeded + outcome.tally.failures() + outcome.tally.unfinished
        ));
    }
    if let (true, Length::Calls(calls)) = (outcome.tally.is_server_stalled, plan.length) {
        reasons.push(format!(
            "the server stalled: no call to {} ended for {} s while {} were under way, and the run \
             ended after {} of {calls} calls; where calls may take longer, --deadline says how \
             long",
            plan.address,
            plan.worker.stall_ns() / 1_000_000_000,
            outcome.tally.unfinished + outcome.tally.unfinished_before,
            outcome.tally.succeeded + outcome.tally.failures()
        ));
    }
    let is_busy = |percent: &f64| *percent > limits::BUSY_PERCENT as f64;
    if let Some(percent) = outcome.busiest_percent.filter(is_busy) {
        reasons.push(format!(
            "the generator is the limit: a thread of it was on its CPU for {percent:.0} % of the \
             time; use more --threads, on CPUs that the server does not use (--pin)"
        ));
    }
    if let Some(rate) = plan.worker.pace.mean_rate() {
        if outcome.tally.succeeded == 0 {
            reasons.push("no call succeeded, so that there is no latency to measure".into());
        } else {
            reasons.extend(lag(outcome));
        }
        reasons.extend(behind(plan, rate, outcome));
    }
    reasons
}

/// Why latencies are higher than the server made them although the generator did what it could: the
/// machine did not wake it in time.
pub(super) fn noise(plan: &LoadPlan, outcome: &LoadOutcome) -> Option<String> {
    let late =
        Lateness::of(outcome).filter(|late| plan.worker.pace != Pace::Closed && late.is_noise());
    late.map(|late| {
        format!(
            "this machine is busy or stalls: it woke a thread that only looks at the clock {} µs \
             late (p99), and the generator {} µs late, which is part of the latencies; the \
             server's own are lower. End what else runs, or give server and generator CPUs that \
             nobody else uses (--pin)",
            late.stall_ns / 1_000,
            late.lag_ns / 1_000
        )
    })
}

/// An open loop whose calls ended more slowly than they came due.
#[derive(Clone, Debug)]
pub(super) struct Behind {
    /// Calls a second that were asked for, and that ended.
    asked: f64,
    reached: f64,
    /// Seconds of the measured time until which it kept up.
    pub(super) since_s: f64,
    waited: u64,
}

impl Behind {
    /// `None`: it kept up, or is a closed loop, which has nothing to keep up with.
    pub(super) fn of(plan: &LoadPlan, outcome: &LoadOutcome) -> Option<Behind> {
        let (rate, peak) = (plan.worker.pace.mean_rate()?, plan.worker.pace.peak_rate()?);
        let tally = &outcome.tally;
        if outcome.elapsed_ns == 0 || tally.keeps_up(peak) {
            return None;
        }
        let since_ns = tally.kept_up_until_ns.saturating_sub(outcome.from_ns);
        Some(Behind {
            asked: rate,
            reached: tally.ended_in_window as f64 * 1e9 / outcome.elapsed_ns as f64,
            since_s: since_ns.min(outcome.elapsed_ns) as f64 / 1e9,
            waited: tally.waited,
        })
    }
}

impl std::fmt::Display for Behind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "--rate asks for {} calls/s, {:.0}/s were reached: behind since {:.2} s of the \
             measured time. The latencies below grow with the time that it lasts; lower --rate",
            self.asked, self.reached, self.since_s
        )?;
        match self.waited {
            0 => Ok(()),
            _ => f.write_str(
                ", or give more places (--connections, --in-flight) if the server has time left",
            ),
        }
    }
}

/// 99th percentiles of a run whose generator was so late that its lag is a part of the latencies
/// that it shows.
struct Lateness {
    lag_ns: u64,
    latency_ns: u64,
    /// Of a thread that only looks at the clock.
    stall_ns: u64,
}

impl Lateness {
    fn of(outcome: &LoadOutcome) -> Option<Lateness> {
        let tally = &outcome.tally;
        let late = Lateness {
            lag_ns: tally.lag_ns.value_at_quantile(0.99),
            latency_ns: tally.latency_ns.value_at_quantile(0.99),
            stall_ns: (outcome.stalls.as_ref())
                .map_or(0, |stalls| stalls.late_ns.value_at_quantile(0.99)),
        };
        let is_late = late.lag_ns > limits::LAG_ALLOWED.as_nanos() as u64
            && late.lag_ns * 100 > late.latency_ns * limits::LAG_SHARE_PERCENT;
        is_late.then_some(late)
    }

    /// Whether the machine explains it.
    fn is_noise(&self) -> bool {
        self.lag_ns <= self.stall_ns.saturating_mul(limits::STALL_FACTOR)
    }
}

/// The generator took up what was due so late that its own lag is a part of the latencies that it
/// shows.
fn lag(outcome: &LoadOutcome) -> Option<String> {
    let late = Lateness::of(outcome).filter(|late| !late.is_noise());
    late.map(|late| {
        let (lag_us, latency_us) = (late.lag_ns / 1_000, late.latency_ns / 1_000);
        let late = format!("late by {lag_us} µs (p99) where the latency is {latency_us} µs (p99)");
        match but_idle(outcome) {
            None => format!(
                "the generator is the limit: it was {late}; lower --rate, or use more --threads, \
                 on CPUs that nobody else uses (--pin)"
            ),
            Some(but_idle) => format!(
                "calls were begun {late}, {but_idle}: something held it up; lower --rate, or give \
                 it CPUs that nobody else uses (--pin)"
            ),
        }
    })
}

/// Says that no thread of the generator had so much to do that another one would help, if that is
/// known.
fn but_idle(outcome: &LoadOutcome) -> Option<String> {
    let is_idle = |percent: &f64| *percent < limits::IDLE_PERCENT as f64;
    let percent = outcome.busiest_percent.filter(is_idle)?;
    Some(format!(
        "although the generator's busiest thread was busy for only {percent:.0} % of the time"
    ))
}

/// Fewer calls came due than the rate says, or some were never sent.
fn behind(plan: &LoadPlan, rate: f64, outcome: &LoadOutcome) -> Option<String> {
    let tally = &outcome.tally;
    if tally.never_sent > 0 {
        return Some(format!(
            "{} calls were never sent, because {} waited already: the server does not keep up with \
             --rate",
            tally.never_sent,
            limits::MAX_BACKLOG
        ));
    }
    let wanted = rate * outcome.elapsed_ns as f64 / 1e9;
    let allowed = wanted * limits::RATE_SHARE_PERCENT as f64 / 100.0;
    // The spread of a Poisson process, and the rounding of a short run.
    let spread = 4.0 * wanted.sqrt() + 2.0;
    let is_behind = matches!(plan.length, Length::Duration(_))
        && !outcome.was_stopped
        && (tally.due as f64) < allowed - spread;
    is_behind.then(|| match but_idle(outcome) {
        None => format!(
            "the generator is the limit: it took up {} of the {wanted:.0} calls that --rate asks \
             for; lower it, or use more --threads",
            tally.due
        ),
        Some(but_idle) => format!(
            "{} of the {wanted:.0} calls that --rate asks for were taken up, {but_idle}: something \
             held it up; lower --rate",
            tally.due
        ),
    })
}
