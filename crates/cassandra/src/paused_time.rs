//! Time that tests pass by themselves.

/// Runs to its end what waits; time passes at once while it does.
pub(crate) fn run<T>(future: impl Future<Output = T>) -> T {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_time().start_paused(true).build();
    runtime.expect("a thread can wait").block_on(future)
}
