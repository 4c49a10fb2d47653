//! A load by one method of any server: its requests, and how they are encoded.

use std::borrow::Cow;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use client::{Channel, ChannelOptions};
use lab::{
    DescribedMethod, LoadPlan, MethodError, MethodKind, MethodName, MethodRequests, Report,
    RequestOrder, RequestTemplate, SameRequest, StreamPlan, limits,
};

use super::run::run;
use crate::arguments::{LoadArguments, LoadRequestOrder};
use crate::command::tls::connect_failure;
use crate::exit::Failure;
use crate::interrupt::Interrupt;

/// Requests of a call of a streaming method, unless they are given.
const USUAL_MESSAGES: u64 = 10;

/// What a load of a method sends.
struct MethodLoad {
    name: MethodName,
    requests: Arc<[RequestTemplate]>,
    /// `None`: the method is unary.
    stream: Option<StreamPlan>,
}

/// Loads the method that `--method` names.
pub(super) fn load_method(
    arguments: &LoadArguments,
    method: &MethodName,
    plan: &LoadPlan,
    interrupt: &Interrupt,
) -> Result<Report, Failure> {
    let load = method_load(arguments, method, plan)?;
    let path = load.name.path();
    let same = match (&load.requests[..], load.stream) {
        ([request], None) => request.bytes(),
        _ => None,
    };
    let outcome = match same {
        Some(request) => {
            let workload = SameRequest::new(path, request.to_vec());
            run(plan, |_| workload.clone(), interrupt)?
        }
        None => {
            let order = match arguments.request_order {
                LoadRequestOrder::Sequential => RequestOrder::Sequential,
                LoadRequestOrder::Random => RequestOrder::Random,
            };
            let make = |thread| {
                let (path, requests) = (path.clone(), Arc::clone(&load.requests));
                let threads = (thread, plan.threads);
                let workload = MethodRequests::new(path, requests, order, threads, arguments.seed);
                match load.stream {
                    Some(stream) => workload.streamed(stream),
                    None => workload,
                }
            };
            run(plan, make, interrupt)?
        }
    };
    Ok(Report::new(load.words(), plan, outcome, 1))
}

impl MethodLoad {
    /// What is called, in words.
    fn words(&self) -> String {
        let requests = match self.requests.len() {
            1 => String::new(),
            count => format!(", {count} requests"),
        };
        let stream = match self.stream {
            None => String::new(),
            Some(StreamPlan::Server { responses: None }) => ", responses stream".into(),
            Some(StreamPlan::Server {
                responses: Some(count),
            }) => format!(", responses stream, {count} of each call"),
            Some(StreamPlan::Client { requests }) => {
                format!(", requests stream, {requests} in each call")
            }
            Some(StreamPlan::Bidirectional {
                requests,
                in_flight,
            }) => format!(", both stream, {requests} in each call, {in_flight} at a time"),
            Some(StreamPlan::Unanswered { requests }) => {
                format!(", requests stream without responses, {requests} in each call")
            }
        };
        format!("{}{requests}{stream}", self.name)
    }
}

/// Reads all that is sent, before any load.
fn method_load(
    arguments: &LoadArguments,
    method: &MethodName,
    plan: &LoadPlan,
) -> Result<MethodLoad, Failure> {
    if let Some(file) = &arguments.data_file {
        let request = read_named("--data-file", file, limits::MAX_REQUEST_BYTES)?;
        return Ok(MethodLoad {
            name: method.clone(),
            requests: [RequestTemplate::fixed(request)].into(),
            stream: None,
        });
    }
    // Before the server is asked: what is wrong here needs no server.
    let texts = match (&arguments.data, &arguments.request_file) {
        (Some(data), _) => vec![(None, json(data)?)],
        (None, Some(file)) => request_lines(file)?,
        (None, None) => {
            return Err(Failure::Usage(
                "--method needs --data, --request-file or --data-file".into(),
            ));
        }
    };
    let method = describe(arguments, plan, method)?;
    let stream = stream_plan(arguments, plan, &method)?;
    let requests = texts.iter().map(|(line, text)| {
        let error = |error| match line {
            None => in_words(arguments, error),
            Some(line) => in_words(arguments, error).about(&format!("--request-file, line {line}")),
        };
        method.request(text).map_err(error)
    });
    Ok(MethodLoad {
        name: method.name().clone(),
        requests: requests.collect::<Result<_, Failure>>()?,
        stream,
    })
}

/// How the calls of a method go that streams; `None`: it is unary.
fn stream_plan(
    arguments: &LoadArguments,
    plan: &LoadPlan,
    method: &DescribedMethod,
) -> Result<Option<StreamPlan>, Failure> {
    let (name, kind) = (method.name(), method.kind());
    if kind == MethodKind::Unary && arguments.messages.is_some() {
        return Err(Failure::Usage(format!(
            "--messages goes only with a streaming method, and {name} is unary; leave it out"
        )));
    }
    if kind != MethodKind::Bidirectional && arguments.messages_in_flight.is_some() {
        return Err(Failure::Usage(format!(
            "--messages-in-flight goes only with a method of which both sides stream, and {name} \
             is none; leave it out"
        )));
    }
    if kind != MethodKind::Unary && plan.framed.is_some() {
        return Err(Failure::Usage(format!(
            "{name} is a streaming method, which goes only with --protocol grpc"
        )));
    }
    let requests = arguments.messages.unwrap_or(USUAL_MESSAGES);
    Ok(match kind {
        MethodKind::Unary => None,
        MethodKind::ServerStreaming => Some(StreamPlan::Server {
            responses: arguments.messages,
        }),
        MethodKind::ClientStreaming => Some(StreamPlan::Client { requests }),
        MethodKind::Bidirectional => Some(StreamPlan::Bidirectional {
            requests,
            in_flight: arguments.messages_in_flight.unwrap_or(1),
        }),
    })
}

/// The JSON of a request, and the line of its file, if it has one.
type RequestLine<'a> = (Option<usize>, Cow<'a, str>);

/// The requests of `--request-file`: each line that is not empty, with its number.
fn request_lines(file: &Path) -> Result<Vec<RequestLine<'static>>, Failure> {
    let flag = "--request-file";
    let bytes = read_named(flag, file, limits::MAX_REQUEST_FILE_BYTES)?;
    let text = utf8(flag, &file.display().to_string(), bytes)?;
    let lines = text.lines().enumerate();
    let lines = lines.filter(|(_, line)| !line.trim().is_empty());
    let lines: Vec<_> = lines
        .map(|(number, line)| (Some(number + 1), Cow::from(line.to_owned())))
        .take(limits::MAX_REQUESTS + 1)
        .collect();
    match lines.len() {
        0 => Err(Failure::Usage(format!(
            "{flag}: {} has no request; write the JSON of one on each line",
            file.display()
        ))),
        count if count > limits::MAX_REQUESTS => Err(Failure::Usage(format!(
            "{flag}: {} has more than {} requests, which is all that can be used",
            file.display(),
            limits::MAX_REQUESTS
        ))),
        _ => Ok(lines),
    }
}

/// The JSON of `--data`, which stands there or, after an `@`, in a file. No JSON begins so.
fn json(data: &str) -> Result<Cow<'_, str>, Failure> {
    let Some(file) = data.strip_prefix('@') else {
        return Ok(data.into());
    };
    if file.is_empty() {
        return Err(Failure::Usage(
            "--data @ names no file; write --data @FILE, or --data @- for standard input".into(),
        ));
    }
    let bytes = read_named("--data", Path::new(file), limits::MAX_REQUEST_BYTES)?;
    Ok(utf8("--data", file, bytes)?.into())
}

/// The text of a file of JSON.
fn utf8(flag: &str, file: &str, bytes: Vec<u8>) -> Result<String, Failure> {
    let text = String::from_utf8(bytes).map_err(|_| {
        Failure::Usage(format!(
            "{flag}: {file} is no JSON: it is not UTF-8; --data-file takes the bytes of a message"
        ))
    })?;
    // Editors of some systems begin a file with a mark of its encoding, which JSON does not have.
    Ok(text.trim_start_matches('\u{feff}').to_owned())
}

/// What descriptors say of the method: those of `--proto` or `--descriptor-set`, or the server's
/// own.
fn describe(
    arguments: &LoadArguments,
    plan: &LoadPlan,
    method: &MethodName,
) -> Result<DescribedMethod, Failure> {
    let in_words = |error| in_words(arguments, error);
    let descriptors = match (&arguments.proto, &arguments.descriptor_set) {
        (Some(file), _) => lab::descriptors_in(file, &arguments.import_path).map_err(in_words)?,
        (None, Some(file)) => read_named("--descriptor-set", file, limits::MAX_DESCRIPTOR_BYTES)?,
        (None, None) => {
            let timeout = Duration::from_millis(arguments.timeout.ms);
            let options = ChannelOptions {
                connect_timeout: timeout,
                tls: plan.tls.clone(),
                credentials: plan.worker.credentials.clone(),
                ..ChannelOptions::default()
            };
            let mut channel = Channel::connect(&arguments.address, &options)
                .map_err(|error| connect_failure(&arguments.address, &error))?;
            lab::descriptors_of(&mut channel, method.service(), timeout).map_err(in_words)?
        }
    };
    method.described_in(&descriptors).map_err(in_words)
}

/// Why there is no request, and what to do.
fn in_words(arguments: &LoadArguments, error: MethodError) -> Failure {
    match error {
        error @ MethodError::NoReflection(_) => {
            Failure::Failed(format!("{}: {error}", arguments.address))
        }
        error @ MethodError::BadProto { .. } => Failure::Failed(format!("--proto: {error}")),
        error @ MethodError::BadDescriptors(_) => {
            match (&arguments.proto, &arguments.descriptor_set) {
                (None, Some(file)) => Failure::Failed(format!(
                    "--descriptor-set: {} is no FileDescriptorSet: {error}; protoc \
                     --include_imports -o FILE makes one",
                    file.display()
                )),
                _ => Failure::Failed(format!("{}: {error}", arguments.address)),
            }
        }
        error => {
            let text = error.to_string();
            let hint = match text.contains("base64") && !text.contains("{{utf8}}") {
                true => " A field of the type bytes is written as base64 in JSON.",
                false => "",
            };
            Failure::Usage(format!("{text}{hint}"))
        }
    }
}

/// The bytes of a file that a flag names.
pub(in crate::command) fn read_named(
    flag: &str,
    file: &Path,
    most_bytes: usize,
) -> Result<Vec<u8>, Failure> {
    read_bytes(file, most_bytes).map_err(|failure| match failure {
        Failure::Failed(_) => failure.about(flag),
        other => other,
    })
}

fn read_bytes(file: &Path, most_bytes: usize) -> Result<Vec<u8>, Failure> {
    let input = crate::input::open(Some(file))?;
    let (name, mut bytes) = (input.name, Vec::new());
    let mut source = input.source.take(most_bytes as u64 + 1);
    let read = source.read_to_end(&mut bytes);
    read.map_err(|error| crate::input::unreadable(&name, &error))?;
    if bytes.len() > most_bytes {
        return Err(Failure::Failed(format!(
            "{name} has more than {most_bytes} bytes, which is all that can be used"
        )));
    }
    Ok(bytes)
}
