//! Server modes of Tkrzw-RPC: one thread for each connection, and events.

use std::time::Duration;

use super::claim::{Claim, Published, needed, rate};
use super::measurements::Measurements;
use super::plan::{
    PlannedClient, PlannedRun, PlannedServer, PublishedCount, ScenarioPlan, ScenarioScale, words,
};

pub(super) const PUBLICATION: &str = "\
    Mikio Hirabayashi, Tkrzw-RPC 0.7.1, mikio.hatenablog.com, 2021-09-05: 4 cores, client and \
    server on one host, in memory, keys and values of 8 bytes, calls a second (records of \
    batches); Sy: synchronous server with 4 threads, AsN: asynchronous with N";

/// Name of the server, its arguments, and the columns of the published table for 1, 2 and 4
/// clients.
const SERVERS: [(&str, &str); 4] = [
    ("Sy", "--driver blocking --threads 4"),
    ("As1", "--threads 1"),
    ("As2", "--threads 2"),
    ("As4", "--threads 4"),
];
const CLIENTS: [u32; 3] = [1, 2, 4];

/// A key of a million, and a value, of 8 bytes each.
const KEY: &str = "{{utf8}}{{random 10000000 10999999}}";
const VALUE: &str = "{{utf8}}12345678";

/// What is called.
struct CalledMethod {
    name: &'static str,
    method: &'static str,
    /// Records of a call, or of a message.
    records: u32,
    /// Published for each server, and 1, 2 and 4 clients each.
    published: [[&'static str; 3]; 4],
}

impl CalledMethod {
    fn counted(&self) -> PublishedCount {
        match self.method {
            "Stream" => PublishedCount::Messages,
            _ => PublishedCount::Records(self.records),
        }
    }
}

const KINDS: [CalledMethod; 5] = [
    CalledMethod {
        name: "Echo",
        method: "Echo",
        records: 1,
        published: [
            ["16830", "25585", "27414"],
            ["20329", "28079", "39987"],
            ["19601", "27024", "34807"],
            ["20093", "27290", "30735"],
        ],
    },
    CalledMethod {
        name: "Set",
        method: "Set",
        records: 1,
        published: [
            ["16557", "23211", "27271"],
            ["20145", "27329", "35609"],
            ["19562", "24945", "30538"],
            ["19560", "25370", "30291"],
        ],
    },
    CalledMethod {
        name: "Set stream",
        method: "Stream",
        records: 1,
        published: [
            ["22259", "27760", "26642"],
            ["29586", "35667", "34192"],
            ["28721", "35782", "31471"],
            ["29451", "35799", "30941"],
        ],
    },
    CalledMethod {
        name: "Set batch 10",
        method: "SetMulti",
        records: 10,
        published: [
            ["133372", "203831", "237732"],
            ["147396", "232637", "304020"],
            ["148475", "222078", "298877"],
            ["153150", "223508", "294932"],
        ],
    },
    CalledMethod {
        name: "Set batch 100",
        method: "SetMulti",
        records: 100,
        published: [
            ["393403", "806322", "1258652"],
            ["431015", "945345", "1040406"],
            ["540021", "903255", "1461627"],
            ["504011", "962187", "1504228"],
        ],
    },
];

const ASYNCHRONOUS_WINS: Published = Published {
    text: "the asynchronous server is faster everywhere (the table itself has one cell that says \
           otherwise: batches of 100, one thread, four clients)",
    criterion: "for each kind of call and number of clients the best of the three asynchronous \
                servers makes at least 0.97 times the calls a second of the synchronous one, and \
                over all of them at least 1.05 times (geometric mean)",
};
const FEWER_THREADS: Published = Published {
    text: "more threads make Echo slower: 39 987, 34 807, 30 735 with 1, 2, 4 threads and four \
           clients",
    criterion: "Echo with four clients: four threads make at most 0.95 times the calls a second of \
                one",
};
const STREAM: Published = Published {
    text: "a stream is faster than calls: 29 586 instead of 20 145 with one client",
    criterion: "one asynchronous thread, one client: at least 1.2 times as many Sets a second over \
                a stream",
};
const BATCHES: Published = Published {
    text: "batches are worth most: 100 records at a time make up to 1.5 million records a second, \
           of some 30 thousand one by one",
    criterion: "four clients, the best server of each: at least ten times as many records a second \
                in batches of 100",
};
const MORE_CLIENTS: Published = Published {
    text: "with more clients more calls are made: 20 329, 28 079, 39 987 Echoes with 1, 2, 4",
    criterion: "Echo, one asynchronous thread: two clients make at least 1.2 times, and four at \
                least 1.5 times the calls a second of one",
};
const WITHOUT_ANSWERS: Published = Published {
    text: "without answers a stream makes some 100 000 Sets a second (synchronous) and 130 000 \
           (asynchronous), instead of 22 259 and 29 586",
    criterion: "one client, the synchronous server, and the asynchronous one with one thread: each \
                makes at least twice as many Sets a second over a stream without answers",
};

/// A stream of Sets of which none is answered: its name, and what was published for each server
/// that it is measured with.
const SILENT: &str = "Set stream, no answers";
const SILENT_SERVERS: [(&str, &str); 2] = [("Sy", "100000"), ("As1", "130000")];

/// Messages of each of these streams. A server ends one when all its Sets are done.
const SILENT_MESSAGES: u32 = 1_000;

fn named(kind: &str, server: &str, clients: u32) -> String {
    format!("{kind}, {server} × {clients}")
}

fn request(kind: &CalledMethod) -> String {
    let set = format!(r#"{{"key": "{KEY}", "value": "{VALUE}", "overwrite": true}}"#);
    match kind.method {
        "Echo" => r#"{"message": "12345678"}"#.into(),
        "Stream" => format!(r#"{{"set_request": {set}}}"#),
        "SetMulti" => {
            let record = format!(r#"{{"first": "{KEY}", "second": "{VALUE}"}}"#);
            let records = vec![record; kind.records as usize].join(", ");
            format!(r#"{{"overwrite": true, "records": [{records}]}}"#)
        }
        _ => set,
    }
}

pub(super) fn plan(scale: ScenarioScale) -> ScenarioPlan {
    let (warm_up_ms, ms) = scale.of([(20, 80), (200, 800), (1_000, 10_000)]);
    let mut runs = Vec::new();
    for kind in &KINDS {
        for ((server, _), published) in SERVERS.iter().zip(&kind.published) {
            for (clients, published) in CLIENTS.into_iter().zip(published) {
                let mut arguments = words(&format!(
                    "--connections {clients} --in-flight 1 --warm-up {warm_up_ms}ms --duration \
                     {ms}ms --method tkrzw_rpc.DBMService/{}",
                    kind.method
                ));
                if kind.method == "Stream" {
                    arguments.extend(words("--messages 50"));
                }
                arguments.extend(["--data".into(), request(kind)]);
                runs.push(PlannedRun {
                    name: named(kind.name, server, clients),
                    server,
                    relay: None,
                    client: PlannedClient::Pelton(arguments),
                    client_cpu: None,
                    duration: Duration::from_millis(warm_up_ms + ms),
                    published: Some(published),
                    counted: kind.counted(),
                });
            }
        }
    }
    runs.extend(SILENT_SERVERS.map(|(server, published)| PlannedRun {
        name: named(SILENT, server, 1),
        server,
        relay: None,
        client: PlannedClient::Pelton(words(&format!(
            "tkrzw --operation set --stream --omit-responses --messages {SILENT_MESSAGES} \
             --distribution uniform --warm-up {warm_up_ms}ms --duration {ms}ms"
        ))),
        client_cpu: None,
        duration: Duration::from_millis(warm_up_ms + ms),
        published: Some(published),
        counted: PublishedCount::Records(SILENT_MESSAGES),
    }));
    let server = |(name, arguments): (&'static str, &str)| PlannedServer {
        name,
        arguments: words(&format!("--durability volatile {arguments}")),
    };
    ScenarioPlan {
        servers: SERVERS.into_iter().map(server).collect(),
        runs,
        rounds: scale.of([1, 2, 3]),
    }
}

pub(super) fn judge(measured: &Measurements) -> Vec<Claim> {
    vec![
        ASYNCHRONOUS_WINS.judged(asynchronous_wins(measured)),
        FEWER_THREADS.judged(fewer_threads(measured)),
        MORE_CLIENTS.judged(more_clients(measured)),
        STREAM.judged(stream(measured)),
        BATCHES.judged(batches(measured)),
        WITHOUT_ANSWERS.judged(without_answers(measured)),
    ]
}

/// Records a second, as the table has them.
fn records(
    measured: &Measurements,
    kind: &CalledMethod,
    server: &str,
    clients: u32,
) -> Result<f64, String> {
    let run = named(kind.name, server, clients);
    // Beside nothing everything is more.
    needed(measured, &run, |run| {
        kind.counted().per_s(run).filter(|per_s| *per_s > 0.0)
    })
}

/// The best of the asynchronous servers.
fn best(measured: &Measurements, kind: &CalledMethod, clients: u32) -> Result<f64, String> {
    let mut best: f64 = 0.0;
    for server in ["As1", "As2", "As4"] {
        best = best.max(records(measured, kind, server, clients)?);
    }
    Ok(best)
}

fn asynchronous_wins(measured: &Measurements) -> Result<(bool, String), String> {
    let mut lost = Vec::new();
    let (mut least, mut most) = (f64::INFINITY, 0.0_f64);
    let (mut logarithms, mut cells) = (0.0, 0.0);
    for kind in &KINDS {
        for clients in CLIENTS {
            let factor = best(measured, kind, clients)? / records(measured, kind, "Sy", clients)?;
            (least, most) = (least.min(factor), most.max(factor));
            (logarithms, cells) = (logarithms + factor.ln(), cells + 1.0);
            if factor < 0.97 {
                lost.push(format!("{} × {clients} ({factor:.2})", kind.name));
            }
        }
    }
    // Of three servers that are as fast as the other one the best is a little faster by chance.
    let mean = f64::exp(logarithms / f64::max(cells, 1.0));
    let figures =
        format!("between {least:.2} and {most:.2} times the synchronous one, × {mean:.2} over all");
    Ok(match lost.is_empty() {
        true => (mean >= 1.05, figures),
        false => (false, format!("{figures}; behind it: {}", lost.join(", "))),
    })
}

fn fewer_threads(measured: &Measurements) -> Result<(bool, String), String> {
    let [one, two, four] =
        ["As1", "As2", "As4"].map(|server| records(measured, &KINDS[0], server, 4));
    let (one, two, four) = (one?, two?, four?);
    Ok((
        four <= one * 0.95,
        format!("{one:.0}, {two:.0}, {four:.0} calls/s with 1, 2, 4 threads"),
    ))
}

fn more_clients(measured: &Measurements) -> Result<(bool, String), String> {
    let [one, two, four] = CLIENTS.map(|clients| records(measured, &KINDS[0], "As1", clients));
    let (one, two, four) = (one?, two?, four?);
    Ok((
        two >= one * 1.2 && four >= one * 1.5,
        format!("{one:.0}, {two:.0}, {four:.0} calls/s with 1, 2, 4 clients"),
    ))
}

fn stream(measured: &Measurements) -> Result<(bool, String), String> {
    let alone = records(measured, &KINDS[1], "As1", 1)?;
    let stream = records(measured, &KINDS[2], "As1", 1)?;
    Ok((
        stream >= alone * 1.2,
        format!("{alone:.0} to {stream:.0} Sets/s: × {:.2}", stream / alone),
    ))
}

fn without_answers(measured: &Measurements) -> Result<(bool, String), String> {
    let (mut least, mut figures) = (f64::INFINITY, Vec::new());
    for (server, _) in SILENT_SERVERS {
        let answered = records(measured, &KINDS[2], server, 1)?;
        let calls = rate(measured, &named(SILENT, server, 1))?;
        let silent = calls * f64::from(SILENT_MESSAGES);
        let factor = silent / answered;
        least = least.min(factor);
        figures.push(format!(
            "{server}: {answered:.0} to {silent:.0} Sets/s, × {factor:.2}"
        ));
    }
    Ok((least >= 2.0, figures.join("; ")))
}

fn batches(measured: &Measurements) -> Result<(bool, String), String> {
    let of = |kind: &CalledMethod| {
        let best = best(measured, kind, 4)?;
        Ok::<f64, String>(best.max(records(measured, kind, "Sy", 4)?))
    };
    let (alone, batched) = (of(&KINDS[1])?, of(&KINDS[4])?);
    Ok((
        batched >= alone * 10.0,
        format!(
            "{alone:.0} to {batched:.0} records/s: × {:.0}",
            batched / alone
        ),
    ))
}

#[cfg(test)]
mod tests {
    use super::super::claim::tests::{add, verdicts};
    use super::*;

    /// The published table, or with the same figure in every cell.
    fn measured(same: Option<f64>) -> Measurements {
        let mut measured = Measurements::default();
        for kind in &KINDS {
            for ((server, _), row) in SERVERS.iter().zip(&kind.published) {
                for (clients, text) in CLIENTS.into_iter().zip(row) {
                    let records: f64 = text.parse().expect("a number");
                    let rate = same.unwrap_or(records / f64::from(kind.records));
                    let name = match kind.method {
                        "Stream" => "messages_received_per_s",
                        _ => "calls_per_s",
                    };
                    add(
                        &mut measured,
                        &named(kind.name, server, clients),
                        &[(name, rate)],
                    );
                }
            }
        }
        for (server, text) in SILENT_SERVERS {
            let records: f64 = text.parse().expect("a number");
            let rate = same.unwrap_or(records) / f64::from(SILENT_MESSAGES);
            add(
                &mut measured,
                &named(SILENT, server, 1),
                &[("calls_per_s", rate)],
            );
        }
        measured
    }

    #[test]
    fn the_published_table_reproduces_what_was_said_of_it() {
        let claims = judge(&measured(None));
        assert_eq!(verdicts(&claims), ["reproduced"; 6], "{claims:#?}");
        let silent = "Sy: 22259 to 100000 Sets/s, × 4.49; As1: 29586 to 130000 Sets/s, × 4.39";
        assert_eq!(claims[5].figures, silent);
        let best = "between 1.10 and 1.46 times the synchronous one, × 1.";
        assert!(
            claims[0].figures.starts_with(best),
            "the best of the three hides the one cell: {}",
            claims[0].figures
        );
    }

    #[test]
    fn without_any_difference_nothing_is_reproduced_but_what_asks_for_none() {
        let claims = judge(&measured(Some(50_000.0)));
        let names = verdicts(&claims);
        // A batch has a hundred records whatever it costs.
        assert_eq!(names[..4], ["not-reproduced"; 4], "{claims:#?}");
        assert_eq!(names[4..], ["reproduced", "not-reproduced"]);
    }

    #[test]
    fn a_slower_asynchronous_server_is_named_by_its_cells() {
        let mut measured = measured(None);
        for server in ["As1", "As2", "As4"] {
            for _ in 0..2 {
                add(
                    &mut measured,
                    &named("Echo", server, 1),
                    &[("calls_per_s", 100.0)],
                );
            }
        }
        let claim = ASYNCHRONOUS_WINS.judged(asynchronous_wins(&measured));
        assert_eq!(claim.verdict.name(), "not-reproduced");
        assert!(
            claim.figures.ends_with("behind it: Echo × 1 (0.01)"),
            "{}",
            claim.figures
        );
    }

    #[test]
    fn a_short_run_fits_into_three_minutes() {
        let plan = plan(ScenarioScale::Short);
        assert!(
            plan.duration() <= Duration::from_secs(130),
            "{:?}",
            plan.duration()
        );
        assert_eq!(plan.runs.len(), 62);
    }
}
