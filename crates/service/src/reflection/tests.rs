//! Questions and their answers, on the committed descriptors and on some made for the purpose.

use super::*;
use crate::descriptor::proto_files;
use crate::fake::{Fake, Sent, shared};
use api::reflection::ExtensionRequest;
use protobuf::Reader;

/// A question with one field of `message_request`.
fn question(field: u32, text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    writer::bytes(&mut bytes, 1, b"host");
    writer::bytes_always(&mut bytes, field, text.as_bytes());
    bytes
}

/// Fields of a message, whose contents are bytes or numbers.
fn fields(bytes: &[u8]) -> Vec<(u32, Vec<u8>)> {
    let mut fields = Vec::new();
    Reader::new(bytes)
        .for_each(|field, value| {
            let bytes = match value {
                protobuf::FieldValue::Bytes(bytes) => bytes.to_vec(),
                value => value.varint()?.to_string().into_bytes(),
            };
            fields.push((field, bytes));
            Ok(())
        })
        .expect("a message");
    fields
}

/// Asks one question; checks that host and question come back; number and content of the answer.
fn ask(request: &[u8]) -> (u32, Vec<(u32, Vec<u8>)>) {
    let shared = shared();
    let [answer, other] = [Method::ReflectionV1, Method::ReflectionV1Alpha].map(|method| {
        let mut fake = Fake::new(method, &shared);
        fake.message(request, false, &shared);
        match fake.take_sent().as_slice() {
            [Sent::Message(bytes)] => bytes.clone(),
            sent => panic!("one message, not {sent:?}"),
        }
    });
    assert_eq!(answer, other, "v1 and v1alpha differ only in their path");
    let mut answer = fields(&answer);
    let (kind, content) = answer.pop().expect("an answer has three fields");
    assert_eq!(answer, [(1, b"host".to_vec()), (2, request.to_vec())]);
    (kind, fields(&content))
}

/// The names of the files in an answer.
fn files(request: &[u8]) -> Vec<String> {
    let (kind, content) = ask(request);
    assert_eq!(kind, 4);
    let name = |(field, file): &(u32, Vec<u8>)| {
        assert_eq!(*field, 1);
        String::from_utf8(fields(file)[0].1.clone()).expect("names are ASCII")
    };
    content.iter().map(name).collect()
}

fn error_code(request: &[u8]) -> String {
    let (kind, content) = ask(request);
    assert_eq!(kind, 7);
    String::from_utf8(content[0].1.clone()).expect("a number")
}

#[test]
fn services_are_listed() {
    let (kind, content) = ask(&question(7, ""));
    assert_eq!(kind, 6);
    let names: Vec<Vec<u8>> = content
        .iter()
        .map(|(_, service)| fields(service)[0].1.clone())
        .collect();
    let expected: Vec<&[u8]> = crate::method::served(true).map(str::as_bytes).collect();
    assert_eq!(names, expected);

    let mut shared = shared();
    shared.settings.interop = false;
    let mut fake = Fake::new(Method::ReflectionV1, &shared);
    fake.message(&question(7, ""), true, &shared);
    let sent = fake.take_sent();
    let [Sent::Message(bytes), Sent::Status(status)] = &sent[..] else {
        panic!("one answer and the end, not {sent:?}");
    };
    assert_eq!(*status, Status::OK);
    let text = String::from_utf8_lossy(bytes);
    assert!(text.contains("pelton.v1.KeyValue") && !text.contains("grpc.testing"));
}

#[test]
fn every_service_that_is_listed_can_be_looked_up_with_its_methods() {
    let is_grpc = |method: &&Method| !method.is_plain();
    for method in Method::ALL.iter().filter(is_grpc) {
        let symbol = method.path().replace('/', ".");
        let file = INDEX.file_with_symbol(&symbol);
        assert!(
            file.is_some(),
            "{symbol} is routed but not declared in proto/"
        );
    }
    for service in crate::method::served(true) {
        assert!(INDEX.file_with_symbol(service).is_some(), "{service}");
    }
}

#[test]
fn files_come_by_name_with_what_they_need() {
    assert_eq!(
        files(&question(3, "grpc/health/v1/health.proto")),
        ["grpc/health/v1/health.proto"]
    );
    assert_eq!(
        files(&question(3, "grpc/testing/test.proto")),
        [
            "grpc/testing/test.proto",
            "grpc/testing/empty.proto",
            "grpc/testing/messages.proto"
        ]
    );
    for name in proto_files() {
        assert_eq!(files(&question(3, &name))[0], name);
    }
}

#[test]
fn files_come_by_symbol() {
    let health = "grpc/health/v1/health.proto";
    for (symbol, file) in [
        ("grpc.health.v1.Health", health),
        ("grpc.health.v1.Health.Watch", health),
        ("grpc.health.v1.HealthCheckRequest", health),
        ("grpc.health.v1.HealthCheckRequest.service", health),
        ("grpc.health.v1.HealthCheckResponse.ServingStatus", health),
        ("grpc.health.v1.HealthCheckResponse.SERVING", health),
        ("grpc.health.v1.HealthListResponse.StatusesEntry", health),
        (
            "grpc.reflection.v1.ServerReflectionRequest.message_request",
            "grpc/reflection/v1/reflection.proto",
        ),
        ("pelton.v1.KeyValue.Get", "pelton/v1/kv.proto"),
        ("pelton.v1.Echo", "pelton/v1/echo.proto"),
    ] {
        assert_eq!(files(&question(4, symbol))[0], file, "{symbol}");
    }
}

#[test]
fn what_is_not_there_is_an_answer() {
    for (field, text) in [
        (3, "pelton/v1/nothing.proto"),
        (3, ""),
        (4, "pelton.v1.Nothing"),
        (4, "grpc.health.v1"),
        (
            4,
            "grpc.health.v1.HealthCheckResponse.ServingStatus.SERVING",
        ),
        (4, ""),
        (6, "pelton.v1.Nothing"),
        (6, "pelton.v1.Echo"),
    ] {
        assert_eq!(error_code(&question(field, text)), "5", "{field}: {text:?}");
    }
    let mut extension = question(9, "x");
    assert_eq!(error_code(&extension), "3", "no question that is known");
    writer::message(&mut extension, 5, |out| {
        writer::bytes(out, 1, b"pelton.v1.EchoRequest");
        writer::uint64(out, 2, 100);
    });
    assert_eq!(error_code(&extension), "5");
    let (kind, content) = ask(&question(6, "pelton.v1.EchoRequest"));
    assert_eq!(
        (kind, content),
        (5, vec![(1, b"pelton.v1.EchoRequest".to_vec())])
    );
}

#[test]
fn questions_that_are_wrong_end_the_call() {
    let shared = shared();
    let too_long = question(4, &"x".repeat(REFLECTION_REQUEST_BYTES_MAX));
    for (request, code) in [
        (&[0x22, 0x05][..], Code::InvalidArgument),
        (&[0x22, 0x01, 0xff], Code::InvalidArgument),
        (&[0x2a, 0x02, 0x08, 0x01], Code::InvalidArgument),
        (&too_long, Code::ResourceExhausted),
    ] {
        let mut fake = Fake::new(Method::ReflectionV1, &shared);
        fake.message(request, false, &shared);
        assert_eq!(fake.take_status().expect("the call ends").code(), code);
    }
}

#[test]
fn a_slow_caller_is_slowed_down() {
    let shared = shared();
    let mut fake = Fake::new(Method::ReflectionV1, &shared);
    fake.actions.can_send = false;
    fake.message(&question(7, ""), false, &shared);
    assert!(fake.actions.is_held);
    fake.actions.can_send = true;
    fake.writable(&shared);
    assert!(!fake.actions.is_held);
    fake.take_sent();
    fake.half_closed(&shared);
    assert_eq!(fake.take_status(), Some(Status::OK));
}

/// An `ExtensionRequest` is read with both of its fields, and what it does not know is left out.
#[test]
fn what_is_asked_of_an_extension_is_read() {
    let mut request = Vec::new();
    writer::bytes(&mut request, 1, b"a.Base");
    writer::uint64(&mut request, 2, 200);
    writer::bytes(&mut request, 3, b"new");
    let question = ExtensionRequest::decode(&request);
    let Ok(ExtensionRequest {
        containing_type: message,
        extension_number: number,
    }) = question
    else {
        panic!("it is well");
    };
    assert_eq!((message, number), ("a.Base", 200));
}

/// Two files: `base.proto` with the message `a.Base`, and one that imports it and extends it at
/// both possible places.
fn set_with_extensions() -> Vec<u8> {
    let name = |out: &mut Vec<u8>, name: &str| writer::bytes(out, 1, name.as_bytes());
    let extension = |out: &mut Vec<u8>, field: u32, number: u64| {
        writer::message(out, field, |out| {
            name(out, &format!("extension{number}"));
            writer::bytes(out, 2, b".a.Base");
            writer::uint64(out, 3, number);
        });
    };
    let mut set = Vec::new();
    writer::message(&mut set, 1, |out| {
        name(out, "base.proto");
        writer::bytes(out, 2, b"a");
        writer::message(out, 4, |out| name(out, "Base"));
    });
    writer::message(&mut set, 1, |out| {
        name(out, "more.proto");
        writer::bytes(out, 3, b"base.proto");
        extension(out, 7, 200);
        writer::message(out, 4, |out| {
            name(out, "Scope");
            extension(out, 6, 100);
        });
    });
    set
}

#[test]
fn extensions_are_found() {
    let set = set_with_extensions();
    let index = DescriptorIndex::new(&set).expect("a descriptor set");
    let more = index.file_by_name("more.proto");
    assert_eq!(more, Some(1));
    assert_eq!(index.file_with_extension("a.Base", 100), more);
    assert_eq!(index.file_with_extension("a.Base", 200), more);
    assert_eq!(index.file_with_extension("a.Base", 150), None);
    assert_eq!(index.file_with_symbol("extension200"), more);
    assert_eq!(index.file_with_symbol("Scope.extension100"), more);
    let ReflectionResult::Extensions { numbers, .. } = answer(
        Some(ReflectionQuery::AllExtensionNumbersOfType("a.Base")),
        &index,
        true,
    ) else {
        panic!("the message is known");
    };
    assert_eq!(numbers, [100, 200]);
    let question = ReflectionQuery::FileContainingExtension(ExtensionRequest {
        containing_type: "a.Base",
        extension_number: 100,
    });
    let ReflectionResult::Files(files) = answer(Some(question), &index, true) else {
        panic!("the extension is known");
    };
    assert_eq!(files.len(), 2, "the file, and the one it imports");
}

#[test]
fn damaged_descriptors_are_refused() {
    let set = set_with_extensions();
    for length in 1..set.len() {
        // Cut within the set; not between its two files.
        let is_whole = fields_or_none(&set[..length]);
        assert_eq!(
            DescriptorIndex::new(&set[..length]).is_ok(),
            is_whole,
            "{length}"
        );
    }
}

fn fields_or_none(bytes: &[u8]) -> bool {
    Reader::new(bytes).for_each(|_, _| Ok(())).is_ok()
}
