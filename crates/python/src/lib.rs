//! The half of `pelton_grpc` that moves bytes: channels, calls and streams of bytes, for the half
//! in Python (`python/pelton_grpc`), which gives them the interface of `grpc.Channel`.
//!
//! The lock of the interpreter is released while a call waits ([`presence`]). Nothing here runs
//! code of Python while it holds a lock, or on a thread of the engine.

// What ships does not panic: docs/internals/panics.md.
#![cfg_attr(
    not(test),
    warn(
        clippy::disallowed_methods,
        clippy::panic,
        clippy::todo,
        clippy::unimplemented,
        clippy::unwrap_used
    )
)]

mod channel;
mod channel_pool;
mod limits;
mod metadata;
mod method;
mod outcome;
mod presence;
mod ready_queue;
mod resolver;
mod settings;
mod stream_call;
mod sync;
mod unary_call;
mod waiting;

use pyo3::prelude::*;

/// The module `pelton_grpc._native`.
#[pymodule]
#[pyo3(name = "_native")]
fn native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<channel::NativeChannel>()?;
    module.add_class::<method::NativeMethod>()?;
    module.add_class::<outcome::CallOutcome>()?;
    module.add_class::<ready_queue::ReadyQueue>()?;
    module.add_class::<settings::ChannelSettings>()?;
    module.add_class::<stream_call::StreamCall>()?;
    module.add_class::<unary_call::UnaryCall>()?;
    module.add_function(wrap_pyfunction!(channel::close_all, module)?)?;
    module.add_function(wrap_pyfunction!(presence::forked, module)?)?;
    module.add_function(wrap_pyfunction!(presence::shut_down, module)?)?;
    module.add_function(wrap_pyfunction!(presence::calls_inside, module)?)?;
    Ok(())
}
