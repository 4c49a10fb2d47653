//! Decides whether a way is full, of bytes or of packets: by the same calls with larger requests,
//! and over several connections.

use super::cause::Cause;
use super::diagnosis::{
    Diagnosis, ProcessLimit, percent, process_limit, process_words, rate, times,
};
use super::evidence::{LoadEvidence, LoadPoint};
use super::ladder::{LoadShape, shape};
use super::limits::STOP_ERRORS_PERCENT;

/// Bytes a second above which a way may be full, over which one call goes after the other: what a
/// way of 64 kbit/s carries, as slow as any that is in use.
const FULL_WAY_BYTES_PER_S: f64 = 8_192.0;

/// The same where several calls are under way at a time. A full way has so many of them only if it
/// is long, too, and takes several times as long as the bytes of a call do: a call that is alone
/// takes most of its time there.
const FULL_LONG_WAY_BYTES_PER_S: f64 = 65_536.0;

/// What a server works on at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AtATime {
    /// One call.
    One,
    /// So many, a fixed number.
    Several,
    /// The figures do not fit together.
    Unclear,
}

impl AtATime {
    /// Returns the bytes a second above which a full way looks the same.
    pub(super) fn full_way_bytes_per_s(self) -> f64 {
        match self {
            AtATime::One => FULL_WAY_BYTES_PER_S,
            AtATime::Several | AtATime::Unclear => FULL_LONG_WAY_BYTES_PER_S,
        }
    }
}

/// What speaks against a server that waits, with fewer bytes than these.
pub(super) const LOOKS_LIKE_FULL_WAY: &str =
    "a way that carries no more bytes or packets than these looks the same";

/// How many times as large requests must be to show anything.
const LARGER_LEAST: f64 = 1.8;

/// How far bytes or packets each second may be apart that are the same.
const FLAT: std::ops::RangeInclusive<f64> = 0.8..=1.25;

/// What is left of the calls, at most, where they follow their bytes or their packets.
const LESS: f64 = 0.65;

/// The same where they do not, at least.
const SAME: f64 = 0.87;

/// The part of the time in which windows are used up, from which on they are waited for.
const WINDOW_SHARE: f64 = 0.25;

/// The part of the time for which a generator may be busy that does not hold calls up.
const GENERATOR_IDLE: f64 = 0.6;

/// What larger requests show.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum WayByBytes {
    /// As many bytes go each second in fewer calls: the way of requests is full.
    Full {
        /// How many times as large requests were.
        size: f64,
        /// What was left of the calls.
        left: f64,
    },
    /// As many calls go with so many times the bytes: the way of requests has room.
    HasRoom {
        /// How many times as large requests were.
        size: f64,
    },
    /// Neither.
    Unclear {
        /// How many times as large requests were.
        size: f64,
        /// What was left of the calls.
        left: f64,
    },
    /// Not tried, or it failed.
    Unknown,
}

/// Returns what larger requests show of the way.
pub(super) fn way_by_bytes(evidence: &LoadEvidence) -> WayByBytes {
    let Some(larger) = &evidence.larger else {
        return WayByBytes::Unknown;
    };
    let compared = || {
        let all = evidence.one.iter().chain(&evidence.again);
        all.filter(|point| point.in_flight == larger.in_flight && point.rate > 0.0)
    };
    let rates = compared().map(|point| point.rate);
    let (least, most) = rates.fold((f64::MAX, 0.0_f64), |(least, most), rate| {
        (least.min(rate), most.max(rate))
    });
    let bytes = compared().map(request_bytes).fold(0.0, f64::max);
    let size = request_bytes(larger) / bytes.max(1.0);
    let is_tried = most > 0.0 && larger.rate > 0.0 && size >= LARGER_LEAST;
    if !is_tried || larger.failed_share() * 100.0 >= STOP_ERRORS_PERCENT as f64 {
        return WayByBytes::Unknown;
    }
    let left = larger.rate / least;
    let is_flat = |point: &LoadPoint| FLAT.contains(&(larger.bytes_per_s.0 / point.bytes_per_s.0));
    if left <= LESS && compared().all(is_flat) && waits(larger) {
        return WayByBytes::Full { size, left };
    }
    match larger.rate >= most * SAME {
        true => WayByBytes::HasRoom { size },
        false => WayByBytes::Unclear { size, left },
    }
}

/// Bytes of a request, with what goes before it.
fn request_bytes(point: &LoadPoint) -> f64 {
    point.bytes_per_s.0 / point.rate.max(1e-9)
}

/// Whether neither windows nor the generator nor the server's process hold calls up.
fn waits(point: &LoadPoint) -> bool {
    let causes = (Cause::ServerThread, Cause::ServerCpu);
    let waits =
        |process| process_limit(process, point.machine.as_ref(), causes) == ProcessLimit::Waiting;
    point.window_wait < WINDOW_SHARE
        && (point.generator_busy).is_none_or(|busy| busy <= GENERATOR_IDLE)
        && point.server.as_ref().is_some_and(waits)
}

/// Whether larger requests can tell a full way from a server: one that is seen to wait.
pub(super) fn is_larger_worth_trying(evidence: &LoadEvidence) -> bool {
    evidence.spread.is_some() && evidence.one.last().is_some_and(waits)
}

/// Whether several connections can tell whether packets are counted, though one connection has
/// brought all that was allowed: they share no packets, and a call that is alone waits for
/// something.
pub(super) fn is_spread_worth_trying(evidence: &LoadEvidence) -> bool {
    let is_growing = matches!(
        shape(&evidence.one, &evidence.ceiling),
        LoadShape::Capped | LoadShape::Growing
    );
    let (Some(first), Some(last)) = (evidence.one.first(), evidence.one.last()) else {
        return false;
    };
    is_growing && last.in_flight >= SHARING_CALLS && waits(first) && waits(last)
}

/// Calls in flight on one connection from which on many of them share a packet.
const SHARING_CALLS: usize = 16;

/// The way of requests is full.
pub(super) fn bandwidth(evidence: &LoadEvidence, size: f64, left: f64) -> Diagnosis {
    let larger = evidence.larger.as_ref();
    let kib = larger.map_or(0.0, |point| point.bytes_per_s.0 / 1_024.0);
    let text = format!(
        "the way carries {kib:.0} KiB/s of requests, however large they are and however many are \
         in flight"
    );
    let mut it = Diagnosis::named(Cause::Bandwidth, text)
        .supported(format!(
            "with requests {} as large {} of the calls are answered, and as many bytes go each \
             second",
            times(size),
            percent(left)
        ))
        .doubted(
            "a server that passes all bytes of its requests on over such a way, or to such a \
             disk, looks the same"
                .into(),
        );
    if let Some(process) = larger.and_then(|point| point.server.as_ref()) {
        it = it.supported(process_words("server, with these", process));
    }
    it.changed(
        format!(
            "a way with more bandwidth, or fewer bytes a call: requests that are {} smaller bring \
             as many times the calls",
            times(size)
        ),
        Some(size),
        Some(1.0 / left.max(1e-9)),
    )
}

/// Over several connections far fewer calls go in as many packets: `None`: that is not so, or not
/// known.
pub(super) fn packets(evidence: &LoadEvidence) -> Option<Diagnosis> {
    let spread = evidence.spread.as_ref()?;
    let same = |point: &&LoadPoint| point.connections == 1 && point.in_flight == spread.in_flight;
    let compared = || evidence.one.iter().chain(&evidence.again).filter(same);
    let one = compared().min_by(|one, two| one.rate.total_cmp(&two.rate))?;
    let left = spread.rate / one.rate.max(1e-9);
    let packets = |point: &LoadPoint| point.segments_per_s.map(|(sent, received)| sent + received);
    let (of_one, of_spread) = (packets(one)?, packets(spread)?);
    let is_flat = FLAT.contains(&(of_spread / of_one.max(1e-9)));
    if left > LESS || !is_flat || !compared().all(waits) || !waits(spread) {
        return None;
    }
    let of_call = |packets: f64, point: &LoadPoint| packets / point.rate.max(1e-9);
    let (alone, shared) = (of_call(of_spread, spread), of_call(of_one, one));
    let text = format!(
        "{of_one:.0} packets each second go, however many calls are in them: over {} connections, \
         where fewer calls share a packet, {} of the calls are answered",
        spread.connections,
        percent(left)
    );
    let it = Diagnosis::named(Cause::PacketsPerSecond, text)
        .supported(format!(
            "on one connection {} with {shared:.2} packets a call, on {} {} with {alone:.2}; there \
             {of_spread:.0} packets each second",
            rate(one.rate),
            spread.connections,
            rate(spread.rate)
        ))
        .doubted("a server that waits once for whatever comes in one packet looks the same".into());
    Some(it.changed(
        "keep calls on few connections, where they share packets, or put several into one message"
            .into(),
        Some(alone / shared.max(1e-9)),
        Some(1.0 / left.max(1e-9)),
    ))
}

#[cfg(test)]
mod tests;
