//! From fields to the head of a message: validation and what gRPC needs to know. RFC 9113 section
//! 8.

use super::config::Role;
use crate::grpc::{AcceptedEncodings, Encoding, timeout};
use crate::hpack::{DecodedField, Fields, KnownName, is_valid_name, is_valid_value};

/// What the body of a stream is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BodyKind {
    /// gRPC messages.
    Grpc,
    /// Anything else.
    Plain,
}

/// Why a message is malformed: a stream error of type PROTOCOL_ERROR. RFC 9113 section 8.1.1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Malformed(pub(crate) &'static str);

/// Places of fields, and what has been read of their values.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HeadInfo {
    pub(crate) kind: BodyKind,
    method: u8,
    path: u8,
    authority: u8,
    scheme: u8,
    authorization: u8,
    pub(crate) is_head_request: bool,
    /// 0 in requests.
    pub(crate) status: u16,
    pub(crate) timeout_ns: Option<u64>,
    pub(crate) has_bad_timeout: bool,
    pub(crate) content_length: Option<u64>,
    /// `None`: one that we do not know.
    pub(crate) encoding: Option<Encoding>,
    pub(crate) takes_gzip: bool,
}

/// The place of a field that is not there. A list has fewer fields (`limits::MAX_RESPONSE_FIELDS`).
const NOWHERE: u8 = u8::MAX;

/// The place of a field that is there several times, which has no value.
const SEVERAL: u8 = NOWHERE - 1;

/// What should prove who calls is there more than once, or is no text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SeveralProofs;

impl HeadInfo {
    pub(crate) const EMPTY: HeadInfo = HeadInfo {
        kind: BodyKind::Plain,
        method: NOWHERE,
        path: NOWHERE,
        authority: NOWHERE,
        scheme: NOWHERE,
        authorization: NOWHERE,
        is_head_request: false,
        status: 0,
        timeout_ns: None,
        has_bad_timeout: false,
        content_length: None,
        encoding: Some(Encoding::Identity),
        takes_gzip: false,
    };

    /// Returns the head of a gRPC call that came otherwise than over HTTP/2. `authorization`:
    /// whether it has a value of that name, and if so where; `Err`: it has several, or one that is
    /// no text.
    pub(crate) fn of_call(
        path_at: u8,
        authorization: Result<Option<u8>, SeveralProofs>,
    ) -> HeadInfo {
        HeadInfo {
            kind: BodyKind::Grpc,
            path: path_at,
            authorization: match authorization {
                Ok(at) => at.unwrap_or(NOWHERE),
                Err(SeveralProofs) => SEVERAL,
            },
            ..HeadInfo::EMPTY
        }
    }

    /// Reads the head of a request. RFC 9113 section 8.3.1.
    pub(crate) fn of_request(fields: &Fields) -> Result<HeadInfo, Malformed> {
        let info = HeadInfo::read(fields, Role::Server)?;
        let method = value_at(fields, info.method);
        if info.status != 0 || method.is_empty() {
            return Err(Malformed("a request without :method, or with :status"));
        }
        let is_connect = method == b"CONNECT";
        if is_connect != (info.scheme == NOWHERE)
            || is_connect != value_at(fields, info.path).is_empty()
        {
            return Err(Malformed(
                "a request needs :scheme and :path, and CONNECT must have neither",
            ));
        }
        let kind = if method == b"POST" {
            info.kind
        } else {
            BodyKind::Plain
        };
        Ok(HeadInfo {
            kind,
            is_head_request: method == b"HEAD",
            ..info
        })
    }

    /// Reads the head of a response. RFC 9113 section 8.3.2.
    pub(crate) fn of_response(fields: &Fields) -> Result<HeadInfo, Malformed> {
        let info = HeadInfo::read(fields, Role::Client)?;
        let has_request_fields = [info.method, info.path, info.authority, info.scheme]
            .iter()
            .any(|&at| at != NOWHERE);
        if info.status == 0 || has_request_fields {
            return Err(Malformed(
                "a response without :status, or with fields of a request",
            ));
        }
        Ok(info)
    }

    fn read(fields: &Fields, role: Role) -> Result<HeadInfo, Malformed> {
        if !fields.all_valid() && !fields.fields().all(|field| is_valid(&field, role)) {
            return Err(Malformed(
                "a field name or value has bytes that are not allowed",
            ));
        }
        let mut info = HeadInfo::EMPTY;
        let mut pseudo_over = false;
        for (at, field) in fields.fields().enumerate() {
            if field.known == KnownName::Other {
                pseudo_over = true;
            } else if field.known.is_pseudo() {
                if pseudo_over {
                    return Err(Malformed(
                        "a pseudo-header field stands behind other fields",
                    ));
                }
                info.read_pseudo(at as u8, &field)?;
            } else {
                pseudo_over = true;
                info.read_known(at as u8, &field)?;
            }
        }
        Ok(info)
    }

    fn read_pseudo(&mut self, at: u8, field: &DecodedField<'_>) -> Result<(), Malformed> {
        let place = match field.known {
            KnownName::Method => &mut self.method,
            KnownName::Path => &mut self.path,
            KnownName::Authority => &mut self.authority,
            KnownName::Scheme => &mut self.scheme,
            KnownName::Status if self.status == 0 => {
                self.status = parse_status(field.value)
                    .ok_or(Malformed(":status is not a number of three digits"))?;
                return Ok(());
            }
            _ => return Err(Malformed("an unknown or repeated pseudo-header field")),
        };
        if *place != NOWHERE {
            return Err(Malformed("an unknown or repeated pseudo-header field"));
        }
        *place = at;
        Ok(())
    }

    fn read_known(&mut self, at: u8, field: &DecodedField<'_>) -> Result<(), Malformed> {
        match field.known {
            KnownName::ConnectionSpecific => {
                return Err(Malformed("a field that is about the connection"));
            }
            KnownName::Te if field.value != b"trailers" => {
                return Err(Malformed("te has another value than trailers"));
            }
            KnownName::ContentLength => self.read_content_length(field.value)?,
            KnownName::ContentType if is_grpc(field.value) => self.kind = BodyKind::Grpc,
            KnownName::Authorization => {
                self.authorization = match self.authorization {
                    NOWHERE => at,
                    _ => SEVERAL,
                };
            }
            KnownName::GrpcTimeout => match timeout::parse(field.value) {
                Ok(timeout_ns) => self.timeout_ns = Some(timeout_ns),
                Err(_) => self.has_bad_timeout = true,
            },
            KnownName::GrpcEncoding => self.encoding = Encoding::parse(field.value),
            KnownName::GrpcAcceptEncoding => {
                self.takes_gzip |= AcceptedEncodings::parse(field.value).contains(Encoding::Gzip);
            }
            _ => {}
        }
        Ok(())
    }

    fn read_content_length(&mut self, value: &[u8]) -> Result<(), Malformed> {
        let length = parse_number(value).ok_or(Malformed("content-length is not a number"))?;
        if self.content_length.is_some_and(|other| other != length) {
            return Err(Malformed("two content-length fields contradict each other"));
        }
        self.content_length = Some(length);
        Ok(())
    }
}

/// Whether a field may stand in what comes to this role. A client takes values with space at their
/// ends, which RFC 9113 section 8.2.1 forbids: servers of gRPC send messages and metadata as they
/// are made, and a call is not to lose its status for that.
fn is_valid(field: &DecodedField<'_>, role: Role) -> bool {
    let has_space_only = || {
        role == Role::Client
            && is_valid_name(field.name)
            && is_valid_value(without_outer_space(field.value))
    };
    field.is_valid || has_space_only()
}

/// A value without space and tabs at its ends.
pub(super) fn without_outer_space(mut value: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] | [rest @ .., b' ' | b'\t'] = value {
        value = rest;
    }
    value
}

/// Checks trailers that come to this role: ordinary fields only. RFC 9113 section 8.1.
pub(crate) fn check_trailers(fields: &Fields, role: Role) -> Result<(), Malformed> {
    let is_wrong = |field: DecodedField<'_>| {
        field.known.is_pseudo()
            || field.known == KnownName::ConnectionSpecific
            || !is_valid(&field, role)
    };
    if fields.fields().any(is_wrong) {
        Err(Malformed(
            "trailers with a field that is not allowed in them",
        ))
    } else {
        Ok(())
    }
}

/// `application/grpc`, alone or followed by `+proto` and the like, or by parameters.
fn is_grpc(content_type: &[u8]) -> bool {
    content_type
        .strip_prefix(b"application/grpc")
        .is_some_and(|rest| matches!(rest.first(), None | Some(b'+' | b';' | b' ')))
}

fn parse_status(value: &[u8]) -> Option<u16> {
    match parse_number(value) {
        Some(status @ 100..=999) if value.len() == 3 => Some(status as u16),
        _ => None,
    }
}

fn parse_number(value: &[u8]) -> Option<u64> {
    if value.is_empty() || value.len() > 19 {
        return None;
    }
    value.iter().try_fold(0_u64, |number, byte| {
        byte.is_ascii_digit()
            .then(|| number * 10 + u64::from(byte - b'0'))
    })
}

fn value_at(fields: &Fields, at: u8) -> &[u8] {
    fields.get(usize::from(at)).map_or(&[], |field| field.1)
}

/// The head of the last request or response.
#[derive(Debug, Clone, Copy)]
pub struct Head<'a> {
    pub(crate) info: &'a HeadInfo,
    pub(crate) fields: &'a Fields,
}

impl<'a> Head<'a> {
    /// The value of `:method`.
    pub fn method(&self) -> &'a [u8] {
        value_at(self.fields, self.info.method)
    }

    /// The value of `:path`, for gRPC `/package.Service/Method`.
    #[inline]
    pub fn path(&self) -> &'a [u8] {
        value_at(self.fields, self.info.path)
    }

    /// The value of `:authority`, or of `host` if there is none.
    pub fn authority(&self) -> &'a [u8] {
        if self.info.authority == NOWHERE {
            return self.get(b"host").unwrap_or_default();
        }
        value_at(self.fields, self.info.authority)
    }

    /// The value of `:scheme`.
    pub fn scheme(&self) -> &'a [u8] {
        value_at(self.fields, self.info.scheme)
    }

    /// The HTTP status of a response, 0 in a request.
    pub fn http_status(&self) -> u16 {
        self.info.status
    }

    /// Whether it is gRPC: a POST with content-type `application/grpc` or one of its kind.
    #[inline]
    pub fn is_grpc(&self) -> bool {
        self.info.kind == BodyKind::Grpc
    }

    /// The value of `grpc-timeout` in nanoseconds, clamped.
    #[inline]
    pub fn timeout_ns(&self) -> Option<u64> {
        self.info.timeout_ns
    }

    /// The value of `content-length`.
    pub fn content_length(&self) -> Option<u64> {
        self.info.content_length
    }

    /// Whether the peer reads messages that are compressed with gzip.
    pub fn accepts_gzip(&self) -> bool {
        self.info.takes_gzip
    }

    /// The value of `authorization`: who asks (RFC 9110 section 11.6.2). There must not be two of
    /// them, and then it is empty.
    #[inline]
    pub fn authorization(&self) -> Option<&'a [u8]> {
        match self.info.authorization {
            NOWHERE => None,
            at => Some(value_at(self.fields, at)),
        }
    }

    /// The value of the first field of this name, which is to be written in lower case.
    pub fn get(&self, name: &[u8]) -> Option<&'a [u8]> {
        self.fields.value_of(name)
    }

    /// The value of the field of this name, which is to be written in lower case, if it is there
    /// once: for fields of which several would contradict each other.
    pub fn get_single(&self, name: &[u8]) -> Option<&'a [u8]> {
        let mut values = self.fields().filter(|(key, _)| *key == name);
        let (_, value) = values.next()?;
        values.next().is_none().then_some(value)
    }

    /// All fields in the order in which they came, with the pseudo-header fields first.
    pub fn fields(&self) -> impl Iterator<Item = (&'a [u8], &'a [u8])> + use<'a> {
        self.fields.iter()
    }

    /// The fields that are neither pseudo-header fields nor fields that HTTP or gRPC give a meaning
    /// to: what gRPC calls metadata. Values of names that end with `-bin` are still in base64; see
    /// [`crate::grpc::metadata`].
    pub fn metadata(&self) -> impl Iterator<Item = (&'a [u8], &'a [u8])> + use<'a> {
        self.fields
            .fields()
            .filter(|field| {
                matches!(
                    field.known,
                    KnownName::Other
                        | KnownName::Authorization
                        | KnownName::Cookie
                        | KnownName::UserAgent
                )
            })
            .map(|field| (field.name, field.value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hpack::FieldLimits;

    const GRPC: [(&str, &str); 5] = [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", "/a.B/C"),
        (":authority", "here"),
        ("content-type", "application/grpc"),
    ];

    fn fields(list: &[(&str, &str)]) -> Fields {
        let mut fields = Fields::new();
        for (name, value) in list {
            fields
                .push(name.as_bytes(), value.as_bytes(), &FieldLimits::default())
                .expect("small");
        }
        fields
    }

    fn request(list: &[(&str, &str)]) -> Result<HeadInfo, Malformed> {
        HeadInfo::of_request(&fields(list))
    }

    #[test]
    fn a_call_is_read() {
        let list = [
            &GRPC[..],
            &[
                ("grpc-timeout", "1S"),
                ("grpc-encoding", "gzip"),
                ("x-a", "b"),
                ("te", "trailers"),
            ],
        ]
        .concat();
        let fields = fields(&list);
        let info = HeadInfo::of_request(&fields).expect("well-formed");
        let head = Head {
            info: &info,
            fields: &fields,
        };
        assert!(head.is_grpc());
        assert_eq!(
            (head.method(), head.path(), head.authority(), head.scheme()),
            (&b"POST"[..], &b"/a.B/C"[..], &b"here"[..], &b"http"[..])
        );
        assert_eq!(head.timeout_ns(), Some(1_000_000_000));
        assert_eq!(info.encoding, Some(Encoding::Gzip));
        assert_eq!(
            head.metadata().collect::<Vec<_>>(),
            [(&b"x-a"[..], &b"b"[..])]
        );
    }

    #[test]
    fn every_request_pseudo_field_is_needed_once() {
        for (at, missing) in GRPC.iter().enumerate().take(3) {
            let mut list = GRPC.to_vec();
            list.remove(at);
            assert!(request(&list).is_err(), "without {missing:?}");
        }
        for twice in &GRPC[..4] {
            let list = [&[*twice], &GRPC[..]].concat();
            assert!(request(&list).is_err(), "twice {twice:?}");
        }
        assert!(request(&[(":method", "GET"), (":scheme", "http"), (":path", "")]).is_err());
        assert!(request(&[(":method", "CONNECT"), (":authority", "a:1")]).is_ok());
        assert!(request(&[(":method", "CONNECT"), (":scheme", "http"), (":path", "/")]).is_err());
    }

    #[test]
    fn fields_that_must_not_be_there() {
        for bad in [
            (":status", "200"),
            (":unknown", "a"),
            ("connection", "close"),
            ("transfer-encoding", "chunked"),
            ("keep-alive", "1"),
            ("upgrade", "h2c"),
            ("proxy-connection", "a"),
            ("te", "gzip"),
            ("content-length", "x"),
            ("content-length", ""),
            ("Upper", "a"),
            ("a", "b\n"),
            ("", "b"),
        ] {
            assert!(request(&[&GRPC[..], &[bad]].concat()).is_err(), "{bad:?}");
        }
        assert!(
            request(
                &[
                    &GRPC[..],
                    &[("content-length", "1"), ("content-length", "2")]
                ]
                .concat()
            )
            .is_err()
        );
        assert!(
            request(
                &[
                    &GRPC[..],
                    &[("content-length", "1"), ("content-length", "1")]
                ]
                .concat()
            )
            .is_ok()
        );
    }

    #[test]
    fn content_types() {
        for (content_type, expected) in [
            ("application/grpc", true),
            ("application/grpc+proto", true),
            ("application/grpc;charset=utf-8", true),
            ("application/grpc-web", false),
            ("application/grpcx", false),
            ("text/plain", false),
        ] {
            assert_eq!(is_grpc(content_type.as_bytes()), expected, "{content_type}");
        }
        let mut get = GRPC;
        get[0].1 = "GET";
        assert_eq!(request(&get).map(|info| info.kind), Ok(BodyKind::Plain));
    }

    #[test]
    fn responses_and_trailers() {
        assert_eq!(
            HeadInfo::of_response(&fields(&[(":status", "200")])).map(|info| info.status),
            Ok(200)
        );
        for bad in ["", "20", "2000", "0200", "abc", "099"] {
            assert!(
                HeadInfo::of_response(&fields(&[(":status", bad)])).is_err(),
                "{bad}"
            );
        }
        assert!(HeadInfo::of_response(&fields(&[("a", "b")])).is_err());
        assert!(HeadInfo::of_response(&fields(&[(":status", "200"), (":path", "/")])).is_err());
        assert!(HeadInfo::of_response(&fields(&[(":status", "200"), (":status", "200")])).is_err());
        assert!(check_trailers(&fields(&[("grpc-status", "0")]), Role::Client).is_ok());
        assert!(check_trailers(&fields(&[(":status", "200")]), Role::Client).is_err());
        assert!(check_trailers(&fields(&[("connection", "close")]), Role::Client).is_err());
        for value in ["nf: ", " nf", "nf\t", " "] {
            let trailers = fields(&[("grpc-message", value)]);
            assert!(check_trailers(&trailers, Role::Client).is_ok(), "{value:?}");
            assert!(
                check_trailers(&trailers, Role::Server).is_err(),
                "{value:?}"
            );
            let head = fields(&[(":status", "200"), ("a", value)]);
            assert!(HeadInfo::of_response(&head).is_ok(), "{value:?}");
        }
        for value in ["a\n", "a\r ", " \0"] {
            let trailers = fields(&[("grpc-message", value)]);
            assert!(
                check_trailers(&trailers, Role::Client).is_err(),
                "{value:?}"
            );
        }
    }

    impl PartialEq for HeadInfo {
        fn eq(&self, other: &HeadInfo) -> bool {
            format!("{self:?}") == format!("{other:?}")
        }
    }
}
