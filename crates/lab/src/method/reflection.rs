//! Asks a server for its descriptors: `grpc.reflection.v1.ServerReflection`, or `v1alpha` of older
//! servers (<https://github.com/grpc/grpc/blob/master/doc/server-reflection.md>).

use std::collections::{HashSet, VecDeque};
use std::time::{Duration, Instant};

use api::reflection::{
    self, ReflectionAnswer, ReflectionQuery, ServerReflectionRequest, ServerReflectionResponse,
};
use client::{CallError, CallOptions, Channel, Code, StreamStep, Streaming};
use prost_reflect::prost::Message as _;
use prost_reflect::prost_types::FileDescriptorProto;
use protobuf::writer;

use super::{MethodError, full_name};
use crate::limits;

/// The service, by its name and by its earlier one.
const METHODS: [api::Method; 2] = [
    reflection::SERVER_REFLECTION_INFO,
    reflection::SERVER_REFLECTION_INFO_V1ALPHA,
];

/// The `FileDescriptorSet` of a service: its file, and all that it needs. The service may be named
/// without its package, if no other one of the server has this name.
///
/// # Errors
/// If the server does not say, or has no such service.
pub fn descriptors_of(
    channel: &mut Channel,
    service: &str,
    timeout: Duration,
) -> Result<Vec<u8>, MethodError> {
    let until = Instant::now() + timeout;
    let mut last = None;
    for method in METHODS {
        let path = format!("/{}", method.path);
        match ask_all(channel, &path, service, until) {
            Err(refusal @ ReflectionError::Unimplemented) => last = Some(refusal.reason()),
            Err(ReflectionError::Unknown(reason)) => {
                let Ok(known) = services(channel, &path, until) else {
                    return Err(MethodError::NoReflection(reason));
                };
                return match full_name(service, &known)? {
                    None => Err(MethodError::NotServed {
                        name: service.to_owned(),
                        known: shown(&known),
                    }),
                    Some(full) if full == service => Err(MethodError::NoReflection(reason)),
                    Some(full) => ask_all(channel, &path, &full, until)
                        .map_err(|refusal| MethodError::NoReflection(refusal.reason())),
                };
            }
            Err(ReflectionError::Said(reason)) => return Err(MethodError::NoReflection(reason)),
            Ok(set) => return Ok(set),
        }
    }
    Err(MethodError::NoReflection(last.unwrap_or_default()))
}

enum ReflectionError {
    /// The server does not know this version of the service.
    Unimplemented,
    /// There is nothing of this name.
    Unknown(String),
    Said(String),
}

impl ReflectionError {
    fn reason(self) -> String {
        match self {
            ReflectionError::Unimplemented => "it has no reflection".into(),
            ReflectionError::Unknown(reason) | ReflectionError::Said(reason) => reason,
        }
    }
}

/// Names in a message, of which there may be great many.
pub(super) fn shown(names: &[String]) -> String {
    let mut text = names
        .iter()
        .take(limits::SHOWN_SERVICES_MAX)
        .map(String::as_str)
        .collect::<Vec<_>>()
        .join(", ");
    if names.is_empty() {
        text.push_str("none that it tells of");
    } else if names.len() > limits::SHOWN_SERVICES_MAX {
        text.push_str(&format!(
            " and {} others",
            names.len() - limits::SHOWN_SERVICES_MAX
        ));
    }
    text
}

/// The services of a server.
fn services(
    channel: &mut Channel,
    path: &str,
    until: Instant,
) -> Result<Vec<String>, ReflectionError> {
    let options = CallOptions {
        deadline: Some(until),
        ..CallOptions::default()
    };
    let mut call = channel.streaming(path, &options)?;
    let answer = ask(&mut call, ReflectionQuery::ListServices(""), until)?;
    let unreadable = |_| ReflectionError::Said("its answer cannot be read".into());
    let answer = ServerReflectionResponse::decode(&answer).map_err(unreadable)?;
    let Some(ReflectionAnswer::ListServicesResponse(list)) = answer.message_response else {
        return Err(ReflectionError::Said("its answer has no services".into()));
    };
    let names = list.service.iter().flatten();
    Ok(names.map(|service| service.name.to_owned()).collect())
}

impl From<CallError> for ReflectionError {
    fn from(error: CallError) -> ReflectionError {
        match error {
            CallError::Status(status) if status.code() == Code::Unimplemented => {
                ReflectionError::Unimplemented
            }
            other => ReflectionError::Said(other.to_string()),
        }
    }
}

/// Asks for a file after the other, until nothing is missing.
fn ask_all(
    channel: &mut Channel,
    path: &str,
    symbol: &str,
    until: Instant,
) -> Result<Vec<u8>, ReflectionError> {
    let options = CallOptions {
        deadline: Some(until),
        ..CallOptions::default()
    };
    let mut call = channel.streaming(path, &options)?;
    let mut files = DescriptorFiles::default();
    let mut name: Option<String> = None;
    loop {
        let question = match &name {
            None => ReflectionQuery::FileContainingSymbol(symbol),
            Some(name) => ReflectionQuery::FileByFilename(name),
        };
        let answer = ask(&mut call, question, until)?;
        files.take(&answer)?;
        name = files.missing();
        if name.is_none() {
            return Ok(files.set);
        }
    }
}

fn ask(
    call: &mut Streaming<'_>,
    question: ReflectionQuery<'_>,
    until: Instant,
) -> Result<Vec<u8>, ReflectionError> {
    let mut request = Vec::new();
    ServerReflectionRequest {
        message_request: Some(question),
        ..ServerReflectionRequest::default()
    }
    .encode(&mut request);
    call.send(&request);
    loop {
        let left = until.saturating_duration_since(Instant::now());
        match call.poll(left)? {
            StreamStep::Message(answer) => return Ok(answer),
            StreamStep::Ended => {
                return Err(ReflectionError::Said("it ended the call early".into()));
            }
            // Beyond its deadline, `until`, the call fails.
            StreamStep::Nothing => {}
        }
    }
}

/// The files that have come.
#[derive(Default)]
struct DescriptorFiles {
    names: HashSet<String>,
    wanted: VecDeque<String>,
    /// They as a `FileDescriptorSet`.
    set: Vec<u8>,
}

impl DescriptorFiles {
    /// Takes the files of an answer.
    fn take(&mut self, answer: &[u8]) -> Result<(), ReflectionError> {
        let unreadable = |_| ReflectionError::Said("its answer cannot be read".into());
        let answer = ServerReflectionResponse::decode(answer).map_err(unreadable)?;
        let files = match answer.message_response {
            Some(ReflectionAnswer::FileDescriptorResponse(files)) => files,
            Some(ReflectionAnswer::ErrorResponse(error)) => {
                let text = match error.error_message {
                    "" => "it gives no reason",
                    text => text,
                };
                return Err(match error.error_code == i32::from(Code::NotFound as u8) {
                    true => ReflectionError::Unknown(text.to_owned()),
                    false => ReflectionError::Said(text.to_owned()),
                });
            }
            _ => return Err(ReflectionError::Said("its answer has no files".into())),
        };
        let before = self.names.len();
        for file in &files.file_descriptor_proto {
            self.take_file(file.map_err(unreadable)?)?;
        }
        if self.names.len() == before {
            return Err(ReflectionError::Said(
                "it sends the same files again and again".into(),
            ));
        }
        Ok(())
    }

    fn take_file(&mut self, file: &[u8]) -> Result<(), ReflectionError> {
        let descriptor = FileDescriptorProto::decode(file).map_err(|error| {
            ReflectionError::Said(format!("a descriptor cannot be read: {error}"))
        })?;
        if !self.names.insert(descriptor.name().to_owned()) {
            return Ok(());
        }
        if self.names.len() > limits::MAX_DESCRIPTOR_FILES
            || self.set.len() + file.len() > limits::MAX_DESCRIPTOR_BYTES
        {
            return Err(ReflectionError::Said("its descriptors are too many".into()));
        }
        self.wanted.extend(descriptor.dependency);
        // A `FileDescriptorSet` is its files as field 1, each behind the last.
        writer::bytes_always(&mut self.set, 1, file);
        Ok(())
    }

    /// A file that is needed and has not come.
    fn missing(&mut self) -> Option<String> {
        while let Some(name) = self.wanted.pop_front() {
            if !self.names.contains(&name) {
                return Some(name);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(name: String) -> Vec<u8> {
        let descriptor = FileDescriptorProto {
            name: Some(name),
            ..FileDescriptorProto::default()
        };
        descriptor.encode_to_vec()
    }

    fn reason(taken: Result<(), ReflectionError>) -> Option<String> {
        match taken {
            Ok(()) => None,
            Err(ReflectionError::Said(reason) | ReflectionError::Unknown(reason)) => Some(reason),
            Err(ReflectionError::Unimplemented) => panic!("a file is no such answer"),
        }
    }

    const TOO_MANY: &str = "its descriptors are too many";

    #[test]
    fn the_number_of_files_is_bounded() {
        let mut files = DescriptorFiles::default();
        for number in 0..limits::MAX_DESCRIPTOR_FILES {
            assert_eq!(reason(files.take_file(&file(number.to_string()))), None);
        }
        // One that is there already is none more.
        let again = files.take_file(&file("7".into()));
        assert_eq!(
            (reason(again), files.names.len()),
            (None, limits::MAX_DESCRIPTOR_FILES)
        );
        let more = files.take_file(&file("one more".into()));
        assert_eq!(reason(more).as_deref(), Some(TOO_MANY));
    }

    #[test]
    fn the_bytes_of_files_are_bounded() {
        // With a set that is as large as it may be before this file, and one byte larger.
        let last = file("x".repeat(100));
        for (more, expected) in [(0, None), (1, Some(TOO_MANY))] {
            let mut files = DescriptorFiles {
                set: vec![0; limits::MAX_DESCRIPTOR_BYTES - last.len() + more],
                ..DescriptorFiles::default()
            };
            assert_eq!(reason(files.take_file(&last)).as_deref(), expected);
        }
    }

    #[test]
    fn each_file_is_asked_for_once() {
        let mut files = DescriptorFiles::default();
        files.names.insert("a".into());
        files.wanted.extend(["a", "b", "a", "c"].map(String::from));
        assert_eq!(files.missing().as_deref(), Some("b"));
        assert_eq!(files.missing().as_deref(), Some("c"));
        assert_eq!(files.missing(), None);
    }
}
