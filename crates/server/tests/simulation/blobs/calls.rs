//! The calls of one client: what it asks for, and what it makes of the answers.

use api::blob::{
    BlobDescription, DeleteBlobRequest, DeleteBlobResponse, DownloadRequest, DownloadResponse,
    ListRequest, ListResponse, StatRequest, StatResponse,
};
use wire::grpc::{Code, Status};

use super::model::{Content, NAMES_OF_EACH, Outcome, Seen, WriteKey, name};
use super::plain::Answer;
use super::sending::{Sending, Unfinished, stored};
use super::world::{Losses, World};

/// What is asked for.
#[derive(Debug)]
pub enum Asked {
    Upload(Box<Sending>),
    Stored(Unfinished),
    Stat(usize),
    Download {
        name: usize,
        offset: u64,
        length: u64,
        if_version: Option<u64>,
        is_plain: bool,
    },
    List(usize),
    Delete {
        name: usize,
        if_version: Option<u64>,
        write: WriteKey,
    },
}

/// What a description says.
pub fn seen(blob: BlobDescription<'_>) -> Seen {
    let content = Content::of_content_type(blob.content_type);
    assert_eq!(blob.size_bytes, content.bytes as u64);
    Seen {
        content,
        version: blob.version,
    }
}

impl Asked {
    pub fn path(&self) -> &'static str {
        match self {
            Asked::Upload(_) => "/pelton.v1.Blob/Upload",
            Asked::Stored(_) | Asked::Stat(_) => "/pelton.v1.Blob/Stat",
            Asked::Download { .. } => "/pelton.v1.Blob/Download",
            Asked::List(_) => "/pelton.v1.Blob/List",
            Asked::Delete { .. } => "/pelton.v1.Blob/Delete",
        }
    }

    /// The first message, which is the only one but for uploads.
    pub fn first(&self) -> Vec<u8> {
        let mut out = Vec::new();
        match self {
            Asked::Upload(sending) => out = sending.begin(),
            Asked::Stored(unfinished) => StatRequest {
                database: "",
                name: &name(unfinished.name),
                upload_id: &unfinished.upload_id,
            }
            .encode(&mut out),
            Asked::Stat(number) => StatRequest {
                name: &name(*number),
                ..StatRequest::default()
            }
            .encode(&mut out),
            Asked::Download {
                name: number,
                offset,
                length,
                if_version,
                is_plain: _,
            } => DownloadRequest {
                name: &name(*number),
                offset: *offset,
                length_bytes: *length,
                chunk_bytes: 7_000,
                if_version: *if_version,
                ..DownloadRequest::default()
            }
            .encode(&mut out),
            Asked::List(client) => ListRequest {
                prefix: &format!("c{client}/"),
                ..ListRequest::default()
            }
            .encode(&mut out),
            Asked::Delete {
                name: number,
                if_version,
                ..
            } => DeleteBlobRequest {
                database: "",
                name: &name(*number),
                if_version: *if_version,
                ..DeleteBlobRequest::default()
            }
            .encode(&mut out),
        }
        out
    }
}

/// A call that has begun.
pub struct Call {
    pub asked: Asked,
    pub life: usize,
    pub begun: u64,
    /// When it began. An answer may be older than what has happened until it is heard.
    pub losses: Losses,
    pub answers: Vec<Vec<u8>>,
    /// Over plain HTTP/2.
    pub is_plain: bool,
    /// The head of its answer.
    pub plain: Option<Answer>,
}

impl Call {
    /// It has ended with a status. Returns what can be gone on with.
    pub fn ended(
        mut self,
        world: &mut World,
        status: &Status,
        on: net::ConnectionId,
    ) -> Option<Unfinished> {
        world.ended += 1;
        let plain = self.translate(world);
        let status = plain.as_ref().unwrap_or(status);
        let is_ok = status.code() == Code::Ok;
        if status.code() == Code::Unavailable && !matches!(self.asked, Asked::Upload(_)) {
            let may_be = world.may_stop(self.life) || world.has_faults(self.life);
            assert!(may_be, "{status}");
            return self.refused(world);
        }
        let answer = self.answers.first().map_or(&[][..], |answer| answer);
        match self.asked {
            Asked::Upload(sending) => return sending.ended(world, self.life, status, answer),
            Asked::Stored(unfinished) => {
                assert!(is_ok, "{status}");
                return stored(world, (self.life, self.losses), unfinished, answer, on);
            }
            Asked::Stat(number) => {
                assert!(is_ok, "{status}");
                let answer = StatResponse::decode(answer).expect("a message");
                let blob = answer.blob.filter(|_| answer.found).map(seen);
                world.model.saw(self.life, number, self.begun, blob);
            }
            Asked::Download { .. } => self.downloaded(world, Some(status)),
            Asked::List(client) => {
                assert!(is_ok, "{status}");
                self.listed(world, client);
            }
            Asked::Delete {
                name,
                if_version,
                write,
            } => {
                let outcome = deleted(world, (self.life, name), if_version, status, answer);
                world.model.end_write(write, None, outcome);
            }
        }
        None
    }

    /// Lets what came of a plain answer look like one over gRPC. Returns its status.
    fn translate(&mut self, world: &mut World) -> Option<Status> {
        let plain = self.plain.take()?;
        world.counts.plain += 1;
        let (sent, is_whole) = match &self.asked {
            Asked::Upload(sending) => (Some(sending.unfinished.content), sending.is_whole()),
            _ => (None, false),
        };
        let body = self.answers.concat();
        self.answers = vec![plain.message(sent, &body)];
        Some(plain.status(is_whole))
    }

    /// The server stops, and nothing has happened.
    fn refused(self, world: &mut World) -> Option<Unfinished> {
        match self.asked {
            Asked::Stored(unfinished) => return Some(unfinished),
            Asked::Delete { write, .. } => world.model.end_write(write, None, Outcome::Nothing),
            _ => {}
        }
        None
    }

    /// The connection was lost, or the call was given up.
    pub fn lost(mut self, world: &mut World) -> Option<Unfinished> {
        world.ended += 1;
        world.counts.lost += 1;
        let _ = self.translate(world);
        match self.asked {
            Asked::Upload(sending) => return Some(sending.lost(world)),
            Asked::Stored(unfinished) => return Some(unfinished),
            Asked::Download { .. } => self.downloaded(world, None),
            Asked::Delete { write, .. } => world.model.end_write(write, None, Outcome::Unknown),
            Asked::Stat(_) | Asked::List(_) => {}
        }
        None
    }

    /// What came of a download is of one content, whatever became of the blob meanwhile.
    fn downloaded(&self, world: &mut World, status: Option<&Status>) {
        let Asked::Download {
            name,
            offset,
            length,
            if_version,
            is_plain,
        } = self.asked
        else {
            unreachable!("it is one")
        };
        let (mut found, mut data) = (None, Vec::new());
        for answer in &self.answers {
            let answer = DownloadResponse::decode(answer).expect("a message");
            assert_eq!(answer.crc32c.unwrap_or(0), crc32c::crc32c(answer.data));
            found = found.or(answer.blob.map(seen));
            data.extend_from_slice(answer.data);
        }
        if let Some(found) = found {
            world.model.saw(self.life, name, self.begun, Some(found));
            assert!(if_version.is_none_or(|version| version == found.version));
            let from = offset as usize;
            let most = if length == 0 {
                usize::MAX
            } else {
                length as usize
            };
            let until = from.saturating_add(most).min(found.content.bytes);
            let expected = &found.content.make()[from..until];
            assert!(expected.starts_with(&data), "{found:?} from {offset} on");
            match status.map(Status::code) {
                None => {}
                Some(Code::Ok) => {
                    assert_eq!(data.len(), expected.len(), "{found:?} from {offset} on");
                    world.counts.downloaded += 1;
                }
                Some(code) => {
                    let is_expected = code == Code::Unavailable && world.has_faults(self.life);
                    assert!(is_expected, "{status:?}");
                }
            }
            return;
        }
        match status.map(Status::code) {
            None => {}
            Some(Code::NotFound) => world.model.saw(self.life, name, self.begun, None),
            Some(Code::Aborted) => assert!(if_version.is_some()),
            // An empty blob has no part.
            Some(Code::OutOfRange) => assert!(offset > 0 || is_plain && length > 0),
            Some(Code::Unavailable) => assert!(world.has_faults(self.life), "{status:?}"),
            Some(_) => panic!("a download ended with {status:?}"),
        }
    }

    fn listed(&self, world: &mut World, client: usize) {
        let mut found = [None; NAMES_OF_EACH];
        let first = client * NAMES_OF_EACH;
        let mut is_complete = false;
        for answer in &self.answers {
            let page = ListResponse::decode(answer).expect("a message");
            for blob in &page.blobs {
                let blob = blob.expect("a message");
                let number = (0..NAMES_OF_EACH).find(|number| name(first + number) == blob.name);
                found[number.expect("a name with the prefix")] = Some(seen(blob));
            }
            is_complete = page.last;
        }
        assert!(is_complete);
        for (number, found) in found.into_iter().enumerate() {
            world
                .model
                .saw(self.life, first + number, self.begun, found);
        }
    }
}

fn deleted(
    world: &mut World,
    (life, name): (usize, usize),
    if_version: Option<u64>,
    status: &Status,
    answer: &[u8],
) -> Outcome {
    match status.code() {
        Code::Ok => {
            let answer = DeleteBlobResponse::decode(answer).expect("a message");
            world.counts.deleted += u64::from(answer.deleted);
            match (answer.deleted, if_version) {
                (true, Some(version)) => assert_eq!(answer.version, version),
                (false, None) => assert_eq!(answer.version, 0, "{name} was there"),
                (false, Some(version)) => {
                    assert_ne!(answer.version, version);
                    return Outcome::Nothing;
                }
                (true, None) => {}
            }
            Outcome::Done
        }
        Code::FailedPrecondition => {
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
        _ => panic!("a deletion ended with {status}"),
    }
}
