//! `grpc.reflection.v1.ServerReflection`, and the same under its older name `v1alpha`: a client
//! without `.proto` files asks what is served
//! (<https://github.com/grpc/grpc/blob/master/doc/server-reflection.md>).
//!
//! The messages of both are the same on the wire, so there is one state machine for both paths.

mod index;
#[cfg(test)]
mod tests;

use std::sync::LazyLock;

use crate::actions::{RequestFlow, Responses, SendRoom};
use crate::call::{CallHead, CallSteps, PlanReads, Shared};
use crate::descriptor::DESCRIPTOR_SET;
use crate::limits::REFLECTION_REQUEST_BYTES_MAX;
use crate::method::{Method, served};
use crate::status::{Code, Status};
use api::reflection::{
    ErrorResponse, ExtensionNumberResponse, FileDescriptorResponse, ListServiceResponse,
    ReflectionAnswer, ReflectionQuery, ServerReflectionRequest, ServerReflectionResponse,
    ServiceResponse,
};
use index::DescriptorIndex;
use protobuf::writer;

/// Made when somebody asks for the first time: most servers are never asked.
static INDEX: LazyLock<DescriptorIndex<'static>> = LazyLock::new(|| {
    DescriptorIndex::new(DESCRIPTOR_SET).expect("a test reads the committed descriptor set")
});

/// The response to a question for all services, with `grpc.testing.TestService` or without. To make
/// it takes ten times as long as the rest of a question.
static SERVICES: LazyLock<Vec<u8>> = LazyLock::new(|| service_list(false));
static SERVICES_WITH_INTEROP: LazyLock<Vec<u8>> = LazyLock::new(|| service_list(true));

/// A call of the reflection service: it remembers nothing from one question to the next.
pub struct ReflectionCall;

impl ReflectionCall {
    /// Begins a call.
    pub fn started(
        _method: Method,
        _head: &CallHead<'_>,
        _shared: &Shared,
        _actions: &mut impl Sized,
    ) -> ReflectionCall {
        ReflectionCall
    }
}

impl PlanReads for ReflectionCall {}

impl<A: Responses + SendRoom + RequestFlow> CallSteps<A> for ReflectionCall {
    fn message(&mut self, bytes: &[u8], last: bool, shared: &Shared, actions: &mut A) {
        let request = match decode(bytes) {
            Ok(request) => request,
            Err(status) => return actions.finish(status),
        };
        let answer = answer(request.message_request, &INDEX, shared.settings.interop);
        actions.message(|out| encode(out, bytes, &request, &answer));
        if last {
            actions.finish(Status::OK);
        } else if !actions.can_send() {
            // One answer may go beyond the bound of unsent bytes; the next question waits until
            // there is room.
            actions.hold();
        }
    }

    fn half_closed(&mut self, _shared: &Shared, actions: &mut A) {
        actions.finish(Status::OK);
    }

    fn writable(&mut self, _shared: &Shared, actions: &mut A) {
        actions.resume();
    }
}

/// `message_response`
enum ReflectionResult<'a> {
    Files(Vec<&'a [u8]>),
    Extensions {
        message: &'a str,
        numbers: Vec<i32>,
    },
    /// As it stands in the response.
    Services(&'static [u8]),
    Error(Code, String),
}

fn decode(bytes: &[u8]) -> Result<ServerReflectionRequest<'_>, Status> {
    if bytes.len() > REFLECTION_REQUEST_BYTES_MAX {
        return Err(Status::resource_exhausted(format!(
            "the question has {} bytes, at most {REFLECTION_REQUEST_BYTES_MAX} are allowed",
            bytes.len()
        )));
    }
    ServerReflectionRequest::decode(bytes)
        .map_err(|error| Status::invalid_argument(format!("ServerReflectionRequest: {error}")))
}

fn answer<'a>(
    question: Option<ReflectionQuery<'a>>,
    index: &DescriptorIndex<'a>,
    interop: bool,
) -> ReflectionResult<'a> {
    use ReflectionQuery as Query;

    let files = |found: Option<usize>, what: String| match found {
        Some(file) => ReflectionResult::Files(index.with_imports(file)),
        None => ReflectionResult::Error(Code::NotFound, what),
    };
    match question {
        Some(Query::FileByFilename(name)) => files(
            index.file_by_name(name),
            format!("there is no file {name:?} here"),
        ),
        Some(Query::FileContainingSymbol(name)) => files(
            index.file_with_symbol(name),
            format!("nothing is called {name:?} here"),
        ),
        Some(Query::FileContainingExtension(extension)) => {
            let (message, number) = (extension.containing_type, extension.extension_number);
            files(
                index.file_with_extension(message, number),
                format!("the message {message:?} has no extension {number} here"),
            )
        }
        Some(Query::AllExtensionNumbersOfType(message)) => match index.extensions_of(message) {
            Some(numbers) => ReflectionResult::Extensions {
                message,
                numbers: numbers.collect(),
            },
            None => ReflectionResult::Error(
                Code::NotFound,
                format!("there is no message {message:?} here"),
            ),
        },
        Some(Query::ListServices(_)) => ReflectionResult::Services(match interop {
            true => &SERVICES_WITH_INTEROP,
            false => &SERVICES,
        }),
        None => ReflectionResult::Error(
            Code::InvalidArgument,
            "the field message_request says nothing that this server knows".to_owned(),
        ),
    }
}

/// Appends a `ServerReflectionResponse` to `request`, whose bytes are a part of it as they came.
fn encode(
    out: &mut Vec<u8>,
    bytes: &[u8],
    request: &ServerReflectionRequest<'_>,
    answer: &ReflectionResult<'_>,
) {
    let response = ServerReflectionResponse {
        valid_host: request.host,
        ..ServerReflectionResponse::default()
    };
    response.encode(out);
    writer::bytes_always(
        out,
        ServerReflectionResponse::NUMBERS.original_request,
        bytes,
    );
    match answer {
        ReflectionResult::Files(files) => {
            let file_descriptor_proto = (&files[..]).into();
            ReflectionAnswer::FileDescriptorResponse(FileDescriptorResponse {
                file_descriptor_proto,
            })
            .encode(out);
        }
        ReflectionResult::Extensions { message, numbers } => {
            ReflectionAnswer::AllExtensionNumbersResponse(ExtensionNumberResponse {
                base_type_name: message,
                extension_number: (&numbers[..]).into(),
            })
            .encode(out);
        }
        ReflectionResult::Services(list) => out.extend_from_slice(list),
        ReflectionResult::Error(code, error_message) => {
            ReflectionAnswer::ErrorResponse(ErrorResponse {
                error_code: *code as i32,
                error_message,
            })
            .encode(out);
        }
    }
}

fn service_list(interop: bool) -> Vec<u8> {
    let services: Vec<_> = served(interop)
        .map(|name| ServiceResponse { name })
        .collect();
    let service = (&services[..]).into();
    let mut out = Vec::new();
    ReflectionAnswer::ListServicesResponse(ListServiceResponse { service }).encode(&mut out);
    out
}
