//! Metadata and compression, as the public tests of gRPC ask for them.

use protobuf::writer;
use wire::grpc::{Code, Metadata};
use wire::{Event, RequestHead};

use crate::pair::Pair;

const UNARY: &str = "/grpc.testing.TestService/UnaryCall";
const INITIAL: &str = "x-grpc-test-echo-initial";
const TRAILING: &str = "x-grpc-test-echo-trailing-bin";

/// What a client gets.
#[derive(Debug, Default, PartialEq, Eq)]
struct Heard {
    code: Option<Code>,
    initial: Option<Vec<u8>>,
    trailing: Option<Vec<u8>>,
    is_compressed: bool,
}

/// A call with this metadata, whose message is compressed or not.
fn call(pair: &mut Pair, metadata: &Metadata, gzip: bool, message: &[u8]) -> Heard {
    let head = RequestHead {
        gzip,
        metadata: Some(metadata),
        ..RequestHead::call("test", UNARY)
    };
    let Pair { client, sent, .. } = pair;
    let stream = client.open(sent, &head).expect("a stream is free");
    client.set_compress(stream, gzip);
    let append = |out: &mut Vec<u8>| out.extend_from_slice(message);
    client.send_last_message(stream, sent, append);
    let mut heard = Heard::default();
    for _ in 0..3 {
        pair.serve();
        pair.take_with(|client, event| match event {
            Event::Response { .. } => {
                let initial = client.head().get(INITIAL.as_bytes());
                heard.initial = initial.map(<[u8]>::to_vec);
            }
            Event::Message { .. } => heard.is_compressed = client.message_was_compressed(),
            Event::Finished { .. } => {
                let status = client.status();
                let trailing = status.metadata().and_then(|all| all.get(TRAILING));
                heard.trailing = trailing.map(<[u8]>::to_vec);
                heard.code = Some(status.code());
            }
            _ => {}
        });
    }
    pair.client.forget(stream);
    heard
}

/// SimpleRequest, with an answer of 1000 bytes.
fn request(compress_response: bool, expect_compressed: bool) -> Vec<u8> {
    let mut message = Vec::new();
    writer::uint64(&mut message, 2, 1_000);
    for (field, wanted) in [(6, compress_response), (8, expect_compressed)] {
        if wanted {
            writer::message(&mut message, field, |out| writer::uint64(out, 1, 1));
        }
    }
    message
}

#[test]
fn metadata_is_echoed_where_the_caller_wants_it() {
    let mut pair = Pair::interop();
    let mut metadata = Metadata::new();
    let ascii = metadata.push_ascii(INITIAL, "initial");
    ascii.expect("it is text");
    let binary = metadata.push_binary(TRAILING, [1, 2, 3]);
    binary.expect("its name says that it is binary");
    for _ in 0..2 {
        let echoed = call(&mut pair, &metadata, false, &request(false, false));
        assert_eq!(echoed.code, Some(Code::Ok));
        assert_eq!(echoed.initial.as_deref(), Some(&b"initial"[..]));
        assert_eq!(echoed.trailing.as_deref(), Some(&[1, 2, 3][..]));
        let none = call(&mut pair, &Metadata::new(), false, &request(false, false));
        assert_eq!((none.initial, none.trailing), (None, None));
    }
}

#[test]
fn messages_are_compressed_as_the_caller_says() {
    let mut pair = Pair::interop();
    let none = Metadata::new();
    for compress_response in [false, true, false] {
        for (gzip, expect_compressed) in [(false, false), (true, false), (true, true)] {
            let message = request(compress_response, expect_compressed);
            let heard = call(&mut pair, &none, gzip, &message);
            assert_eq!(heard.code, Some(Code::Ok), "{gzip} {expect_compressed}");
            assert_eq!(heard.is_compressed, compress_response);
        }
        let wrong = call(&mut pair, &none, false, &request(compress_response, true));
        assert_eq!(wrong.code, Some(Code::InvalidArgument));
    }
}
