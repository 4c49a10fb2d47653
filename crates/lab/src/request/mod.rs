//! Requests of a method: JSON once, bytes for each call.

mod compile;
mod message;
mod placeholder;
#[cfg(test)]
mod tests;

pub(crate) use message::RequestDraws;
pub use message::RequestTemplate;

pub(crate) use compile::compile;
