//! Experiments in this process, against servers in which a cause is planted.

mod common;

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use client::Code;
use common::{Reply, RunningTap, Script, Server, plan};
use lab::diagnose::{
    Cause, Conclusion, Diagnosis, EarlyEnd, LoadCeiling, LoadDiagnosis, LoadEvidence, LoadPoint,
    LoadSubject, SystemFolders, judge_load,
};
use lab::tap::Conditions;
use lab::{LoadRunError, SameRequest};

fn subject(server: &Server) -> LoadSubject {
    LoadSubject {
        plan: plan(server, lab::Length::Calls(1)),
        ceiling: LoadCeiling {
            rate: 10_000.0,
            in_flight: 64,
            time_ns: 60_000_000_000,
        },
        // It is this process, whose figures are those of the generator too.
        server_processes: Vec::new(),
        round_trip_ns: None,
    }
}

fn measured(
    subject: &LoadSubject,
    is_stopped: &dyn Fn() -> bool,
) -> Result<LoadEvidence, LoadRunError> {
    measured_with(subject, is_stopped, &mut |_| {})
}

/// `show` is given each experiment when it is over.
fn measured_with(
    subject: &LoadSubject,
    is_stopped: &dyn Fn() -> bool,
    show: &mut dyn FnMut(&LoadPoint),
) -> Result<LoadEvidence, LoadRunError> {
    let folders = SystemFolders::default();
    let request = SameRequest::new("/t.T/Echo".into(), b"ping".to_vec());
    LoadDiagnosis::new(subject, &folders, is_stopped).run(|| request.clone(), show)
}

/// How often a diagnosis is made that came out `undecided`: so it does more often where other
/// things run.
const ATTEMPTS: usize = 5;

/// A diagnosis that has to name this cause, and must never name another one.
fn named(server: &Server, cause: Cause) -> (Diagnosis, LoadEvidence) {
    let mut last = None;
    for _ in 0..ATTEMPTS {
        let evidence = measured(&subject(server), &|| false).expect("it is there");
        let found = judge_load(&evidence);
        if found.conclusion != Conclusion::Undecided {
            assert_eq!(found.causes(), [cause], "{found:#?}");
            return (found, evidence);
        }
        assert!(!found.needs.is_empty(), "{found:#?}");
        last = Some(found);
    }
    panic!("{ATTEMPTS} times undecided: {last:#?}");
}

fn slow(pause: Duration) -> impl Fn(&common::Asked<'_>) -> Reply + Send + Sync {
    move |asked| {
        thread::sleep(pause);
        Reply::Answer(asked.message.to_vec())
    }
}

/// A way before a server that answers at once with a few bytes, and requests of so many bytes.
/// Whoever answers and whoever asks are this process, which has little to do. Where others use the
/// machine it comes out `undecided`, but nothing else may be named.
fn of_way_alone(conditions: Conditions, request_bytes: usize, cause: Cause) {
    let server = Server::new(|_| Reply::Answer(b"ok".to_vec()));
    let tap = RunningTap::before(&server.address, conditions);
    let mut subject = subject(&server);
    subject.plan.address = tap.address.clone();
    subject.server_processes = vec![std::process::id()];
    let folders = SystemFolders::default();
    let request = SameRequest::new("/t.T/Echo".into(), vec![7; request_bytes]);
    for _ in 0..2 {
        let experiments = LoadDiagnosis::new(&subject, &folders, &|| false);
        let evidence = experiments.run(|| request.clone(), &mut |_| {});
        let found = judge_load(&evidence.expect("it is there"));
        match found.conclusion {
            Conclusion::Undecided => assert!(!found.needs.is_empty(), "{found:#?}"),
            Conclusion::NoLimit => {}
            Conclusion::Named(ref causes) => {
                assert_eq!(causes, &[cause], "{found:#?}");
                break;
            }
        }
    }
    tap.end();
}

#[test]
fn nothing_but_the_bandwidth_is_named_of_a_way_that_is_full_of_requests() {
    let conditions = Conditions {
        bandwidth: Some(400_000),
        ..Conditions::default()
    };
    of_way_alone(conditions, 2_000, Cause::Bandwidth);
}

#[test]
fn nothing_but_the_packets_is_named_of_a_way_whose_packets_are_counted() {
    let conditions = Conditions {
        packets_per_second: Some(400),
        ..Conditions::default()
    };
    of_way_alone(conditions, 10, Cause::PacketsPerSecond);
}

/// Each connection has a thread of its own, which works on one call after the other.
#[test]
fn a_connection_that_carries_no_more_is_named() {
    let server = Server::new(slow(Duration::from_millis(8)));
    let (found, evidence) = named(&server, Cause::OneConnection);
    let change = found.change.expect("more connections");
    assert!(change.measured.is_some_and(|gain| gain > 1.0), "{change:?}");
    assert_eq!(evidence.early_end, None);
}

/// A lock that all connections share; whose it is cannot be seen without the process.
#[test]
fn a_server_that_cannot_be_seen_is_not_named() {
    let lock = Mutex::new(());
    let server = Server::new(move |asked| {
        let _held = lock.lock();
        thread::sleep(Duration::from_millis(8));
        Reply::Answer(asked.message.to_vec())
    });
    let evidence = measured(&subject(&server), &|| false).expect("it is there");
    let found = judge_load(&evidence);
    assert_eq!(found.conclusion, Conclusion::Undecided, "{found:#?}");
    assert!(found.needs[0].contains("--server-pid"), "{found:#?}");
}

#[test]
fn no_more_calls_are_made_than_are_allowed() {
    let server = Server::echo();
    let mut subject = subject(&server);
    (subject.ceiling.rate, subject.ceiling.in_flight) = (500.0, 4);
    let begin = Instant::now();
    let evidence = measured(&subject, &|| false).expect("it is there");
    // The first calls have no schedule.
    let most = 20.0 + 500.0 * begin.elapsed().as_secs_f64();
    assert!(server.messages() as f64 <= most, "{}", server.messages());
    assert!(evidence.one.iter().all(|point| point.in_flight <= 4));
    let found = judge_load(&evidence);
    assert!(found.causes().is_empty(), "{found:#?}");
}

/// By the first calls it is so slow that calls that follow each other need no schedule.
#[test]
fn a_service_that_becomes_faster_gets_no_more_calls_than_are_allowed() {
    let server = Server::new(|asked| {
        if asked.number < 20 {
            thread::sleep(Duration::from_millis(6));
        }
        Reply::Answer(asked.message.to_vec())
    });
    let mut subject = subject(&server);
    (subject.ceiling.rate, subject.ceiling.in_flight) = (500.0, 2);
    let evidence = measured(&subject, &|| false).expect("it is there");
    assert!(!evidence.one.is_empty());
    for point in &evidence.one {
        assert!(point.rate <= 1_000.0, "{point:?}");
    }
}

#[test]
fn a_service_that_fails_is_left_alone() {
    // The first calls succeed, and then one in ten fails.
    let server = Server::new(|asked| match asked.number > 100 && asked.number % 10 == 0 {
        true => Reply::Status(Code::ResourceExhausted, "enough"),
        false => Reply::Answer(asked.message.to_vec()),
    });
    let mut calm = subject(&server);
    calm.ceiling.rate = 1_000.0;
    let evidence = measured(&calm, &|| false).expect("it is there");
    let Some(EarlyEnd::Failures(first)) = &evidence.early_end else {
        panic!("{:?}", evidence.early_end);
    };
    assert!(first.contains("enough"), "{first}");
    assert!(
        server.messages() < 5_000,
        "it ended soon: {}",
        server.messages()
    );
    let none = Server::new(|_| Reply::Status(Code::Unimplemented, "no such method"));
    let evidence = measured(&subject(&none), &|| false).expect("it is there");
    let found = judge_load(&evidence);
    assert_eq!(found.conclusion, Conclusion::Undecided);
    assert!(found.sentence.contains("no such method"), "{found:#?}");
    assert!(none.messages() <= 20, "{}", none.messages());
}

#[test]
fn what_was_measured_stays_when_the_user_ends_it_or_the_server_dies() {
    let server = Server::new(slow(Duration::from_millis(2)));
    let has_one = Cell::new(false);
    let mut note = |_: &LoadPoint| has_one.set(true);
    let evidence = measured_with(&subject(&server), &|| has_one.get(), &mut note);
    let evidence = evidence.expect("it is there");
    assert_eq!(evidence.early_end, Some(EarlyEnd::User));
    assert!(!evidence.one.is_empty());
    let is_dead = Arc::new(AtomicBool::new(false));
    let (in_answers, in_greetings) = (Arc::clone(&is_dead), Arc::clone(&is_dead));
    let dying = Server::with(Script {
        answer: Box::new(move |asked| match in_answers.load(SeqCst) {
            true => Reply::Cut,
            false => slow(Duration::from_millis(2))(asked),
        }),
        greet: Box::new(move |_| !in_greetings.load(SeqCst)),
        config: wire::Config::server(),
    });
    let mut kill = |_: &LoadPoint| is_dead.store(true, SeqCst);
    let evidence = measured_with(&subject(&dying), &|| false, &mut kill).expect("it was there");
    assert!(
        matches!(evidence.early_end, Some(EarlyEnd::Failures(_))),
        "{evidence:?}"
    );
    assert!(!evidence.one.is_empty(), "{evidence:?}");
    drop(server);
}

/// What a lock brings in the first moments over several connections is not what it brings.
#[test]
fn an_experiment_that_the_user_cuts_off_is_not_compared_with_others() {
    let lock = Mutex::new(());
    let server = Server::new(move |asked| {
        let _held = lock.lock();
        thread::sleep(Duration::from_millis(16));
        Reply::Answer(asked.message.to_vec())
    });
    let mut subject = subject(&server);
    subject.ceiling.in_flight = 4;
    let shown = Cell::new((0, Instant::now()));
    let mut note = |_: &LoadPoint| shown.set((shown.get().0 + 1, Instant::now()));
    // In the fourth experiment, which is the one with several connections.
    let is_stopped = || {
        let (experiments, last) = shown.get();
        experiments == 3 && last.elapsed() >= Duration::from_millis(250)
    };
    let evidence = measured_with(&subject, &is_stopped, &mut note).expect("it is there");
    assert_eq!(evidence.early_end, Some(EarlyEnd::User));
    assert_eq!((evidence.one.len(), evidence.spread), (3, None));
    assert_eq!(shown.get().0, 3);
}

#[test]
fn a_limit_on_streams_is_told_from_a_connection_that_carries_no_more() {
    let mut config = wire::Config::server();
    config.max_streams = 2;
    let server = Server::with(Script {
        answer: Box::new(slow(Duration::from_millis(8))),
        greet: Box::new(|_| true),
        config,
    });
    // This server works on one call at a time on a connection, below its limit already.
    let (_, evidence) = named(&server, Cause::OneConnection);
    assert!(
        evidence
            .one
            .iter()
            .any(|point| point.stream_limit == Some(2))
    );
}
