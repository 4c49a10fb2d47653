//! `grpc.reflection.v1.ServerReflection`, and the same under its older name `v1alpha`: a client without `.proto` files
//! asks what is served (<https://github.com/grpc/grpc/blob/master/doc/server-reflection.md>).
//!
//! The messages of both are the same on the wire, so there is one state machine for both paths.

mod index;
#[cfg(test)]
mod tests;

use std::sync::LazyLock;

use crate::call::{Actions, CallHead, Shared, State};
use crate::descriptor::DESCRIPTOR_SET;
use crate::limits::REFLECTION_REQUEST_BYTES_MAX;
use crate::method::Method;
use crate::services;
use crate::status::{Code, Status};
use index::Index;
use protobuf::{Fault, Reader, writer};

/// Made when somebody asks for the first time: most servers are never asked.
static INDEX: LazyLock<Index<'static>> = LazyLock::new(|| {
    Index::new(DESCRIPTOR_SET).expect("a test reads the committed descriptor set")
});

/// A call of the reflection service: it remembers nothing from one question to the next.
pub struct ReflectionCall;

impl ReflectionCall {
    /// Begins a call.
    pub fn started(
        _method: Method,
        _head: &CallHead<'_>,
        _shared: &Shared,
        _actions: &mut impl Actions,
    ) -> ReflectionCall {
        ReflectionCall
    }
}

impl State for ReflectionCall {
    fn message(&mut self, bytes: &[u8], last: bool, shared: &Shared, actions: &mut impl Actions) {
        let request = match decode(bytes) {
            Ok(request) => request,
            Err(status) => return actions.finish(status),
        };
        let answer = answer(&request.question, &INDEX, shared.interop);
        actions.message(|out| encode(out, &request, &answer));
        if last {
            actions.finish(Status::OK);
        } else if !actions.can_send() {
            // One answer may go beyond the bound of unsent bytes; the next question waits until there is room.
            actions.hold();
        }
    }

    fn half_closed(&mut self, _shared: &Shared, actions: &mut impl Actions) {
        actions.finish(Status::OK);
    }

    fn writable(&mut self, _shared: &Shared, actions: &mut impl Actions) {
        actions.resume();
    }
}

/// `ServerReflectionRequest`
struct Request<'a> {
    /// The whole message, which is a part of the answer.
    bytes: &'a [u8],
    host: &'a str,
    question: Question<'a>,
}

/// `message_request`
enum Question<'a> {
    None,
    FileByName(&'a str),
    FileWithSymbol(&'a str),
    FileWithExtension { message: &'a str, number: i32 },
    ExtensionsOf(&'a str),
    Services,
}

/// `message_response`
enum Answer<'a> {
    Files(Vec<&'a [u8]>),
    Extensions { message: &'a str, numbers: Vec<i32> },
    Services(Vec<&'static str>),
    Error(Code, String),
}

fn decode(bytes: &[u8]) -> Result<Request<'_>, Status> {
    if bytes.len() > REFLECTION_REQUEST_BYTES_MAX {
        return Err(Status::resource_exhausted(format!(
            "the question has {} bytes, at most {REFLECTION_REQUEST_BYTES_MAX} are allowed",
            bytes.len()
        )));
    }
    let mut request = Request {
        bytes,
        host: "",
        question: Question::None,
    };
    Reader::new(bytes)
        .for_each(|field, value| {
            // Of several members of a oneof the last one counts.
            match field {
                1 => request.host = value.string()?,
                3 => request.question = Question::FileByName(value.string()?),
                4 => request.question = Question::FileWithSymbol(value.string()?),
                5 => request.question = decode_extension(value.bytes()?)?,
                6 => request.question = Question::ExtensionsOf(value.string()?),
                7 => request.question = Question::Services,
                _ => {}
            }
            Ok(())
        })
        .map_err(|error| Status::invalid_argument(format!("ServerReflectionRequest: {error}")))?;
    Ok(request)
}

/// `ExtensionRequest`
fn decode_extension(bytes: &[u8]) -> Result<Question<'_>, Fault> {
    let (mut message, mut number) = ("", 0);
    Reader::new(bytes)
        .for_each(|field, value| {
            match field {
                1 => message = value.string()?,
                2 => number = value.int32()?,
                _ => {}
            }
            Ok(())
        })
        .map_err(|error| error.fault)?;
    Ok(Question::FileWithExtension { message, number })
}

fn answer<'a>(question: &Question<'a>, index: &Index<'a>, interop: bool) -> Answer<'a> {
    let files = |found: Option<usize>, what: String| match found {
        Some(file) => Answer::Files(index.with_imports(file)),
        None => Answer::Error(Code::NotFound, what),
    };
    match *question {
        Question::FileByName(name) => files(
            index.file_by_name(name),
            format!("there is no file {name:?} here"),
        ),
        Question::FileWithSymbol(name) => files(
            index.file_with_symbol(name),
            format!("nothing is called {name:?} here"),
        ),
        Question::FileWithExtension { message, number } => files(
            index.file_with_extension(message, number),
            format!("the message {message:?} has no extension {number} here"),
        ),
        Question::ExtensionsOf(message) => match index.extensions_of(message) {
            Some(numbers) => Answer::Extensions {
                message,
                numbers: numbers.collect(),
            },
            None => Answer::Error(
                Code::NotFound,
                format!("there is no message {message:?} here"),
            ),
        },
        Question::Services => Answer::Services(services::served(interop).collect()),
        Question::None => Answer::Error(
            Code::InvalidArgument,
            "the field message_request says nothing that this server knows".to_owned(),
        ),
    }
}

/// `ServerReflectionResponse`
fn encode(out: &mut Vec<u8>, request: &Request<'_>, answer: &Answer<'_>) {
    writer::bytes(out, 1, request.host.as_bytes());
    writer::bytes_always(out, 2, request.bytes);
    match answer {
        Answer::Files(files) => writer::message(out, 4, |out| {
            for file in files {
                writer::bytes_always(out, 1, file);
            }
        }),
        Answer::Extensions { message, numbers } => writer::message(out, 5, |out| {
            writer::bytes(out, 1, message.as_bytes());
            // Repeated numbers are packed in proto3.
            writer::message(out, 2, |out| {
                for &number in numbers {
                    writer::varint(out, i64::from(number).cast_unsigned());
                }
            });
        }),
        Answer::Services(names) => writer::message(out, 6, |out| {
            for name in names {
                writer::message(out, 1, |out| writer::bytes(out, 1, name.as_bytes()));
            }
        }),
        Answer::Error(code, message) => writer::message(out, 7, |out| {
            writer::uint64(out, 1, *code as u64);
            writer::bytes(out, 2, message.as_bytes());
        }),
    }
}
