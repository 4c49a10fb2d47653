//! Spans of the calls of a channel: how each ends, and what a collector gets of them.

mod common;

use std::sync::Mutex;
use std::time::{Duration, Instant};

use client::api::otlp::{AttributeValue, ExportTraceServiceRequest};
use client::otlp::{ExporterOptions, OtlpHeaders, OtlpTarget, SpanExporter};
use client::spans::{SpanCounts, TRACEPARENT, TraceContext, Tracer, TracerOptions, limits};
use client::{CallOptions, Channel, ChannelOptions, Metadata, StreamKey};
use wire::Connection;

use common::{by_path, serve_all};

const CALLER: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

/// Requests that came to the collector.
static EXPORTED: Mutex<Vec<Vec<u8>>> = Mutex::new(Vec::new());

fn collect(
    connection: &mut Connection,
    stream: StreamKey,
    out: &mut Vec<u8>,
    path: &str,
    message: &[u8],
) {
    assert_eq!(
        path,
        "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
    );
    EXPORTED.lock().expect("sound").push(message.to_vec());
    connection.respond(stream, out, |_| ());
}

fn within(ms: u64) -> CallOptions<'static> {
    CallOptions {
        deadline: Some(Instant::now() + Duration::from_millis(ms)),
        ..CallOptions::default()
    }
}

/// Makes a call that ends in each way.
fn make_calls(address: &client::Address, tracer: &Tracer) {
    let options = ChannelOptions {
        tracer: Some(tracer.clone()),
        ..ChannelOptions::default()
    };
    let connect = || Channel::connect(address, &options).expect("the server listens");
    let mut channel = connect();
    for _ in 0..2 {
        let answer = channel.unary("/t.T/Echo", b"a", &within(20_000));
        answer.expect("it is answered");
        let failed = channel.unary("/t.T/Fail", b"a", &within(20_000));
        failed.expect_err("it fails");
        let late = channel.unary("/t.T/Silent", b"a", &within(30));
        late.expect_err("it is not answered");
        let streamed = channel.server_streaming("/t.T/Stream", &[0; 9], &within(20_000));
        let streamed = streamed.expect("it begins");
        assert_eq!(streamed.filter(Result::is_ok).count(), 9);
        let dropped = channel.server_streaming("/t.T/Silent", &[0; 9], &within(20_000));
        drop(dropped.expect("it begins"));
        let dropped = channel.streaming("/t.T/Chat", &within(20_000));
        drop(dropped.expect("it begins"));
    }
    let mut metadata = Metadata::new();
    let pushed = metadata.push_ascii(TRACEPARENT, CALLER);
    pushed.expect("it may stand there");
    let of_caller = CallOptions {
        metadata: Some(&metadata),
        ..within(20_000)
    };
    let answer = channel.unary("/t.T/Refuse", b"a", &of_caller);
    answer.expect_err("it is refused");
}

/// A span in a word: what was called, and how it ended.
fn words(request: &[u8]) -> Vec<(String, Vec<u8>)> {
    let request = ExportTraceServiceRequest::decode(request).expect("it is one");
    let mut words = Vec::new();
    for resource in request.resource_spans.iter() {
        for scope in resource.expect("it is one").scope_spans.iter() {
            for span in scope.expect("it is one").spans.iter() {
                let span = span.expect("it is one");
                let text = |wanted: &str| {
                    let mut found = span.attributes.iter().map(|one| one.expect("it is one"));
                    let found = found.find(|one| one.key == wanted).expect(wanted);
                    match found.value.and_then(|value| value.value) {
                        Some(AttributeValue::Text(text)) => text.to_owned(),
                        other => panic!("{wanted} is {other:?}"),
                    }
                };
                assert_eq!(text("server.address"), "127.0.0.1");
                let code = text("rpc.response.status_code");
                let parent = span.parent_span_id.to_vec();
                words.push((format!("{} {code}", span.name), parent));
            }
        }
    }
    words
}

#[test]
fn each_call_of_a_channel_has_a_span_that_says_how_it_ended() {
    let (collector, collecting) = serve_all(collect, 1);
    let (address, serving) = serve_all(by_path, 1);
    let exporter = SpanExporter::start(
        ExporterOptions {
            target: OtlpTarget {
                endpoint: format!("http://{collector}").parse().expect("a URL"),
                tls: None,
                headers: OtlpHeaders::default(),
            },
            service_name: "test".into(),
            scope: ("test", "1"),
            attributes: Vec::new(),
            seed: 7,
        },
        |event| panic!("{event:?}"),
    );
    let exporter = exporter.expect("there is a thread");
    let tracer = Tracer::new(TracerOptions {
        spans: Some(exporter.queue()),
        parent: None,
        parent_state: None,
        seed: 8,
        unix_ns: || 1_000,
    });
    make_calls(&address, &tracer);
    serving.join().expect("the server does not panic");
    assert_eq!(exporter.stop(limits::SPAN_STOP_TIMEOUT, || false), Ok(()));
    let expected = SpanCounts {
        sent: 13,
        ..SpanCounts::default()
    };
    assert_eq!(exporter.queue().counts(), expected);
    collecting.join().expect("the collector does not panic");
    let exported = EXPORTED.lock().expect("sound").clone();
    let spans: Vec<_> = exported.iter().flat_map(|request| words(request)).collect();
    let (last, first) = spans.split_last().expect("there are spans");
    let ends = [
        "t.T/Echo OK",
        "t.T/Fail RESOURCE_EXHAUSTED",
        "t.T/Silent DEADLINE_EXCEEDED",
        "t.T/Stream OK",
        "t.T/Silent CANCELLED",
        "t.T/Chat CANCELLED",
    ];
    for (at, (text, parent)) in first.iter().enumerate() {
        assert_eq!((&**text, parent.len()), (ends[at % ends.len()], 0));
    }
    assert_eq!(last.0, "t.T/Refuse UNAVAILABLE");
    let caller = TraceContext::parse(CALLER.as_bytes()).expect("it is one");
    assert_eq!(last.1, caller.span.bytes());
}
