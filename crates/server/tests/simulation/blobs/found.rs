//! What blobs a store has, read whole and without its server.

use std::ops::ControlFlow;

use store::blob::{Description, key};
use store::{DatabaseId, Direction, Range, Store};

use super::model::{CLIENTS, Content, NAMES_OF_EACH, Seen, name};

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
        let piece = blobs.open_content(&description).read(0, content.bytes);
        let piece = piece.unwrap_or_else(|error| panic!("{}: {error}", name(number)));
        assert!(
            *piece.bytes == *content.make(),
            "the content of {}",
            name(number)
        );
        found[number] = Some(Seen {
            content,
            version: entry.version,
        });
        ControlFlow::Continue(())
    });
    found
}

/// The same behind a start, when nothing else is counted either.
pub fn found_at_start(store: &Store) -> Found {
    let found = found(store);
    let used = store.blobs().expect("there is a log").statistics().used;
    assert_eq!(used.blobs, found.iter().flatten().count() as u64);
    found
}
