//! A load by one method of any server: its request, and how it is encoded.

use std::borrow::Cow;
use std::io::Read;
use std::path::Path;
use std::time::Duration;

use client::{Channel, ChannelOptions};
use lab::{LoadPlan, MethodError, MethodName, Report, SameRequest, limits};

use super::run::run;
use crate::arguments::LoadArguments;
use crate::command::tls::connect_failure;
use crate::exit::Failure;
use crate::interrupt::Interrupt;

/// Loads the method that `--method` names, always with the same request.
pub(super) fn load_method(
    arguments: &LoadArguments,
    method: &MethodName,
    plan: &LoadPlan,
    interrupt: &Interrupt,
) -> Result<Report, Failure> {
    let (method, request) = match (&arguments.data, &arguments.data_file) {
        (Some(data), _) => encode(arguments, plan, method, &json(data)?)?,
        (None, Some(file)) => {
            let request = read("--data-file", file, limits::MAX_REQUEST_BYTES)?;
            (method.clone(), request)
        }
        (None, None) => {
            return Err(Failure::Usage(
                "--method needs --data or --data-file".into(),
            ));
        }
    };
    let workload = SameRequest::new(method.path(), request);
    let outcome = run(plan, |_| workload.clone(), interrupt)?;
    Ok(Report::new(method.to_string(), plan, outcome, 1))
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
    let bytes = read("--data", Path::new(file), limits::MAX_REQUEST_BYTES)?;
    let text = String::from_utf8(bytes).map_err(|_| {
        Failure::Usage(format!(
            "--data: {file} is no JSON: it is not UTF-8; --data-file takes the bytes of a message"
        ))
    })?;
    // Editors of some systems begin a file with a mark of its encoding, which JSON does not have.
    Ok(text.trim_start_matches('\u{feff}').to_owned().into())
}

/// The method with the package of its service, and the bytes of its JSON request, by a file of
/// descriptors or the server's own.
fn encode(
    arguments: &LoadArguments,
    plan: &LoadPlan,
    method: &MethodName,
    json: &str,
) -> Result<(MethodName, Vec<u8>), Failure> {
    let in_words = |error: MethodError| match error {
        error @ MethodError::NoReflection(_) => {
            Failure::Failed(format!("{}: {error}", arguments.address))
        }
        error @ MethodError::BadDescriptors(_) => match &arguments.descriptor_set {
            None => Failure::Failed(format!("{}: {error}", arguments.address)),
            Some(file) => Failure::Failed(format!(
                "--descriptor-set: {} is no FileDescriptorSet: {error}; protoc --include_imports \
                 -o FILE makes one",
                file.display()
            )),
        },
        error => {
            let text = error.to_string();
            let hint = match text.contains("base64") {
                true => " A field of the type bytes is written as base64 in JSON.",
                false => "",
            };
            Failure::Usage(format!("{text}{hint}"))
        }
    };
    let descriptors = match &arguments.descriptor_set {
        Some(file) => read("--descriptor-set", file, limits::MAX_DESCRIPTOR_BYTES)?,
        None => {
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
    let method = method.in_full(&descriptors).map_err(in_words)?;
    let request = method.encode(&descriptors, json).map_err(in_words)?;
    Ok((method, request))
}

/// The bytes of a file that a flag names.
fn read(flag: &str, file: &Path, most_bytes: usize) -> Result<Vec<u8>, Failure> {
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
