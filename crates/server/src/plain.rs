//! Plain HTTP/2 requests: a word about this server, and a clear no to everything else.

use wire::{Connection, StreamKey};

const TEXT: [(&str, &str); 1] = [("content-type", "text/plain; charset=utf-8")];

/// Answers a request that is not gRPC, and throws its body away.
pub(crate) fn answer(
    connection: &mut Connection,
    output: &mut Vec<u8>,
    stream: StreamKey,
    about: &str,
) {
    let head = connection.head();
    let (status, body) = match (head.method(), head.path()) {
        (b"GET" | b"HEAD", b"/") => (200, about),
        (b"POST", path) if service::route(path).is_some() => (
            415,
            "this is a gRPC method: the content-type must be application/grpc\n",
        ),
        _ => (
            404,
            "there is nothing here: this port serves gRPC, and GET / says which services\n",
        ),
    };
    let body = if head.method() == b"HEAD" { "" } else { body };
    connection.send_plain(stream, output, status, &TEXT, body.as_bytes());
}
