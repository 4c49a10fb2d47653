//! Calls of streaming methods before a server that does what each test says, in simulated time.

use std::collections::HashMap;

use client::{CallError, CallStart, ChannelKey, ConnectError, Ending, Happened, Status};

use super::tests::plan;
use super::*;
use crate::failure::FailureKind;
use crate::measure::StreamTally;
use crate::request::RequestTemplate;
use crate::stream_plan::StreamPlan;
use crate::workload::{MethodRequests, RequestOrder};

const CHANNEL: ChannelKey = ChannelKey {
    slot: 0,
    generation: 0,
};

/// What was asked of a connection.
#[derive(Default)]
struct Recorder {
    /// The tags of the calls that were begun, in order. Tags are used again; here a call has the
    /// number of its place in this list.
    begun: Vec<u64>,
    /// The requests of each, with the last one in a row of its own.
    sent: HashMap<u64, Vec<u8>>,
    last: HashMap<u64, u8>,
    cancelled: Vec<u64>,
    /// How many further messages find room.
    room: Option<usize>,
}

fn byte(encode: impl FnOnce(&mut Vec<u8>)) -> u8 {
    let mut out = Vec::new();
    encode(&mut out);
    assert_eq!(out.len(), 1, "each request is one byte");
    out[0]
}

impl Transport for Recorder {
    type Stream = u64;

    fn open_channel(&mut self, _now_ns: u64) -> Result<ChannelKey, ConnectError> {
        Ok(CHANNEL)
    }

    fn close_channel(&mut self, _channel: ChannelKey) {}

    fn room(&self, _channel: ChannelKey) -> usize {
        usize::MAX
    }

    fn begin(
        &mut self,
        _channel: ChannelKey,
        _tag: u64,
        _start: &CallStart<'_>,
        _now_ns: u64,
        _encode: impl FnOnce(&mut Vec<u8>),
    ) -> Result<(), CallError> {
        panic!("no call is unary")
    }

    fn begin_stream(
        &mut self,
        _channel: ChannelKey,
        tag: u64,
        start: &CallStart<'_>,
        _now_ns: u64,
    ) -> Result<u64, CallError> {
        assert_eq!(start.path, "/a.B/C");
        self.begun.push(tag);
        Ok(self.begun.len() as u64 - 1)
    }

    fn send(&mut self, stream: u64, encode: impl FnOnce(&mut Vec<u8>)) {
        assert!(!self.last.contains_key(&stream), "nothing follows the last");
        self.room = self.room.map(|room| room.saturating_sub(1));
        self.sent.entry(stream).or_default().push(byte(encode));
    }

    fn send_last(&mut self, stream: u64, encode: impl FnOnce(&mut Vec<u8>)) {
        assert!(self.last.insert(stream, byte(encode)).is_none());
    }

    fn can_send(&mut self, _stream: u64) -> bool {
        self.room != Some(0)
    }

    fn cancel(&mut self, stream: u64) {
        self.cancelled.push(stream);
    }
}

struct Run {
    worker: LoadWorker<MethodRequests, Recorder>,
    transport: Recorder,
    now_ns: u64,
}

impl Run {
    /// A closed loop of so many calls at a time; requests are the bytes 0, 1, 2, 0 and so on. It is
    /// measured from 1 000 ns on.
    fn new(stream: StreamPlan, in_flight: usize) -> Run {
        let requests = (0..3).map(|number| RequestTemplate::fixed(vec![number]));
        let workload = MethodRequests::new(
            "/a.B/C".into(),
            requests.collect(),
            RequestOrder::Sequential,
            (0, 1),
            1,
        );
        let mut run = Run {
            worker: LoadWorker::new(plan(Pace::Closed, 1, in_flight), workload.streamed(stream)),
            transport: Recorder::default(),
            now_ns: 1_000,
        };
        run.worker.connect(&mut run.transport, 0);
        let connected = Happened::Connected { channel: CHANNEL };
        run.worker.happened(&connected, 0);
        let window = Window {
            from_ns: 1_000,
            until_ns: 1_000_000,
        };
        run.worker.begin(1_000, window);
        run
    }

    fn turn(&mut self, now_ns: u64) {
        self.now_ns = now_ns;
        let turned = self.worker.turn(&mut self.transport, now_ns);
        turned.expect("calls can be made");
    }

    fn tag(&self, call: usize) -> u64 {
        self.transport.begun[call]
    }

    fn message(&mut self, call: usize, now_ns: u64) {
        let tag = self.tag(call);
        let message = Happened::Message { tag, bytes: b"" };
        self.worker.happened(&message, now_ns);
        self.worker.received(now_ns);
    }

    fn ended(&mut self, call: usize, messages: u64, now_ns: u64) {
        let status = &Status::OK;
        let ending = Ending::Status { status, messages };
        let (tag, channel) = (self.tag(call), CHANNEL);
        let ended = Happened::Ended {
            tag,
            channel,
            ending,
        };
        self.worker.happened(&ended, now_ns);
        self.worker.received(now_ns);
    }

    fn sent(&self, call: usize) -> &[u8] {
        self.transport
            .sent
            .get(&(call as u64))
            .map_or(&[], Vec::as_slice)
    }

    fn last(&self, call: usize) -> Option<u8> {
        self.transport.last.get(&(call as u64)).copied()
    }

    fn finish(self) -> (Tally, StreamTally) {
        let tally = self.worker.finish(self.now_ns);
        let streams = tally.streams.clone().expect("the method streams");
        (tally, *streams)
    }
}

fn all(histogram: &hdrhistogram::Histogram<u64>) -> Vec<(u64, u64)> {
    let recorded = histogram.iter_recorded();
    recorded
        .map(|value| (value.value_iterated_to(), value.count_at_value()))
        .collect()
}

#[test]
fn each_request_waits_for_the_response_to_the_one_before() {
    let (requests, in_flight) = (3, 1);
    let mut run = Run::new(
        StreamPlan::Bidirectional {
            requests,
            in_flight,
        },
        1,
    );
    run.turn(1_000);
    assert_eq!((run.sent(0), run.last(0)), (&[0][..], None));
    run.turn(1_100);
    assert_eq!(run.sent(0), [0], "its response has not come");
    run.message(0, 1_200);
    assert_eq!(run.worker.next_due_ns(), Some(0));
    run.turn(1_200);
    assert_eq!((run.sent(0), run.last(0)), (&[0, 1][..], None));
    run.message(0, 1_500);
    run.turn(1_500);
    assert_eq!((run.sent(0), run.last(0)), (&[0, 1][..], Some(2)));
    run.message(0, 1_600);
    run.turn(1_600);
    assert_eq!(run.transport.begun.len(), 1, "the call has not ended");
    run.ended(0, 3, 1_700);
    run.turn(1_700);
    assert_eq!(run.transport.begun.len(), 2, "the next one has begun");
    let (tally, streams) = run.finish();
    assert_eq!((tally.succeeded, tally.failures()), (1, 0));
    assert_eq!(all(&tally.latency_ns), [(700, 1)]);
    assert_eq!((streams.sent, streams.received), (4, 3));
    assert_eq!(all(&streams.response_ns), [(100, 1), (200, 1), (300, 1)]);
    assert!(streams.first_ns.is_empty() && streams.gap_ns.is_empty());
}

#[test]
fn so_many_requests_wait_for_their_response_at_a_time() {
    let (requests, in_flight) = (5, 2);
    let mut run = Run::new(
        StreamPlan::Bidirectional {
            requests,
            in_flight,
        },
        1,
    );
    run.turn(1_000);
    assert_eq!(run.sent(0), [0, 1]);
    run.message(0, 1_100);
    run.message(0, 1_100);
    run.turn(1_100);
    assert_eq!((run.sent(0), run.last(0)), (&[0, 1, 2, 0][..], None));
    run.message(0, 1_300);
    run.turn(1_300);
    assert_eq!(run.last(0), Some(1));
    let (_, streams) = run.finish();
    assert_eq!(all(&streams.response_ns), [(100, 2), (200, 1)]);
}

#[test]
fn responses_of_a_server_are_measured_by_the_first_and_the_gaps() {
    let mut run = Run::new(StreamPlan::Server { responses: None }, 1);
    run.turn(1_000);
    assert_eq!((run.sent(0), run.last(0)), (&[][..], Some(0)));
    for now_ns in [1_250, 1_260, 1_360] {
        run.message(0, now_ns);
    }
    run.ended(0, 3, 1_400);
    run.turn(1_400);
    run.ended(1, 0, 1_500);
    let (tally, streams) = run.finish();
    assert_eq!(tally.succeeded, 2, "none is a number of responses as well");
    assert_eq!(all(&streams.first_ns), [(250, 1)]);
    assert_eq!(all(&streams.gap_ns), [(10, 1), (100, 1)]);
    assert_eq!((streams.sent, streams.received), (2, 3));
}

#[test]
fn a_call_that_has_had_its_responses_is_cancelled_and_has_succeeded() {
    let responses = Some(2);
    let mut run = Run::new(StreamPlan::Server { responses }, 1);
    run.turn(1_000);
    run.message(0, 1_100);
    assert!(!run.worker.streams.has_work());
    run.message(0, 1_200);
    // What came with the last one is of a call that has ended.
    run.message(0, 1_200);
    run.ended(0, 3, 1_200);
    run.turn(1_200);
    assert_eq!(run.transport.cancelled, [0]);
    assert_eq!(run.transport.begun.len(), 2);
    let (tally, streams) = run.finish();
    assert_eq!((tally.succeeded, tally.failures()), (1, 0));
    assert_eq!((tally.ended, streams.received), (1, 2));
    assert_eq!(all(&tally.latency_ns), [(200, 1)]);
}

#[test]
fn requests_wait_until_there_is_room_for_them() {
    let requests = 4;
    let mut run = Run::new(StreamPlan::Client { requests }, 1);
    run.transport.room = Some(2);
    run.turn(1_000);
    assert_eq!((run.sent(0), run.last(0)), (&[0, 1][..], None));
    run.turn(1_100);
    assert_eq!(run.sent(0), [0, 1]);
    run.transport.room = None;
    let tag = run.tag(0);
    run.worker.happened(&Happened::Writable { tag }, 1_200);
    run.turn(1_200);
    assert_eq!((run.sent(0), run.last(0)), (&[0, 1, 2][..], Some(0)));
    run.message(0, 1_300);
    run.ended(0, 1, 1_300);
    let (tally, streams) = run.finish();
    assert_eq!((tally.succeeded, streams.sent, streams.received), (1, 4, 1));
    assert_eq!(all(&tally.latency_ns), [(300, 1)]);
    assert!(streams.response_ns.is_empty());
}

#[test]
fn a_call_sends_a_bounded_number_of_messages_in_a_turn() {
    let requests = limits::MESSAGES_PER_TURN as u64 + 1;
    let mut run = Run::new(StreamPlan::Client { requests }, 2);
    run.turn(1_000);
    for call in [0, 1] {
        assert_eq!(run.sent(call).len(), limits::MESSAGES_PER_TURN);
        assert_eq!(run.last(call), None);
    }
    assert_eq!(run.worker.next_due_ns(), Some(0), "the rest is due at once");
    run.turn(1_001);
    assert!(run.last(0).is_some() && run.last(1).is_some());
    assert!(!run.worker.streams.has_work());
}

#[test]
fn an_end_before_all_was_sent_is_a_failure() {
    let (requests, in_flight) = (3, 1);
    let mut run = Run::new(
        StreamPlan::Bidirectional {
            requests,
            in_flight,
        },
        1,
    );
    run.turn(1_000);
    run.message(0, 1_100);
    run.ended(0, 1, 1_100);
    // The call that was to go on has ended: nothing is sent.
    run.turn(1_100);
    assert_eq!(run.sent(0).len() + run.sent(1).len(), 2, "one of each call");
    let (tally, _) = run.finish();
    assert_eq!(tally.failed, [(FailureKind::EndedEarly, 1)]);
    let text = tally.first_failure.expect("it says why");
    assert!(text.contains("with OK after 1 of 3 messages"), "{text}");
}

#[test]
fn a_client_stream_has_exactly_one_response() {
    for (messages, succeeded) in [(0, 0), (1, 1), (2, 0)] {
        let mut run = Run::new(StreamPlan::Client { requests: 1 }, 1);
        run.turn(1_000);
        for _ in 0..messages {
            run.message(0, 1_100);
        }
        run.ended(0, messages, 1_100);
        let (tally, _) = run.finish();
        assert_eq!(
            (tally.succeeded, tally.failures()),
            (succeeded, 1 - succeeded)
        );
    }
}

#[test]
fn requests_without_responses_are_all_sent_and_have_none() {
    for (messages, succeeded) in [(0, 1), (1, 0)] {
        let mut run = Run::new(StreamPlan::Unanswered { requests: 3 }, 1);
        run.turn(1_000);
        assert_eq!((run.sent(0), run.last(0).is_some()), (&[0, 1][..], true));
        for _ in 0..messages {
            run.message(0, 1_050);
        }
        run.ended(0, messages, 1_100);
        let (tally, streams) = run.finish();
        assert_eq!(
            (tally.succeeded, tally.failures(), streams.sent),
            (succeeded, 1 - succeeded, 3)
        );
        assert!(streams.response_ns.is_empty());
    }
}

#[test]
fn messages_outside_of_the_window_are_not_counted() {
    let (requests, in_flight) = (9, 1);
    let mut run = Run::new(
        StreamPlan::Bidirectional {
            requests,
            in_flight,
        },
        1,
    );
    run.turn(1_000);
    run.message(0, 1_000_000);
    run.turn(1_000_000);
    assert_eq!(run.sent(0), [0, 1], "a call that began goes on to its end");
    run.message(0, 1_000_100);
    let (_, streams) = run.finish();
    assert_eq!((streams.sent, streams.received), (1, 0));
}

#[test]
fn a_call_whose_place_is_used_again_gets_nothing_of_the_one_before() {
    let (requests, in_flight) = (2, 1);
    let mut run = Run::new(
        StreamPlan::Bidirectional {
            requests,
            in_flight,
        },
        1,
    );
    for call in 0..2 {
        let now_ns = 1_000 + call as u64 * 1_000;
        run.turn(now_ns);
        assert_eq!(run.transport.begun.len(), call + 1);
        run.message(call, now_ns + 10);
        run.turn(now_ns + 10);
        run.message(call, now_ns + 20);
        run.ended(call, 2, now_ns + 20);
    }
    let (tally, streams) = run.finish();
    assert_eq!((tally.succeeded, tally.unfinished), (2, 0));
    assert_eq!((streams.sent, streams.received), (4, 4));
}

/// One call from 1 000 to 1 400 and one from 1 000 to 1 100, of which the next one begins at 1 200.
#[test]
fn calls_under_way_are_added_up_over_time() {
    let mut run = Run::new(StreamPlan::Server { responses: None }, 2);
    run.turn(1_000);
    run.ended(1, 0, 1_100);
    run.turn(1_200);
    run.ended(0, 0, 1_400);
    let (tally, _) = run.finish();
    let expected = 2.0 * 100.0 + 100.0 + 2.0 * 200.0;
    assert_eq!(tally.in_flight_ns, expected);
}
