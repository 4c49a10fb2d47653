//! Uploads in chunks of all sizes: gupload.

mod charts;

pub(super) use charts::charts;

use std::ops::RangeInclusive;
use std::time::Duration;

use serde_json::Value;

use super::claim::{Claim, Published, needed};
use super::measurements::{MeasuredRun, Measurements};
use super::plan::{
    PlannedClient, PlannedRun, PlannedServer, PublishedCount, ScenarioPlan, ScenarioScale, words,
};
use super::table::{Column, figure};
use crate::sweep::Spread;

pub(super) const PUBLICATION: &str = "\
    Ciro S. Costa, \"Sending files via gRPC\", ops.tips, 2018, with gupload: a file of 143 MB over \
    loopback in chunks of 2^4 to 2^21 bytes, 50 times each, on a MacBook Pro of 2015; 28 to 31 s \
    with chunks of 16 bytes, some 16 s with 32, some 8 s with 64; times of gRPC end with the last \
    send, those of HTTP/2 with the answer";

/// Sizes as powers of two: all, and those of a short run: every second one, and 32 KiB, of which a
/// claim is.
const SHIFTS: RangeInclusive<u32> = 4..=21;
const FEW_SHIFTS: [u32; 10] = [4, 6, 8, 10, 12, 14, 15, 16, 18, 20];

const TINY: u32 = 4;
const SMALL: u32 = 6;
const KIB: u32 = 10;
/// From here on claims about large chunks count.
const LARGE: u32 = 13;
const MOST_SPREAD: u32 = 15;

const PLAIN: &str = "plain";
const TLS: &str = "TLS";

/// A way of uploading.
#[derive(Clone, Copy, PartialEq, Eq)]
struct UploadLine {
    name: &'static str,
    /// In the name of a file.
    file_name: &'static str,
    server: &'static str,
    flags: &'static str,
    has_gzip: bool,
    /// The published clock is that to the last send.
    ends_with_send: bool,
}

const GRPC: UploadLine = UploadLine {
    name: "gRPC",
    file_name: "grpc",
    server: PLAIN,
    flags: "",
    has_gzip: false,
    ends_with_send: true,
};
const GRPC_TLS: UploadLine = UploadLine {
    name: "gRPC, TLS",
    file_name: "grpc-tls",
    server: TLS,
    flags: "--tls-ca {folder}/ca.pem",
    ..GRPC
};
const GRPC_GZIP: UploadLine = UploadLine {
    name: "gRPC, gzip",
    file_name: "grpc-gzip",
    flags: "--compress",
    has_gzip: true,
    ..GRPC
};
const HTTP2: UploadLine = UploadLine {
    name: "HTTP/2",
    file_name: "http2",
    flags: "--http2",
    ends_with_send: false,
    ..GRPC
};
const HTTP2_TLS: UploadLine = UploadLine {
    name: "HTTP/2, TLS",
    file_name: "http2-tls",
    server: TLS,
    flags: "--http2 --tls-ca {folder}/ca.pem",
    ..HTTP2
};
const LINES: [UploadLine; 5] = [GRPC, GRPC_TLS, GRPC_GZIP, HTTP2, HTTP2_TLS];

const CPU_BOUND: Published = Published {
    text: "chunks of 16 to 128 bytes are bound by CPU (some 200 % of each process; 28 to 31 s with \
           16 bytes, 8 s with 64)",
    criterion: "gRPC, 16 bytes: the busier one of client and server is on a CPU for at least 85 % \
                of the time, and a byte takes at least twice as long as with 64",
};
const KIB_IS_ENOUGH: Published = Published {
    text: "chunks of 1 KiB are already good; larger ones bring little",
    criterion: "gRPC: with 1 KiB a byte takes at most 1.5 times as long as with the best larger \
                size, and with 16 bytes at least 4 times as long as with 1 KiB",
};
const SPREAD: Published = Published {
    text: "times are spread most with chunks of 32 KiB",
    criterion: "gRPC, sizes of 1 KiB and more: the middle half of the uploads with 32 KiB lies at \
                least 1.2 times as far apart, as a share of its median, as with any other size",
};
const TLS_COSTS_LITTLE: Published = Published {
    text: "TLS takes about as long as no TLS",
    criterion: "gRPC: over all sizes, the median of the times with TLS divided by those without is \
                at most 1.15",
};
const HTTP2_SMALL: Published = Published {
    text: "plain HTTP/2 is faster than gRPC: with chunks below 8 KiB",
    criterion: "both without TLS and to the answer: at each size below 2^13, a DATA frame for each \
                chunk takes at most 0.95 times as long as a message",
};
const HTTP2_LARGE: Published = Published {
    text: "plain HTTP/2 is faster than gRPC: with chunks of 8 KiB and more",
    criterion: "the same at each size from 2^13 on (where both go in frames of 16 KiB at most, so \
                that some bytes for each message are all that differs on the wire)",
};
const CLOCK: Published = Published {
    text: "the published times of gRPC end with the last send, and leave out what is under way \
           then (this is ours, and not of the publication)",
    criterion: "gRPC, at one size of 1 KiB or more at least: from the begin to the answer takes at \
                least 1.05 times as long as to the last send",
};

fn named(line: UploadLine, shift: u32) -> String {
    format!("{}, 2^{shift}", line.name)
}

/// What a run uploads: bytes of the file, uploads for nothing, and measured ones.
fn amount(scale: ScenarioScale, line: UploadLine, shift: u32) -> (u64, u64, u64) {
    // A small chunk costs gzip as much time as one of some KiB.
    let short_mib = match (line.has_gzip, shift) {
        (true, ..=7) => 1,
        (true, 8..=9) => 4,
        (true, 10..=11) => 8,
        _ => 16,
    };
    scale.of([
        (256 << 10, 0, 2),
        (short_mib << 20, 1, 5),
        (143_000_000, 0, 1),
    ])
}

/// How long a run takes by a guess that is too long for most machines.
fn duration(line: UploadLine, shift: u32, bytes: u64) -> Duration {
    let tiny_chunks = shift.saturating_sub(TINY);
    let mb_per_s = match line.has_gzip {
        true => (3_u64 << (tiny_chunks / 2)).min(100),
        false => (60_u64 << tiny_chunks).min(500),
    };
    Duration::from_millis(100 + bytes / (mb_per_s * 1_000))
}

fn published(line: UploadLine, shift: u32) -> Option<&'static str> {
    match (line == GRPC, shift) {
        (true, 4) => Some("4.6–5.1 MB/s (28–31 s)"),
        (true, 5) => Some("9 MB/s (16 s)"),
        (true, 6) => Some("18 MB/s (8 s)"),
        _ => None,
    }
}

pub(super) fn plan(scale: ScenarioScale) -> ScenarioPlan {
    let shifts: Vec<u32> = match scale {
        ScenarioScale::Full => SHIFTS.collect(),
        ScenarioScale::Quick | ScenarioScale::Short => FEW_SHIFTS.to_vec(),
    };
    let mut runs = Vec::new();
    for line in LINES {
        for shift in shifts.iter().copied() {
            let (bytes, warm_up, uploads) = amount(scale, line, shift);
            runs.push(PlannedRun {
                name: named(line, shift),
                server: line.server,
                relay: None,
                client: PlannedClient::Pelton(words(&format!(
                    "gupload --size {bytes} --chunk-size {} --warm-up {warm_up} --uploads \
                     {uploads} --server-pid {{server_pid}} {}",
                    1_u64 << shift,
                    line.flags
                ))),
                client_cpu: None,
                duration: duration(line, shift, bytes * (warm_up + uploads)),
                published: published(line, shift),
                counted: PublishedCount::Calls,
            });
        }
    }
    // As gupload's own server, it throws away what it receives.
    let server = |name, arguments: &str| PlannedServer {
        name,
        arguments: words(&format!(
            "--durability volatile --discard-uploads {arguments}"
        )),
    };
    ScenarioPlan {
        servers: vec![server(PLAIN, ""), server(TLS, "--tls-self-signed={folder}")],
        runs,
        rounds: scale.of([1, 3, 50]),
    }
}

/// The table's columns.
pub(super) const COLUMNS: &[Column] = &[
    Column::with_range("answer ms", |run| milliseconds(run, "answered_ns")),
    Column::new("MB/s", 8, |run| figure(run, "mb_per_s")),
    Column::new("send ms", 9, |run| milliseconds(run, "sent_ns")),
    Column::new("server %", 9, |run| figure(run, "server_cpu_percent")),
    Column::new("client %", 9, |run| figure(run, "own_cpu_percent")),
    Column::new("file MiB", 9, |run| {
        let bytes = figure(run, "file_bytes");
        bytes.into_iter().map(|bytes| bytes / 1_048_576.0).collect()
    }),
];

/// A time of each upload of a run.
fn times_ns(run: &MeasuredRun, name: &str) -> Vec<f64> {
    let times = run.figures.get(name).and_then(Value::as_array);
    let times = times.into_iter().flatten();
    times.filter_map(Value::as_f64).collect()
}

fn milliseconds(run: &MeasuredRun, name: &str) -> Vec<f64> {
    let times = times_ns(run, name).into_iter();
    times.map(|ns| ns / 1e6).collect()
}

/// For each way its name, and lines of `shift,nanoseconds` as the original prints them, by the
/// clock that it has.
pub(super) fn csv(measured: &Measurements) -> Vec<(&'static str, String)> {
    let of_line = |line: UploadLine| {
        let clock = match line.ends_with_send {
            true => "sent_ns",
            false => "answered_ns",
        };
        let mut text = String::new();
        for shift in SHIFTS {
            let times = measured.values(&named(line, shift), |run| times_ns(run, clock));
            for ns in times {
                text.push_str(&format!("{shift},{ns:.0}\n"));
            }
        }
        (line.file_name, text)
    };
    LINES.into_iter().map(of_line).collect()
}

pub(super) fn judge(measured: &Measurements) -> Vec<Claim> {
    vec![
        CPU_BOUND.judged(cpu_bound(measured)),
        KIB_IS_ENOUGH.judged(kib_is_enough(measured)),
        SPREAD.judged(spread(measured)),
        TLS_COSTS_LITTLE.judged(tls_costs_little(measured)),
        HTTP2_SMALL.judged(http2_is_faster(measured, |shift| shift < LARGE)),
        HTTP2_LARGE.judged(http2_is_faster(measured, |shift| shift >= LARGE)),
        CLOCK.judged(clock(measured)),
    ]
}

/// Nanoseconds of each upload for each byte, by a clock.
fn ns_per_byte(
    measured: &Measurements,
    (line, shift): (UploadLine, u32),
    clock: &str,
) -> Result<Vec<f64>, String> {
    let run = named(line, shift);
    let bytes = needed(measured, &run, |run| run.figure("file_bytes"))?;
    let times = measured.values(&run, |run| times_ns(run, clock));
    Ok(times.into_iter().map(|ns| ns / bytes.max(1.0)).collect())
}

/// The median of that, to the answer.
fn cost(measured: &Measurements, line: UploadLine, shift: u32) -> Result<f64, String> {
    median(ns_per_byte(measured, (line, shift), "answered_ns")?)
}

fn median(values: Vec<f64>) -> Result<f64, String> {
    let spread = Spread::of(values).map(|spread| spread.median);
    spread.ok_or_else(|| "no upload has ended".into())
}

/// A figure of each size that was measured; those of a short run have to be there.
fn of_sizes(
    wanted: impl Fn(u32) -> bool,
    of: impl Fn(u32) -> Result<f64, String>,
) -> Result<Vec<(u32, f64)>, String> {
    let mut figures = Vec::new();
    for shift in SHIFTS.filter(|shift| wanted(*shift)) {
        match of(shift) {
            Ok(figure) => figures.push((shift, figure)),
            Err(why) if FEW_SHIFTS.contains(&shift) => return Err(why),
            Err(_) => {}
        }
    }
    Ok(figures)
}

fn listed(figures: &[(u32, f64)], text: impl Fn(f64) -> String) -> String {
    let texts = figures.iter();
    let texts: Vec<String> = texts
        .map(|(shift, figure)| format!("2^{shift} {}", text(*figure)))
        .collect();
    texts.join(", ")
}

fn times(factor: f64) -> String {
    format!("× {factor:.2}")
}

fn cpu_bound(measured: &Measurements) -> Result<(bool, String), String> {
    let percent = |name: &'static str| needed(measured, &named(GRPC, TINY), |run| run.figure(name));
    let (server, client) = (percent("server_cpu_percent")?, percent("own_cpu_percent")?);
    let factor = cost(measured, GRPC, TINY)? / cost(measured, GRPC, SMALL)?;
    Ok((
        server.max(client) >= 85.0 && factor >= 2.0,
        format!(
            "with 16 bytes the server is on a CPU for {server:.0} % of the time, the client for \
             {client:.0} %; a byte takes {factor:.1} times as long as with 64"
        ),
    ))
}

fn kib_is_enough(measured: &Measurements) -> Result<(bool, String), String> {
    let kib = cost(measured, GRPC, KIB)?;
    let larger = of_sizes(|shift| shift > KIB, |shift| cost(measured, GRPC, shift))?;
    let best = larger.into_iter().min_by(|a, b| a.1.total_cmp(&b.1));
    let (best_shift, best) = best.ok_or("no larger size was measured")?;
    let tiny = cost(measured, GRPC, TINY)?;
    Ok((
        kib <= best * 1.5 && tiny >= kib * 4.0,
        format!(
            "{:.0} MB/s with 1 KiB, {:.0} with the best larger size, 2^{best_shift} (× {:.2}), \
             {:.0} with 16 bytes",
            1e3 / kib,
            1e3 / best,
            kib / best,
            1e3 / tiny
        ),
    ))
}

/// How far the middle half lies apart, as a share of the median.
fn middle_half(values: Vec<f64>) -> Result<f64, String> {
    let (low, high) = quartiles(&values).ok_or("no upload has ended")?;
    Ok((high - low) / median(values)?)
}

/// Between which values the middle half lies; `None`: there is none.
fn quartiles(values: &[f64]) -> Option<(f64, f64)> {
    let mut values = values.to_vec();
    values.sort_unstable_by(f64::total_cmp);
    let quarter = values.len() / 4;
    let last = values.len().saturating_sub(1 + quarter);
    values.get(quarter).copied().zip(values.get(last).copied())
}

fn spread(measured: &Measurements) -> Result<(bool, String), String> {
    let spreads = of_sizes(
        |shift| shift >= KIB,
        |shift| middle_half(ns_per_byte(measured, (GRPC, shift), "answered_ns")?),
    )?;
    let of = |is_wanted: fn(u32) -> bool| {
        let some = spreads.iter().filter(|(shift, _)| is_wanted(*shift));
        some.map(|(_, spread)| *spread).fold(0.0, f64::max)
    };
    let (here, elsewhere) = (
        of(|shift| shift == MOST_SPREAD),
        of(|shift| shift != MOST_SPREAD),
    );
    Ok((
        here > 0.0 && here >= elsewhere * 1.2,
        listed(&spreads, |spread| format!("{:.1} %", spread * 100.0)),
    ))
}

/// How many times as long one way takes as another, at each size.
fn factors(
    measured: &Measurements,
    (line, other): (UploadLine, UploadLine),
    wanted: impl Fn(u32) -> bool,
) -> Result<Vec<(u32, f64)>, String> {
    of_sizes(wanted, |shift| {
        Ok(cost(measured, line, shift)? / cost(measured, other, shift)?)
    })
}

fn tls_costs_little(measured: &Measurements) -> Result<(bool, String), String> {
    let factors = factors(measured, (GRPC_TLS, GRPC), |_| true)?;
    let middle = median(factors.iter().map(|(_, factor)| *factor).collect())?;
    Ok((
        middle <= 1.15,
        format!("× {middle:.2} in the middle: {}", listed(&factors, times)),
    ))
}

fn http2_is_faster(
    measured: &Measurements,
    wanted: impl Fn(u32) -> bool,
) -> Result<(bool, String), String> {
    let plain = factors(measured, (HTTP2, GRPC), &wanted)?;
    let tls = factors(measured, (HTTP2_TLS, GRPC_TLS), &wanted)?;
    Ok((
        plain.iter().all(|(_, factor)| *factor <= 0.95),
        format!(
            "{}; with TLS {}",
            listed(&plain, times),
            listed(&tls, times)
        ),
    ))
}

fn clock(measured: &Measurements) -> Result<(bool, String), String> {
    let factors = of_sizes(
        |shift| shift >= KIB,
        |shift| {
            let sent = median(ns_per_byte(measured, (GRPC, shift), "sent_ns")?)?;
            Ok(cost(measured, GRPC, shift)? / sent.max(f64::MIN_POSITIVE))
        },
    )?;
    let most = factors.iter().map(|(_, factor)| *factor);
    Ok((most.fold(0.0, f64::max) >= 1.05, listed(&factors, times)))
}

#[cfg(test)]
mod tests;
