//! Calls in flight: blocking, capped and far too many, against a server with a lock and without.

use std::time::Duration;

use super::claim::{Claim, Published, needed, printed};
use super::measurements::{MeasuredRun, Measurements};
use super::plan::{
    PlannedClient, PlannedRun, PlannedServer, PublishedCount, ScenarioPlan, ScenarioScale, words,
};

pub(super) const PUBLICATION: &str = "\
    Carl Mastrangelo, \"So You Want to Optimize gRPC\", parts 1 and 2, grpc.io, 2018: blocking \
    16.55, future client 24.28 (part 1), with the lock 24.07, without it 2449.8 RPCs/s (part 2); \
    12 cores, 32 GB, client and server in one process, which sleeps for 10 ms and 50 ms";

const BLOCKING: &str = "lock, blocking";
const CAPPED: &str = "lock, 100 in flight";
const MORE: &str = "lock, 300 in flight";
const MOST: &str = "lock, 600 in flight";
const FREE: &str = "no lock, 100 in flight";
const UNBOUNDED: &str = "lock, futures without a bound";

/// The two servers and their delays.
const LOCK: (&str, &str) = ("lock", "read=10ms,write=50ms,serial");
const NO_LOCK: (&str, &str) = ("no lock", "read=10ms,write=50ms");

/// Calls in flight of the largest run, and of the one that it is compared with: what waits is the
/// difference. The server refuses what would wait for more than a share of ten minutes under its
/// lock, which are 700 Creates of one connection.
const MANY: f64 = 600.0;
const CAP: f64 = 100.0;

/// How many times as many operations a second the lock must have kept back at least, so that CPU
/// time beside them says something.
const EFFECT_LEAST: f64 = 10.0;

const FUTURES_HELP: Published = Published {
    text: "a client of futures, at most 100 in flight, does 46 % more than a blocking one (16.55 \
           to 24.28 RPCs/s)",
    criterion: "as the article's clients count, at least 1.2 times as many RPCs/s",
};
const OVERLAP: Published = Published {
    text: "what is behind the 46 %: the blocking client does not count its Creates (× 1.33), the \
           rest, × 1.10, is time between two calls that is used",
    criterion: "counted alike, and beside what the sleeps of the operations as they came allow, at \
                least 1.05 times as many operations a second",
};
const CEILING: Published = Published {
    text: "a server that sleeps under one lock does 25 operations/s at most (20 if all of them \
           write), however many calls are in flight",
    criterion: "with 1, 100, 300 and 600 in flight at most 1.05 times what its sleeps allow for \
                the operations as they came",
};
const CPU_GROWS: Published = Published {
    text: "the client of futures takes some 20 % more CPU",
    criterion: "client and server together take at least 1.1 times the CPU time in the same time",
};
const LOCK_FREE: Published = Published {
    text: "without the lock it is × 100 (24.07 to 2449.8 RPCs/s with 100 in flight)",
    criterion: "at least 80 times as many operations a second",
};
const CPU_OF_LOCK_FREE: Published = Published {
    text: "for that, CPU time grows from 9 to 52 s a minute, so × 5.8 and not × 100",
    criterion: "operations a second grow at least tenfold, and CPU time of client and server by \
                half of that factor at most",
};
const MEMORY: Published = Published {
    text: "without a limit, futures pile up in the client until its memory (8 GB) is full, and \
           nothing is gained",
    criterion: "from 100 to 600 in flight the client's memory grows by at least 8 KiB for each \
                call that waits, and operations a second by no more than 1.1 times",
};
const FAILS: Published = Published {
    text: "at the end the unbounded client fails",
    criterion: "a client of grpcio that starts Creates without a bound fills the memory that it is \
                given beside its interpreter (512 MiB, with --full 8 GiB, with --quick 96 MiB; \
                half of what is free on the machine and in its control groups, if that is less) \
                before its time is over",
};

pub(super) fn plan(scale: ScenarioScale) -> ScenarioPlan {
    // Without a warm-up, as the article's clients: what began in it would take all of a short run.
    let ms = scale.of([600, 8_000, 60_000]);
    let run = |name: &str, (server, delays), flags: &str, published| PlannedRun {
        name: name.into(),
        server,
        relay: None,
        client: PlannedClient::Pelton(words(&format!(
            "kvstore {flags} --simulate {delays} --duration {ms}ms --warm-up 0s \
             --timeout 2s"
        ))),
        client_cpu: None,
        // At the end it deletes what it has stored, under the lock.
        duration: Duration::from_millis(ms + 3_000),
        published,
        counted: PublishedCount::Calls,
    };
    let server = |(name, delays): (&'static str, &str)| PlannedServer {
        name,
        arguments: words(&format!("--durability volatile --simulate {delays}")),
    };
    let limit_mib: u64 = scale.of([96, 512, 8_192]);
    let unbounded = PlannedRun {
        client: PlannedClient::Grpcio(words(&format!(
            "--method create --memory-limit {} --seconds {}",
            limit_mib << 20,
            ms as f64 / 1e3
        ))),
        ..run(UNBOUNDED, LOCK, "", None)
    };
    ScenarioPlan {
        servers: vec![server(LOCK), server(NO_LOCK)],
        runs: vec![
            run(BLOCKING, LOCK, "--blocking", Some("16.55 counted")),
            run(CAPPED, LOCK, "--in-flight 100", Some("24.28; 24.07")),
            run(MORE, LOCK, "--in-flight 300", None),
            run(MOST, LOCK, "--in-flight 600", None),
            run(FREE, NO_LOCK, "--in-flight 100", Some("2449.8")),
            unbounded,
        ],
        rounds: scale.of([1, 2, 3]),
    }
}

pub(super) fn judge(measured: &Measurements) -> Vec<Claim> {
    vec![
        FUTURES_HELP.judged(futures_help(measured)),
        OVERLAP.judged(overlap(measured)),
        CEILING.judged(ceiling(measured)),
        CPU_GROWS.judged(cpu_grows(measured)),
        LOCK_FREE.judged(lock_free(measured)),
        CPU_OF_LOCK_FREE.judged(cpu_of_lock_free(measured)),
        MEMORY.judged(memory(measured)),
        FAILS.judged(fails(measured)),
    ]
}

fn futures_help(measured: &Measurements) -> Result<(bool, String), String> {
    let blocking = printed(measured, BLOCKING, "article_calls_per_s")?;
    let capped = printed(measured, CAPPED, "article_calls_per_s")?;
    let gain = capped / blocking;
    Ok((
        gain >= 1.2,
        format!("{blocking:.2} to {capped:.2} RPCs/s: × {gain:.2}"),
    ))
}

/// Operations a second, of what the sleeps of the operations as they came allow.
fn share_of_ceiling(measured: &Measurements, run: &str) -> Result<f64, String> {
    needed(measured, run, |run| {
        let ceiling = run.figure("ceiling_as_came_per_s")?;
        let share = run.figure("all_calls_per_s")? / ceiling;
        Some(share).filter(|share| share.is_finite() && *share > 0.0)
    })
}

fn overlap(measured: &Measurements) -> Result<(bool, String), String> {
    let blocking = share_of_ceiling(measured, BLOCKING)?;
    let capped = share_of_ceiling(measured, CAPPED)?;
    let counted = printed(measured, BLOCKING, "all_calls_per_s")?
        / printed(measured, BLOCKING, "article_calls_per_s")?;
    let gain = capped / blocking;
    Ok((
        gain >= 1.05,
        format!(
            "counting is worth × {counted:.2}, overlap × {gain:.2}: the blocking client reached \
             {:.0} % of what the sleeps allow, the other one {:.0} %",
            blocking * 100.0,
            capped * 100.0
        ),
    ))
}

fn ceiling(measured: &Measurements) -> Result<(bool, String), String> {
    let mut highest: f64 = 0.0;
    let mut figures = Vec::new();
    for run in [BLOCKING, CAPPED, MORE, MOST] {
        let share = share_of_ceiling(measured, run)?;
        let per_s = printed(measured, run, "all_calls_per_s")?;
        highest = highest.max(share);
        figures.push(format!("{per_s:.1}"));
    }
    Ok((
        highest <= 1.05,
        format!(
            "{} operations/s with 1, 100, 300 and 600 in flight, {:.0} % of what the sleeps \
             allow at most",
            figures.join(", "),
            highest * 100.0
        ),
    ))
}

/// CPU time of client and server for each second of the client's run, in milliseconds.
fn cpu_ms_per_s(measured: &Measurements, run: &str) -> Result<f64, String> {
    needed(measured, run, |run: &MeasuredRun| {
        let both_ns = run.client_cpu_ns?.saturating_add(run.server_cpu_ns?);
        (run.elapsed_ns > 0 && both_ns > 0).then(|| both_ns as f64 * 1e3 / run.elapsed_ns as f64)
    })
}

fn cpu_grows(measured: &Measurements) -> Result<(bool, String), String> {
    let blocking = cpu_ms_per_s(measured, BLOCKING)?;
    let capped = cpu_ms_per_s(measured, CAPPED)?;
    let growth = capped / blocking;
    Ok((
        growth >= 1.1,
        format!("{blocking:.2} to {capped:.2} ms of CPU time a second: × {growth:.2}"),
    ))
}

fn lock_free(measured: &Measurements) -> Result<(bool, String), String> {
    let (locked, free) = both_rates(measured)?;
    let gain = free / locked;
    Ok((
        gain >= 80.0,
        format!("{locked:.1} to {free:.0} operations/s: × {gain:.0}"),
    ))
}

/// Operations a second with the lock, and without it.
fn both_rates(measured: &Measurements) -> Result<(f64, f64), String> {
    let locked = printed(measured, CAPPED, "all_calls_per_s")?;
    Ok((locked, printed(measured, FREE, "all_calls_per_s")?))
}

fn cpu_of_lock_free(measured: &Measurements) -> Result<(bool, String), String> {
    let (locked, free) = both_rates(measured)?;
    let before = cpu_ms_per_s(measured, CAPPED)?;
    let after = cpu_ms_per_s(measured, FREE)?;
    let (gain, growth) = (free / locked, after / before);
    if gain < EFFECT_LEAST {
        return Err(format!(
            "operations do not grow as they should: × {gain:.1}, with × {growth:.1} of CPU time"
        ));
    }
    Ok((
        growth <= gain / 2.0,
        format!(
            "{before:.2} to {after:.2} ms of CPU time a second (× {growth:.1}) for × {gain:.0} \
             operations"
        ),
    ))
}

fn memory(measured: &Measurements) -> Result<(bool, String), String> {
    let peak = |run| needed(measured, run, |run| Some(run.client_peak_bytes? as f64));
    let (few, many) = (peak(CAPPED)?, peak(MOST)?);
    let each = (many - few) / (MANY - CAP);
    let slow = printed(measured, CAPPED, "all_calls_per_s")?;
    let gain = printed(measured, MOST, "all_calls_per_s")? / slow;
    Ok((
        each >= 8.0 * 1024.0 && gain <= 1.1,
        format!(
            "{:.0} to {:.0} MiB, {:.1} KiB for each call that waits, for × {gain:.2} operations",
            few / f64::from(1 << 20),
            many / f64::from(1 << 20),
            each / 1024.0
        ),
    ))
}

fn fails(measured: &Measurements) -> Result<(bool, String), String> {
    let mib = |name| printed(measured, UNBOUNDED, name).map(|bytes| bytes / f64::from(1 << 20));
    let (held, limit) = (mib("resident_bytes")?, mib("memory_limit_bytes")?);
    let (rate, capped) = (
        printed(measured, UNBOUNDED, "all_calls_per_s")?,
        printed(measured, CAPPED, "all_calls_per_s")?,
    );
    let waiting = needed(measured, UNBOUNDED, |run| run.figure("waiting"))?;
    let cpu = [CAPPED, UNBOUNDED].map(|run| cpu_ms_per_s(measured, run));
    let cpu = match cpu {
        [Ok(capped), Ok(unbounded)] => format!(
            "; client and server: {unbounded:.0} ms of CPU time a second, {capped:.0} with 100 in \
             flight"
        ),
        _ => String::new(),
    };
    let filled = match printed(measured, UNBOUNDED, "full_s") {
        Ok(full_s) => format!("{limit:.0} MiB were full after {full_s:.1} s"),
        Err(_) => format!("{held:.0} of {limit:.0} MiB at the end"),
    };
    Ok((
        held >= limit,
        format!(
            "{filled}, {waiting:.0} calls waiting; {rate:.1} operations/s, {capped:.1} with 100 in \
             flight{cpu}"
        ),
    ))
}

#[cfg(test)]
mod tests {
    use super::super::claim::tests::verdicts;
    use super::*;

    /// A run with `all` operations a second, of which the client counts `counted`.
    fn run(
        name: &str,
        (counted, all, ceiling): (f64, f64, f64),
        cpu_ms: u64,
        mib: u64,
    ) -> MeasuredRun {
        let figures = [
            ("article_calls_per_s", counted),
            ("all_calls_per_s", all),
            ("ceiling_as_came_per_s", ceiling),
        ];
        MeasuredRun {
            name: name.into(),
            figures: figures
                .map(|(name, figure)| (name.to_owned(), figure.into()))
                .into_iter()
                .collect(),
            client_cpu_ns: Some(cpu_ms * 500_000),
            server_cpu_ns: Some(cpu_ms * 500_000),
            client_peak_bytes: Some(mib << 20),
            elapsed_ns: 1_000_000_000,
            ..MeasuredRun::default()
        }
    }

    /// A client without a bound that holds so much of 512 MiB at the end.
    fn unbounded(held_mib: f64, full_s: Option<f64>, rate: f64) -> MeasuredRun {
        let bytes = |mib: f64| (mib * f64::from(1 << 20)).into();
        let mut unbounded = run(UNBOUNDED, (rate, rate, 25.0), 900, 512);
        let figures = &mut unbounded.figures;
        figures.insert("memory_limit_bytes".into(), bytes(512.0));
        figures.insert("resident_bytes".into(), bytes(held_mib));
        figures.insert("waiting".into(), 7_000.0.into());
        figures.insert("full_s".into(), full_s.into());
        unbounded
    }

    fn measured(runs: impl IntoIterator<Item = MeasuredRun>) -> Measurements {
        let mut measured = Measurements::default();
        runs.into_iter().for_each(|run| measured.add(run));
        measured
    }

    /// As the articles have it.
    fn published() -> [MeasuredRun; 5] {
        [
            run(BLOCKING, (16.55, 22.07, 25.0), 100, 100),
            run(CAPPED, (24.28, 24.28, 25.0), 120, 110),
            run(MORE, (24.3, 24.3, 25.0), 125, 150),
            run(MOST, (24.3, 24.3, 25.0), 130, 300),
            run(FREE, (2449.8, 2449.8, 2500.0), 700, 110),
        ]
    }

    #[test]
    fn the_published_figures_reproduce_what_was_published() {
        let unbounded = unbounded(513.0, Some(0.9), 20.0);
        let claims = judge(&measured(published().into_iter().chain([unbounded])));
        assert_eq!(verdicts(&claims), ["reproduced"; 8], "{claims:#?}");
        let fails = "512 MiB were full after 0.9 s, 7000 calls waiting; 20.0 operations/s, 24.3 \
                     with 100 in flight; client and server: 900 ms of CPU time a second, 120 with \
                     100 in flight";
        assert_eq!(claims[7].figures, fails);
        assert!(
            claims[1].figures.contains("× 1.33, overlap × 1.10"),
            "{claims:#?}"
        );
    }

    /// Every effect is absent: nothing changes but the run's name.
    #[test]
    fn a_scenario_without_its_effects_reproduces_none_of_them() {
        let same = |name| run(name, (30.0, 30.0, 25.0), 100, 100);
        let runs = [BLOCKING, CAPPED, MORE, MOST, FREE].map(same);
        let unbounded = unbounded(100.0, None, 30.0);
        let claims = judge(&measured(runs.into_iter().chain([unbounded])));
        let mut expected = ["not-reproduced"; 8];
        // CPU time that does not grow with operations that do not says nothing.
        expected[5] = "cannot-be-seen";
        assert_eq!(verdicts(&claims), expected, "{claims:#?}");
        let held = "100 of 512 MiB at the end, 7000 calls waiting";
        assert!(claims[7].figures.starts_with(held), "{claims:#?}");
    }

    /// × 2 of operations for × 1 of CPU time is not what was published.
    #[test]
    fn cpu_beside_operations_that_hardly_grow_shows_nothing() {
        for (free, verdict) in [(48.0, "cannot-be-seen"), (300.0, "reproduced")] {
            let mut runs = published();
            runs[4] = run(FREE, (free, free, 2500.0), 120, 110);
            let claims = judge(&measured(runs));
            assert_eq!(claims[5].verdict.name(), verdict, "{claims:#?}");
        }
    }

    /// What its Creates bring is what the lock allows, and no question.
    #[test]
    fn a_client_whose_memory_is_full_has_failed() {
        let unbounded = unbounded(600.0, Some(3.0), 60.0);
        let claims = judge(&measured(published().into_iter().chain([unbounded])));
        assert_eq!(claims[7].verdict.name(), "reproduced");
    }

    #[test]
    fn without_a_run_its_claims_cannot_be_seen() {
        let [blocking, capped, thousand, unbounded, _] = published();
        let mut measured = Measurements::default();
        for run in [blocking, capped, thousand, unbounded] {
            measured.add(run);
        }
        measured.add_missing(FREE, "it was interrupted");
        measured.add_missing(UNBOUNDED, "there is no grpcio");
        let claims = judge(&measured);
        assert_eq!(
            claims[4].verdict.words(),
            "cannot be seen here, because it was interrupted"
        );
        assert_eq!(claims[0].verdict.name(), "reproduced");
        assert_eq!(
            claims[7].verdict.words(),
            "cannot be seen here, because there is no grpcio"
        );
    }

    /// Beside nothing everything would be more.
    #[test]
    fn runs_in_which_nothing_was_done_show_nothing() {
        let mut runs = published();
        runs[0] = run(BLOCKING, (0.0, 0.0, 0.0), 0, 100);
        let claims = judge(&measured(runs));
        for claim in [0, 1, 3] {
            assert_eq!(
                claims[claim].verdict.name(),
                "cannot-be-seen",
                "{claims:#?}"
            );
        }
    }

    #[test]
    fn a_short_run_fits_into_three_minutes() {
        let plan = plan(ScenarioScale::Short);
        assert!(plan.duration() <= Duration::from_secs(150));
    }
}
