//! Descriptors from a server's reflection: what is asked for, and what comes of answers that are
//! none.

mod common;

use std::sync::Mutex;
use std::time::Duration;

use client::{Channel, ChannelOptions, Code};
use common::{Reply, Server, TIMEOUT};
use lab::{MethodError, MethodName, descriptors_of};
use prost_reflect::prost::Message as _;
use protobuf::{Reader, writer};

const V1: &str = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo";
const V1_ALPHA: &str = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo";

/// A question: the number of its field, and its text.
fn question(message: &[u8]) -> (u32, String) {
    let mut found = None;
    Reader::new(message)
        .for_each(|field, value| {
            found = Some((field, value.string()?.to_owned()));
            Ok(())
        })
        .expect("it is well formed");
    found.expect("it asks for something")
}

/// The answer with these files.
fn files<'a>(files: impl IntoIterator<Item = &'a Vec<u8>>) -> Vec<u8> {
    let mut out = Vec::new();
    writer::message(&mut out, 4, |out| {
        for file in files {
            writer::bytes_always(out, 1, file);
        }
    });
    out
}

fn ask(server: &Server, timeout: Duration) -> Result<Vec<u8>, MethodError> {
    let connected = Channel::connect(&server.address, &ChannelOptions::default());
    let mut channel = connected.expect("the server listens");
    descriptors_of(&mut channel, "t.T", timeout)
}

/// What is said of a server that answers each question so.
fn refusal(reply: impl Fn() -> Reply + Send + Sync + 'static) -> String {
    let server = Server::new(move |_| reply());
    match ask(&server, TIMEOUT) {
        Err(MethodError::NoReflection(reason)) => reason,
        other => panic!("{other:?}"),
    }
}

/// Three files, of which each needs the next one; the last is needed twice.
fn compiled() -> Vec<Vec<u8>> {
    let folder = std::env::temp_dir().join(format!("pelton-reflection-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("the folder is ours");
    let write = |name: &str, text: &str| {
        let text = format!("syntax = \"proto3\"; package t; {text}");
        std::fs::write(folder.join(name), text).expect("it is written");
    };
    write("c.proto", "message C { bytes raw = 1; }");
    write("b.proto", "import \"c.proto\"; message B { C c = 1; }");
    write(
        "a.proto",
        "import \"b.proto\"; import \"c.proto\"; message A { B b = 1; C c = 2; }
         service T { rpc Ask(A) returns (C); }",
    );
    let set = protox::compile(["a.proto"], [&folder]).expect("it is well formed");
    std::fs::remove_dir_all(&folder).expect("it was there");
    let mut files: Vec<(String, Vec<u8>)> = set
        .file
        .iter()
        .map(|file| (file.name().to_owned(), file.encode_to_vec()))
        .collect();
    files.sort();
    files.into_iter().map(|(_, bytes)| bytes).collect()
}

#[test]
fn files_are_asked_for_until_none_is_missing() {
    let all = compiled();
    for has_v1 in [true, false] {
        let asked = std::sync::Arc::new(Mutex::new(Vec::new()));
        let server = {
            let (all, asked) = (all.clone(), std::sync::Arc::clone(&asked));
            Server::new(move |call| {
                if call.path != if has_v1 { V1 } else { V1_ALPHA } {
                    return Reply::Status(Code::Unimplemented, "no such service");
                }
                let question = question(call.message);
                let answer = match (question.0, question.1.as_str()) {
                    (4, "t.T") => files([&all[0]]),
                    (3, "b.proto") => files([&all[1]]),
                    (3, "c.proto") => files([&all[2]]),
                    other => panic!("nobody needs {other:?}"),
                };
                asked.lock().expect("nobody panics").push(question.1);
                Reply::Message(answer)
            })
        };
        let set = ask(&server, TIMEOUT).expect("it has reflection");
        assert_eq!(
            *asked.lock().expect("nobody panics"),
            ["t.T", "b.proto", "c.proto"]
        );
        let method: MethodName = "t.T/Ask".parse().expect("a name");
        let described = method.described_in(&set).expect("it is there");
        let request = described.request(r#"{"b": {"c": {"raw": "AQ=="}}}"#);
        let request = request.expect("it is well formed");
        let expected = &b"\x0a\x05\x0a\x03\x0a\x01\x01"[..];
        assert_eq!(request.bytes().map(|bytes| &bytes[..]), Some(expected));
    }
}

/// All in one answer: nothing more is asked for.
#[test]
fn files_that_came_with_others_are_not_asked_for() {
    let all = compiled();
    let server = Server::new(move |_| Reply::Message(files(&all)));
    ask(&server, TIMEOUT).expect("it has reflection");
    assert_eq!(server.messages(), 1);
}

#[test]
fn answers_that_are_none_are_told() {
    let none = refusal(|| Reply::Status(Code::Unimplemented, "no such service"));
    assert_eq!(none, "it has no reflection");
    let other = refusal(|| Reply::Status(Code::PermissionDenied, "not for you"));
    assert!(other.contains("not for you"), "{other}");
    let ended = refusal(|| Reply::Messages(Vec::new()));
    assert_eq!(ended, "it ended the call early");
    let garbage = refusal(|| Reply::Message(b"\xff\xff".to_vec()));
    assert_eq!(garbage, "its answer cannot be read");
    let empty = refusal(|| Reply::Message(Vec::new()));
    assert_eq!(empty, "its answer has no files");
    let garbage = refusal(|| Reply::Message(files([&b"\xff\xff".to_vec()])));
    assert!(
        garbage.starts_with("a descriptor cannot be read: "),
        "{garbage}"
    );
    let no_files = refusal(|| Reply::Message(files([])));
    assert!(
        no_files == "its answer has no files" || no_files.contains("again"),
        "{no_files}"
    );
    // The first file needs others, which never come.
    let first = compiled().swap_remove(0);
    let again = refusal(move || Reply::Message(files([&first])));
    assert_eq!(again, "it sends the same files again and again");
    let error = |fields: &[(u32, &[u8])]| {
        let mut out = Vec::new();
        writer::message(&mut out, 7, |out| {
            writer::uint64(out, 1, 5);
            for (field, text) in fields {
                writer::bytes(out, *field, text);
            }
        });
        out
    };
    let said = error(&[(2, b"nobody knows t.T")]);
    assert_eq!(
        refusal(move || Reply::Message(said.clone())),
        "nobody knows t.T"
    );
    let silent = error(&[]);
    assert_eq!(
        refusal(move || Reply::Message(silent.clone())),
        "it gives no reason"
    );
    let unreadable = error(&[(2, b"\xff")]);
    assert_eq!(
        refusal(move || Reply::Message(unreadable.clone())),
        "its answer cannot be read"
    );
}

#[test]
fn a_server_that_does_not_answer_is_given_up() {
    let server = Server::new(|_| Reply::Nothing);
    let error = ask(&server, Duration::from_millis(50)).expect_err("nothing comes");
    assert!(
        error.to_string().contains("no answer before the deadline"),
        "{error}"
    );
}
