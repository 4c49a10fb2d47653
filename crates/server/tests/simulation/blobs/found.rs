//! What blobs a store has, read whole and without its server.

use std::ops::ControlFlow;
use std::sync::Arc;

use store::blob::{Begin, BlobStore, Chunk, ContentEnd, Description, Owner, key};
use store::{DatabaseId, Direction, Range, Store};

use super::model::{CLIENTS, Content, NAMES_OF_EACH, Seen, name};
use crate::machine::Machine;

/// What is visible under each name.
pub type Found = [Option<Seen>; CLIENTS * NAMES_OF_EACH];

/// All blobs. Each has its content, whole.
pub fn found(store: &Store) -> Found {
    let view = store.view(DatabaseId::BLOBS).expect("it is always there");
    let blobs = store.blobs().expect("there is a log");
    let names: Vec<Vec<u8>> = (0..CLIENTS * NAMES_OF_EACH)
        .map(|number| key(DatabaseId::DEFAULT, &name(number)))
        .collect();
    let mut found = Found::default();
    let _ = view.scan(&Range::ALL, Direction::Forward, 0, u32::MAX, &mut |entry| {
        let number = names.iter().position(|name| **name == *entry.key);
        let number = number.expect("nobody uploads under another name");
        let description = Description::decode(entry.value.bytes()).expect("it was encoded");
        let content = Content::of_content_type(description.content_type);
        check_content(blobs, &description, &name(number));
        found[number] = Some(Seen {
            content,
            version: entry.version,
        });
        ControlFlow::Continue(())
    });
    found
}

/// A content is the one of its description, as everybody would read it.
fn check_content(blobs: &Arc<BlobStore>, description: &Description<'_>, what: &str) {
    let content = Content::of_content_type(description.content_type);
    let piece = blobs.open_content(description).read(0, content.bytes);
    let piece = piece.unwrap_or_else(|error| panic!("{what}: {error}"));
    assert!(
        *piece.bytes == *content.make(),
        "{what} has another content"
    );
}

/// The same behind a start, when nothing else is counted either.
pub fn found_at_start(store: &Store) -> Found {
    let found = found(store);
    let used = store.blobs().expect("there is a log").statistics().used;
    assert_eq!(used.blobs, found.iter().flatten().count() as u64);
    found
}

/// An upload that somebody has begun and could go on with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Begun {
    pub name: usize,
    pub content: Content,
}

impl Begun {
    /// The identifier under which it can be gone on with.
    pub fn upload_id(&self) -> Vec<u8> {
        self.content.number.to_be_bytes().to_vec()
    }

    /// What a store has of it.
    pub fn stored_bytes(&self, store: &Store) -> Option<u64> {
        let blobs = store.blobs().expect("there is a log");
        blobs.stored_bytes(DatabaseId::DEFAULT, &name(self.name), &self.upload_id())
    }
}

/// Nothing is counted but what is visible and what can be gone on with.
pub fn check_use(store: &Store, found: &Found, begun: &[Begun]) {
    let stored = begun.iter().filter_map(|begun| begun.stored_bytes(store));
    let (unfinished, stored_bytes) =
        stored.fold((0, 0), |(count, sum), one| (count + 1, sum + one));
    let visible = found.iter().flatten();
    let bytes = visible.map(|seen| seen.content.bytes as u64).sum::<u64>();
    let used = store.blobs().expect("there is a log").statistics().used;
    assert_eq!(
        (used.unfinished, used.bytes),
        (unfinished, bytes + stored_bytes),
        "{used:?}"
    );
}

struct Nobody;

impl Owner for Nobody {
    fn lost(&self, _why: store::blob::UploadError) {
        unreachable!("there is one stream");
    }
}

/// What can be gone on with comes to what was sent, whatever the machine did: tried on a copy of
/// its disk.
pub fn check_unfinished(machine: &Machine, begun: &[Begun]) {
    let copy = machine.open_copy();
    let blobs = copy.store.blobs().expect("there is a log");
    for begun in begun {
        let Some(stored_bytes) = begun.stored_bytes(&copy.store) else {
            continue;
        };
        let what = format!("the end of {begun:?} from {stored_bytes}");
        let begin = Begin {
            database: DatabaseId::DEFAULT,
            name: name(begun.name).into(),
            upload_id: begun.upload_id().into(),
            offset: stored_bytes,
            size_bytes: None,
            content_type: begun.content.content_type().into(),
            now_ms: 1,
        };
        let upload = blobs.begin_upload(&begin, Arc::new(Nobody)).expect(&what);
        let data = begun.content.make();
        let rest = &data[stored_bytes as usize..];
        let chunk = Chunk {
            is_open: false,
            bytes: rest.len(),
            crc32c: None,
        };
        upload.write(rest, &[chunk], 1).expect(&what);
        let end = ContentEnd {
            crc32c: Some(crc32c::crc32c(&data)),
            sha256: None,
        };
        let sealed = upload.finish(&end, 1).expect(&what);
        check_content(blobs, &sealed.description(), &what);
    }
}
