//! A method of a channel, and calls of it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use client::{CallError, CallInfo, Code, Metadata, PoolCall, SharedPool};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::channel::{ChannelCore, NativeChannel};
use crate::limits;
use crate::metadata::{BadMetadata, from_python};
use crate::outcome::CallOutcome;
use crate::presence::{Signals, detached, is_main_thread};
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

    fn is_over_after(&self, passed: Duration) -> bool {
        let timeout_ns = self.timeout_ns.map(u128::from);
        timeout_ns.is_some_and(|timeout_ns| passed.as_nanos() >= timeout_ns)
    }

    /// What passed before the pool has the call counts too.
    fn pass_time(&mut self, passed: Duration) {
        let passed_ns = u64::try_from(passed.as_nanos()).unwrap_or(u64::MAX);
        if let Some(timeout_ns) = &mut self.timeout_ns {
            *timeout_ns = timeout_ns.saturating_sub(passed_ns);
        }
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
    let is_finite = timeout_s < limits::LONGEST_TIMEOUT_S;
    // What is negative, or no number, is in the past: 0.
    is_finite.then_some((timeout_s * 1e9) as u64)
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
        may_wait: bool,
    ) -> PyResult<Result<CallBeginning, CallOutcome>> {
        let mut arguments = match arguments {
            Ok(arguments) => arguments,
            Err(BadMetadata::Raised(error)) => return Err(error),
            Err(BadMetadata::Invalid(why)) => {
                return Ok(Err(CallOutcome::local(Code::Internal, &why)));
            }
        };
        let begun = Instant::now();
        loop {
            let outcome = match self.core.pool(py)? {
                Ok(pool) => {
                    arguments.pass_time(begun.elapsed());
                    return Ok(Ok((pool, arguments)));
                }
                Err(outcome) => outcome,
            };
            if !(may_wait && arguments.waits_for_ready) {
                return Ok(Err(outcome));
            }
            // A name that is not known yet may be known soon.
            let pause_over = Instant::now() + limits::LOOKUP_PAUSE;
            while Instant::now() < pause_over {
                if arguments.is_over_after(begun.elapsed()) {
                    return Ok(Err(outcome.past_deadline()));
                }
                if detached(py, || std::thread::sleep(limits::SIGNAL_PERIOD)).is_none() {
                    return Ok(Err(CallOutcome::of_exit()));
                }
                py.check_signals()?;
            }
        }
    }

    fn run(
        &self,
        py: Python<'_>,
        pool: &SharedPool,
        request: &[u8],
        arguments: &CallArguments,
    ) -> PyResult<Option<EndedUnary>> {
        let mut signals = is_main_thread(py).then(Signals::default);
        let ended = detached(py, || {
            let mut info = CallInfo::default();
            let call = arguments.call(&self.path);
            let result = match &mut signals {
                None => pool.unary_with_info(&call, request, &mut info, None),
                Some(signals) => {
                    let look = &mut || signals.look();
                    pool.unary_with_info(&call, request, &mut info, Some(look))
                }
            };
            (result, info)
        });
        signals.unwrap_or_default().check()?;
        Ok(ended)
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
        let outcome = match self.begin(py, arguments, true)? {
            Err(outcome) => outcome,
            Ok((pool, arguments)) => match self.run(py, &pool, request, &arguments)? {
                None => CallOutcome::of_exit(),
                Some((Ok(response), _)) if !wants_outcome => {
                    return Ok(PyBytes::new(py, &response).into_any());
                }
                Some((Ok(response), info)) => {
                    CallOutcome::succeeded(response, info.initial_metadata, info.trailing_metadata)
                }
                Some((Err(error), info)) => {
                    CallOutcome::failed(&error, self.core.is_closed(), info.initial_metadata)
                }
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
        Ok(match self.begin(py, arguments, false)? {
            Err(outcome) => UnaryCall::ended(outcome),
            Ok((pool, arguments)) => {
                let call = arguments.call(&self.path);
                let core = Arc::clone(&self.core);
                UnaryCall::begun(core, pool.unary_future(&call, request))
            }
        })
    }

    /// Begins a call that streams: with one request, or with those that are sent. `may_wait`: until
    /// the name of the server is known.
    #[pyo3(signature = (
        request=None, timeout_s=None, metadata=None, waits_for_ready=false, compress=false,
        may_wait=false
    ))]
    #[allow(
        clippy::too_many_arguments,
        reason = "they come from Python one by one"
    )]
    fn begin_stream(
        &self,
        py: Python<'_>,
        request: Option<&[u8]>,
        timeout_s: Option<f64>,
        metadata: Option<&Bound<'_, PyAny>>,
        waits_for_ready: bool,
        compress: bool,
        may_wait: bool,
    ) -> PyResult<StreamCall> {
        let arguments = CallArguments::new(timeout_s, metadata, waits_for_ready, compress);
        let (pool, arguments) = match self.begin(py, arguments, may_wait)? {
            Err(outcome) => return Ok(StreamCall::ended(outcome)),
            Ok(begun) => begun,
        };
        let call = arguments.call(&self.path);
        let core = Arc::clone(&self.core);
        let begun = match request {
            None => Ok(pool.stream(&call)),
            Some(request) => pool.server_stream(&call, request),
        };
        Ok(match begun {
            Ok(stream) => StreamCall::begun(core, stream),
            Err(error) => StreamCall::ended(CallOutcome::of_send_error(error)),
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
        assert_eq!(timeout_ns(f64::INFINITY), None);
        assert_eq!(timeout_ns(1e300), None);
    }
}
