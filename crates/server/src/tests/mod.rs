//! Calls of a worker that no socket, thread or clock is behind.

mod calls;
mod lane;
mod stop;

/// The path of a request for a method.
fn path(method: service::Method) -> String {
    format!("/{}", method.path())
}
