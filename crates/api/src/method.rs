//! Methods: their paths, and how many messages go each way.

/// How many messages go each way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallKind {
    /// One request, one response.
    Unary,
    /// One request, a stream of responses.
    ServerStreaming,
    /// A stream of requests, one response.
    ClientStreaming,
    /// A stream each way.
    Bidirectional,
}

/// A method of a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Method {
    /// `package.Service/Method`, without the leading slash of the `:path`.
    pub path: &'static str,
    /// How many messages go each way.
    pub kind: CallKind,
}

/// Declares the methods of a service: a constant for each, and `METHODS` with all of them.
macro_rules! methods {
    ($($(#[$attribute:meta])* $name:ident $kind:ident $path:literal;)*) => {
        $(
            $(#[$attribute])*
            pub const $name: $crate::Method = $crate::Method {
                path: $path,
                kind: $crate::CallKind::$kind,
            };
        )*

        /// All methods of the service.
        pub const METHODS: &[$crate::Method] = &[$($name),*];
    };
}
pub(crate) use methods;
