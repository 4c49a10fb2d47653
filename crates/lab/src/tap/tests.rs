//! What is seen of bytes that are made here, at times that are given.

use client::Code;
use protobuf::writer;
use wire::ErrorCode;
use wire::framed::baidu_std::RpcMeta;
use wire::hpack::{Encoder, Indexing};
use wire::http2::frame::{
    PREFACE, flag, kind, setting, write_header, write_rst_stream, write_settings,
    write_window_update,
};

use super::call::CallEnd;
use super::conditions::Conditions;
use super::direction::TapDirection::{self, ToClient, ToServer};
use super::summary::{ConnectionSummary, TapSummary};
use super::time_use::TimeUse;
use super::totals::{TapTotals, times};
use super::verdict::{Bottleneck, judge};
use super::watch::ConnectionWatch;

const US: u64 = 1_000;

/// A client, a server, and the tap between them.
struct Wire {
    watch: ConnectionWatch,
    totals: TapTotals,
    requests: Encoder,
    responses: Encoder,
    now_ns: u64,
}

impl Wire {
    /// Both sides have said what they begin with, long before the first call.
    fn http2(server_settings: &[(u16, u32)], client_settings: &[(u16, u32)]) -> Wire {
        let mut wire = Wire {
            watch: ConnectionWatch::new(0),
            totals: TapTotals::default(),
            requests: Encoder::new(),
            responses: Encoder::new(),
            now_ns: 1_000_000_000,
        };
        let mut hello = PREFACE.to_vec();
        write_settings(&mut hello, client_settings);
        wire.bytes(ToServer, &hello);
        let mut hello = Vec::new();
        write_settings(&mut hello, server_settings);
        wire.bytes(ToClient, &hello);
        wire.after(5_000_000 * US);
        wire
    }

    fn after(&mut self, ns: u64) -> &mut Wire {
        self.now_ns += ns;
        self
    }

    fn bytes(&mut self, direction: TapDirection, bytes: &[u8]) {
        let totals = &mut self.totals;
        self.watch.saw(totals, direction, bytes, self.now_ns);
    }

    fn headers(&mut self, direction: TapDirection, id: u32, fields: &[(&str, &str)], flags: u8) {
        let encoder = match direction {
            ToServer => &mut self.requests,
            ToClient => &mut self.responses,
        };
        let mut block = Vec::new();
        for (name, value) in fields {
            encoder.field(
                name.as_bytes(),
                value.as_bytes(),
                Indexing::Incremental,
                &mut block,
            );
        }
        let mut frame = Vec::new();
        let flags = flags | flag::END_HEADERS;
        write_header(&mut frame, block.len(), kind::HEADERS, flags, id);
        frame.extend_from_slice(&block);
        self.bytes(direction, &frame);
    }

    fn data(&mut self, direction: TapDirection, id: u32, length: usize, flags: u8) {
        let mut frame = Vec::new();
        write_header(&mut frame, length, kind::DATA, flags, id);
        frame.resize(frame.len() + length, 0);
        self.bytes(direction, &frame);
    }

    fn window(&mut self, direction: TapDirection, id: u32, bytes: u32) {
        let mut frame = Vec::new();
        write_window_update(&mut frame, id, bytes);
        self.bytes(direction, &frame);
    }

    /// A request that is whole.
    fn asks(&mut self, id: u32) -> &mut Wire {
        self.headers(ToServer, id, &[(":path", "/a.A/Get")], 0);
        self.data(ToServer, id, 10, flag::END_STREAM);
        self
    }

    /// A whole answer.
    fn is_answered(&mut self, id: u32) -> &mut Wire {
        self.headers(ToClient, id, &[(":status", "200")], 0);
        self.data(ToClient, id, 20, 0);
        self.headers(ToClient, id, &[("grpc-status", "0")], flag::END_STREAM);
        self
    }

    fn time(&self, time_use: TimeUse) -> u64 {
        self.watch.figures().times.ns(time_use)
    }

    fn gaps(&self, time_use: TimeUse) -> u64 {
        self.totals.gaps(time_use).map_or(0, |gaps| gaps.len())
    }

    fn end(&self, end: CallEnd) -> u64 {
        self.totals.ends.get(&Some(end)).copied().unwrap_or(0)
    }

    /// Ten calls of a millisecond each, one after the other.
    fn makes_ten_calls(&mut self) {
        for id in (0..10).map(|call| 2 * call + 1) {
            self.asks(id).after(1_000 * US).is_answered(id);
        }
    }

    fn summary(&self) -> TapSummary {
        TapSummary {
            totals: self.totals.clone(),
            connections: vec![ConnectionSummary {
                connections: 1,
                figures: *self.watch.figures(),
                unreadable: self.watch.unreadable(),
                ..ConnectionSummary::default()
            }],
            others: ConnectionSummary::default(),
            failed: Default::default(),
            conditions: Conditions::default(),
            connect_ns: 30 * US,
            is_target_local: false,
            was_full: false,
            wall_ns: 1_000_000 * US,
            own_cpu_ns: 0,
            forward_ns: times(),
        }
    }

    fn bottleneck(&self) -> Bottleneck {
        judge(&self.summary()).bottleneck
    }
}

/// What must hold whatever came: calls add up everywhere.
fn assert_sums(wire: &Wire) {
    let totals = &wire.totals;
    let of_methods: u64 = totals.methods.iter().map(|method| method.calls).sum();
    let of_ends: u64 = totals.ends.values().sum();
    assert_eq!((of_methods, of_ends), (totals.ended, totals.ended));
    assert_eq!(totals.call_ns.len(), totals.ended);
    assert_eq!(wire.watch.figures().calls, totals.begun);
}

#[test]
fn a_call_is_seen_with_its_phases() {
    let mut wire = Wire::http2(&[], &[]);
    wire.headers(ToServer, 1, &[(":path", "/a.A/Put")], 0);
    wire.after(7 * US).data(ToServer, 1, 30, flag::END_STREAM);
    wire.after(90 * US)
        .headers(ToClient, 1, &[(":status", "200")], 0);
    wire.after(5 * US).data(ToClient, 1, 40, 0);
    wire.after(3 * US)
        .headers(ToClient, 1, &[("grpc-status", "5")], flag::END_STREAM);
    let call = wire.totals.recent[0];
    assert_eq!(wire.totals.methods[0].name, "/a.A/Put");
    assert_eq!(call.request_end_ns - call.begin_ns, 7 * US);
    assert_eq!(call.response_begin_ns - call.request_end_ns, 90 * US);
    assert_eq!(call.end_ns - call.response_begin_ns, 8 * US);
    assert_eq!((call.request_bytes, call.response_bytes), (30, 40));
    assert_eq!(call.end, CallEnd::Grpc(Code::NotFound));
    assert_eq!(wire.time(TimeUse::ClientInRequest), 7 * US);
    assert_eq!(wire.time(TimeUse::Server), 98 * US);
    assert_eq!(wire.gaps(TimeUse::Server), 1);
    // Before the first call nothing counts.
    assert_eq!(wire.watch.figures().times.total_ns(), 105 * US);
    assert_sums(&wire);
}

#[test]
fn time_without_a_call_and_with_answers_that_nobody_uses_is_the_clients() {
    let mut wire = Wire::http2(&[], &[]);
    wire.asks(1).asks(3);
    wire.after(20 * US).is_answered(1);
    // One is open still, and the client could have sent the next.
    wire.after(170 * US).asks(5);
    wire.after(10 * US).is_answered(3).is_answered(5);
    wire.after(400 * US).asks(7);
    wire.after(10 * US).is_answered(7);
    assert_eq!(wire.time(TimeUse::ClientSilent), 170 * US);
    assert_eq!(wire.time(TimeUse::NoCall), 400 * US);
    assert_eq!(wire.time(TimeUse::Server), 40 * US);
    assert_eq!(wire.gaps(TimeUse::ClientSilent), 1);
    assert_eq!(wire.gaps(TimeUse::NoCall), 1);
    assert_eq!(wire.totals.burst_calls.len(), 2);
    assert_eq!(wire.totals.burst_calls.max(), 2);
    assert_eq!(wire.watch.figures().most_open, 2);
    assert_eq!(wire.bottleneck(), Bottleneck::Client);
    assert_sums(&wire);
}

#[test]
fn a_server_that_has_work_is_named() {
    let mut wire = Wire::http2(&[(setting::MAX_CONCURRENT_STREAMS, 100)], &[]);
    for round in 0..60_u32 {
        wire.after(10 * US).asks(4 * round + 1).asks(4 * round + 3);
        wire.after(900 * US).is_answered(4 * round + 1);
        wire.after(300 * US).is_answered(4 * round + 3);
    }
    assert_eq!(wire.time(TimeUse::Server), 60 * 1_200 * US);
    assert_eq!(wire.bottleneck(), Bottleneck::Server);
    // But not by a tap that could not keep up, nor without a word by one that hardly could.
    let mut busy = wire.summary();
    busy.own_cpu_ns = busy.wall_ns * 8 / 10;
    let verdict = judge(&busy);
    assert_eq!(verdict.bottleneck, Bottleneck::Server);
    assert!(
        verdict
            .evidence_against
            .iter()
            .any(|text| text.contains("busy for 80 %"))
    );
    busy.own_cpu_ns = busy.wall_ns * 95 / 100;
    assert_eq!(judge(&busy).bottleneck, Bottleneck::Undecided);
    assert_sums(&wire);
}

#[test]
fn a_server_that_is_far_away_is_the_networks_fault() {
    let mut wire = Wire::http2(&[], &[]);
    for round in 0..10_u32 {
        wire.after(10 * US).asks(2 * round + 1);
        wire.after(5_200 * US).is_answered(2 * round + 1);
    }
    assert_eq!(wire.bottleneck(), Bottleneck::Server);
    let mut far = wire.summary();
    far.connect_ns = 5_000 * US;
    assert_eq!(judge(&far).bottleneck, Bottleneck::Network);
    // On one machine that is the time for which somebody waited for a CPU.
    far.is_target_local = true;
    assert_eq!(judge(&far).bottleneck, Bottleneck::Server);
    // A way that the tap makes longer is known to it.
    let mut delayed = wire.summary();
    delayed.conditions.delay_ns = 5_000 * US;
    let verdict = judge(&delayed);
    assert_eq!(verdict.bottleneck, Bottleneck::Network);
    assert!(
        verdict.evidence_for[1].contains("--delay"),
        "{:?}",
        verdict.evidence_for
    );
}

/// A closed loop: each answer is followed by the next request. `alone_ns` and `together_ns` are
/// between two answers while one call is open, and while as many are as the limit allows.
fn at_limit(limit: u32, alone_ns: u64, together_ns: u64) -> Wire {
    let mut wire = Wire::http2(&[(setting::MAX_CONCURRENT_STREAMS, limit)], &[]);
    let mut id = 1;
    if alone_ns > 0 {
        for _ in 0..64 {
            wire.after(US).asks(id);
            wire.after(alone_ns).is_answered(id);
            id += 2;
        }
    }
    let mut open: std::collections::VecDeque<u32> = (0..limit).map(|i| id + 2 * i).collect();
    wire.after(US);
    for &id in &open {
        wire.asks(id);
    }
    id += 2 * limit;
    for _ in 0..400 {
        let first = open.pop_front().expect("as many as the limit are open");
        wire.after(together_ns).is_answered(first);
        wire.after(US).asks(id);
        open.push_back(id);
        id += 2;
    }
    wire
}

#[test]
fn a_limit_is_named_where_more_calls_bring_more_and_the_server_where_they_wait_longer() {
    // 16 at a time are answered 16 times as fast as one; or as fast.
    let free = at_limit(16, 1_600 * US, 100 * US);
    assert_eq!(free.watch.figures().limit, Some(16));
    assert_eq!(free.watch.figures().at_limit_ns, 400 * 100 * US);
    assert_eq!(free.time(TimeUse::ServerAtLimit), 400 * 100 * US);
    assert_eq!(free.bottleneck(), Bottleneck::Server, "alone for longer");
    let free = at_limit(16, 400 * US, 100 * US);
    assert_eq!(
        free.bottleneck(),
        Bottleneck::Undecided,
        "1.4 times with twice as many"
    );
    let free = at_limit(2, 400 * US, 200 * US);
    assert_eq!(free.bottleneck(), Bottleneck::Connection);
    let verdict = judge(&free.summary());
    assert!(
        verdict.evidence_for[0].contains("1.99 times"),
        "{:?}",
        verdict.evidence_for
    );
    let serial = at_limit(4, 200 * US, 200 * US);
    let verdict = judge(&serial.summary());
    assert_eq!(verdict.bottleneck, Bottleneck::Server);
    assert!(
        verdict
            .evidence_for
            .iter()
            .any(|text| text.contains("no more to give"))
    );
    // Never fewer: who could tell?
    let unknown = judge(&at_limit(4, 0, 200 * US).summary());
    assert_eq!(unknown.bottleneck, Bottleneck::Undecided);
    assert!(unknown.evidence_against[0].contains("--stream-limit"));
    // What no server does is not believed.
    let strange = judge(&at_limit(4, 50 * US, 200 * US).summary());
    assert_eq!(strange.bottleneck, Bottleneck::Undecided);
}

#[test]
fn a_server_that_never_answers_is_named_and_a_request_without_end_is_the_clients() {
    let mut hanging = Wire::http2(&[], &[]);
    hanging.asks(1).asks(3);
    hanging.after(2_000_000 * US);
    let (totals, now_ns) = (&mut hanging.totals, hanging.now_ns);
    hanging.watch.settle(totals, now_ns);
    assert_eq!(hanging.time(TimeUse::Server), 2_000_000 * US);
    assert_eq!(hanging.bottleneck(), Bottleneck::Server);
    let mut half = Wire::http2(&[], &[]);
    half.headers(ToServer, 1, &[(":path", "/a.A/Put")], 0);
    half.after(2_000_000 * US);
    let (totals, now_ns) = (&mut half.totals, half.now_ns);
    half.watch.settle(totals, now_ns);
    assert_eq!(half.time(TimeUse::ClientInRequest), 2_000_000 * US);
    assert_eq!(half.bottleneck(), Bottleneck::Client);
}

#[test]
fn no_side_is_named_where_no_call_succeeded() {
    let mut wire = Wire::http2(&[], &[]);
    wire.asks(1);
    wire.after(500 * US)
        .headers(ToClient, 1, &[(":status", "503")], flag::END_STREAM);
    let verdict = judge(&wire.summary());
    assert_eq!(verdict.bottleneck, Bottleneck::NothingSeen);
    assert!(
        verdict.sentence.contains("HTTP 503"),
        "{}",
        verdict.sentence
    );
    let mut broken = wire.summary();
    broken
        .failed
        .insert("the certificate has run out".into(), 1);
    assert!(
        judge(&broken)
            .sentence
            .contains("the certificate has run out")
    );
}

#[test]
fn bytes_that_the_tap_keeps_back_are_the_networks() {
    let mut wire = Wire::http2(&[], &[]);
    for id in [1, 3] {
        wire.asks(id);
        let now_ns = wire.now_ns;
        wire.watch.set_shaped(ToServer, true, now_ns);
        wire.watch.set_shaped(ToServer, false, now_ns + 900 * US);
        wire.after(1_000 * US).is_answered(id);
    }
    assert_eq!(wire.time(TimeUse::Shaped), 2 * 900 * US);
    assert_eq!(wire.time(TimeUse::Server), 2 * 100 * US);
    assert_eq!(wire.bottleneck(), Bottleneck::Network);
}

#[test]
fn requests_that_wait_for_window_are_told_from_those_that_the_client_keeps_back() {
    let mut wire = Wire::http2(&[(setting::INITIAL_WINDOW_SIZE, 100)], &[]);
    for id in [1, 3] {
        wire.headers(ToServer, id, &[(":path", "/a.A/Put")], 0);
        wire.data(ToServer, id, 60, 0);
        // It has window left for these.
        wire.after(70 * US).data(ToServer, id, 40, 0);
        wire.after(900 * US).window(ToClient, id, 1_000);
        wire.after(5 * US).data(ToServer, id, 10, flag::END_STREAM);
        wire.after(10 * US).is_answered(id);
    }
    assert_eq!(wire.time(TimeUse::ClientInRequest), 2 * 75 * US);
    assert_eq!(wire.time(TimeUse::ServerWindow), 2 * 900 * US);
    assert_eq!(wire.gaps(TimeUse::ServerWindow), 2);
    assert_eq!(wire.bottleneck(), Bottleneck::Connection);
}

#[test]
fn responses_that_wait_for_the_clients_window_are_not_the_servers_fault() {
    let mut wire = Wire::http2(&[], &[(setting::INITIAL_WINDOW_SIZE, 50)]);
    for id in [1, 3] {
        wire.asks(id);
        wire.headers(ToClient, id, &[(":status", "200")], 0);
        wire.data(ToClient, id, 50, 0);
        wire.after(300 * US).window(ToServer, id, 50);
        wire.data(ToClient, id, 20, 0);
        wire.headers(ToClient, id, &[("grpc-status", "0")], flag::END_STREAM);
    }
    assert_eq!(wire.time(TimeUse::ClientWindow), 2 * 300 * US);
    assert_eq!(wire.bottleneck(), Bottleneck::Connection);
    // A larger window for all opens those that are shut.
    wire.asks(5);
    wire.headers(ToClient, 5, &[(":status", "200")], 0);
    wire.data(ToClient, 5, 50, 0);
    let mut settings = Vec::new();
    write_settings(&mut settings, &[(setting::INITIAL_WINDOW_SIZE, 90)]);
    wire.after(40 * US).bytes(ToServer, &settings);
    wire.after(60 * US).data(ToClient, 5, 40, flag::END_STREAM);
    assert_eq!(wire.time(TimeUse::ClientWindow), 640 * US);
    assert_eq!(wire.time(TimeUse::Server), 60 * US);
    assert_eq!(wire.end(CallEnd::Http(200)), 1);
}

#[test]
fn the_connections_window_counts_for_all_its_streams() {
    let mut wire = Wire::http2(&[(setting::INITIAL_WINDOW_SIZE, 1 << 20)], &[]);
    for id in [1, 3] {
        wire.headers(ToServer, id, &[(":path", "/a.A/Put")], 0);
        wire.data(ToServer, id, 32_767 + id as usize / 3, 0);
    }
    wire.after(500 * US).window(ToClient, 0, 1_000);
    wire.data(ToServer, 1, 10, flag::END_STREAM);
    assert_eq!(wire.time(TimeUse::ServerWindow), 500 * US);
}

#[test]
fn every_end_of_a_call_has_its_name() {
    let mut wire = Wire::http2(&[], &[]);
    wire.asks(1).asks(3).asks(5).asks(7);
    let mut reset = Vec::new();
    write_rst_stream(&mut reset, 1, ErrorCode::Cancel);
    wire.bytes(ToServer, &reset);
    let mut reset = Vec::new();
    write_rst_stream(&mut reset, 3, ErrorCode::RefusedStream);
    wire.bytes(ToClient, &reset);
    wire.headers(ToClient, 5, &[(":status", "404")], flag::END_STREAM);
    assert_eq!(wire.end(CallEnd::Reset(ToServer, 8)), 1);
    assert_eq!(wire.end(CallEnd::Reset(ToClient, 7)), 1);
    assert_eq!(wire.end(CallEnd::Http(404)), 1);
    wire.now_ns += 80 * US;
    let (totals, now_ns) = (&mut wire.totals, wire.now_ns);
    wire.watch.close(totals, now_ns);
    wire.watch.close(totals, now_ns);
    assert_eq!(wire.end(CallEnd::ConnectionLost), 1);
    assert_eq!((wire.totals.begun, wire.totals.ended), (4, 4));
    assert_eq!(wire.totals.methods[0].failed, 4);
    // What was waited for until the end counts.
    assert_eq!(wire.time(TimeUse::Server), 80 * US);
    assert_sums(&wire);
}

#[test]
fn messages_in_both_directions_are_told_by_who_answers_whom() {
    let mut wire = Wire::http2(&[], &[]);
    wire.headers(ToServer, 1, &[(":path", "/a.A/Pipe")], 0);
    for _ in 0..3 {
        wire.after(80 * US).data(ToServer, 1, 10, 0);
        wire.after(30 * US).data(ToClient, 1, 10, 0);
    }
    assert_eq!(wire.time(TimeUse::Server), 90 * US);
    assert_eq!(wire.time(TimeUse::ClientSilent), 160 * US);
    assert_eq!(wire.time(TimeUse::ClientInRequest), 80 * US);
}

#[test]
fn bytes_in_a_peers_socket_count_as_unread() {
    let mut wire = Wire::http2(&[], &[]);
    wire.asks(1);
    let now_ns = wire.now_ns;
    wire.watch.set_unread(ToClient, true, now_ns + 100 * US);
    wire.watch.set_unread(ToClient, false, now_ns + 300 * US);
    wire.after(350 * US).is_answered(1);
    assert_eq!(wire.time(TimeUse::ClientNotReading), 200 * US);
    assert_eq!(wire.time(TimeUse::Server), 150 * US);
    assert_eq!(wire.gaps(TimeUse::ClientNotReading), 1);
}

/// A frame of baidu_std.
fn framed(meta: &[u8], body: &[u8]) -> Vec<u8> {
    let mut frame = b"PRPC".to_vec();
    frame.extend_from_slice(&((meta.len() + body.len()) as u32).to_be_bytes());
    frame.extend_from_slice(&(meta.len() as u32).to_be_bytes());
    frame.extend_from_slice(meta);
    frame.extend_from_slice(body);
    frame
}

#[test]
fn calls_of_baidu_std_are_seen_however_they_are_cut() {
    let mut request = Vec::new();
    writer::message(&mut request, 1, |out| {
        writer::bytes(out, 1, b"example.EchoService");
        writer::bytes(out, 2, b"Echo");
    });
    let mut response = Vec::new();
    let meta = |id| RpcMeta {
        correlation_id: Some(id),
        ..RpcMeta::default()
    };
    meta(7).encode(&mut request);
    wire::framed::baidu_std::write_error_meta(
        wire::framed::baidu_std::Correlation {
            id: 7,
            checksum: None,
        },
        1002,
        "no such method",
        &mut response,
    );
    let (asked, answered) = (framed(&request, &[1; 100]), framed(&response, b""));
    for piece in 1..=asked.len() {
        let mut totals = TapTotals::default();
        let mut watch = ConnectionWatch::new(0);
        for part in asked.chunks(piece) {
            watch.saw(&mut totals, ToServer, part, 10 * US);
        }
        for part in answered.chunks(piece) {
            watch.saw(&mut totals, ToClient, part, 60 * US);
        }
        assert_eq!(watch.unreadable(), None, "{piece}");
        assert_eq!((totals.begun, totals.ended), (1, 1), "{piece}");
        let call = totals.recent[0];
        assert_eq!(totals.methods[0].name, "example.EchoService/Echo");
        assert_eq!(call.end, CallEnd::BaiduStd(1002));
        assert_eq!(call.request_bytes, 100);
        assert_eq!(call.response_begin_ns - call.request_end_ns, 50 * US);
        assert_eq!(watch.figures().times.ns(TimeUse::Server), 50 * US);
    }
}

#[test]
fn what_cannot_be_followed_is_said_and_its_open_calls_have_an_end() {
    let mut wire = Wire::http2(&[], &[]);
    wire.asks(1);
    let mut frame = Vec::new();
    write_header(&mut frame, 1, kind::HEADERS, flag::END_HEADERS, 1);
    frame.push(0xff);
    wire.bytes(ToClient, &frame);
    assert!(wire.watch.unreadable().is_some());
    wire.bytes(ToClient, b"anything");
    assert_eq!((wire.totals.begun, wire.totals.ended), (1, 1));
    let mut silent = Wire::http2(&[], &[]);
    assert_eq!(silent.bottleneck(), Bottleneck::NothingSeen);
    for (bytes, expected) in [
        (&b"GET / HTTP/1.1\r\n"[..], "HTTP/1.1"),
        (b"\x16\x03\x01\x02\x00", "--listen-tls-cert"),
        (b"TRPC1234", "neither HTTP/2"),
    ] {
        silent.watch = ConnectionWatch::new(0);
        silent.bytes(ToServer, bytes);
        let verdict = judge(&silent.summary());
        assert!(verdict.sentence.contains(expected), "{}", verdict.sentence);
    }
}

/// A stream of pseudo-random numbers; the seed is in each message.
fn numbers(seed: u64) -> impl FnMut(usize) -> usize {
    let mut random = crate::random::Random::new(seed);
    move |below| (random.next() % below.max(1) as u64) as usize
}

#[test]
fn damaged_bytes_never_upset_the_account() {
    let mut ended = 0;
    for seed in 0..400 {
        let mut number = numbers(seed);
        let mut wire = Wire::http2(&[(setting::MAX_CONCURRENT_STREAMS, 3)], &[]);
        for _ in 0..200 {
            let id = 1 + 2 * number(6) as u32;
            wire.after(number(200) as u64 * US);
            let way = TapDirection::BOTH[number(2)];
            let flags = [0, flag::END_STREAM][number(2)];
            match number(8) {
                0 => drop(wire.asks(id)),
                1 => drop(wire.is_answered(id)),
                2 => wire.data(way, id, number(100_000), flags),
                3 => wire.window(way, id * number(2) as u32, 1 + number(99_999) as u32),
                4 => wire.headers(way, id, &[(":path", "/x")], flags),
                5 => {
                    let now_ns = wire.now_ns;
                    wire.watch.set_unread(way, number(2) == 0, now_ns);
                }
                6 => {
                    let mut settings = Vec::new();
                    let entry = (setting::INITIAL_WINDOW_SIZE, number(100_000) as u32);
                    write_settings(&mut settings, &[entry]);
                    wire.bytes(way, &settings);
                }
                _ if number(20) == 0 => {
                    let noise: Vec<u8> = (0..number(60)).map(|_| number(256) as u8).collect();
                    wire.bytes(way, &noise);
                }
                _ => {
                    let mut reset = Vec::new();
                    write_rst_stream(&mut reset, id, ErrorCode::Cancel);
                    wire.bytes(way, &reset);
                }
            }
        }
        let spanned_ns = wire.watch.figures().times.total_ns();
        assert!(spanned_ns <= wire.now_ns, "seed {seed}");
        let now_ns = wire.now_ns;
        wire.watch.close(&mut wire.totals, now_ns);
        ended += wire.totals.ended;
        assert_sums(&wire);
        let _ = judge(&wire.summary());
    }
    assert!(ended > 4_000, "{ended} calls");
}

/// So many connections with ten calls of a millisecond each, all at once or one after the other.
pub(crate) fn summary_of_turns(turns: usize, is_at_once: bool) -> TapSummary {
    let mut totals = TapTotals::default();
    let mut wires = Vec::new();
    for _ in 0..turns {
        let mut wire = Wire::http2(&[], &[]);
        wire.totals = std::mem::take(&mut totals);
        wire.makes_ten_calls();
        if !is_at_once {
            wire.watch.close(&mut wire.totals, wire.now_ns);
        }
        totals = std::mem::take(&mut wire.totals);
        wires.push(wire);
    }
    for wire in wires.iter_mut().filter(|_| is_at_once) {
        wire.watch.close(&mut totals, wire.now_ns);
    }
    let connections = wires.iter().flat_map(|wire| wire.summary().connections);
    TapSummary {
        connections: connections.collect(),
        totals,
        ..Wire::http2(&[], &[]).summary()
    }
}
