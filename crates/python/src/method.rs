//! A method of a channel, and calls of it.

use std::sync::Arc;

use client::{CallError, CallInfo, Code, Metadata, PoolCall, SharedPool};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::channel::{ChannelCore, NativeChannel};
use crate::limits;
use crate::metadata::{BadMetadata, from_python};
use crate::outcome::CallOutcome;
use crate::presence::{Signals, detached, detached_if_large, is_main_thread, outside_of_children};
use crate::stream_call::StreamCall;
use crate::unary_call::UnaryCall;

/// Makes calls of one method.
#[pyclass(frozen, module = "pelton_grpc._native")]
pub(crate) struct NativeMethod {
    core: Arc<ChannelCore>,
    path: String,
}

/// What a call begins with, as Python gives it.
struct CallArguments {
    timeout_ns: Option<u64>,
    metadata: Option<Metadata>,
    waits_for_ready: bool,
    compress: bool,
}

impl CallArguments {
    fn new(
        timeout_s: Option<f64>,
        metadata: Option<&Bound<'_, PyAny>>,
        waits_for_ready: bool,
        compress: bool,
    ) -> Result<CallArguments, BadMetadata> {
        Ok(CallArguments {
            timeout_ns: timeout_s.and_then(timeout_ns),
            metadata: from_python(metadata)?,
            waits_for_ready,
            compress,
        })
    }

    fn call<'a>(&'a self, path: &'a str) -> PoolCall<'a> {
        PoolCall {
            path,
            metadata: self.metadata.as_ref(),
            timeout_ns: self.timeout_ns,
            waits_for_ready: self.waits_for_ready,
            wants_head: true,
            compress: self.compress,
            ..PoolCall::default()
        }
    }
}

/// `None`: so long that it is none.
fn timeout_ns(timeout_s: f64) -> Option<u64> {
    let is_none = timeout_s >= limits::LONGEST_TIMEOUT_S;
    // What is negative, or no number, is in the past: 0.
    (!is_none).then_some((timeout_s * 1e9) as u64)
}

/// What a unary call has brought.
type EndedUnary = (Result<Vec<u8>, CallError>, CallInfo);

/// Where a call goes, and with what.
type CallBeginning = (SharedPool, CallArguments);

impl NativeMethod {
    /// Returns what a call begins with; the inner error is how one ends that cannot begin.
    fn begin(
        &self,
        py: Python<'_>,
        arguments: Result<CallArguments, BadMetadata>,
    ) -> PyResult<Result<CallBeginning, CallOutcome>> {
        let arguments = match arguments {
            Ok(arguments) => arguments,
            Err(BadMetadata::Raised(error)) => return Err(error),
            Err(BadMetadata::Invalid(why)) => {
                return Ok(Err(CallOutcome::local(Code::Internal, &why)));
            }
        };
        if !(self.path.starts_with('/') && self.path.is_ascii()) {
            let why = format!("`{}` is the path of no method", self.path);
            return Ok(Err(CallOutcome::local(Code::Unimplemented, &why)));
        }
        let pool = self.core.pool(py)?;
        Ok(pool.map(|pool| (pool, arguments)))
    }

    fn run(
        &self,
        py: Python<'_>,
        pool: &SharedPool,
        request: &[u8],
        arguments: &CallArguments,
    ) -> PyResult<Result<EndedUnary, CallOutcome>> {
        let mut signals = is_main_thread(py).then(Signals::new);
        let call = arguments.call(&self.path);
        let ended = detached(py, || {
            let mut info = CallInfo::default();
            let result = match &mut signals {
                None => Some(pool.unary_with_info(&call, request, &mut info, None)),
                Some(signals) => outside_of_children(|| {
                    let look = &mut || signals.look_in_pool();
                    pool.unary_with_info(&call, request, &mut info, Some(look))
                }),
            };
            result.map(|result| (result, info))
        });
        signals.map_or(Ok(()), Signals::check)?;
        Ok(match ended {
            None => Err(CallOutcome::of_exit()),
            Some(None) => Err(CallOutcome::of_parent()),
            Some(Some(ended)) => Ok(ended),
        })
    }
}

#[pymethods]
impl NativeMethod {
    /// What makes calls of the method with this path.
    #[new]
    fn new(channel: &NativeChannel, path: String) -> NativeMethod {
        NativeMethod {
            core: Arc::clone(&channel.core),
            path,
        }
    }

    /// Makes a unary call, and waits for its end. Returns the response, or how the call has ended
    /// if that is not OK; `wants_outcome`: in any case how it has ended.
    #[pyo3(signature = (
        request, timeout_s=None, metadata=None, waits_for_ready=false, compress=false,
        wants_outcome=false
    ))]
    #[allow(
        clippy::too_many_arguments,
        reason = "they come from Python one by one"
    )]
    fn unary<'py>(
        &self,
        py: Python<'py>,
        request: &[u8],
        timeout_s: Option<f64>,
        metadata: Option<&Bound<'py, PyAny>>,
        waits_for_ready: bool,
        compress: bool,
        wants_outcome: bool,
    ) -> PyResult<Bound<'py, PyAny>> {
        let arguments = CallArguments::new(timeout_s, metadata, waits_for_ready, compress);
        let outcome = match self.begin(py, arguments)? {
            Err(outcome) => outcome,
            Ok((pool, arguments)) => match self.run(py, &pool, request, &arguments)? {
                Err(outcome) => outcome,
                Ok((Ok(response), _)) if !wants_outcome => {
                    return Ok(PyBytes::new(py, &response).into_any());
                }
                Ok((Ok(response), info)) => {
                    CallOutcome::succeeded(response, info.initial_metadata, info.trailing_metadata)
                }
                Ok((Err(error), info)) => CallOutcome::failed(&error, info.initial_metadata),
            },
        };
        Ok(Bound::new(py, outcome)?.into_any())
    }

    /// Begins a unary call.
    #[pyo3(signature = (
        request, timeout_s=None, metadata=None, waits_for_ready=false, compress=false
    ))]
    fn begin_unary(
        &self,
        py: Python<'_>,
        request: &[u8],
        timeout_s: Option<f64>,
        metadata: Option<&Bound<'_, PyAny>>,
        waits_for_ready: bool,
        compress: bool,
    ) -> PyResult<UnaryCall> {
        let arguments = CallArguments::new(timeout_s, metadata, waits_for_ready, compress);
        let (pool, arguments) = match self.begin(py, arguments)? {
            Err(outcome) => return Ok(UnaryCall::ended(outcome)),
            Ok(begun) => begun,
        };
        let call = arguments.call(&self.path);
        let core = Arc::clone(&self.core);
        let begun = detached_if_large(py, request.len(), compress, || {
            pool.unary_future(&call, request)
        });
        Ok(match begun {
            Some(future) => UnaryCall::begun(core, future),
            None => UnaryCall::ended(CallOutcome::of_exit()),
        })
    }

    /// Begins a call that streams: with one request, or with those that are sent.
    #[pyo3(signature = (
        request=None, timeout_s=None, metadata=None, waits_for_ready=false, compress=false
    ))]
    fn begin_stream(
        &self,
        py: Python<'_>,
        request: Option<&[u8]>,
        timeout_s: Option<f64>,
        metadata: Option<&Bound<'_, PyAny>>,
        waits_for_ready: bool,
        compress: bool,
    ) -> PyResult<StreamCall> {
        let arguments = CallArguments::new(timeout_s, metadata, waits_for_ready, compress);
        let (pool, arguments) = match self.begin(py, arguments)? {
            Err(outcome) => return Ok(StreamCall::ended(outcome)),
            Ok(begun) => begun,
        };
        let call = arguments.call(&self.path);
        let core = Arc::clone(&self.core);
        let bytes = request.map_or(0, <[u8]>::len);
        let begun = detached_if_large(py, bytes, compress, || match request {
            None => Ok(pool.stream(&call)),
            Some(request) => pool.server_stream(&call, request),
        });
        Ok(match begun {
            Some(Ok(stream)) => StreamCall::begun(core, stream, compress),
            Some(Err(error)) => StreamCall::ended(CallOutcome::of_send_error(error)),
            None => StreamCall::ended(CallOutcome::of_exit()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timeout_is_in_the_past_or_none_where_it_is_no_time() {
        assert_eq!(timeout_ns(1.5), Some(1_500_000_000));
        assert_eq!(timeout_ns(0.0), Some(0));
        assert_eq!(timeout_ns(-3.0), Some(0));
        assert_eq!(timeout_ns(f64::NAN), Some(0));
        assert_eq!(timeout_ns(f64::INFINITY), None);
        assert_eq!(timeout_ns(1e300), None);
    }
}
