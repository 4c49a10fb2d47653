//! Channels of gRPC, and the connections that they share.

use std::time::Duration;

use serde_json::{Map, Value};

use super::claim::{Claim, Published, needed, printed, rate};
use super::measurements::{MeasuredRun, Measurements};
use super::plan::{
    PlannedClient, PlannedRun, PlannedServer, PublishedCount, ScenarioPlan, ScenarioScale, words,
};

pub(super) const PUBLICATION: &str = "\
    YDB, \"The Surprising gRPC Client Bottleneck in Low-Latency Networks\", 2025: gRPC C++ 1.72, \
    two machines with less than 0.05 ms between them, pinned. One connection grows far less than \
    linearly and idles for 150 to 200 µs between bursts; channels with a connection each bring \
    nearly six times the throughput";

/// Channels where there are several.
const CHANNELS: u32 = 8;

/// How many times as many calls are a difference.
const DIFFERENCE: f64 = 1.2;

const SUB_LINEAR: Published = Published {
    text: "over one connection throughput grows far less than linearly with the calls in flight, \
           and latency nearly linearly",
    criterion: "gRPC, one channel, from 8 to 128 in flight: at most 3 times the calls a second, \
                and at least 5 times the median latency",
};
const GAP: Published = Published {
    text: "the connection idles for 150 to 200 µs between bursts, and the client is the one that \
           could have moved",
    criterion: "gRPC, one channel, 128 in flight, seen by a relay: of the time in which nothing \
                came, more has answers at the client that sent nothing than requests at the \
                server",
};
const SAME_ARGUMENTS: Published = Published {
    text: "more channels with the same arguments change nothing: they share one connection",
    criterion: "gRPC, 128 in flight: 8 channels make between 0.8 and 1.25 times the calls a \
                second of one",
};
const DISTINCT: Published = Published {
    text: "channels of which each has a connection of its own bring several times the throughput \
           (nearly 6 times)",
    criterion: "gRPC, 128 in flight: 8 channels make at least twice the calls a second of one",
};
const TWO_STEPS: Published = Published {
    text: "channels of their own, and an argument of its own or a local pool of subchannels for \
           each, are two steps of one remedy",
    criterion: "gRPC, 128 in flight, 8 channels: with a local pool each between 0.8 and 1.25 times \
                the calls a second that they make with an argument each, and both at least 1.2 \
                times those with the same arguments",
};
const PINNED: Published = Published {
    text: "pinning the threads to CPUs helps",
    criterion: "gRPC, one channel, 32 in flight: at least 1.1 times the calls a second when \
                client and server are pinned to a CPU each",
};
const DELAY_HIDES: Published = Published {
    text: "with 5 ms of round trip the difference is hidden, but for many calls in flight",
    criterion: "where 8 connections make at least 1.2 times the calls of one without the delay: \
                gRPC with 5 ms more and 8 in flight, one channel makes at least 0.9 of the calls a \
                second of 8 with connections of their own",
};
const STREAM_LIMIT: Published = Published {
    text: "what is usually blamed is the limit of some 100 streams on a connection",
    criterion: "gRPC, one channel, 128 in flight: a limit of 4096 brings at least 1.5 times the \
                calls a second of 100, and with 32 in flight, which is below either, one channel \
                keeps at least 0.9 of what 8 connections make",
};
const REMEDY: Published = Published {
    text: "a client need not have this bottleneck (this is ours, and not of the publication)",
    criterion: "`pelton load` on one connection makes at least 0.97 times the calls a second with \
                twice as many in flight, from 1 to 128",
};

const DROP_IN: Published = Published {
    text: "a program that keeps its stubs need not have it either: `pelton_grpc` has the client of \
           `pelton load` behind the interface of grpc.Channel (this is ours, and not of the \
           publication)",
    criterion: "`pelton_grpc`, one channel, makes at least 0.97 times the calls a second with more \
                in flight, from 1 to 8, 32 and 128",
};

/// Calls in flight over one channel.
const IN_FLIGHT: [u32; 4] = [1, 8, 32, 128];

fn grpc(channels: u32, args: &str, in_flight: u32) -> String {
    match channels {
        1 => format!("gRPC, 1 channel × {in_flight}"),
        _ => format!("gRPC, 8 channels, {args} × {in_flight}"),
    }
}

fn pelton(connections: u32, in_flight: u32) -> String {
    format!("Pelton, {connections} × {in_flight}")
}

fn pelton_grpc(in_flight: u32) -> String {
    format!("pelton_grpc, 1 channel × {in_flight}")
}

/// What a run is made under.
#[derive(Clone, Copy)]
struct Under {
    words: &'static str,
    server: &'static str,
    relay: Option<&'static str>,
    client_cpu: Option<usize>,
}

const NOTHING: Under = Under {
    words: "",
    server: "usual",
    relay: None,
    client_cpu: None,
};
const DELAYED: Under = Under {
    words: ", 5 ms",
    server: "usual",
    relay: Some("--delay 5ms"),
    client_cpu: None,
};
const WATCHED: Under = Under {
    words: ", watched",
    server: "usual",
    relay: Some(""),
    client_cpu: None,
};
const LIMIT_4: Under = Under {
    words: ", limit 4",
    server: "limit 4",
    relay: None,
    client_cpu: None,
};
const LIMIT_100: Under = Under {
    words: ", limit 100",
    server: "limit 100",
    relay: None,
    client_cpu: None,
};
const PINNED_TO_CPUS: Under = Under {
    words: ", pinned",
    server: "pinned",
    relay: None,
    client_cpu: Some(1),
};

struct ChannelRuns {
    scale: ScenarioScale,
    runs: Vec<PlannedRun>,
}

impl ChannelRuns {
    fn times_ms(&self) -> (u64, u64) {
        self.scale.of([(50, 200), (300, 1_000), (1_000, 10_000)])
    }

    fn push(&mut self, name: String, under: Under, client: PlannedClient) {
        let (warm_up_ms, ms) = self.times_ms();
        self.runs.push(PlannedRun {
            name: format!("{name}{}", under.words),
            server: under.server,
            relay: under.relay.map(words),
            client,
            client_cpu: under.client_cpu,
            // A client of gRPC takes some time to begin, and to end.
            duration: Duration::from_millis(warm_up_ms + ms + 500),
            published: None,
            counted: PublishedCount::Calls,
        });
    }

    /// Arguments of a client of gRPC.
    fn arguments(&self, channels: u32, args: &str, in_flight: u32) -> Vec<String> {
        let (warm_up_ms, ms) = self.times_ms();
        let (warm_up_s, seconds) = (warm_up_ms as f64 / 1e3, ms as f64 / 1e3);
        words(&format!(
            "--method ping --in-flight {in_flight} --channels {channels} --channel-args {args} \
             --warm-up {warm_up_s} --seconds {seconds}"
        ))
    }

    fn grpc(&mut self, channels: u32, args: &str, in_flight: u32, under: Under) {
        let client = PlannedClient::Grpc(self.arguments(channels, args, in_flight));
        self.push(grpc(channels, args, in_flight), under, client);
    }

    fn pelton_grpc(&mut self, in_flight: u32) {
        let client = PlannedClient::PeltonGrpc(self.arguments(1, "same", in_flight));
        self.push(pelton_grpc(in_flight), NOTHING, client);
    }

    fn pelton(&mut self, connections: u32, in_flight: u32, under: Under) {
        let (warm_up_ms, ms) = self.times_ms();
        let each = in_flight / connections;
        let mut arguments = words(&format!(
            "--connections {connections} --in-flight {each} --warm-up {warm_up_ms}ms --duration \
             {ms}ms --method Ydb.Debug.V1.DebugService/PingPlainGrpc --data"
        ));
        arguments.push("{}".into());
        self.push(
            pelton(connections, in_flight),
            under,
            PlannedClient::Pelton(arguments),
        );
    }
}

pub(super) fn plan(scale: ScenarioScale) -> ScenarioPlan {
    let mut runs = ChannelRuns {
        scale,
        runs: Vec::new(),
    };
    for in_flight in IN_FLIGHT {
        runs.grpc(1, "same", in_flight, NOTHING);
    }
    for in_flight in [32, 128] {
        runs.grpc(CHANNELS, "same", in_flight, NOTHING);
        runs.grpc(CHANNELS, "distinct", in_flight, NOTHING);
    }
    runs.grpc(CHANNELS, "local-pool", 128, NOTHING);
    for under in [LIMIT_4, LIMIT_100, WATCHED] {
        runs.grpc(1, "same", 128, under);
    }
    runs.grpc(1, "same", 32, PINNED_TO_CPUS);
    for in_flight in [8, 128] {
        runs.grpc(1, "same", in_flight, DELAYED);
        runs.grpc(CHANNELS, "distinct", in_flight, DELAYED);
    }
    for power in 0..=7 {
        runs.pelton(1, 1 << power, NOTHING);
    }
    runs.pelton(CHANNELS, 128, NOTHING);
    runs.pelton(1, 128, WATCHED);
    runs.pelton(1, 128, DELAYED);
    for in_flight in IN_FLIGHT {
        runs.pelton_grpc(in_flight);
    }
    let server = |name, arguments: &str| PlannedServer {
        name,
        arguments: words(&format!("--durability volatile {arguments}")),
    };
    ScenarioPlan {
        servers: vec![
            server("usual", "--max-streams 4096"),
            server("limit 4", "--max-streams 4"),
            server("limit 100", "--max-streams 100"),
            server("pinned", "--max-streams 4096 --threads 1 --pin 0"),
        ],
        runs: runs.runs,
        rounds: scale.of([1, 2, 5]),
    }
}

pub(super) fn judge(measured: &Measurements) -> Vec<Claim> {
    vec![
        SUB_LINEAR.judged(sub_linear(measured)),
        GAP.judged(gap(measured)),
        SAME_ARGUMENTS.judged(same_arguments(measured)),
        DISTINCT.judged(distinct(measured)),
        TWO_STEPS.judged(two_steps(measured)),
        PINNED.judged(pinned(measured)),
        DELAY_HIDES.judged(delay_hides(measured)),
        STREAM_LIMIT.judged(stream_limit(measured)),
        REMEDY.judged(remedy(measured)),
        DROP_IN.judged(drop_in(measured)),
    ]
}

fn sub_linear(measured: &Measurements) -> Result<(bool, String), String> {
    let (few, many) = (grpc(1, "same", 8), grpc(1, "same", 128));
    let (slow, fast) = (rate(measured, &few)?, rate(measured, &many)?);
    let short_us = printed(measured, &few, "p50_us")?;
    let long_us = printed(measured, &many, "p50_us")?;
    Ok((
        fast <= slow * 3.0 && long_us >= short_us * 5.0,
        format!(
            "{slow:.0} to {fast:.0} calls/s (× {:.2}), median {short_us:.0} to {long_us:.0} µs (× \
             {:.1})",
            fast / slow,
            long_us / short_us
        ),
    ))
}

/// Seconds that a relay saw go by in a way, and the median of the gaps among them, in microseconds.
fn seen(relay: &Map<String, Value>, way: &str) -> Option<(f64, f64)> {
    let rows = relay.get("time")?.as_array()?;
    let row = rows.iter().find(|row| row["use"] == way)?;
    let median_us = row["gaps"]["p50_us"].as_f64().unwrap_or(0.0);
    Some((row["seconds"].as_f64()?, median_us))
}

fn gap(measured: &Measurements) -> Result<(bool, String), String> {
    let run = format!("{}{}", grpc(1, "same", 128), WATCHED.words);
    let of = |way: &'static str, part: fn(&(f64, f64)) -> f64| {
        needed(measured, &run, move |run: &MeasuredRun| {
            let relay = run.relay.as_ref()?;
            Some(seen(relay, way).as_ref().map_or(0.0, part))
        })
    };
    let client_s = of("client_silent", |seen| seen.0)?;
    let server_s = of("server", |seen| seen.0)? + of("server_at_limit", |seen| seen.0)?;
    let gap_us = of("client_silent", |seen| seen.1)?;
    Ok((
        client_s > server_s,
        format!(
            "the client had answers and sent nothing for {client_s:.2} s, in gaps of {gap_us:.0} \
             µs (median of those of 50 µs and more); the server had requests for {server_s:.2} s"
        ),
    ))
}

/// Calls a second of several channels, beside those of one.
fn beside_one(measured: &Measurements, args: &str) -> Result<(f64, String), String> {
    let one = rate(measured, &grpc(1, "same", 128))?;
    let several = rate(measured, &grpc(CHANNELS, args, 128))?;
    let factor = several / one;
    Ok((
        factor,
        format!("{one:.0} with 1, {several:.0} with 8: × {factor:.2}"),
    ))
}

fn same_arguments(measured: &Measurements) -> Result<(bool, String), String> {
    let (factor, figures) = beside_one(measured, "same")?;
    Ok(((0.8..=1.25).contains(&factor), figures))
}

fn distinct(measured: &Measurements) -> Result<(bool, String), String> {
    let (factor, figures) = beside_one(measured, "distinct")?;
    Ok((factor >= 2.0, figures))
}

fn two_steps(measured: &Measurements) -> Result<(bool, String), String> {
    let of = |args| rate(measured, &grpc(CHANNELS, args, 128));
    let (same, distinct, local) = (of("same")?, of("distinct")?, of("local-pool")?);
    let factor = local / distinct;
    Ok((
        (0.8..=1.25).contains(&factor) && local.min(distinct) >= same * DIFFERENCE,
        format!(
            "{same:.0} calls/s with the same arguments, {distinct:.0} with an argument each, \
             {local:.0} with a local pool each: × {factor:.2}"
        ),
    ))
}

fn pinned(measured: &Measurements) -> Result<(bool, String), String> {
    let name = grpc(1, "same", 32);
    let free = rate(measured, &name)?;
    let pinned = rate(measured, &format!("{name}{}", PINNED_TO_CPUS.words))?;
    Ok((
        pinned >= free * 1.1,
        format!("{free:.0} to {pinned:.0} calls/s: × {:.2}", pinned / free),
    ))
}

fn delay_hides(measured: &Measurements) -> Result<(bool, String), String> {
    let share = |in_flight| {
        let delayed = |name: String| rate(measured, &format!("{name}{}", DELAYED.words));
        let one = delayed(grpc(1, "same", in_flight))?;
        Ok::<f64, String>(one / delayed(grpc(CHANNELS, "distinct", in_flight))?)
    };
    let (few, many) = (share(8)?, share(128)?);
    let (without, _) = beside_one(measured, "distinct")?;
    if few >= 0.9 && without < DIFFERENCE {
        return Err(format!(
            "there is no difference that could be hidden: without the delay 8 connections make × \
             {without:.2}"
        ));
    }
    Ok((
        few >= 0.9,
        format!(
            "one channel makes {few:.2} of 8 connections' calls with 8 in flight, {many:.2} with \
             128"
        ),
    ))
}

fn stream_limit(measured: &Measurements) -> Result<(bool, String), String> {
    let name = grpc(1, "same", 128);
    let four = rate(measured, &format!("{name}{}", LIMIT_4.words))?;
    let hundred = rate(measured, &format!("{name}{}", LIMIT_100.words))?;
    let unlimited = rate(measured, &name)?;
    let below = rate(measured, &grpc(1, "same", 32))?;
    let below_distinct = rate(measured, &grpc(CHANNELS, "distinct", 32))?;
    Ok((
        unlimited >= hundred * 1.5 && below >= below_distinct * 0.9,
        format!(
            "{four:.0} calls/s with a limit of 4, {hundred:.0} with 100, {unlimited:.0} with \
             4096; below it, with 32 in flight, {below:.0} over one channel and \
             {below_distinct:.0} over 8 connections"
        ),
    ))
}

fn remedy(measured: &Measurements) -> Result<(bool, String), String> {
    let names = (0..=7).map(|power| pelton(1, 1 << power));
    grows(measured, names)
}

fn drop_in(measured: &Measurements) -> Result<(bool, String), String> {
    grows(measured, IN_FLIGHT.into_iter().map(pelton_grpc))
}

/// Whether each run makes no fewer calls a second than the one before it, and their rates.
fn grows(
    measured: &Measurements,
    names: impl Iterator<Item = String>,
) -> Result<(bool, String), String> {
    let mut least = f64::INFINITY;
    let mut rates: Vec<f64> = Vec::new();
    for name in names {
        let next = rate(measured, &name)?;
        if let Some(before) = rates.last() {
            least = least.min(next / before);
        }
        rates.push(next);
    }
    let texts: Vec<String> = rates.iter().map(|rate| format!("{rate:.0}")).collect();
    Ok((
        least >= 0.97,
        format!("{} calls/s; the least step × {least:.2}", texts.join(", ")),
    ))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::claim::tests::{add, verdicts};
    use super::*;

    /// As published, or with every effect absent.
    fn measured(is_there: bool) -> Measurements {
        let mut measured = Measurements::default();
        let mut put = |name: String, rate: f64, p50_us: f64| {
            let figures = [("calls_per_s", rate), ("p50_us", p50_us)];
            add(&mut measured, &name, &figures);
        };
        let choose = |there: f64, absent: f64| if is_there { there } else { absent };
        put(grpc(1, "same", 8), 40e3, 200.0);
        put(grpc(1, "same", 32), 60e3, 500.0);
        put(
            grpc(1, "same", 128),
            choose(80e3, 400e3),
            choose(1600.0, 300.0),
        );
        put(grpc(8, "same", 128), choose(82e3, 900e3), 1.0);
        put(grpc(8, "distinct", 128), choose(420e3, 400e3), 1.0);
        put(grpc(8, "local-pool", 128), choose(410e3, 900e3), 1.0);
        put(grpc(8, "distinct", 32), choose(61e3, 120e3), 1.0);
        put(
            format!("{}, pinned", grpc(1, "same", 32)),
            choose(90e3, 60e3),
            1.0,
        );
        put(format!("{}, limit 4", grpc(1, "same", 128)), 20e3, 1.0);
        put(
            format!("{}, limit 100", grpc(1, "same", 128)),
            choose(40e3, 400e3),
            1.0,
        );
        for in_flight in [8, 128] {
            let one = format!("{}, 5 ms", grpc(1, "same", in_flight));
            put(one, choose(1.5e3, 0.8e3), 1.0);
            put(
                format!("{}, 5 ms", grpc(8, "distinct", in_flight)),
                1.5e3,
                1.0,
            );
        }
        for power in 0..=7 {
            let growth: f64 = choose(1.5, 0.9);
            put(pelton(1, 1 << power), 10e3 * growth.powi(power), 1.0);
        }
        for (step, in_flight) in (0..).zip(IN_FLIGHT) {
            let growth: f64 = choose(2.0, 0.9);
            put(pelton_grpc(in_flight), 9e3 * growth.powi(step), 1.0);
        }
        let relay = json!({"time": [
            {"use": "client_silent", "seconds": choose(0.8, 0.1), "gaps": {"p50_us": 170.0}},
            {"use": "server", "seconds": 0.2, "gaps": null},
        ]});
        measured.add(MeasuredRun {
            name: format!("{}, watched", grpc(1, "same", 128)),
            relay: relay.as_object().cloned(),
            ..MeasuredRun::default()
        });
        measured
    }

    #[test]
    fn effects_that_are_there_are_seen() {
        let claims = judge(&measured(true));
        assert_eq!(verdicts(&claims), ["reproduced"; 10], "{claims:#?}");
        assert!(claims[1].figures.contains("gaps of 170 µs"), "{claims:#?}");
    }

    #[test]
    fn effects_that_are_absent_are_not() {
        let claims = judge(&measured(false));
        assert_eq!(verdicts(&claims), ["not-reproduced"; 10], "{claims:#?}");
    }

    #[test]
    fn two_steps_are_one_remedy_only_if_they_are_one() {
        for (distinct, local, is_one) in [
            (420e3, 410e3, true),
            (420e3, 300e3, false),
            (300e3, 420e3, false),
            // As without them.
            (90e3, 95e3, false),
        ] {
            let mut measured = Measurements::default();
            for (args, rate) in [
                ("same", 82e3),
                ("distinct", distinct),
                ("local-pool", local),
            ] {
                add(&mut measured, &grpc(8, args, 128), &[("calls_per_s", rate)]);
            }
            let found = two_steps(&measured).expect("all are there");
            assert_eq!(found.0, is_one, "{}", found.1);
        }
    }

    #[test]
    fn a_delay_hides_no_difference_where_there_is_none() {
        let mut measured = measured(true);
        for _ in 0..2 {
            let name = grpc(8, "distinct", 128);
            add(&mut measured, &name, &[("calls_per_s", 81e3)]);
        }
        let claim = DELAY_HIDES.judged(delay_hides(&measured));
        assert_eq!(claim.verdict.name(), "cannot-be-seen", "{claim:?}");
    }

    #[test]
    fn without_a_client_of_grpc_its_claims_cannot_be_seen() {
        let mut measured = Measurements::default();
        for run in plan(ScenarioScale::Short).runs {
            match run.client {
                PlannedClient::Grpc(_)
                | PlannedClient::Grpcio(_)
                | PlannedClient::PeltonGrpc(_) => {
                    measured.add_missing(&run.name, "there is no such client")
                }
                PlannedClient::Pelton(_) => add(&mut measured, &run.name, &[("calls_per_s", 5.0)]),
            }
        }
        let mut expected = vec!["cannot-be-seen"; 8];
        expected.push("reproduced");
        expected.push("cannot-be-seen");
        assert_eq!(verdicts(&judge(&measured)), expected);
    }

    #[test]
    fn a_short_run_fits_into_three_minutes() {
        let plan = plan(ScenarioScale::Short);
        assert!(
            plan.duration() <= Duration::from_secs(140),
            "{:?}",
            plan.duration()
        );
    }
}
