//! How a call ended, for the half in Python.

use client::{Bytes, CallError, Code, Metadata, NotBegun, Status};
use pyo3::prelude::*;

use crate::metadata::to_python;

/// The end of a call: a status, its text, and what came with the answer.
#[derive(Clone)]
#[pyclass(frozen, module = "pelton_grpc._native")]
pub(crate) struct CallOutcome {
    code: Code,
    details: String,
    initial: Metadata,
    trailing: Metadata,
    /// Of a unary call that ended with OK.
    response: Option<Bytes>,
}

impl CallOutcome {
    /// The end of a call that did not end with OK.
    pub(crate) fn failed(error: &CallError, initial: Metadata) -> CallOutcome {
        let trailing = match error {
            CallError::Status(status) => status.metadata().cloned(),
            _ => None,
        };
        let (code, details) = describe(error);
        CallOutcome {
            code,
            details,
            initial,
            trailing: trailing.unwrap_or_default(),
            response: None,
        }
    }

    pub(crate) fn succeeded(
        response: Vec<u8>,
        initial: Metadata,
        trailing: Metadata,
    ) -> CallOutcome {
        CallOutcome {
            code: Code::Ok,
            details: String::new(),
            initial,
            trailing,
            response: Some(response.into()),
        }
    }

    /// The end of a stream with OK.
    pub(crate) fn of_status(status: &Status, initial: Metadata) -> CallOutcome {
        CallOutcome {
            code: status.code(),
            details: status.message().to_owned(),
            initial,
            trailing: status.metadata().cloned().unwrap_or_default(),
            response: None,
        }
    }

    pub(crate) fn local(code: Code, details: &str) -> CallOutcome {
        CallOutcome {
            code,
            details: details.to_owned(),
            initial: Metadata::new(),
            trailing: Metadata::new(),
            response: None,
        }
    }

    /// The same with initial metadata that came before.
    pub(crate) fn with_initial(self, initial: Metadata) -> CallOutcome {
        CallOutcome { initial, ..self }
    }

    pub(crate) fn initial(&self) -> &Metadata {
        &self.initial
    }

    /// Of what the child of a fork has inherited.
    pub(crate) fn of_parent() -> CallOutcome {
        let details = "Call cancelled in fork child: it was begun by the parent process";
        CallOutcome::local(Code::Cancelled, details)
    }

    pub(crate) fn of_exit() -> CallOutcome {
        CallOutcome::local(Code::Cancelled, "The interpreter is exiting")
    }
}

#[pymethods]
impl CallOutcome {
    /// The number of the status.
    #[getter]
    fn code(&self) -> u8 {
        self.code as u8
    }

    #[getter]
    fn details(&self) -> &str {
        &self.details
    }

    #[getter]
    fn response(&self) -> Option<&[u8]> {
        self.response.as_deref()
    }

    /// Pairs of keys and values; values of keys that end with `-bin` are bytes, others text.
    fn initial_metadata<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        to_python(py, &self.initial)
    }

    fn trailing_metadata<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        to_python(py, &self.trailing)
    }
}

/// Returns the status that gRPC's own client has for it.
fn describe(error: &CallError) -> (Code, String) {
    let code = match error {
        CallError::Status(status) => return (status.code(), status.message().to_owned()),
        CallError::DeadlineExceeded
        | CallError::NotBegun(NotBegun::DeadlinePassed | NotBegun::WaitedTooLong { .. }) => {
            return (Code::DeadlineExceeded, deadline_text(error));
        }
        CallError::PoolClosed | CallError::NotBegun(NotBegun::PoolClosed) => return closed(),
        CallError::NotBegun(NotBegun::QueueFull { .. }) => Code::ResourceExhausted,
        CallError::NotBegun(_) | CallError::ConnectionLost { .. } => Code::Unavailable,
        CallError::AnswerTooLarge
        | CallError::RequestTooLarge { .. }
        | CallError::MetadataTooLarge => Code::ResourceExhausted,
        CallError::BadAnswer { .. } | CallError::BadRequest { .. } => Code::Internal,
    };
    (code, error.to_string())
}

/// The text begins as that of gRPC, which programs look for.
fn deadline_text(error: &CallError) -> String {
    match error {
        CallError::NotBegun(_) => format!("Deadline Exceeded: {error}"),
        _ => "Deadline Exceeded".into(),
    }
}

fn closed() -> (Code, String) {
    (Code::Cancelled, "Channel closed!".into())
}
