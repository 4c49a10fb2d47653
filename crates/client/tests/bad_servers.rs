//! Servers that refuse what they have begun with, and that send less than they say, over a channel
//! and over a pool.

#[path = "common/pooled.rs"]
mod pooled;
#[path = "common/raw.rs"]
mod raw;

use std::time::{Duration, Instant};

use client::{CallError, CallOptions, Code};
use testkit::frames::message;
use wire::http2::frame::kind;

use pooled::Pooled;
use raw::{ErrorCode, Raw, Script, connect, serve_raw};

const PATH: &str = "/t.T/Echo";

fn over_channel(script: Script) -> CallError {
    let (address, server) = serve_raw(vec![script]);
    let mut channel = connect(&address);
    let options = CallOptions {
        deadline: Some(Instant::now() + Duration::from_secs(20)),
        ..CallOptions::default()
    };
    let result = channel.unary(PATH, b"question", &options);
    drop(channel);
    server.join().expect("the server has seen what it expects");
    result.expect_err("the server gives no answer")
}

/// The same over a pool, which makes no call twice here.
fn over_pool(script: Script, is_repeatable: bool) -> CallError {
    let (address, server) = serve_raw(vec![script]);
    let mut pool = Pooled::new(&address, pooled::of(1));
    let call = client::PoolCall {
        is_repeatable,
        timeout_ns: Some(20_000_000_000),
        ..pooled::call(PATH)
    };
    let engine = pool.pool.engine();
    let begun = engine.begin(1, &call, Pooled::now_ns(), |out| out.push(7));
    begun.expect("there is room");
    let result = pool.ended(1);
    assert_eq!(pool.statistics().counters.retries, 0);
    pool.pool.engine().close(0, Pooled::now_ns());
    pool.until(|pooled| pooled.pool.engine().is_closed());
    drop(pool);
    server.join().expect("the server has seen what it expects");
    result.expect_err("the server gives no answer")
}

fn over_all(script: Script) -> [CallError; 3] {
    [
        over_channel(script),
        over_pool(script, false),
        over_pool(script, true),
    ]
}

/// Nothing follows the one call that has been answered so.
fn expect_no_more(raw: &mut Raw) {
    while let Some(frame) = raw.next() {
        assert_ne!(frame.kind, kind::HEADERS, "the call is made again");
    }
}

const PUSHBACK: [(&str, &str); 2] = [("grpc-status", "14"), ("grpc-retry-pushback-ms", "0")];

/// Each refuses a call whose response has begun.
const LATE_REFUSALS: [Script; 6] = [
    |raw| {
        let stream = raw.begin();
        raw.headers(stream);
        raw.reset(stream, ErrorCode::RefusedStream);
        expect_no_more(raw);
    },
    |raw| {
        let stream = raw.begin();
        raw.headers(stream);
        raw.frame(kind::DATA, 0, stream, &message(&[7; 100])[..50]);
        raw.reset(stream, ErrorCode::RefusedStream);
        expect_no_more(raw);
    },
    |raw| {
        let stream = raw.begin();
        raw.block(stream, &[(":status", "103")], false);
        raw.reset(stream, ErrorCode::RefusedStream);
        expect_no_more(raw);
    },
    |raw| {
        let stream = raw.begin();
        raw.headers(stream);
        raw.goaway(0, ErrorCode::NoError);
        expect_no_more(raw);
    },
    |raw| {
        let stream = raw.begin();
        raw.headers(stream);
        raw.block(stream, &PUSHBACK, true);
        expect_no_more(raw);
    },
    |raw| {
        let stream = raw.begin();
        raw.headers(stream);
        raw.message(stream, b"answer", None, 16_384);
        raw.block(stream, &PUSHBACK, true);
        expect_no_more(raw);
    },
];

#[test]
fn a_refusal_after_the_response_has_begun_proves_nothing() {
    for (number, script) in LATE_REFUSALS.into_iter().enumerate() {
        for error in over_all(script) {
            assert!(error.may_have_happened(), "{number}: {error:?}");
            assert!(!error.is_safe_to_repeat(), "{number}: {error:?}");
        }
    }
}

#[test]
fn a_reset_proves_nothing_whatever_its_code() {
    let errors = over_all(|raw| {
        let stream = raw.begin();
        raw.headers(stream);
        raw.reset(stream, ErrorCode::InadequateSecurity);
        expect_no_more(raw);
    });
    for error in errors {
        assert!(error.may_have_happened(), "{error:?}");
    }
    let before = over_channel(|raw| {
        let stream = raw.begin();
        raw.reset(stream, ErrorCode::InadequateSecurity);
    });
    assert!(before.may_have_happened(), "{before:?}");
}

#[test]
fn pushback_in_place_of_a_response_counts_as_a_refusal() {
    let error = over_channel(|raw| {
        let stream = raw.begin();
        let head = [(":status", "200"), ("content-type", "application/grpc")];
        raw.block(stream, &[&head[..], &PUSHBACK].concat(), true);
    });
    assert!(error.is_safe_to_repeat() && !error.may_have_happened());
    let CallError::Status(status) = error else {
        panic!("{error:?}");
    };
    assert_eq!(status.code(), Code::Unavailable);
}

/// Each ends with OK before its message does, or with bytes behind it that are none.
const CUT_OFF: [Script; 4] = [
    |raw| {
        let stream = raw.begin();
        raw.headers(stream);
        raw.frame(kind::DATA, 0, stream, &message(&[7; 1_000])[..15]);
        raw.trailers(stream);
    },
    |raw| {
        let stream = raw.begin();
        raw.headers(stream);
        raw.frame(kind::DATA, 0, stream, &message(&[7; 1_000])[..2]);
        raw.trailers(stream);
    },
    |raw| {
        let stream = raw.begin();
        raw.headers(stream);
        raw.message(stream, b"answer", None, 16_384);
        raw.frame(kind::DATA, 0, stream, &[0, 0]);
        raw.trailers(stream);
    },
    |raw| {
        let stream = raw.begin();
        raw.headers(stream);
        raw.frame(kind::DATA, 0, stream, &message(&[7; 1_000])[..15]);
        let with_text = [("grpc-status", "0"), ("grpc-message", "all is well")];
        raw.block(stream, &with_text, true);
    },
];

#[test]
fn an_answer_that_is_cut_off_is_no_success() {
    for (number, script) in CUT_OFF.into_iter().enumerate() {
        for error in over_all(script) {
            let is_bad = matches!(error, CallError::BadAnswer { .. });
            assert!(is_bad, "{number}: {error:?}");
        }
        let (address, server) = serve_raw(vec![script]);
        let mut channel = connect(&address);
        let begun = channel.server_streaming(PATH, b"question", &CallOptions::default());
        let last = begun.expect("begun").last().expect("it does not end well");
        let is_bad = matches!(last, Err(CallError::BadAnswer { .. }));
        assert!(is_bad, "{number}: {last:?}");
        drop(channel);
        server.join().expect("the server has seen what it expects");
    }
}

#[test]
fn a_server_may_break_off_in_a_message_with_an_error() {
    let error = over_channel(|raw| {
        let stream = raw.begin();
        raw.headers(stream);
        raw.frame(kind::DATA, 0, stream, &message(&[7; 1_000])[..15]);
        raw.block(stream, &[("grpc-status", "15")], true);
    });
    let CallError::Status(status) = error else {
        panic!("{error:?}");
    };
    assert_eq!(status.code(), Code::DataLoss);
}

/// The server sees nothing of calls that are none, and answers the one behind them.
#[test]
fn what_is_no_request_is_refused_before_anything_is_sent() {
    let mut reserved = client::Metadata::new();
    reserved.push_ascii("te", "gzip").expect("it is metadata");
    let script: Script = |raw| {
        let stream = raw.begin();
        assert_eq!(stream, 1, "the first that was sent");
        raw.answer(stream, b"answer");
    };
    let bad = [
        ("/a\r\nx: y", None),
        ("t.T/Echo", None),
        ("", None),
        (PATH, Some(&reserved)),
    ];
    let (address, server) = serve_raw(vec![script; 2]);
    let mut channel = connect(&address);
    for (path, metadata) in bad {
        let options = CallOptions {
            metadata,
            ..CallOptions::default()
        };
        let refused = channel.unary(path, b"", &options);
        let is_refused = matches!(refused, Err(CallError::BadRequest { .. }));
        assert!(is_refused, "{path:?}: {refused:?}");
    }
    let answer = channel.unary(PATH, b"", &CallOptions::default());
    assert_eq!(answer.expect("answered"), b"answer");
    drop(channel);
    let mut pool = Pooled::new(&address, pooled::of(1));
    for (path, metadata) in bad {
        let call = client::PoolCall {
            metadata,
            ..pooled::call(path)
        };
        let begun = pool.pool.engine().begin(1, &call, Pooled::now_ns(), |_| {});
        let refused = match begun {
            Ok(_) => pool.ended(1),
            Err(error) => Err(error),
        };
        let is_refused = matches!(refused, Err(CallError::BadRequest { .. }));
        assert!(is_refused, "{path:?}: {refused:?}");
    }
    pool.begin(1, PATH, b"");
    pool.ended(1).expect("answered");
    drop(pool);
    server.join().expect("the server has seen what it expects");
}

/// A server that says why it goes, and goes: the reason reaches the caller.
#[test]
fn the_reason_of_a_goaway_outlives_the_connection() {
    let scripts: [Script; 2] = [
        |raw| {
            let stream = raw.begin();
            raw.goaway_with(stream, ErrorCode::EnhanceYourCalm, "too_many_pings");
        },
        |raw| {
            let stream = raw.begin();
            raw.goaway_with(stream, ErrorCode::EnhanceYourCalm, "too_many_pings");
            raw.flush();
            std::thread::sleep(Duration::from_millis(50));
        },
    ];
    for script in scripts {
        for error in [over_channel(script), over_pool(script, false)] {
            let text = error.to_string();
            assert!(text.contains("too_many_pings"), "{text}");
        }
    }
}

#[test]
fn an_answer_that_breaks_a_rule_names_it() {
    let scripts: [(Script, &str); 3] = [
        (
            |raw| {
                let stream = raw.begin();
                raw.block(stream, &[("content-type", "application/grpc")], false);
            },
            "a response without :status",
        ),
        (
            |raw| {
                let stream = raw.begin();
                raw.headers(stream);
                raw.block(stream, &[("grpc-status", "0")], false);
            },
            "trailers without END_STREAM",
        ),
        (
            |raw| {
                let stream = raw.begin();
                raw.open_window(stream, (1 << 31) - 1);
            },
            "the window of a stream too large",
        ),
    ];
    for (script, rule) in scripts {
        for error in over_all(script) {
            let text = error.to_string();
            let is_named = matches!(error, CallError::BadAnswer { .. }) && text.contains(rule);
            assert!(is_named, "{text}");
        }
    }
}
