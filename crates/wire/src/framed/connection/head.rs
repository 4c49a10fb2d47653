//! What the layer above sees of a request: a head as that of a gRPC call.

use crate::grpc::metadata;
use crate::hpack::{FieldLimits, Fields};
use crate::http2::Head;
use crate::http2::headers::{HeadInfo, SeveralProofs};

/// The place of the path among the fields.
const PATH_AT: u8 = 0;

/// The head of the last request. It is made anew only if it is another one.
#[derive(Debug)]
pub(super) struct FramedHead {
    fields: Fields,
    info: HeadInfo,
    route: Option<u64>,
    /// The path without its slash, of which the names are compared with those of the next request.
    /// Empty: none is to be compared.
    path: Vec<u8>,
    service_bytes: usize,
    /// What proved who calls last, as the value of `authorization`. It stands for the requests that
    /// follow.
    authorization: Vec<u8>,
    /// It came more than once in one request, so that nobody is proved until another one comes.
    has_several: bool,
    /// The entries of it are remembered with the path.
    has_entries: bool,
}

/// What the metadata of a request say of its head.
pub(super) struct RequestNames<'a> {
    pub(super) service: &'a str,
    pub(super) method: &'a str,
    pub(super) timeout_ns: Option<u64>,
}

/// The metadata of a request have more fields or bytes than those of a call may have.
#[derive(Debug)]
pub(super) struct TooLarge;

impl FramedHead {
    pub(super) fn new() -> FramedHead {
        FramedHead {
            fields: Fields::new(),
            info: HeadInfo::EMPTY,
            route: None,
            path: Vec::new(),
            service_bytes: 0,
            authorization: Vec::new(),
            has_several: false,
            has_entries: false,
        }
    }

    #[inline]
    pub(super) fn head(&self) -> Head<'_> {
        Head {
            info: &self.info,
            fields: &self.fields,
        }
    }

    #[inline]
    pub(super) fn route(&self) -> Option<u64> {
        self.route
    }

    pub(super) fn set_route(&mut self, route: u64) {
        self.route = Some(route);
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.fields.memory_bytes() + self.path.capacity() + self.authorization.capacity()
    }

    /// Takes the head of a request, with the entries that go with it.
    #[inline]
    pub(super) fn set<'e>(
        &mut self,
        names: &RequestNames<'_>,
        entries: impl Iterator<Item = (&'e [u8], &'e [u8])>,
    ) -> Result<(), TooLarge> {
        let mut entries = entries.peekable();
        let is_same = self.is_path(names) && !self.has_entries && entries.peek().is_none();
        if !is_same {
            self.replace(names, entries)?;
        }
        self.info.timeout_ns = names.timeout_ns;
        Ok(())
    }

    #[inline]
    fn is_path(&self, names: &RequestNames<'_>) -> bool {
        let (service, method) = (names.service.as_bytes(), names.method.as_bytes());
        !self.path.is_empty()
            && service.len() == self.service_bytes
            && self.path.len() == service.len() + 1 + method.len()
            && self.path.starts_with(service)
            && self.path.ends_with(method)
    }

    fn replace<'e>(
        &mut self,
        names: &RequestNames<'_>,
        entries: impl Iterator<Item = (&'e [u8], &'e [u8])>,
    ) -> Result<(), TooLarge> {
        self.route = None;
        self.path.clear();
        self.fields.clear();
        let path = format!("/{}/{}", names.service, names.method);
        let mut fields = FieldList(&mut self.fields);
        fields.push(b":path", path.as_bytes())?;
        // Two are refused, as over HTTP/2, also where they are of the same: whoever is between a
        // client and this server may have looked at the other one.
        let mut authorization = match self.has_several {
            true => Err(SeveralProofs),
            false => Ok(None),
        };
        if !self.authorization.is_empty() {
            authorization = Ok(Some(fields.push(AUTHORIZATION, &self.authorization)?));
        }
        self.has_entries = false;
        for (name, value) in entries {
            self.has_entries = true;
            let name = name.to_ascii_lowercase();
            let is_proof = name == AUTHORIZATION;
            let is_valid = metadata::is_valid_key(&name) && metadata::is_valid_text(value);
            if is_proof && (!is_valid || authorization != Ok(None)) {
                authorization = Err(SeveralProofs);
            } else if is_valid {
                let at = fields.push(&name, value)?;
                if is_proof {
                    authorization = Ok(Some(at));
                }
            }
        }
        self.info = HeadInfo::of_call(PATH_AT, authorization);
        self.service_bytes = names.service.len();
        self.path.extend_from_slice(&path.as_bytes()[1..]);
        Ok(())
    }

    /// Remembers what proves who calls, from the next head on: a token, with the name of its scheme
    /// or without.
    pub(super) fn set_authorization(&mut self, authentication: &[u8]) {
        const SCHEME: &[u8] = b"Bearer ";
        let has_scheme = (authentication.get(..SCHEME.len()))
            .is_some_and(|scheme| scheme.eq_ignore_ascii_case(SCHEME));
        self.path.clear();
        self.has_several = false;
        self.authorization.clear();
        if !has_scheme {
            self.authorization.extend_from_slice(SCHEME);
        }
        self.authorization.extend_from_slice(authentication);
    }

    /// Remembers that a request has several proofs, as [`FramedHead::set_authorization`] does one.
    pub(super) fn set_several_authorizations(&mut self) {
        self.path.clear();
        self.authorization.clear();
        self.has_several = true;
    }
}

const AUTHORIZATION: &[u8] = metadata::AUTHORIZATION.as_bytes();

/// Fields, bounded as those of a request over HTTP/2 are.
struct FieldList<'a>(&'a mut Fields);

impl FieldList<'_> {
    fn push(&mut self, name: &[u8], value: &[u8]) -> Result<u8, TooLarge> {
        let at = self.0.len() as u8;
        let pushed = self.0.push(name, value, &FieldLimits::default());
        pushed.map(|()| at).map_err(|_| TooLarge)
    }
}
