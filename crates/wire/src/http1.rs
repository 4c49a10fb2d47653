//! What a connection begins with that is not HTTP/2: enough to answer a person who came to the
//! wrong port.

/// What every HTTP/2 connection begins with. RFC 9113 section 3.4.
pub const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// A first line of HTTP/1 that is longer counts as one without its end being seen.
pub const MAX_LINE_BYTES: usize = 512;

/// The longest method is registered with 17 characters.
const MAX_METHOD_BYTES: usize = 20;

/// What the first bytes of a connection are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Greeting {
    /// The whole preface of HTTP/2.
    Http2,
    /// The magic bytes of baidu_std.
    BaiduStd,
    /// Those of SRPC.
    Srpc,
    /// A request line of HTTP/1.0 or HTTP/1.1: to be answered with [`answer`] and closed.
    Http1,
    /// A TLS client hello, on a port without TLS: to be closed.
    Tls,
    /// A command in the protocol of Redis (RESP): to be answered with [`redis_answer`] and closed.
    Redis,
    /// Nothing that we know: to be closed.
    Unknown,
    /// It cannot be said yet. Never the answer to [`MAX_LINE_BYTES`] bytes.
    NeedMore,
}

/// Recognises what a connection begins with by all bytes that have come so far.
pub fn recognise(bytes: &[u8]) -> Greeting {
    if bytes.starts_with(PREFACE) {
        Greeting::Http2
    } else if PREFACE.starts_with(bytes) {
        Greeting::NeedMore
    } else if bytes[0] == TLS_HANDSHAKE {
        recognise_tls(bytes)
    } else if bytes[0] == RESP_ARRAY {
        recognise_redis(bytes)
    } else if bytes.starts_with(b"PRPC") {
        Greeting::BaiduStd
    } else if bytes.starts_with(b"SRPC") {
        Greeting::Srpc
    } else {
        recognise_http1(bytes)
    }
}

/// What an array begins with in RESP, the protocol of Redis. Every client sends its commands as
/// arrays.
const RESP_ARRAY: u8 = b'*';

/// Elements of such an array have at most so many digits in their number.
const RESP_DIGITS: usize = 10;

/// `*`, a number, CR LF.
fn recognise_redis(bytes: &[u8]) -> Greeting {
    let digits = (bytes[1..].iter())
        .take_while(|byte| byte.is_ascii_digit())
        .count();
    match &bytes[1 + digits..] {
        _ if digits > RESP_DIGITS => Greeting::Unknown,
        [] => Greeting::NeedMore,
        _ if digits == 0 => Greeting::Unknown,
        [b'\r'] => Greeting::NeedMore,
        [b'\r', b'\n', ..] => Greeting::Redis,
        _ => Greeting::Unknown,
    }
}

/// A whole error of RESP, after which the connection is to be closed. `text` is what a person
/// reads.
pub fn redis_answer(text: &str) -> Vec<u8> {
    let line = text.lines().next().unwrap_or_default();
    format!("-ERR {line}\r\n").into_bytes()
}

/// The content type of a TLS record that holds a handshake message (RFC 8446 section 5.1).
const TLS_HANDSHAKE: u8 = 22;

/// A record of a handshake: its type, version 3.x, a length, and a client hello in it (RFC 8446
/// sections 4 and 5.1).
fn recognise_tls(bytes: &[u8]) -> Greeting {
    const CLIENT_HELLO: u8 = 1;
    match bytes {
        [_, 3, 0..=4, _, _, CLIENT_HELLO, ..] => Greeting::Tls,
        [_] | [_, 3] | [_, 3, 0..=4] | [_, 3, 0..=4, _] | [_, 3, 0..=4, _, _] => Greeting::NeedMore,
        _ => Greeting::Unknown,
    }
}

/// A method, a target, and a version, with one space between them (RFC 9112 section 3).
fn recognise_http1(bytes: &[u8]) -> Greeting {
    let head = &bytes[..bytes.len().min(MAX_LINE_BYTES)];
    let method_len = head
        .iter()
        .take_while(|byte| byte.is_ascii_uppercase() || **byte == b'-')
        .count();
    if method_len == 0 || method_len > MAX_METHOD_BYTES {
        return Greeting::Unknown;
    }
    let Some(after_method) = head[method_len..]
        .split_first()
        .map(|(&space, rest)| (space == b' ').then_some(rest))
    else {
        return Greeting::NeedMore;
    };
    let Some(after_method) = after_method else {
        return Greeting::Unknown;
    };
    let line_len = after_method.iter().position(|&byte| byte == b'\n');
    let line = &after_method[..line_len.unwrap_or(after_method.len())];
    if !line
        .iter()
        .all(|byte| matches!(byte, b' '..=b'~' | b'\r' | 0x80..))
    {
        return Greeting::Unknown;
    }
    match line_len {
        Some(_) if is_target_and_version(line) => Greeting::Http1,
        Some(_) => Greeting::Unknown,
        None if head.len() == MAX_LINE_BYTES => Greeting::Http1,
        None => Greeting::NeedMore,
    }
}

fn is_target_and_version(line: &[u8]) -> bool {
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    match line {
        [
            target @ ..,
            b' ',
            b'H',
            b'T',
            b'T',
            b'P',
            b'/',
            b'1',
            b'.',
            b'0'..=b'9',
        ] => !target.is_empty(),
        _ => false,
    }
}

/// A whole HTTP/1.1 answer with the status 505 (RFC 9110 section 15.6.6: its text says what is
/// spoken here instead), after which the connection is to be closed. `text` is what a person reads.
pub fn answer(text: &str) -> Vec<u8> {
    let len = text.len();
    format!(
        "HTTP/1.1 505 HTTP Version Not Supported\r\nContent-Type: text/plain; charset=utf-8\r\n\
         Content-Length: {len}\r\nConnection: close\r\n\r\n{text}"
    )
    .into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use testkit::Random;

    /// The first answer that is not `NeedMore`, however the bytes come: it must stay the same with
    /// more of them.
    fn recognised(bytes: &[u8]) -> Greeting {
        let mut answer = Greeting::NeedMore;
        for len in 0..=bytes.len() {
            let now = recognise(&bytes[..len]);
            assert!(
                answer == Greeting::NeedMore || now == answer,
                "{answer:?} became {now:?} at {len}"
            );
            assert!(now != Greeting::NeedMore || len < MAX_LINE_BYTES);
            answer = now;
        }
        answer
    }

    #[test]
    fn greetings() {
        let cases: [(&[u8], Greeting); 21] = [
            (PREFACE, Greeting::Http2),
            (
                b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04",
                Greeting::Http2,
            ),
            (b"PRI * HTTP/2.0\r\n\r\nXX", Greeting::Unknown),
            (b"PRI * HTTP/1.1\r\n", Greeting::Http1),
            (b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", Greeting::Http1),
            (b"GET / HTTP/1.0\n", Greeting::Http1),
            (
                b"POST /pelton.v1.KeyValue/Get HTTP/1.1\r\n",
                Greeting::Http1,
            ),
            (b"VERSION-CONTROL /a b HTTP/1.1\r\n", Greeting::Http1),
            (b"GET / HTTP/2.0\r\n", Greeting::Unknown),
            (b"GET HTTP/1.1\r\n", Greeting::Unknown),
            (b"GET /\r\n", Greeting::Unknown),
            (b"get / HTTP/1.1\r\n", Greeting::Unknown),
            (b"INVALID CONNECTION PREFACE\r\n\r\n", Greeting::Unknown),
            (
                b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
                Greeting::Tls,
            ),
            (b"\x16\x03\x01\x02\x00\x02", Greeting::Unknown),
            (b"\x16\x02\x01", Greeting::Unknown),
            (b"\0\0\0\x04\0\0\0\0\0", Greeting::Unknown),
            (b"*1\r\n$4\r\nPING\r\n", Greeting::Redis),
            (b"*12345678901\r\n", Greeting::Unknown),
            (b"*\r\n", Greeting::Unknown),
            (b"*1\n", Greeting::Unknown),
        ];
        for (bytes, greeting) in cases {
            assert_eq!(recognised(bytes), greeting, "{}", bytes.escape_ascii());
        }
        for begun in [
            &b""[..],
            b"P",
            b"PRI * HTTP/2.0\r\n\r\nSM",
            b"GET",
            b"GET ",
            b"GET / HTTP/1.1",
            b"\x16\x03\x01",
            b"*",
            b"*12\r",
        ] {
            assert_eq!(
                recognised(begun),
                Greeting::NeedMore,
                "{}",
                begun.escape_ascii()
            );
        }
    }

    #[test]
    fn endless_lines_are_decided() {
        assert_eq!(recognised(&[b'A'; 2000]), Greeting::Unknown);
        assert_eq!(
            recognised(&[b"GET /".to_vec(), vec![b'a'; 2000]].concat()),
            Greeting::Http1
        );
        assert_eq!(
            recognised(&[b"GET /".to_vec(), vec![0; 2000]].concat()),
            Greeting::Unknown
        );
    }

    #[test]
    fn any_bytes_are_decided_once() {
        let mut random = Random::new(0x5eed_0017);
        let starts: [&[u8]; 6] = [
            b"",
            b"GET /",
            b"PRI * ",
            b"\x16\x03\x01",
            b"GET / HTTP/1.",
            b"*1",
        ];
        for _ in 0..2000 {
            let mut bytes = starts[random.below(6) as usize].to_vec();
            bytes.extend(random.bytes(60, |random| {
                if random.below(2) == 0 {
                    b' ' + random.below(64) as u8
                } else {
                    random.number() as u8
                }
            }));
            recognised(&bytes);
        }
    }

    #[test]
    fn the_answer_has_its_length() {
        let answer = String::from_utf8(answer("gRPC ☺\n")).expect("UTF-8");
        let (head, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
        assert!(
            head.starts_with("HTTP/1.1 505 ")
                && head.contains("Content-Length: 9\r\n")
                && body == "gRPC ☺\n"
        );
    }
}
