//! Connection modes of brpc and SRPC: shared, pooled, and one for each call.

use std::time::Duration;

use super::claim::{Claim, Published, needed, printed, rate};
use super::measurements::{MeasuredRun, Measurements};
use super::plan::{
    PlannedClient, PlannedRun, PlannedServer, PublishedCount, ScenarioPlan, ScenarioScale, words,
};

pub(super) const PUBLICATION: &str = "\
    sogou/srpc#376 and what was answered there: 32 bytes, 16 + 16 threads, 10 GbE. In a virtual \
    machine SRPC 57 615 calls/s with 128 parallel (2220 µs), brpc over one connection 118 826 \
    (1075 µs), brpc pooled like SRPC, its CPUs at 40 %; the packets a second of its network are \
    named as the cause. On a physical machine with 1024 parallel: SRPC 170 k (6000 µs), brpc \
    pooled 150 k (7000 µs), brpc over one connection 250 k (4000 µs)";

/// Packets a second that the relay lets through: far fewer than calls that either mode can make
/// without it, and far more than its timer is coarse.
const PACKETS_PER_S: u32 = 10_000;

/// The server that most runs have.
const ALL_CPUS: &str = "all CPUs";

const FEW: u32 = 64;
const MIDDLE: u32 = 256;
const MANY: u32 = 1_024;
/// Of the messages that are merged: ten requests of 32 bytes.
const MERGED: f64 = 10.0;

const PIPELINING: Published = Published {
    text: "many calls at a time on one connection beat pooled connections (118 826 against 57 615 \
           calls/s with 128 parallel; 250 k against 150 k with 1024)",
    criterion: "with 256 parallel at least 1.2 times as many calls a second",
};
const SRPC_LIKE_POOLED: Published = Published {
    text: "SRPC, which has one call at a time on a connection, does as much as brpc with pooled \
           connections",
    criterion: "with 256 parallel between 0.75 and 1.35 times as many calls a second",
};
const SHORT: Published = Published {
    text: "a connection for each call is the slowest mode",
    criterion: "with 64 parallel at most half as many calls a second as with pooled connections",
};
const MORE_PARALLEL: Published = Published {
    text: "with pooled connections more parallel calls bring latency, not throughput (64 to 1024: \
           56 to 75 k calls/s)",
    criterion: "from 64 to 1024 at most 1.5 times as many calls a second, with at least 8 times \
                the median latency",
};
const PACKETS: Published = Published {
    text: "packets a second are the cause: a network that carries so many and no more holds \
           pooled connections down, and a shared one, whose packets carry many calls, hardly",
    criterion: "behind a relay that lets 10 000 packets a second through, pooled connections end \
                within 15 % of 10 000 calls a second with 64 and with 256 parallel, and one \
                connection makes at least twice as many",
};
const IDLE_CPU: Published = Published {
    text: "CPU use that is seen inside a virtual machine misleads: 40 %, and yet no more goes",
    criterion: "behind the same relay, which holds 256 parallel calls down to its limit, the \
                server's CPU is busy for less than half of the time while calls a second stand \
                still from 64 to 256 parallel",
};
const THREADS: Published = Published {
    text: "as many threads as there are CPUs are best",
    criterion: "with 256 parallel over pooled connections, neither one thread nor sixteen make \
                more than 1.1 times as many calls a second as one for each CPU, and one of the two \
                at most 0.9 times as many",
};
const BUFFERS: Published = Published {
    text: "larger TCP buffers help",
    criterion: "with messages of 32 KiB, 64 at a time on one connection, at least 1.1 times as \
                many calls a second with the kernel's own buffers as with 8 KiB",
};
const MERGING: Published = Published {
    text: "merging small requests into larger ones helps",
    criterion: "ten requests of 32 bytes in one of 320, 256 parallel over pooled connections: at \
                least 4 times as many of them a second",
};
const PHYSICAL: Published = Published {
    text: "a physical machine, with a network card that has many queues, does a multiple of the \
           virtual one (170 k instead of 75 k)",
    criterion: "the same runs over a network between two machines of either kind",
};

/// Name of the run of a mode.
fn named(mode: &str, parallel: u32) -> String {
    format!("{mode} × {parallel}")
}

fn limited(mode: &str, parallel: u32) -> String {
    format!("{mode} × {parallel}, few packets")
}

/// Arguments of the load for a mode.
fn load(mode: &str, parallel: u32, bytes: u32) -> String {
    match mode {
        "single" => format!(
            "--protocol baidu_std --mode single --connections 1 --in-flight {parallel} --echo \
             {bytes}"
        ),
        "srpc" => format!("--protocol srpc --connections {parallel} --echo {bytes}"),
        mode => {
            format!("--protocol baidu_std --mode {mode} --connections {parallel} --echo {bytes}")
        }
    }
}

/// Calls a second in the virtual machine of the publication.
fn published(mode: &str, parallel: u32) -> Option<&'static str> {
    match (mode, parallel) {
        ("srpc", 64) => Some("56140"),
        ("srpc", 128) => Some("59491"),
        ("srpc", 256) => Some("61938"),
        ("srpc", 512) => Some("63486"),
        ("srpc", 1024) => Some("74785"),
        ("single", 128) => Some("118826"),
        ("pooled", _) => Some("like srpc"),
        _ => None,
    }
}

/// Makes runs of one length.
struct ModeRuns {
    warm_up_ms: u64,
    ms: u64,
    runs: Vec<PlannedRun>,
}

impl ModeRuns {
    fn push(&mut self, name: String, server: &'static str, arguments: &str) -> &mut PlannedRun {
        let (warm_up_ms, ms) = (self.warm_up_ms, self.ms);
        self.runs.push(PlannedRun {
            name,
            server,
            relay: None,
            client: PlannedClient::Pelton(words(&format!(
                "{arguments} --warm-up {warm_up_ms}ms --duration {ms}ms"
            ))),
            client_cpu: None,
            duration: Duration::from_millis(warm_up_ms + ms),
            published: None,
            counted: PublishedCount::Calls,
        });
        let last = self.runs.len() - 1;
        &mut self.runs[last]
    }

    /// Each mode with ever more calls at a time.
    fn push_modes(&mut self, parallel: &[u32]) {
        for mode in ["single", "pooled", "srpc"] {
            for parallel in parallel.iter().copied() {
                let arguments = load(mode, parallel, 32);
                let run = self.push(named(mode, parallel), ALL_CPUS, &arguments);
                run.published = published(mode, parallel);
            }
        }
        self.push(named("short", FEW), ALL_CPUS, &load("short", FEW, 32));
    }

    /// What a limit on packets leaves of two modes.
    fn push_limited(&mut self) {
        let relay = format!("--packets-per-second {PACKETS_PER_S}");
        for mode in ["single", "pooled"] {
            for parallel in [FEW, MIDDLE] {
                let arguments = load(mode, parallel, 32);
                let run = self.push(limited(mode, parallel), ALL_CPUS, &arguments);
                run.relay = Some(words(&relay));
            }
        }
    }

    /// Other threads, messages and buffers.
    fn push_others(&mut self) {
        let pooled = load("pooled", MIDDLE, 32);
        self.push("pooled × 256, 1 thread".into(), "1 thread", &pooled);
        self.push("pooled × 256, 16 threads".into(), "16 threads", &pooled);
        let merged = load("pooled", MIDDLE, 320);
        self.push("pooled × 256, ten in one".into(), ALL_CPUS, &merged);
        let large = load("single", FEW, 32 << 10);
        self.push("single × 64, 32 KiB".into(), ALL_CPUS, &large);
        let name = "single × 64, 32 KiB, small buffers";
        self.push(name.into(), "small buffers", &large);
    }
}

pub(super) fn plan(scale: ScenarioScale) -> ScenarioPlan {
    let (warm_up_ms, ms) = scale.of([(20, 100), (200, 1_000), (1_000, 20_000)]);
    let mut runs = ModeRuns {
        warm_up_ms,
        ms,
        runs: Vec::new(),
    };
    runs.push_modes(match scale {
        ScenarioScale::Full => &[FEW, 128, MIDDLE, 512, MANY],
        ScenarioScale::Quick | ScenarioScale::Short => &[FEW, MIDDLE, MANY],
    });
    runs.push_limited();
    runs.push_others();
    let server = |name, arguments: &str| PlannedServer {
        name,
        arguments: words(&format!("--durability volatile {arguments}")),
    };
    ScenarioPlan {
        servers: vec![
            server(ALL_CPUS, ""),
            server("1 thread", "--threads 1"),
            server("16 threads", "--threads 16"),
            server(
                "small buffers",
                "--tcp-send-buffer 8KiB --tcp-receive-buffer 8KiB",
            ),
        ],
        runs: runs.runs,
        rounds: scale.of([1, 3, 3]),
    }
}

pub(super) fn judge(measured: &Measurements) -> Vec<Claim> {
    vec![
        PIPELINING.judged(pipelining(measured)),
        SRPC_LIKE_POOLED.judged(srpc_like_pooled(measured)),
        SHORT.judged(short(measured)),
        MORE_PARALLEL.judged(more_parallel(measured)),
        PACKETS.judged(packets(measured)),
        IDLE_CPU.judged(idle_cpu(measured)),
        THREADS.judged(threads(measured)),
        BUFFERS.judged(buffers(measured)),
        MERGING.judged(merging(measured)),
        PHYSICAL.judged(Err("client and server are on one machine".into())),
    ]
}

fn pipelining(measured: &Measurements) -> Result<(bool, String), String> {
    let single = rate(measured, &named("single", MIDDLE))?;
    let pooled = rate(measured, &named("pooled", MIDDLE))?;
    let factor = single / pooled;
    Ok((
        factor >= 1.2,
        format!("{single:.0} against {pooled:.0} calls/s: × {factor:.2}"),
    ))
}

fn srpc_like_pooled(measured: &Measurements) -> Result<(bool, String), String> {
    let srpc = rate(measured, &named("srpc", MIDDLE))?;
    let pooled = rate(measured, &named("pooled", MIDDLE))?;
    let factor = srpc / pooled;
    Ok((
        (0.75..=1.35).contains(&factor),
        format!("{srpc:.0} against {pooled:.0} calls/s: × {factor:.2}"),
    ))
}

fn short(measured: &Measurements) -> Result<(bool, String), String> {
    let short = rate(measured, &named("short", FEW))?;
    let pooled = rate(measured, &named("pooled", FEW))?;
    Ok((
        short <= pooled / 2.0,
        format!("{short:.0} against {pooled:.0} calls/s"),
    ))
}

fn more_parallel(measured: &Measurements) -> Result<(bool, String), String> {
    let (few, many) = (named("pooled", FEW), named("pooled", MANY));
    let (slow, fast) = (rate(measured, &few)?, rate(measured, &many)?);
    let short_us = printed(measured, &few, "p50_us")?;
    let long_us = printed(measured, &many, "p50_us")?;
    Ok((
        fast <= slow * 1.5 && long_us >= short_us * 8.0,
        format!(
            "{slow:.0} to {fast:.0} calls/s (× {:.2}), median {short_us:.0} to {long_us:.0} µs (× \
             {:.1})",
            fast / slow,
            long_us / short_us
        ),
    ))
}

/// Calls a second of pooled connections without the relay.
///
/// # Errors
/// If there are so few that the relay would not hold them down.
fn without_relay(measured: &Measurements) -> Result<f64, String> {
    let free = rate(measured, &named("pooled", MIDDLE))?;
    match free < f64::from(PACKETS_PER_S) * 2.0 {
        true => Err(format!(
            "pooled connections make {free:.0} calls a second without the relay, so it does not \
             hold them down"
        )),
        false => Ok(free),
    }
}

/// Whether the relay's limit is what calls a second come to.
fn is_held(rate: f64) -> bool {
    let limit = f64::from(PACKETS_PER_S);
    (limit * 0.85..=limit * 1.15).contains(&rate)
}

fn packets(measured: &Measurements) -> Result<(bool, String), String> {
    let few = rate(measured, &limited("pooled", FEW))?;
    let middle = rate(measured, &limited("pooled", MIDDLE))?;
    let single = rate(measured, &limited("single", MIDDLE))?;
    let free = without_relay(measured)?;
    Ok((
        is_held(few) && is_held(middle) && single >= middle * 2.0,
        format!(
            "pooled {few:.0} and {middle:.0} calls/s (without the relay {free:.0}), one \
             connection {single:.0}; over loopback with a limiter, which is a model of such a \
             network"
        ),
    ))
}

/// The share of one CPU that the server was busy for.
fn busy(measured: &Measurements, run: &str) -> Result<f64, String> {
    needed(measured, run, |run: &MeasuredRun| {
        (run.elapsed_ns > 0).then_some(run.server_cpu_ns? as f64 / run.elapsed_ns as f64)
    })
}

fn idle_cpu(measured: &Measurements) -> Result<(bool, String), String> {
    let few = rate(measured, &limited("pooled", FEW))?;
    let middle = rate(measured, &limited("pooled", MIDDLE))?;
    let busy = busy(measured, &limited("pooled", MIDDLE))?;
    without_relay(measured)?;
    Ok((
        busy < 0.5 && middle <= few * 1.1 && is_held(middle),
        format!(
            "{few:.0} and {middle:.0} calls/s with the server busy for {:.0} % of a CPU",
            busy * 100.0
        ),
    ))
}

fn threads(measured: &Measurements) -> Result<(bool, String), String> {
    let cpus = rate(measured, &named("pooled", MIDDLE))?;
    let one = rate(measured, "pooled × 256, 1 thread")?;
    let sixteen = rate(measured, "pooled × 256, 16 threads")?;
    Ok((
        one.max(sixteen) <= cpus * 1.1 && one.min(sixteen) <= cpus * 0.9,
        format!("{one:.0} with 1, {cpus:.0} with one for each CPU, {sixteen:.0} with 16"),
    ))
}

fn buffers(measured: &Measurements) -> Result<(bool, String), String> {
    let usual = rate(measured, "single × 64, 32 KiB")?;
    let small = rate(measured, "single × 64, 32 KiB, small buffers")?;
    Ok((
        usual >= small * 1.1,
        format!("{small:.0} to {usual:.0} calls/s: × {:.2}", usual / small),
    ))
}

fn merging(measured: &Measurements) -> Result<(bool, String), String> {
    let alone = rate(measured, &named("pooled", MIDDLE))?;
    let merged = rate(measured, "pooled × 256, ten in one")? * MERGED;
    Ok((
        merged >= alone * 4.0,
        format!(
            "{alone:.0} to {merged:.0} requests/s: × {:.1}",
            merged / alone
        ),
    ))
}

#[cfg(test)]
mod tests {
    use super::super::claim::tests::{add, verdicts};
    use super::*;

    /// One round; `factor` is what each effect is worth, 1 for none.
    fn measured(factor: f64) -> Measurements {
        let mut measured = Measurements::default();
        let mut put = |name: String, rate: f64, p50_us: f64| {
            let figures = [("calls_per_s", rate), ("p50_us", p50_us)];
            add(&mut measured, &name, &figures);
        };
        put(named("single", MIDDLE), 50_000.0 * factor, 100.0);
        put(named("pooled", FEW), 50_000.0, 100.0);
        put(named("pooled", MIDDLE), 50_000.0, 400.0);
        put(
            named("pooled", MANY),
            50_000.0 * 2.0 / factor.min(2.0),
            50.0 * factor * 16.0,
        );
        put(named("srpc", MIDDLE), 100_000.0 / factor, 400.0);
        put(named("short", FEW), 50_000.0 / factor, 100.0);
        put(
            limited("pooled", FEW),
            if factor > 1.0 { 10_000.0 } else { 40_000.0 },
            1.0,
        );
        put(limited("single", MIDDLE), 40_000.0, 1.0);
        put("pooled × 256, 1 thread".into(), 80_000.0 / factor, 1.0);
        put("pooled × 256, 16 threads".into(), 40_000.0, 1.0);
        put("pooled × 256, ten in one".into(), 15_000.0 * factor, 1.0);
        put("single × 64, 32 KiB".into(), 15_000.0 * factor, 1.0);
        put("single × 64, 32 KiB, small buffers".into(), 15_000.0, 1.0);
        let mut run = MeasuredRun {
            name: limited("pooled", MIDDLE),
            server_cpu_ns: Some((800_000_000.0 / factor) as u64),
            elapsed_ns: 1_000_000_000,
            ..MeasuredRun::default()
        };
        let rate = if factor > 1.0 { 10_500.0 } else { 80_000.0 };
        run.figures.insert("calls_per_s".into(), rate.into());
        measured.add(run);
        measured
    }

    #[test]
    fn effects_that_are_there_are_seen() {
        let claims = judge(&measured(2.0));
        let mut expected = vec!["reproduced"; 9];
        expected.push("cannot-be-seen");
        assert_eq!(verdicts(&claims), expected, "{claims:#?}");
    }

    #[test]
    fn effects_that_are_absent_are_not() {
        let claims = judge(&measured(1.0));
        let mut expected = vec!["not-reproduced"; 9];
        // Ten in one is three times as much even without an effect of its own.
        expected.push("cannot-be-seen");
        assert_eq!(verdicts(&claims), expected, "{claims:#?}");
    }

    #[test]
    fn a_machine_that_is_too_slow_for_the_relay_shows_nothing_of_packets() {
        let mut slow = Measurements::default();
        for (name, rate) in [
            (limited("pooled", FEW), 9_900.0),
            (limited("pooled", MIDDLE), 10_000.0),
            (limited("single", MIDDLE), 30_000.0),
            (named("pooled", MIDDLE), 12_000.0),
        ] {
            add(&mut slow, &name, &[("calls_per_s", rate)]);
        }
        let claim = PACKETS.judged(packets(&slow));
        assert_eq!(claim.verdict.name(), "cannot-be-seen");
        let mut run = MeasuredRun {
            name: limited("pooled", MIDDLE),
            server_cpu_ns: Some(100),
            elapsed_ns: 1_000,
            ..MeasuredRun::default()
        };
        run.figures.insert("calls_per_s".into(), 10_000.0.into());
        slow.add(run);
        let claim = IDLE_CPU.judged(idle_cpu(&slow));
        assert_eq!(claim.verdict.name(), "cannot-be-seen");
    }

    /// A server that is idle for another reason than packets, and threads that do not matter.
    #[test]
    fn what_stands_still_for_another_reason_reproduces_nothing() {
        let mut same = Measurements::default();
        for name in [
            limited("pooled", FEW),
            named("pooled", MIDDLE),
            "pooled × 256, 1 thread".into(),
            "pooled × 256, 16 threads".into(),
        ] {
            add(&mut same, &name, &[("calls_per_s", 30_000.0)]);
        }
        let mut run = MeasuredRun {
            name: limited("pooled", MIDDLE),
            server_cpu_ns: Some(100),
            elapsed_ns: 1_000,
            ..MeasuredRun::default()
        };
        run.figures.insert("calls_per_s".into(), 30_000.0.into());
        same.add(run);
        for claim in [
            IDLE_CPU.judged(idle_cpu(&same)),
            THREADS.judged(threads(&same)),
        ] {
            assert_eq!(claim.verdict.name(), "not-reproduced", "{claim:?}");
        }
    }

    #[test]
    fn a_short_run_fits_into_three_minutes() {
        let plan = plan(ScenarioScale::Short);
        assert!(
            plan.duration() <= Duration::from_secs(120),
            "{:?}",
            plan.duration()
        );
    }
}
