//! What the heads of a client's requests have in common, kept as bytes.
//!
//! Once the fields that most requests repeat stand in the peer's table, the same head is the same
//! few bytes for as long as the table stands still. Looking each field up again would cost more
//! than all the rest of a small call. Deadlines and metadata never enter the table; they are
//! encoded behind the remembered bytes.

use super::request::RequestHead;
use crate::limits;

/// The last few heads of a connection, each good for one state of the encoder's table.
#[derive(Debug, Default)]
pub(super) struct RequestMemo {
    entries: Vec<RequestMemoEntry>,
    /// The entry that is overwritten next.
    next: usize,
}

#[derive(Debug)]
struct RequestMemoEntry {
    /// [`crate::hpack::Encoder::changes`] when the block was made.
    changes: u64,
    /// The texts of the head, one after the other, and where each ends.
    texts: Vec<u8>,
    ends: [u32; TEXTS],
    is_grpc: bool,
    gzip: bool,
    accepts_gzip: bool,
    block: Vec<u8>,
}

const TEXTS: usize = 5;

fn texts<'a>(head: &RequestHead<'a>) -> [&'a str; TEXTS] {
    // What differs most often stands first.
    [
        head.path,
        head.authority,
        head.user_agent,
        head.method,
        head.scheme,
    ]
}

impl RequestMemoEntry {
    fn is_of(&self, head: &RequestHead<'_>) -> bool {
        let mut start = 0;
        self.is_grpc == head.is_grpc
            && self.gzip == head.gzip
            && self.accepts_gzip == head.accepts_gzip
            && texts(head).iter().zip(self.ends).all(|(text, end)| {
                let kept = &self.texts[start..end as usize];
                start = end as usize;
                kept == text.as_bytes()
            })
    }
}

impl RequestMemo {
    /// The block of a head without deadline and metadata.
    #[inline]
    pub(super) fn find(&self, head: &RequestHead<'_>, changes: u64) -> Option<&[u8]> {
        let entry = self
            .entries
            .iter()
            .find(|entry| entry.changes == changes && entry.is_of(head))?;
        Some(&entry.block)
    }

    /// Keeps a block that was made without changing the table.
    pub(super) fn remember(&mut self, head: &RequestHead<'_>, changes: u64, block: &[u8]) {
        let texts = texts(head);
        let length: usize = texts.iter().map(|text| text.len()).sum();
        if length + block.len() > limits::MAX_REQUEST_MEMO_BYTES {
            return;
        }
        let mut all = Vec::with_capacity(length);
        let ends = texts.map(|text| {
            all.extend_from_slice(text.as_bytes());
            all.len() as u32
        });
        let entry = RequestMemoEntry {
            changes,
            texts: all,
            ends,
            is_grpc: head.is_grpc,
            gzip: head.gzip,
            accepts_gzip: head.accepts_gzip,
            block: block.to_vec(),
        };
        if self.entries.len() < limits::REQUEST_MEMOS {
            self.entries.push(entry);
        } else {
            self.entries[self.next] = entry;
            self.next = (self.next + 1) % limits::REQUEST_MEMOS;
        }
    }

    pub(super) fn memory_bytes(&self) -> usize {
        let texts = |entry: &RequestMemoEntry| entry.texts.capacity() + entry.block.capacity();
        self.entries.capacity() * size_of::<RequestMemoEntry>()
            + self.entries.iter().map(texts).sum::<usize>()
    }
}
