//! Streams of an upload: what is sent, what its end says, and what is left to go on with.

use api::blob::{StatResponse, UploadBegin, UploadChunk, UploadEnd, UploadPart, UploadResponse};
use wire::grpc::{Code, Status};

use super::calls::seen;
use super::model::{Content, Outcome, WriteKey, name};
use super::world::{Losses, World};

/// An upload that can be gone on with.
#[derive(Clone, Debug)]
pub struct Unfinished {
    pub name: usize,
    pub content: Content,
    pub upload_id: Vec<u8>,
    /// Two clients send it: nothing is sure of what is stored.
    pub is_contested: bool,
    /// The server has ended the stream and said why, so what it had is on the device by now.
    pub is_settled: bool,
    /// How often it was begun at 0. A second time, the first may still be heard later, and begin it
    /// anew.
    pub begins: u32,
    /// What the server said it has, in which life, and what had happened when it was asked.
    pub told: Option<(usize, usize, Losses)>,
    /// Bytes that were sent at most.
    pub sent: usize,
    /// Bytes that are on the device for sure.
    pub safe: usize,
    /// What had happened by then: one more of it, and nothing is sure.
    pub losses: Losses,
    /// What the server said it has.
    pub stored: Option<usize>,
    /// The stream was reset on this connection, so whatever is asked there now is asked after its
    /// end. What it had is made durable in the turn in which the server hears of that: it is, when
    /// something was asked and answered.
    pub reset_on: Option<net::ConnectionId>,
    pub was_asked: bool,
}

/// A stream of an upload.
#[derive(Debug)]
pub struct Sending {
    pub unfinished: Unfinished,
    data: Vec<u8>,
    next: usize,
    chunk: usize,
    is_resumed: bool,
    /// Broken off when so many bytes were sent.
    breaks_at: Option<usize>,
    /// The chunk from here on is changed on its way.
    damaged_at: Option<usize>,
    /// Its end names another checksum.
    has_wrong_end: bool,
    pub if_version: Option<u64>,
    /// It is a PUT: without checksums, and it cannot be gone on with.
    pub is_plain: bool,
    certain: Option<Option<Content>>,
    write: Option<WriteKey>,
}

/// What to send next.
pub enum Next {
    Message(Vec<u8>),
    Last(Vec<u8>),
    Break,
}

impl Sending {
    /// A new upload, or one that is gone on with.
    pub fn new(mut unfinished: Unfinished, world: &mut World) -> Sending {
        let next = unfinished.stored.unwrap_or(0);
        unfinished.begins += u32::from(next == 0);
        let data = unfinished.content.make();
        let left = data.len() - next;
        let random = &mut world.random;
        let chunk = 1 + data.len() / 60 + random.below(20_000) as usize;
        let mut point = |per_million| {
            let is_wanted = left > 0 && random.chance(per_million);
            is_wanted.then(|| next + random.below(left as u64) as usize)
        };
        let (breaks_at, damaged_at) = (point(350_000), point(60_000));
        let is_plain = unfinished.upload_id.is_empty() && random.below(2) == 0;
        let certain = world.model.certain(unfinished.name);
        let if_version = match (world.random.below(4), certain) {
            _ if unfinished.is_contested => None,
            (0, _) => Some(0),
            (1, Some(Some(content))) => world.model.version_of(unfinished.name, content),
            _ => None,
        };
        Sending {
            data,
            next,
            chunk,
            is_resumed: unfinished.stored.is_some(),
            breaks_at,
            damaged_at: damaged_at.filter(|_| !is_plain),
            has_wrong_end: world.random.chance(40_000) && !is_plain,
            is_plain,
            if_version,
            certain,
            write: None,
            unfinished,
        }
    }

    /// The first message.
    pub fn begin(&self) -> Vec<u8> {
        encode(&UploadPart::Begin(UploadBegin {
            name: &name(self.unfinished.name),
            upload_id: &self.unfinished.upload_id,
            offset: self.next as u64,
            content_type: &self.unfinished.content.content_type(),
            if_version: self.if_version,
            ..UploadBegin::default()
        }))
    }

    /// Whether its end was sent.
    pub fn is_whole(&self) -> bool {
        self.write.is_some()
    }

    /// The next message. With its end, it may become visible.
    pub fn next(&mut self, world: &mut World) -> Next {
        if self.breaks_at.is_some_and(|at| self.next >= at) {
            return Next::Break;
        }
        if self.next == self.data.len() {
            let unfinished = &mut self.unfinished;
            // It is no unfinished one any more, perhaps.
            unfinished.safe = 0;
            self.write = Some((world.model).begin_write(unfinished.name, Some(unfinished.content)));
            if self.is_plain {
                return Next::Last(Vec::new());
            }
            let crc32c = crc32c::crc32c(&self.data) ^ u32::from(self.has_wrong_end);
            let end = UploadEnd {
                crc32c: Some(crc32c),
                sha256: &[],
            };
            return Next::Last(encode(&UploadPart::End(end)));
        }
        let until = (self.next + self.chunk).min(self.data.len());
        let mut data = self.data[self.next..until].to_vec();
        let crc32c = Some(crc32c::crc32c(&data));
        if self
            .damaged_at
            .is_some_and(|at| (self.next..until).contains(&at))
        {
            data[0] ^= 1;
        }
        self.next = until;
        self.unfinished.sent = self.unfinished.sent.max(until);
        if self.is_plain {
            return Next::Message(data);
        }
        Next::Message(encode(&UploadPart::Chunk(UploadChunk {
            data: &data,
            crc32c,
        })))
    }

    /// It has ended with a status. Returns what can be gone on with.
    pub fn ended(
        mut self,
        world: &mut World,
        life: usize,
        status: &Status,
        answer: &[u8],
    ) -> Option<Unfinished> {
        let content = self.unfinished.content;
        let is_damaged = self.damaged_at.is_some_and(|at| at < self.next);
        let outcome = match status.code() {
            Code::Ok => {
                let answer = UploadResponse::decode(answer).expect("a message");
                self.answered(world, &answer);
                match answer.applied {
                    true => Outcome::Done,
                    false => Outcome::Nothing,
                }
            }
            Code::DataLoss => {
                assert!(is_damaged || self.has_wrong_end, "{status}");
                Outcome::Nothing
            }
            // The stream before it, on a connection that was cut, was still heard; or another
            // client's; or a fault has ended it.
            Code::OutOfRange | Code::Aborted | Code::Unavailable => {
                let has_other = self.is_resumed || self.unfinished.is_contested;
                let stops = status.code() == Code::Unavailable && world.may_stop(life);
                let is_expected = has_other || stops || world.has_faults(life);
                assert!(is_expected, "{status}: {self:?}");
                let is_completing = status.code() == Code::Unavailable && !stops;
                world.counts.taken_over += u64::from(status.code() == Code::Aborted);
                world.counts.completing += u64::from(is_completing);
                Outcome::Nothing
            }
            Code::Internal | Code::FailedPrecondition => {
                assert!(world.has_faults(life), "{status}");
                Outcome::Nothing
            }
            Code::ResourceExhausted => {
                assert!(world.may_be_full(life), "{status}");
                world.counts.refused_full += 1;
                Outcome::Nothing
            }
            Code::Unknown => {
                assert!(world.has_faults(life) || world.may_stop(life), "{status}");
                Outcome::Unknown
            }
            _ => panic!("an upload ended with {status}"),
        };
        if let Some(write) = self.write {
            world.model.end_write(write, Some(content), outcome);
        }
        assert!(self.write.is_some() || outcome == Outcome::Nothing);
        let can_go_on = status.code() != Code::Ok && !self.has_wrong_end;
        self.unfinished.stored = None;
        self.unfinished.is_settled =
            matches!(status.code(), Code::DataLoss | Code::ResourceExhausted);
        can_go_on.then_some(self.unfinished)
    }

    fn answered(&self, world: &mut World, answer: &UploadResponse<'_>) {
        assert!(self.damaged_at.is_none() && !self.has_wrong_end);
        let (name, content) = (self.unfinished.name, self.unfinished.content);
        match (self.if_version, self.certain) {
            (None, _) => assert!(answer.applied, "nothing was in its way"),
            (Some(_), None) => {}
            (Some(wanted), Some(before)) => {
                // The version that it had when this was asked: another client may have seen the new
                // one by now, which can have the same content.
                let is_met = wanted > 0 || before.is_none();
                assert_eq!(answer.applied, is_met, "if_version {wanted}: {before:?}");
            }
        }
        if answer.applied {
            world.counts.uploaded += 1;
            world.counts.resumed += u64::from(self.is_resumed);
            let blob = seen(answer.blob.expect("what is stored now"));
            assert_eq!(blob.content, content);
            world.model.learn(name, blob);
        }
    }

    /// The connection, or the stream, was lost.
    pub fn lost(mut self, world: &mut World) -> Unfinished {
        if let Some(write) = self.write {
            world.model.end_write(write, None, Outcome::Unknown);
        }
        self.unfinished.stored = None;
        self.unfinished
    }
}

fn encode(request: &UploadPart<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    request.encode(&mut out);
    out
}

/// What the server has of an upload, asked in a life when so much had happened.
pub fn stored(
    world: &mut World,
    (life, losses): (usize, Losses),
    mut unfinished: Unfinished,
    answer: &[u8],
    on: net::ConnectionId,
) -> Option<Unfinished> {
    if life != world.model.life {
        // The last words of a machine without power, perhaps.
        return Some(unfinished);
    }
    let answer = StatResponse::decode(answer).expect("a message");
    let is_alone = !unfinished.is_contested && unfinished.begins < 2;
    let is_safe = unfinished.losses.ended == world.losses().ended && is_alone;
    let told = unfinished
        .told
        .filter(|_| unfinished.is_settled && is_alone);
    if let Some((told, then_life, losses)) = told
        && (then_life, losses) == (life, world.losses())
    {
        let is_kept = answer.found && answer.stored_bytes >= told as u64;
        assert!(is_kept, "refused, and lost: {unfinished:?}");
    }
    let safe = if is_safe { unfinished.safe } else { 0 };
    if !answer.found {
        assert_eq!(safe, 0, "an upload is lost: {unfinished:?}");
        return None;
    }
    let stored = answer.stored_bytes as usize;
    assert!(
        (safe..=unfinished.sent).contains(&stored),
        "{stored} bytes of {unfinished:?}"
    );
    if unfinished.reset_on == Some(on) && !std::mem::replace(&mut unfinished.was_asked, true) {
        return Some(unfinished);
    }
    unfinished.stored = Some(stored);
    unfinished.told = Some((stored, life, losses));
    if std::mem::take(&mut unfinished.is_settled) || unfinished.reset_on == Some(on) {
        (unfinished.safe, unfinished.losses) = (stored, losses);
    }
    Some(unfinished)
}
