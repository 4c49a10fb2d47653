//! Methods with the types of their messages.
//!
//! Each method of `pelton.v1`, and of the health service, is described once here, for every kind of
//! client: its path and kind of call ([`Rpc::METHOD`]), what goes there and what comes back, which
//! encode and decode themselves, and what happens if a call is made again ([`Rpc::repetition`]).

pub mod admin;
pub mod blob;
pub mod echo;
pub mod health;
pub mod keyvalue;
pub mod otlp;
pub mod replication;
pub mod tkrzw;

use protobuf::Message;

use crate::Method;

/// A method of a service, as a type.
pub trait Rpc {
    /// Its path and its kind of call.
    const METHOD: Method;

    /// A message that goes to the server.
    type Request<'a>: Message<'a>;

    /// A message that comes back.
    type Response<'a>: Message<'a>;

    /// Returns what happens if a call with this request is made again after one whose outcome is
    /// not known. For a stream of requests: its first one.
    fn repetition(request: &Self::Request<'_>) -> Repetition;
}

/// What happens if a call is made again after one whose outcome is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repetition {
    /// Nothing that one call alone would not do: it reads.
    Harmless,
    /// It takes effect at most once, since it depends on a version, which never comes back. But the
    /// second response may say that nothing was done where the first call did it: read what is
    /// there before anything is concluded from that.
    AtMostOnce,
    /// It may take effect again, and over what others did in between.
    MayRepeat,
}

/// A method with the names of its messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RpcDescription {
    /// Its path and its kind of call.
    pub method: Method,
    /// The full name of the message that goes to the server.
    pub request: &'static str,
    /// The full name of the message that comes back.
    pub response: &'static str,
}

impl RpcDescription {
    /// Returns the description of a method.
    pub const fn of<R: Rpc>() -> RpcDescription {
        RpcDescription {
            method: R::METHOD,
            request: <R::Request<'static> as Message<'static>>::NAME,
            response: <R::Response<'static> as Message<'static>>::NAME,
        }
    }
}

fn harmless<M>(_: &M) -> Repetition {
    Repetition::Harmless
}

fn may_repeat<M>(_: &M) -> Repetition {
    Repetition::MayRepeat
}

/// Declares a type for each method of a service, and `RPCS` with the descriptions of all.
macro_rules! rpcs {
    ($(
        $name:ident<$lifetime:lifetime> $method:path:
            $request:ty => $response:ty, $repetition:expr;
    )*) => {
        $(
            #[doc = concat!("The method [`", stringify!($method), "`].")]
            #[derive(Clone, Copy, Debug)]
            pub struct $name;

            impl $crate::rpc::Rpc for $name {
                const METHOD: $crate::Method = $method;
                type Request<$lifetime> = $request;
                type Response<$lifetime> = $response;

                fn repetition(request: &Self::Request<'_>) -> $crate::rpc::Repetition {
                    $repetition(request)
                }
            }
        )*

        /// All methods of the service.
        pub const RPCS: &[$crate::rpc::RpcDescription] =
            &[$($crate::rpc::RpcDescription::of::<$name>()),*];
    };
}
use rpcs;
