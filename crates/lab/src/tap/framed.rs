//! Follows a connection of baidu_std from outside.

use protobuf::DecodeError;
use wire::framed::baidu_std::{HEADER_BYTES, RpcMeta};

use super::call::CallEnd;
use super::direction::{BothWays, TapDirection};
use super::frames::Unreadable;
use super::http2::Noting;
use super::limits::WATCHED_FRAME_BYTES;

/// What each frame begins with.
pub(super) const MAGIC: &[u8; 4] = b"PRPC";

/// What one direction is in the midst of.
#[derive(Debug, Default)]
struct FramedFlow {
    header: Vec<u8>,
    /// Bytes of the metadata, and of what follows them, that have yet to come.
    meta_left: usize,
    body_left: u64,
    meta: Vec<u8>,
    /// The call whose frame is on its way, and its end if it is a response.
    current: Option<(u64, Option<CallEnd>)>,
}

/// A connection that is followed.
#[derive(Debug, Default)]
pub(super) struct BaiduStdWatch {
    ways: BothWays<FramedFlow>,
}

impl BaiduStdWatch {
    /// Takes the next bytes of a direction.
    ///
    /// # Errors
    /// If they cannot be followed; nothing more is to be pushed then.
    pub(super) fn push(
        &mut self,
        direction: TapDirection,
        mut bytes: &[u8],
        noting: &mut Noting<'_>,
    ) -> Result<(), Unreadable> {
        let way = self.ways.get_mut(direction);
        while !bytes.is_empty() {
            if way.meta_left == 0 && way.body_left == 0 {
                way.take_header(&mut bytes)?;
            } else if way.meta_left > 0 {
                way.take_meta(direction, &mut bytes, noting)?;
            } else {
                way.take_body(direction, &mut bytes, noting);
            }
        }
        Ok(())
    }
}

impl FramedFlow {
    fn take_header(&mut self, bytes: &mut &[u8]) -> Result<(), Unreadable> {
        let missing = HEADER_BYTES - self.header.len();
        let (came, rest) = bytes.split_at(missing.min(bytes.len()));
        self.header.extend_from_slice(came);
        *bytes = rest;
        let [magic, whole, meta] = match self.header.as_chunks::<4>().0 {
            [magic, whole, meta] => [*magic, *whole, *meta],
            _ => return Ok(()),
        };
        self.header.clear();
        let (whole, meta) = (u32::from_be_bytes(whole), u32::from_be_bytes(meta));
        if magic != *MAGIC || meta == 0 || meta > whole {
            return Err(Unreadable::FramedMeta);
        }
        if meta as usize > WATCHED_FRAME_BYTES {
            return Err(Unreadable::FrameTooLong);
        }
        self.meta.clear();
        self.meta_left = meta as usize;
        self.body_left = u64::from(whole - meta);
        Ok(())
    }

    fn take_meta(
        &mut self,
        direction: TapDirection,
        bytes: &mut &[u8],
        noting: &mut Noting<'_>,
    ) -> Result<(), Unreadable> {
        let (came, rest) = bytes.split_at(self.meta_left.min(bytes.len()));
        self.meta.extend_from_slice(came);
        self.meta_left -= came.len();
        *bytes = rest;
        if self.meta_left > 0 {
            return Ok(());
        }
        let begun = begin(direction, &self.meta, noting);
        self.current = Some(begun.map_err(|_| Unreadable::FramedMeta)?);
        if self.body_left == 0 {
            self.end(direction, noting);
        }
        Ok(())
    }

    fn take_body(&mut self, direction: TapDirection, bytes: &mut &[u8], noting: &mut Noting<'_>) {
        let left = usize::try_from(self.body_left).unwrap_or(usize::MAX);
        let (came, rest) = bytes.split_at(left.min(bytes.len()));
        *bytes = rest;
        self.body_left -= came.len() as u64;
        if let Some((key, _)) = self.current {
            let (ledger, totals) = (&mut *noting.ledger, &mut *noting.totals);
            ledger.body(totals, direction, key, came.len() as u64, noting.now_ns);
        }
        if self.body_left == 0 {
            self.end(direction, noting);
        }
    }

    /// The frame is whole.
    fn end(&mut self, direction: TapDirection, noting: &mut Noting<'_>) {
        let (ledger, totals) = (&mut *noting.ledger, &mut *noting.totals);
        match self.current.take() {
            Some((key, Some(end))) => ledger.end(totals, direction, key, end, noting.now_ns),
            Some((key, None)) => ledger.request_ends(totals, key, noting.now_ns),
            None => {}
        }
    }
}

/// The metadata of a frame are there. Returns the call, and how it ends if this is its response.
fn begin(
    direction: TapDirection,
    meta: &[u8],
    noting: &mut Noting<'_>,
) -> Result<(u64, Option<CallEnd>), DecodeError> {
    let meta = RpcMeta::decode(meta)?;
    let key = meta.correlation_id.unwrap_or_default().cast_unsigned();
    let (ledger, totals) = (&mut *noting.ledger, &mut *noting.totals);
    match direction {
        TapDirection::ToServer => {
            let request = meta.request.unwrap_or_default();
            let name = format!("{}/{}", request.service_name, request.method_name);
            ledger.begin(totals, key, name.as_bytes(), noting.now_ns);
            Ok((key, None))
        }
        TapDirection::ToClient => {
            ledger.response_begins(totals, key, noting.now_ns);
            let response = meta.response.unwrap_or_default();
            let end = CallEnd::BaiduStd(response.error_code.unwrap_or_default());
            Ok((key, Some(end)))
        }
    }
}
