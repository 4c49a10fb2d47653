//! What the server refuses, ends and bounds, one connection's bytes at a time.

mod common;

use common::{Caller, Host, MILLISECOND_NS, Options};
use protobuf::writer;
use wire::grpc::Code;
use wire::http2::frame::{self, FrameHeader, kind};
use wire::{CancelCause, ErrorCode, RequestHead, StreamKey};

const GET: &str = "/pelton.v1.KeyValue/Get";
const PUT: &str = "/pelton.v1.KeyValue/Put";
const ECHO: &str = "/pelton.v1.Echo/Unary";
const ECHO_STREAM: &str = "/pelton.v1.Echo/Stream";
const WATCH: &str = "/grpc.health.v1.Health/Watch";

fn host() -> Host {
    Host::new(&Options::default())
}

/// An EchoRequest that is answered later.
fn delayed(delay_ms: u64) -> Vec<u8> {
    let mut message = Vec::new();
    writer::uint64(&mut message, 3, delay_ms);
    message
}

/// Whether a call that does nothing special is answered.
fn is_served(host: &mut Host) -> bool {
    let mut caller = Caller::new(host);
    let stream = caller.call(GET, &[]);
    caller.exchange(host);
    let is_served = caller
        .heard(stream)
        .status
        .as_ref()
        .is_some_and(|status| status.is_ok());
    host.close(caller.id);
    is_served
}

// --- first bytes

fn greet(bytes: &[u8]) -> (Vec<u8>, bool) {
    let mut host = host();
    let id = host.connect(false);
    host.push(id, bytes);
    host.serve(id);
    (host.take_output(id), host.is_closing(id))
}

#[test]
fn http_1_is_told_what_this_port_is() {
    let (answer, is_closing) = greet(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n");
    let answer = String::from_utf8(answer).expect("text");
    assert!(answer.starts_with("HTTP/1.1 "), "{answer}");
    assert!(
        answer.contains("gRPC") && answer.contains("HTTP/2"),
        "{answer}"
    );
    assert!(is_closing);
}

#[test]
fn tls_and_garbage_are_closed_without_a_word() {
    let client_hello = [&[0x16, 0x03, 0x01, 0x02, 0x00, 0x01][..], &[0; 64]].concat();
    for bytes in [
        &client_hello[..],
        b"\0\0\0\0",
        b"SSH-2.0-client\r\n",
        b"PRI * HTTP/3.0\r\n\r\nSM\r\n\r\n",
    ] {
        let (answer, is_closing) = greet(bytes);
        assert!(answer.is_empty() && is_closing, "{bytes:?}: {answer:?}");
    }
}

#[test]
fn a_preface_may_come_byte_by_byte() {
    let mut host = host();
    let id = host.connect(false);
    for byte in frame::PREFACE {
        assert!(host.take_output(id).is_empty() || *byte == b'\n');
        host.push(id, &[*byte]);
        host.serve(id);
        assert!(!host.is_closing(id));
    }
    let settings = host.take_output(id);
    assert_eq!(
        settings.get(3),
        Some(&kind::SETTINGS),
        "the server's preface begins with SETTINGS"
    );
}

#[test]
fn slow_first_bytes_are_waited_for_ten_seconds() {
    for begun in [&b""[..], b"PRI * HT"] {
        let mut host = host();
        let id = host.connect(false);
        if !begun.is_empty() {
            host.push(id, begun);
            host.serve(id);
        }
        host.advance_ms(server::limits::FIRST_BYTES_MS - 1);
        assert!(!host.is_closing(id));
        host.advance_ms(2);
        assert!(host.is_closing(id));
    }
}

// --- requests that are no calls

#[test]
fn plain_requests_get_plain_answers() {
    let mut host = host();
    let mut caller = Caller::new(&mut host);
    let about = caller.plain("GET", "/");
    let head = caller.plain("HEAD", "/");
    let nothing = caller.plain("GET", "/favicon.ico");
    let not_grpc = caller.plain("POST", GET);
    let elsewhere = caller.plain("POST", "/");
    let not_allowed = caller.plain("PATCH", "/blob/a");
    caller.exchange(&mut host);
    let answer = |stream: StreamKey| {
        let heard = caller.heard(stream);
        assert_eq!(heard.ends, 1, "{heard:?}");
        (
            heard.http_status,
            String::from_utf8(heard.messages.concat()).expect("text"),
        )
    };
    let (status, text) = answer(about);
    assert!(
        status == 200 && text.starts_with("pelton 0.0.0"),
        "{status} {text}"
    );
    assert_eq!(answer(head), (200, String::new()));
    assert_eq!(answer(nothing).0, 404);
    let (status, text) = answer(not_grpc);
    assert!(
        status == 415 && text.contains("application/grpc"),
        "{status} {text}"
    );
    assert_eq!(answer(elsewhere).0, 404);
    assert_eq!(answer(not_allowed).0, 405);
}

#[test]
fn what_there_is_not_is_unimplemented() {
    let mut host = host();
    let mut caller = Caller::new(&mut host);
    for path in [
        "/pelton.v1.KeyValue/NoSuchMethod",
        "/no.such.Service/Get",
        "/",
        "/pelton.v1.KeyValue/Get/",
    ] {
        let stream = caller.call(path, &[]);
        caller.exchange(&mut host);
        let heard = caller.heard(stream);
        assert_eq!(
            (heard.code(), heard.ends),
            (Code::Unimplemented, 1),
            "{path}"
        );
    }
}

// --- deadlines

#[test]
fn a_call_ends_once_when_its_deadline_passes() {
    let mut host = host();
    let mut caller = Caller::new(&mut host);
    let head = RequestHead {
        timeout_ns: Some(10 * MILLISECOND_NS),
        ..RequestHead::call("test", ECHO)
    };
    let late = caller.call_head(&head, &delayed(50));
    let silent = caller.open_head(&RequestHead { path: GET, ..head });
    let head = RequestHead {
        timeout_ns: Some(60 * MILLISECOND_NS),
        ..head
    };
    let in_time = caller.call_head(&head, &delayed(50));
    caller.exchange(&mut host);
    host.advance_ms(9);
    caller.exchange(&mut host);
    assert!(
        [late, silent, in_time]
            .iter()
            .all(|stream| caller.heard(*stream).ends == 0)
    );
    host.advance_ms(2);
    caller.exchange(&mut host);
    for stream in [late, silent] {
        assert_eq!(
            (caller.heard(stream).code(), caller.heard(stream).ends),
            (Code::DeadlineExceeded, 1)
        );
    }
    host.advance_ms(1_000);
    caller.exchange(&mut host);
    assert_eq!(
        (caller.heard(in_time).code(), caller.heard(in_time).ends),
        (Code::Ok, 1)
    );
    for stream in [late, silent] {
        assert_eq!(caller.heard(stream).ends, 1, "nothing follows the end");
    }
}

#[test]
fn a_deadline_that_has_passed_already_is_one() {
    let mut host = host();
    let mut caller = Caller::new(&mut host);
    let head = RequestHead {
        timeout_ns: Some(0),
        ..RequestHead::call("test", ECHO_STREAM)
    };
    for _ in 0..2 {
        // Also one that would be answered within the same tick, or whose client has sent all.
        let put = |key: &[u8]| {
            let mut message = Vec::new();
            writer::bytes(&mut message, 2, key);
            message
        };
        let streams = [
            caller.open_head(&head),
            caller.call_head(&RequestHead { path: ECHO, ..head }, &[]),
            caller.call_head(&RequestHead { path: PUT, ..head }, &put(b"late")),
        ];
        // Our own client says 1n where no time is left.
        let least = b"\x021n";
        let mut changed = 0;
        for at in 0..caller.out.len() - least.len() {
            if caller.out[at..].starts_with(least) {
                caller.out[at + 1] = b'0';
                changed += 1;
            }
        }
        assert_eq!(changed, streams.len());
        caller.exchange(&mut host);
        for stream in streams {
            let heard = caller.heard(stream);
            assert_eq!((heard.code(), heard.ends), (Code::DeadlineExceeded, 1));
            assert!(heard.messages.is_empty());
        }
        let found = caller.call(GET, &put(b"late"));
        caller.exchange(&mut host);
        let found = caller.heard(found);
        assert_eq!(found.code(), Code::Ok);
        assert_eq!(found.messages, [vec![]], "nothing was stored");
    }
    let in_time = RequestHead {
        timeout_ns: Some(1),
        path: ECHO,
        ..head
    };
    let stream = caller.call_head(&in_time, &[]);
    caller.exchange(&mut host);
    assert_eq!(caller.heard(stream).code(), Code::Ok);
}

// --- running work

#[test]
fn streams_above_the_limit_are_refused_and_the_connection_lives() {
    let mut host = Host::new(&Options {
        max_streams: 4,
        ..Options::default()
    });
    // Nothing is known of the server's limit yet.
    let mut caller = Caller::silent(&mut host, false);
    let streams: Vec<_> = (0..10).map(|_| caller.call(ECHO, &delayed(10))).collect();
    caller.exchange(&mut host);
    let refused =
        |stream: &&StreamKey| caller.heard(**stream).cancelled == Some(CancelCause::Refused);
    assert_eq!(streams.iter().filter(refused).count(), 6);
    host.advance_ms(11);
    caller.exchange(&mut host);
    let answered = streams
        .iter()
        .filter(|stream| caller.heard(**stream).status.is_some());
    assert_eq!(answered.count(), 4);
    let again = caller.call(ECHO, &[]);
    caller.exchange(&mut host);
    assert_eq!(caller.heard(again).code(), Code::Ok);
}

/// What is too large is told with the limit, and with what to do, each time.
#[test]
fn messages_that_are_too_large_are_told_what_to_do() {
    const UPLOAD: &str = "/pelton.v1.Blob/Upload";
    let mut host = host();
    let mut caller = Caller::new(&mut host);
    for _ in 0..2 {
        let large = caller.call(UPLOAD, &vec![0; 17 << 20]);
        caller.exchange(&mut host);
        let status = caller.heard(large).status.as_ref().expect("it has ended");
        assert_eq!(status.code(), Code::ResourceExhausted);
        let message = status.message();
        assert!(message.contains("the limit is 16777216;"), "{message}");
        assert!(message.contains("in chunks of at most 4 MiB"), "{message}");
    }
}

/// Rapid reset (CVE-2023-44487): requests that are cancelled as soon as they are sent.
#[test]
fn a_flood_of_resets_ends_its_connection_and_no_other() {
    let mut host = Host::new(&Options {
        max_streams: 100,
        ..Options::default()
    });
    let mut other = Caller::new(&mut host);
    let waiting = other.call(ECHO, &delayed(100));
    other.exchange(&mut host);
    let mut caller = Caller::new(&mut host);
    let mut goaway = None;
    for _ in 0..200 {
        for _ in 0..20 {
            let stream = caller.call(ECHO, &delayed(60_000));
            caller.cancel(stream);
        }
        let sent = std::mem::take(&mut caller.out);
        host.push(caller.id, &sent);
        host.serve(caller.id);
        let received = host.take_output(caller.id);
        goaway = goaway_code(&received);
        if goaway.is_some() {
            break;
        }
        caller.receive(&received, host.now_ns);
    }
    assert_eq!(goaway, Some(ErrorCode::EnhanceYourCalm));
    assert!(host.is_closing(caller.id));
    host.close(caller.id);
    host.advance_ms(101);
    other.exchange(&mut host);
    assert_eq!(
        other.heard(waiting).code(),
        Code::Ok,
        "others are served as before"
    );
    // What was cancelled runs no more: a drain has nothing to wait for but the connections'
    // lingering close.
    host.stop();
    other.exchange(&mut host);
    assert!(host.is_drained());
}

/// What the GOAWAY frame among these says.
fn goaway_code(mut frames: &[u8]) -> Option<ErrorCode> {
    while let Some(header) = frames.first_chunk() {
        let header = FrameHeader::parse(header);
        let end = frame::HEADER_BYTES + header.length as usize;
        if header.kind == kind::GOAWAY {
            let code = frames[frame::HEADER_BYTES + 4..].first_chunk()?;
            return Some(ErrorCode::from_wire(u32::from_be_bytes(*code)));
        }
        frames = &frames[end..];
    }
    None
}

/// Three connections that watch as much as they can leave places to those that come behind them.
#[test]
fn calls_that_wait_are_shared_out_to_connections() {
    let mut host = host();
    let mut callers: Vec<_> = (0..3).map(|_| Caller::new(&mut host)).collect();
    let mut refused = Vec::new();
    for caller in &mut callers {
        let streams: Vec<_> = (0..4_000).map(|_| caller.call(WATCH, &[])).collect();
        caller.exchange(&mut host);
        refused.extend(streams.into_iter().filter(|&stream| {
            let heard = caller.heard(stream);
            heard.ends > 0 && heard.code() == Code::ResourceExhausted
        }));
    }
    assert!(refused.len() > 12_000 - service::limits::WAITING_CALLS_MAX);
    let mut newcomer = Caller::new(&mut host);
    let streams = [(); service::limits::WAITING_CALLS_IN_ANY_CASE as usize]
        .map(|()| newcomer.call(WATCH, &[]));
    newcomer.exchange(&mut host);
    let has_place = |caller: &mut Caller, stream| {
        let heard = caller.heard(stream);
        (heard.ends, heard.messages.len()) == (0, 1)
    };
    for stream in streams {
        assert!(has_place(&mut newcomer, stream), "a newcomer has a place");
    }
    assert!(is_served(&mut host), "calls that do not wait are served");
    let caller = &mut callers[2];
    let above = caller.call(WATCH, &[]);
    caller.exchange(&mut host);
    assert_eq!(caller.heard(above).code(), Code::ResourceExhausted);
    host.close(callers[0].id);
    let caller = &mut callers[2];
    let again = caller.call(WATCH, &[]);
    caller.exchange(&mut host);
    assert!(has_place(caller, again), "there is room again");
}

// --- memory

/// So many bytes of a message that claims to have `claimed`, and never becomes complete.
fn send_unfinished(caller: &mut Caller, bytes: usize, claimed: u32) {
    let stream = caller.open(ECHO_STREAM);
    let mut piece = vec![0; bytes];
    piece[1..5].copy_from_slice(&claimed.to_be_bytes());
    for piece in piece.chunks(16_000) {
        frame::write_header(&mut caller.out, piece.len(), kind::DATA, 0, stream.id);
        caller.out.extend_from_slice(piece);
    }
}

#[test]
fn a_full_account_keeps_out_who_filled_it_and_nobody_else() {
    let mut host = Host::new(&Options {
        memory_limit_bytes: 8 << 20,
        ..Options::default()
    });
    let account_bytes = (8 << 20) / server::limits::BUFFERED_BYTES_SHARE as usize;
    let overfull_bytes = account_bytes + account_bytes / server::limits::RESERVE_SHARE;
    for _ in 0..2 {
        let mut hoarders: Vec<_> = (0..3).map(|_| Caller::new(&mut host)).collect();
        for at in 0..=overfull_bytes / 60_000 {
            assert!(is_served(&mut host), "others are served all the time");
            let hoarder = &mut hoarders[at % 3];
            send_unfinished(hoarder, 60_000, 60_010);
            hoarder.exchange(&mut host);
        }
        assert!(is_served(&mut host), "a small caller is served");
        let shed = hoarders[0].call(GET, &[]);
        hoarders[0].exchange(&mut host);
        let heard = hoarders[0].heard(shed);
        assert_eq!((heard.code(), heard.ends), (Code::Unavailable, 1));
        assert_eq!(heard.pushback_ms(), Some(server::limits::RETRY_PUSHBACK_MS));
        for hoarder in hoarders {
            host.close(hoarder.id);
        }
    }
}

// --- large messages and little memory

/// Large requests on several connections, more than there is memory for: each comes in its turn,
/// and all are answered.
#[test]
fn large_requests_beyond_the_memory_come_one_after_the_other() {
    const LARGE: usize = 1 << 20;
    for (memory_limit_bytes, callers, calls) in [(8 << 20, 5, 4), (1 << 20, 3, 1)] {
        let mut host = Host::new(&Options {
            memory_limit_bytes,
            ..Options::default()
        });
        for round in 0..2 {
            let mut callers: Vec<_> = (0..callers).map(|_| Caller::new(&mut host)).collect();
            for caller in &mut callers {
                for _ in 0..calls {
                    caller.call(GET, &vec![0xff; LARGE]);
                }
            }
            let ended = |caller: &Caller| caller.heard.values().all(|heard| heard.ends == 1);
            for turn in 0.. {
                if callers.iter().all(ended) {
                    break;
                }
                assert!(
                    turn < 1_000,
                    "{memory_limit_bytes}, round {round}: stands still"
                );
                for caller in &mut callers {
                    caller.exchange(&mut host);
                }
                host.advance_ms(server::limits::TURN_RETRY_MS);
            }
            for caller in callers {
                for heard in caller.heard.values() {
                    // It was received, and is no request.
                    assert_eq!(heard.code(), Code::InvalidArgument, "{heard:?}");
                }
                host.close(caller.id);
            }
            assert!(is_served(&mut host), "nothing is left behind");
        }
    }
}

/// A connection that got memory for its message and goes gives it back, also what it got beyond the
/// limit.
#[test]
fn a_connection_that_goes_in_its_turn_holds_up_nobody() {
    let mut host = Host::new(&Options {
        memory_limit_bytes: 1 << 20,
        ..Options::default()
    });
    for _ in 0..3 {
        let mut gone = Caller::new(&mut host);
        gone.call(GET, &vec![0xff; 1 << 20]);
        // What its first window lets through, and what it is asked for then: its turn begins.
        for _ in 0..2 {
            assert!(gone.exchange_once(&mut host));
        }
        let mut other = Caller::new(&mut host);
        let stream = other.call(GET, &vec![0xff; 1 << 20]);
        other.exchange(&mut host);
        assert_eq!(other.heard(stream).ends, 0, "it waits");
        host.close(gone.id);
        host.advance_ms(server::limits::TURN_RETRY_MS);
        other.exchange(&mut host);
        assert_eq!(other.heard(stream).ends, 1);
        host.close(other.id);
    }
}

/// One that waits for memory and goes is waited for by nobody, however often that happens.
#[test]
fn a_connection_that_goes_while_it_waits_for_memory_holds_up_nobody() {
    const LARGE: usize = 1 << 20;
    let mut host = Host::new(&Options {
        memory_limit_bytes: LARGE as u64,
        ..Options::default()
    });
    for round in 0..3 {
        let mut first = Caller::new(&mut host);
        let whole = first.call(GET, &vec![0xff; LARGE]);
        for _ in 0..2 {
            assert!(first.exchange_once(&mut host));
        }
        let mut waiting: Vec<_> = (0..3).map(|_| Caller::new(&mut host)).collect();
        let mut streams = Vec::new();
        for caller in &mut waiting {
            streams.push(caller.call(GET, &vec![0xff; LARGE]));
            caller.exchange(&mut host);
            assert_eq!(caller.heard(streams[streams.len() - 1]).ends, 0, "it waits");
        }
        host.close(waiting[0].id);
        host.close(waiting[1].id);
        first.exchange(&mut host);
        assert_eq!(first.heard(whole).ends, 1, "{round}");
        host.advance_ms(server::limits::TURN_RETRY_MS);
        waiting[2].exchange(&mut host);
        assert_eq!(waiting[2].heard(streams[2]).ends, 1, "{round}");
        host.close(waiting[2].id);
        host.close(first.id);
    }
}

// --- one connection too many

#[test]
fn a_connection_too_many_is_told_so_and_closed() {
    let mut host = host();
    let mut caller = Caller::silent(&mut host, true);
    let stream = caller.call(GET, &[]);
    caller.exchange(&mut host);
    let heard = caller.heard(stream);
    assert_eq!((heard.code(), heard.ends), (Code::Unavailable, 1));
    assert_eq!(heard.pushback_ms(), Some(server::limits::RETRY_PUSHBACK_MS));
    let message = heard.status.as_ref().expect("it has one").message();
    assert!(message.contains("--max-connections"), "{message}");
    assert!(
        host.is_closing(caller.id),
        "all that it had to be told was told"
    );
}

#[test]
fn a_connection_too_many_does_not_stay() {
    for says_hello in [false, true] {
        let mut host = host();
        let caller = Caller::silent(&mut host, true);
        if says_hello {
            host.push(caller.id, &caller.out);
            host.serve(caller.id);
        }
        host.advance_ms(server::limits::REFUSED_CONNECTION_LIFE_MS + 1);
        assert!(host.is_closing(caller.id), "{says_hello}");
    }
}

// --- the end

#[test]
fn a_drain_ends_every_call_once() {
    let mut host = host();
    let mut caller = Caller::new(&mut host);
    let watch = caller.call(WATCH, &[]);
    let soon = caller.call(ECHO, &delayed(100));
    let too_late = caller.call(ECHO, &delayed(60_000));
    let stream = caller.open(ECHO_STREAM);
    let silent = caller.open(GET);
    caller.exchange(&mut host);
    // On its way when the server stops: it does not know yet.
    let crossing = caller.call(GET, &[]);
    host.stop();
    assert!(!host.is_drained());
    caller.exchange(&mut host);
    let heard = caller.heard(crossing);
    assert_eq!(
        (heard.code(), heard.pushback_ms()),
        (Code::Unavailable, Some(server::limits::RETRY_PUSHBACK_MS))
    );
    assert_eq!(
        caller.heard(watch).messages,
        [vec![8, 1], vec![8, 2]],
        "SERVING, then NOT_SERVING"
    );
    host.advance_ms(101);
    caller.exchange(&mut host);
    assert_eq!(
        caller.heard(soon).code(),
        Code::Ok,
        "what can be answered soon is"
    );
    assert!(!host.is_drained() && !host.is_closing(caller.id));
    host.advance_ms(server::limits::DRAIN_IDLE_MS);
    caller.exchange(&mut host);
    for stream in [watch, stream, silent] {
        assert_eq!(caller.heard(stream).code(), Code::Unavailable);
    }
    assert_eq!(
        caller.heard(too_late).ends,
        0,
        "it is the server's turn, and it still may"
    );
    host.advance_ms(net::limits::DRAIN_MS - 101 - server::limits::DRAIN_IDLE_MS);
    caller.exchange(&mut host);
    assert_eq!(caller.heard(too_late).code(), Code::Unavailable);
    assert!(
        caller.heard.values().all(|heard| heard.ends == 1),
        "{:?}",
        caller.heard
    );
    assert!(host.is_drained() && host.is_closing(caller.id));
}

/// How long a stop waits for peers, and for its own work, whatever time it was given.
#[test]
fn the_times_of_a_stop_follow_from_how_long_it_may_take() {
    for (drain_ms, idle_ms, last_call_ms) in [
        (10_000, 500, 9_750),
        (2_000, 500, 1_750),
        (1_000, 500, 750),
        (800, 400, 600),
        (100, 50, 75),
    ] {
        let mut host = Host::new(&Options {
            drain_ms,
            ..Options::default()
        });
        let mut caller = Caller::new(&mut host);
        let waits_for_peer = caller.open(GET);
        let works = caller.call(ECHO, &delayed(60_000));
        caller.exchange(&mut host);
        host.stop();
        caller.exchange(&mut host);
        let begun_ns = host.now_ns;
        for (stream, ends_ms) in [(waits_for_peer, idle_ms), (works, last_call_ms)] {
            let ends_ns = begun_ns + ends_ms * MILLISECOND_NS;
            let left_ms = (ends_ns - host.now_ns) / MILLISECOND_NS;
            host.advance_ms(left_ms - 1);
            caller.exchange(&mut host);
            assert_eq!(
                caller.heard(stream).ends,
                0,
                "{drain_ms}: {ends_ms} are not over"
            );
            host.advance_ms(2);
            caller.exchange(&mut host);
            assert_eq!(
                caller.heard(stream).ends,
                1,
                "{drain_ms}: {ends_ms} are over"
            );
            assert_eq!(caller.heard(stream).code(), Code::Unavailable);
        }
        assert!(host.is_drained(), "{drain_ms}");
    }
}

#[test]
fn a_drain_does_not_wait_for_peers_that_are_silent() {
    let mut host = host();
    let caller = Caller::new(&mut host);
    host.connect(false);
    host.stop();
    assert!(!host.is_drained(), "a request may be on its way");
    host.advance_ms(server::limits::DRAIN_IDLE_MS + 1);
    assert!(host.is_drained());
    drop(caller);
}

#[test]
fn a_drain_of_idle_connections_takes_one_round_trip() {
    let mut host = host();
    let mut caller = Caller::new(&mut host);
    host.stop();
    caller.exchange(&mut host);
    assert!(host.is_drained() && host.is_closing(caller.id));
}
