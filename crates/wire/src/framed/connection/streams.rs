//! The calls of a connection. They are named as streams, since the layer above knows them as such.

use crate::framed::baidu_std::Correlation;
use crate::http2::StreamKey;
use crate::http2::outbound::Outbound;

/// How the response to a request begins.
#[derive(Clone, Copy, Debug)]
pub(super) enum ResponseStart {
    BaiduStd(Correlation),
    Srpc,
}

/// One call.
#[derive(Debug)]
pub(super) struct FramedStream {
    id: u32,
    pub(super) token: u32,
    pub(super) reply: ResponseStart,
    /// The request has not arrived whole.
    pub(super) is_receiving: bool,
    /// The layer above has made its last call.
    pub(super) is_work_done: bool,
    /// The connection has ended.
    pub(super) is_dead: bool,
    /// The response waits, or some of it.
    pub(super) is_unsent: bool,
    /// The attachment of the request goes with the response.
    pub(super) echoes_attachment: bool,
    pub(super) attachment: Vec<u8>,
    /// The response, of which the status is still to come.
    /// Beside it, how many bytes of it are shared with others.
    pub(super) response: Option<(Outbound, usize)>,
    pub(super) claims: BodyClaims,
    /// It is owed a Writable event.
    pub(super) awaits: Option<FramedSendNeed>,
}

/// What a call asks for before it sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FramedSendNeed {
    Message,
    LargeMessage,
}

/// What the call of a stream has claimed, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct BodyClaims {
    /// Set aside for what it is about to send.
    pub(super) reserved: usize,
    /// What it holds ready.
    pub(super) ready: usize,
    /// What it keeps of its request.
    pub(super) kept: usize,
}

/// The calls, in a slab.
#[derive(Debug, Default)]
pub(super) struct FramedStreams {
    places: Vec<Option<FramedStream>>,
    free: Vec<u32>,
    last_id: u32,
    /// Those whose work is not done.
    working: usize,
    /// Of all of them.
    pub(super) claims: BodyClaims,
    /// What is kept of attachments for responses, in bytes.
    pub(super) attachment_bytes: usize,
}

impl FramedStreams {
    /// Returns how many there are.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }

    /// Returns the id of the last one that began.
    pub(super) fn last_id(&self) -> u32 {
        self.last_id
    }

    /// Returns for how many the layer above is at work.
    #[inline]
    pub(super) fn working(&self) -> usize {
        self.working
    }

    /// Adds a call that begins.
    #[inline]
    pub(super) fn insert(&mut self, reply: ResponseStart) -> StreamKey {
        self.last_id = self.last_id.wrapping_add(1);
        self.working += 1;
        let id = self.last_id;
        let stream = Some(FramedStream {
            id,
            token: 0,
            reply,
            is_receiving: true,
            is_work_done: false,
            is_dead: false,
            is_unsent: false,
            echoes_attachment: false,
            attachment: Vec::new(),
            response: None,
            claims: BodyClaims::default(),
            awaits: None,
        });
        let slot = match self.free.pop() {
            Some(slot) => {
                self.places[slot as usize] = stream;
                slot
            }
            None => {
                self.places.push(stream);
                (self.places.len() - 1) as u32
            }
        };
        StreamKey { slot, id }
    }

    #[inline]
    pub(super) fn get(&self, key: StreamKey) -> Option<&FramedStream> {
        let stream = self.places.get(key.slot as usize)?.as_ref()?;
        (stream.id == key.id).then_some(stream)
    }

    #[inline]
    pub(super) fn get_mut(&mut self, key: StreamKey) -> Option<&mut FramedStream> {
        let stream = self.places.get_mut(key.slot as usize)?.as_mut()?;
        (stream.id == key.id).then_some(stream)
    }

    /// Returns the stream if its call runs and can be answered.
    #[inline]
    pub(super) fn running_mut(&mut self, key: StreamKey) -> Option<&mut FramedStream> {
        let stream = self.get_mut(key)?;
        (!stream.is_dead && !stream.is_work_done).then_some(stream)
    }

    /// Returns all keys.
    pub(super) fn keys(&self) -> Vec<StreamKey> {
        let places = self.places.iter().enumerate();
        let key = |(slot, place): (usize, &Option<FramedStream>)| {
            let id = place.as_ref()?.id;
            Some(StreamKey {
                slot: slot as u32,
                id,
            })
        };
        places.filter_map(key).collect()
    }

    /// Changes what a call has claimed.
    pub(super) fn set_claims(&mut self, key: StreamKey, change: impl FnOnce(&mut BodyClaims)) {
        let Some(stream) = self.running_mut(key) else {
            return;
        };
        let before = stream.claims;
        change(&mut stream.claims);
        let after = stream.claims;
        let sum = &mut self.claims;
        sum.reserved = sum.reserved - before.reserved + after.reserved;
        sum.ready = sum.ready - before.ready + after.ready;
        sum.kept = sum.kept - before.kept + after.kept;
    }

    /// The layer above has made its last call. The place is free when nothing waits.
    #[inline]
    pub(super) fn end_work(&mut self, key: StreamKey) {
        let is_running = self.get(key).is_some_and(|stream| !stream.is_work_done);
        if !is_running {
            return;
        }
        // Claims of those that are dead count until now.
        if let Some(stream) = self.get_mut(key) {
            let claims = std::mem::take(&mut stream.claims);
            stream.is_work_done = true;
            stream.response = None;
            self.attachment_bytes -= std::mem::take(&mut stream.attachment).len();
            self.claims.reserved -= claims.reserved;
            self.claims.ready -= claims.ready;
            self.claims.kept -= claims.kept;
        }
        self.working -= 1;
        self.remove_if_over(key);
    }

    /// What waited of a response has gone out, or was dropped.
    pub(super) fn end_unsent(&mut self, key: StreamKey) {
        if let Some(stream) = self.get_mut(key) {
            stream.is_unsent = false;
        }
        self.remove_if_over(key);
    }

    #[inline]
    fn remove_if_over(&mut self, key: StreamKey) {
        let is_over = |stream: &FramedStream| stream.is_work_done && !stream.is_unsent;
        if self.get(key).is_some_and(is_over) {
            self.places[key.slot as usize] = None;
            self.free.push(key.slot);
        }
    }

    /// Takes out one that is owed a Writable event and may go on.
    pub(super) fn take_writable(
        &mut self,
        may: impl Fn(FramedSendNeed) -> bool,
    ) -> Option<StreamKey> {
        let places = self.places.iter_mut().enumerate();
        for (slot, stream) in places.filter_map(|(slot, place)| Some((slot, place.as_mut()?))) {
            if !stream.is_work_done && stream.awaits.is_some_and(&may) {
                stream.awaits = None;
                return Some(StreamKey {
                    slot: slot as u32,
                    id: stream.id,
                });
            }
        }
        None
    }

    /// Returns the bytes of memory that the slab holds.
    pub(super) fn memory_bytes(&self) -> usize {
        self.places.capacity() * size_of::<Option<FramedStream>>()
            + self.free.capacity() * size_of::<u32>()
            + self.attachment_bytes
    }
}
