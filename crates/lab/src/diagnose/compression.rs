//! Decides whether a process spends its CPU on compressing messages: by what it takes here to
//! compress some of those that it has sent.

use std::io::{Read, Write};

use flate2::Compression;
use flate2::read::{GzDecoder, ZlibDecoder};
use flate2::write::GzEncoder;

use super::cause::Cause;
use super::diagnosis::{Diagnosis, IDLE_CPUS, percent, rate, times};
use super::evidence::{ClientRun, CompressionUse, LoadEvidence, LoadPoint, ProcessUse};
use super::ladder::best;
use super::limits::{DECOMPRESSED_SAMPLES_BYTES, STOP_ERRORS_PERCENT};
use super::small_messages::{CPU_CAUSES, cpu_of_operation};
use crate::tap::CompressedMessages;
use crate::workload::KeptAnswers;

/// The part of a process's CPU time that compressing takes, from which on it is named.
const NAMED_SHARE: f64 = 0.5;

/// The same, from which on it is worth a word.
const TOLD_SHARE: f64 = 0.15;

/// How often each sample is compressed; the quickest time counts.
const REPEATED: usize = 3;

/// The most that is predicted: what else a call costs is not known so well.
const GAIN_MAX: f64 = 10.0;

/// What is proposed.
const AS_THEY_ARE: &str =
    "send messages as they are, or compress only those that are large and go a long way";

/// Bytes of a response from which on it may be compressed.
const COMPRESSED_LEAST_BYTES: f64 = 64.0;

/// How many times as many bytes responses have that were compressed before.
const RATIO: f64 = 1.2;

/// How many times as many calls, each with so many times less CPU, there must be without.
const GAIN: f64 = 1.3;

/// The level that gRPC's libraries use where nothing else is asked for.
const LEVEL: Compression = Compression::new(6);

/// Returns what the compressed messages of a direction cost; `None`: there were none, or none of
/// them could be read. `each_second`: makes a rate of a count.
pub(super) fn compression_use(
    messages: &CompressedMessages,
    each_second: impl Fn(u64) -> f64,
    cpu_ns: &dyn Fn() -> u64,
) -> Option<CompressionUse> {
    let costs = sample_costs(&messages.samples, cpu_ns);
    if costs.bytes == 0 {
        return None;
    }
    let bytes_per_s = each_second(messages.bytes);
    let cpus = |ns: u64| ns as f64 / costs.bytes as f64 * bytes_per_s / 1e9;
    Some(CompressionUse {
        messages_per_s: each_second(messages.messages),
        ratio: costs.decompressed_bytes as f64 / costs.bytes as f64,
        compress_cpus: cpus(costs.compress_ns),
        decompress_cpus: cpus(costs.decompress_ns),
    })
}

/// What samples have taken together.
#[derive(Clone, Copy, Debug, Default)]
struct SampleCosts {
    bytes: usize,
    decompressed_bytes: usize,
    compress_ns: u64,
    decompress_ns: u64,
}

fn sample_costs(samples: &[Vec<u8>], cpu_ns: &dyn Fn() -> u64) -> SampleCosts {
    let mut costs = SampleCosts::default();
    for sample in samples {
        let left = DECOMPRESSED_SAMPLES_BYTES.saturating_sub(costs.decompressed_bytes);
        let (message, decompress_ns) = quickest(cpu_ns, || decompressed(sample, left));
        let Some(message) = message else {
            continue;
        };
        let (_, compress_ns) = quickest(cpu_ns, || compressed(&message));
        costs.bytes += sample.len();
        costs.decompressed_bytes += message.len();
        costs.compress_ns += compress_ns;
        costs.decompress_ns += decompress_ns;
    }
    costs
}

/// Returns what it costs a server to compress responses of which none should be; `None`: they have
/// as many bytes on their way as they have as messages.
pub(super) fn still_compressed(
    point: &LoadPoint,
    kept: &KeptAnswers,
    cpu_ns: &dyn Fn() -> u64,
) -> Option<CompressionUse> {
    let ratio = kept.mean_bytes() / bytes_of_response(point).max(1e-9);
    let bytes: usize = kept.samples().iter().map(Vec::len).sum();
    if ratio < RATIO || bytes == 0 {
        return None;
    }
    let takes_ns = |message: &Vec<u8>| quickest(cpu_ns, || compressed(message)).1;
    let compress_ns: u64 = kept.samples().iter().map(takes_ns).sum();
    let bytes_per_s = kept.mean_bytes() * point.rate;
    Some(CompressionUse {
        messages_per_s: point.rate,
        ratio,
        compress_cpus: compress_ns as f64 / bytes as f64 * bytes_per_s / 1e9,
        decompress_cpus: 0.0,
    })
}

/// Does something [`REPEATED`] times; returns what the last time brought, and what the quickest
/// took.
fn quickest<T>(cpu_ns: &dyn Fn() -> u64, work: impl Fn() -> Option<T>) -> (Option<T>, u64) {
    let mut best = (None, u64::MAX);
    for _ in 0..REPEATED {
        let begin_ns = cpu_ns();
        best.0 = work();
        best.1 = best.1.min(cpu_ns().saturating_sub(begin_ns));
        if best.0.is_none() {
            break;
        }
    }
    best
}

/// Returns what a sample was before; `None`: it is damaged, or more than this.
fn decompressed(sample: &[u8], most_bytes: usize) -> Option<Vec<u8>> {
    let mut message = Vec::new();
    let most = most_bytes as u64 + 1;
    let read = match sample {
        // RFC 1952 section 2.3.1.
        [0x1f, 0x8b, ..] => GzDecoder::new(sample).take(most).read_to_end(&mut message),
        _ => ZlibDecoder::new(sample)
            .take(most)
            .read_to_end(&mut message),
    };
    (read.is_ok() && message.len() <= most_bytes).then_some(message)
}

fn compressed(message: &[u8]) -> Option<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), LEVEL);
    encoder.write_all(message).ok()?;
    encoder.finish().ok()
}

/// Whether the server may compress what it responds: small messages it need not.
pub(super) fn is_uncompressed_worth_trying(evidence: &LoadEvidence) -> bool {
    best(&evidence.one).is_some_and(|point| bytes_of_response(point) >= COMPRESSED_LEAST_BYTES)
}

fn bytes_of_response(point: &LoadPoint) -> f64 {
    point.bytes_per_s.1 / point.rate.max(1e-9)
}

/// Adds what calls without compressed responses have shown. `it`: what is known without them.
pub(super) fn with_uncompressed(evidence: &LoadEvidence, it: Diagnosis) -> Diagnosis {
    let (Some(uncompressed), Some(first)) = (&evidence.uncompressed, best(&evidence.one)) else {
        return it;
    };
    if let (Some(cost), Some(process)) = (evidence.still_compressed, &uncompressed.server) {
        let side = CompressionOfSide {
            who: "server",
            sent: "responses",
            compressed: Some(cost),
            decompressed: None,
        };
        let it =
            it.supported("responses are compressed also where no compression is accepted".into());
        return with_compression(it, &side, process);
    }
    // Whatever it may, this server compresses nothing of these.
    let ratio = bytes_of_response(uncompressed) / bytes_of_response(first).max(1e-9);
    let is_cpu = (it.causes().iter()).any(|cause| CPU_CAUSES.contains(cause));
    if ratio < RATIO || !is_cpu || uncompressed.failed_share() * 100.0 >= STOP_ERRORS_PERCENT as f64
    {
        return it;
    }
    let again = evidence.again.as_ref().map_or(0.0, |again| again.rate);
    let gain = uncompressed.rate / first.rate.max(again).max(1e-9);
    let cpu_gain = (cpu_of_operation(first).zip(cpu_of_operation(uncompressed)))
        .map_or(0.0, |(compressed, plain)| compressed / plain);
    let shown = format!(
        "without compressed responses {} are answered, {} as many, with {} less CPU a call and {} \
         as many bytes",
        rate(uncompressed.rate),
        times(gain),
        times(cpu_gain),
        times(ratio)
    );
    if gain < GAIN || cpu_gain < GAIN {
        return it.supported(shown);
    }
    let text = "the server spends its CPU on compressing responses";
    Diagnosis::named(Cause::Compression, text.into())
        .supported(shown)
        .changed(AS_THEY_ARE.into(), Some(cpu_gain), Some(gain))
        .joined(it)
}

/// What compressing costs one side.
pub(super) struct CompressionOfSide {
    /// Which side it is.
    who: &'static str,
    /// What it sends, in words.
    sent: &'static str,
    /// What it sends compressed.
    compressed: Option<CompressionUse>,
    /// What came to it compressed.
    decompressed: Option<CompressionUse>,
}

/// What compressing costs the client.
pub(super) fn client_compression(run: &ClientRun) -> CompressionOfSide {
    CompressionOfSide {
        who: "client",
        sent: "requests",
        compressed: run.compressed_requests,
        decompressed: run.compressed_responses,
    }
}

/// What compressing costs the server.
pub(super) fn server_compression(run: &ClientRun) -> CompressionOfSide {
    CompressionOfSide {
        who: "server",
        sent: "responses",
        compressed: run.compressed_responses,
        decompressed: run.compressed_requests,
    }
}

/// Names compression before the CPU or the thread that limits a process, where it takes most of
/// that; and alone where what limits a busy process is not known. `it`: what is known without it.
pub(super) fn with_compression(
    it: Diagnosis,
    side: &CompressionOfSide,
    process: &ProcessUse,
) -> Diagnosis {
    let is_cpu = it
        .causes()
        .first()
        .map_or(process.cpus >= IDLE_CPUS, |cause| {
            matches!(
                cause,
                Cause::ClientCpu | Cause::ClientThread | Cause::ServerCpu | Cause::ServerThread
            )
        });
    let compress = side.compressed.map_or(0.0, |one| one.compress_cpus);
    let decompress = side.decompressed.map_or(0.0, |one| one.decompress_cpus);
    let share = (compress + decompress) / process.cpus.max(1e-9);
    if !is_cpu || share < TOLD_SHARE {
        return it;
    }
    let shown = format!(
        "compressing takes {:.2} CPUs and decompressing {:.2}, by what messages of this run take \
         here: {} of {:.2}",
        compress,
        decompress,
        percent(share.min(1.0)),
        process.cpus
    );
    let ratio = [side.compressed, side.decompressed].into_iter().flatten();
    let ratio = ratio.map(|one| one.ratio).fold(1.0, f64::max);
    let bytes = format!(
        "without it messages have {} as many bytes on their way",
        times(ratio)
    );
    if share < NAMED_SHARE {
        return it.supported(shown);
    }
    let text = format!(
        "most of the CPU of the {} goes to {}",
        side.who,
        match compress >= decompress {
            true => format!("compressing {}", side.sent),
            false => "decompressing what comes".to_owned(),
        }
    );
    // Where the CPU is not all that calls wait for, less of it brings less than that.
    let is_limit = !it.causes().is_empty();
    let gain = is_limit.then_some((1.0 / (1.0 - share).max(1e-9)).min(GAIN_MAX));
    Diagnosis::named(Cause::Compression, text)
        .supported(shown)
        .doubted(bytes)
        .changed(AS_THEY_ARE.into(), gain, None)
        .joined(it)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::sync::Mutex;

    use super::super::client_verdict::judge_client;
    use super::super::evidence::ClientEvidence;
    use super::super::load_verdict::judge_load;
    use super::super::tests::{SERIAL, assert_causes, client, load, points, run, using, with};
    use super::*;
    use crate::verdict::Verdict;
    use crate::workload::{ExperimentCalls, SameRequest, Workload};

    fn messages(samples: Vec<Vec<u8>>) -> CompressedMessages {
        let mut found = CompressedMessages::default();
        (found.messages, found.bytes, found.samples) = (1_000, 100_000, samples);
        found
    }

    fn text(bytes: usize) -> Vec<u8> {
        let words = (0..).flat_map(|number: u32| format!("word {number} ").into_bytes());
        words.take(bytes).collect()
    }

    #[test]
    fn what_compressing_costs_is_by_the_bytes_of_the_samples() {
        // Each look at the clock is 1 000 ns later.
        let clock = Cell::new(0);
        let cpu_ns = || clock.replace(clock.get() + 1_000);
        let sample = compressed(&text(8_000)).expect("it is compressed");
        let ratio = 8_000.0 / sample.len() as f64;
        let bytes = 2 * sample.len();
        let mut zlib = flate2::write::ZlibEncoder::new(Vec::new(), LEVEL);
        zlib.write_all(&text(8_000)).expect("into memory");
        let zlib = zlib.finish().expect("into memory");
        let found = messages(vec![sample.clone(), sample.clone()]);
        let each_second = |count: u64| count as f64 / 2.0;
        let cost = compression_use(&found, each_second, &cpu_ns).expect("there are samples");
        assert_eq!(cost.messages_per_s, 500.0);
        assert!((cost.ratio - ratio).abs() < 1e-9);
        // Two samples of 1 000 ns each, 50 000 bytes a second.
        let expected = 2_000.0 / bytes as f64 * 50_000.0 / 1e9;
        assert!((cost.compress_cpus - expected).abs() < 1e-12, "{cost:?}");
        assert!((cost.decompress_cpus - expected).abs() < 1e-12, "{cost:?}");
        assert!(compression_use(&messages(vec![zlib]), each_second, &cpu_ns).is_some());
    }

    #[test]
    fn what_cannot_be_read_or_becomes_too_much_is_left_out() {
        let none = |samples| compression_use(&messages(samples), |count| count as f64, &|| 0);
        assert_eq!(none(Vec::new()), None);
        assert_eq!(
            none(vec![b"not compressed".to_vec(), vec![0x1f, 0x8b, 1]]),
            None
        );
        let bomb = compressed(&vec![0; DECOMPRESSED_SAMPLES_BYTES + 1]).expect("into memory");
        assert_eq!(none(vec![bomb.clone()]), None);
        let most = compressed(&vec![0; DECOMPRESSED_SAMPLES_BYTES]).expect("into memory");
        let cost = none(vec![most.clone(), most.clone()]).expect("the first one is read");
        let ratio = DECOMPRESSED_SAMPLES_BYTES as f64 / most.len() as f64;
        assert!((cost.ratio - ratio).abs() < 1e-6);
    }

    const USE: CompressionUse = CompressionUse {
        messages_per_s: 500.0,
        ratio: 8.0,
        compress_cpus: 0.7,
        decompress_cpus: 0.1,
    };

    /// A client of which one thread is busy.
    fn busy_client(
        requests: Option<CompressionUse>,
        responses: Option<CompressionUse>,
    ) -> Diagnosis {
        let mut plain = run(500.0);
        (plain.client_share, plain.server_share) = (0.9, 0.1);
        plain.client = Some(using(1.0, 0.97));
        (plain.compressed_requests, plain.compressed_responses) = (requests, responses);
        judge_client(&ClientEvidence::new(plain))
    }

    #[test]
    fn a_client_that_compresses_most_of_the_time_is_told_so() {
        assert_causes(&busy_client(None, None), &[Cause::ClientThread]);
        let found = busy_client(Some(USE), None);
        assert_causes(&found, &[Cause::Compression, Cause::ClientThread]);
        assert!(
            found.sentence.contains("compressing requests"),
            "{found:#?}"
        );
        let change = found.change.expect("to send them as they are");
        assert_eq!(
            change.predicted.map(|gain| (gain * 10.0).round()),
            Some(33.0)
        );
        // It only decompresses, which is a tenth of its CPU.
        assert_causes(&busy_client(None, Some(USE)), &[Cause::ClientThread]);
        let costly = CompressionUse {
            decompress_cpus: 1.4,
            ..USE
        };
        let found = busy_client(None, Some(costly));
        assert_causes(&found, &[Cause::Compression, Cause::ClientThread]);
        assert!(found.sentence.contains("decompressing"), "{found:#?}");
        let change = found.change.expect("to send them as they are");
        assert_eq!(change.predicted, Some(GAIN_MAX));
    }

    #[test]
    fn what_takes_little_of_the_cpu_is_said_and_not_named() {
        for (cpus, is_said) in [(0.14, false), (0.16, true), (0.49, true)] {
            let some = CompressionUse {
                compress_cpus: cpus,
                ..USE
            };
            let found = busy_client(Some(some), None);
            assert_causes(&found, &[Cause::ClientThread]);
            let says = |text: &String| text.contains("compressing takes");
            assert_eq!(found.evidence_for.iter().any(says), is_said, "{cpus}");
        }
    }

    #[test]
    fn a_server_that_compresses_most_of_the_time_is_told_so() {
        let mut evidence = client(0.97, 0.6, 0.97);
        let busy = |plain: &mut ClientRun| plain.server = Some(using(1.0, 0.97));
        busy(&mut evidence.plain);
        assert_causes(&judge_client(&evidence), &[Cause::ServerThread]);
        evidence.plain.compressed_responses = Some(USE);
        let found = judge_client(&evidence);
        assert_causes(&found, &[Cause::Compression, Cause::ServerThread]);
        // What the client compresses costs it little.
        evidence.plain.compressed_responses = None;
        evidence.plain.compressed_requests = Some(USE);
        assert_causes(&judge_client(&evidence), &[Cause::ServerThread]);
    }

    /// A busy server whose responses have been compressed: so many times the calls without, with
    /// so much CPU, and so many times the bytes.
    fn without(gain: f64, cpus: f64, ratio: f64) -> LoadEvidence {
        let mut evidence = with(load(SERIAL, 1.0), |point| {
            point.server = Some(using(1.1, 0.97));
            point.bytes_per_s.1 = point.rate * 400.0;
        });
        let first = best(&evidence.one).expect("there is one").clone();
        evidence.uncompressed = Some(LoadPoint {
            accepts_gzip: false,
            rate: first.rate * gain,
            bytes_per_s: (0.0, first.rate * gain * 400.0 * ratio),
            server: Some(using(cpus, cpus)),
            ..first
        });
        evidence
    }

    #[test]
    fn responses_that_cost_less_as_they_are_are_named_with_what_they_save() {
        let found = judge_load(&without(3.0, 1.0, 8.0));
        assert_causes(&found, &[Cause::Compression, Cause::ServerThread]);
        let change = found.change.expect("to send them as they are");
        let rounded = |gain: Option<f64>| gain.map(|gain| (gain * 10.0).round());
        assert_eq!(
            (rounded(change.predicted), rounded(change.measured)),
            (Some(33.0), Some(30.0))
        );
        // Nothing was compressed, or it costs little, or they fail.
        assert_causes(&judge_load(&without(3.0, 1.0, 1.1)), &[Cause::ServerThread]);
        let found = judge_load(&without(1.2, 1.0, 8.0));
        assert_causes(&found, &[Cause::ServerThread]);
        let says = |text: &String| text.contains("without compressed responses");
        assert!(found.evidence_for.iter().any(says), "{found:#?}");
        let mut failing = without(3.0, 1.0, 8.0);
        let fail = |point: &mut LoadPoint| point.failed = point.succeeded;
        failing.uncompressed.iter_mut().for_each(fail);
        assert_causes(&judge_load(&failing), &[Cause::ServerThread]);
        // A server that waits for something else has nothing to gain.
        let mut waiting = without(3.0, 1.0, 8.0);
        for point in waiting.one.iter_mut().chain(&mut waiting.again) {
            point.server = Some(using(0.05, 0.02));
        }
        let causes = judge_load(&waiting).causes().to_vec();
        assert!(!causes.contains(&Cause::Compression), "{causes:?}");
    }

    /// grpcio's servers compress whatever a client accepts.
    #[test]
    fn responses_that_are_compressed_all_the_same_are_judged_by_what_that_takes() {
        for (cpus, causes) in [
            (0.7, &[Cause::Compression, Cause::ServerThread][..]),
            (0.4, &[Cause::ServerThread][..]),
        ] {
            let mut evidence = without(1.0, 1.1, 1.0);
            evidence.still_compressed = Some(CompressionUse {
                compress_cpus: cpus,
                decompress_cpus: 0.0,
                ..USE
            });
            let found = judge_load(&evidence);
            assert_causes(&found, causes);
            let says = |text: &String| text.contains("where no compression is accepted");
            assert!(found.evidence_for.iter().any(says), "{found:#?}");
        }
    }

    #[test]
    fn responses_with_fewer_bytes_than_their_messages_are_still_compressed() {
        let clock = Cell::new(0);
        let cpu_ns = || clock.replace(clock.get() + 1_000);
        let kept = Mutex::new(KeptAnswers::default());
        let same = SameRequest::new("/a.B/C".into(), Vec::new());
        let keeper = ExperimentCalls::new(same, 0, Some(&kept));
        let message = text(8_000);
        for _ in 0..40 {
            assert_eq!(keeper.judge(0, 0, &message), Verdict::Good);
        }
        let kept = kept.into_inner().expect("nobody has panicked");
        let mut point = points(&[500.0]).remove(0);
        let mut found = |bytes_of_response: f64| {
            point.bytes_per_s.1 = 500.0 * bytes_of_response;
            still_compressed(&point, &kept, &cpu_ns)
        };
        assert_eq!(found(8_000.0 / 1.19), None);
        let cost = found(1_000.0).expect("an eighth of it came");
        assert_eq!((cost.messages_per_s, cost.ratio), (500.0, 8.0));
        // 1 000 ns for each of them.
        assert!(
            (cost.compress_cpus - 500.0 * 1e-6).abs() < 1e-12,
            "{cost:?}"
        );
        // None was kept, as they are larger than all that may be.
        assert_eq!(
            still_compressed(&point, &KeptAnswers::default(), &cpu_ns),
            None
        );
    }

    #[test]
    fn small_responses_are_not_asked_for_once_more() {
        let mut evidence = without(1.0, 1.0, 1.0);
        assert!(is_uncompressed_worth_trying(&evidence));
        let small = |point: &mut LoadPoint| point.bytes_per_s.1 = point.rate * 63.0;
        evidence.one.iter_mut().for_each(small);
        assert!(!is_uncompressed_worth_trying(&evidence));
    }

    /// For most of the time the client was the one to move, but not for much more than the server.
    #[test]
    fn a_client_that_compresses_for_most_of_the_time_is_told_so_beside_a_server_that_works() {
        for (client_share, cpus, causes) in [
            (0.6, 1.0, &[Cause::Compression][..]),
            (0.49, 1.0, &[]),
            // It waits for most of that.
            (0.6, 0.45, &[]),
        ] {
            let mut plain = run(500.0);
            (plain.client_share, plain.server_share) = (client_share, 1.0 - client_share);
            plain.client = Some(using(cpus, 0.3));
            plain.compressed_requests = Some(USE);
            let found = judge_client(&ClientEvidence::new(plain));
            assert_eq!(found.causes(), causes, "{found:#?}");
        }
    }

    #[test]
    fn a_client_with_something_else_in_its_way_is_not_told_of_it() {
        let mut plain = run(500.0);
        (plain.client_share, plain.server_share) = (0.9, 0.1);
        plain.compressed_requests = Some(USE);
        let found = judge_client(&ClientEvidence::new(plain));
        assert_causes(&found, &[Cause::ClientPace]);
    }
}
