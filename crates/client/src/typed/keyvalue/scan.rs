//! Scans, page by page.

use std::collections::VecDeque;
use std::iter::FusedIterator;

use api::keyvalue::{Direction, Entry, ScanPage};
use api::rpc::keyvalue::Scan;

use super::point::ResumePoint;
use super::single::StoredValue;
use crate::error::CallError;
use crate::typed::{Call, OpenStream, PagedMethod, Pages, Reply, ReplySource};

impl<'a, O> Call<'a, Scan, O> {
    /// From the largest key down.
    pub fn backward(mut self) -> Self {
        self.request.direction = Direction::Backward.number();
        self
    }

    /// Leaves the values out.
    pub fn keys_only(mut self) -> Self {
        self.request.keys_only = true;
        self
    }

    /// Ends after this many entries; 0: no limit.
    pub fn limit(mut self, entries: u64) -> Self {
        self.request.limit = entries;
        self
    }

    /// Goes on after this key, whether it still exists or not: the last key of an earlier scan.
    pub fn start_after(mut self, key: &'a [u8]) -> Self {
        self.request.start_after = Some(key);
        self
    }
}

impl<'a, C: OpenStream> Call<'a, Scan, &'a mut C> {
    /// Begins the scan. Its time is that of the whole scan.
    ///
    /// # Errors
    /// If the call cannot begin.
    pub fn send(self) -> Result<Pages<Scan, C::Source<'a>>, CallError> {
        let (over, request, options) = self.into_parts();
        over.open_stream(&request, &options).map(Pages::new)
    }
}

/// An entry of a database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredEntry {
    /// The key.
    pub key: Vec<u8>,
    /// The value, empty in a scan of keys only, and what is known of it.
    pub stored: StoredValue,
}

impl StoredEntry {
    pub(super) fn of(entry: &Entry<'_>) -> StoredEntry {
        StoredEntry {
            key: entry.key.to_vec(),
            stored: StoredValue::of(entry),
        }
    }
}

/// Some of the entries of a scan, read from one view of the database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScannedPage {
    /// The entries, in order; there may be none before the end of the scan.
    pub entries: Vec<StoredEntry>,
    /// The view shows all commits up to this one.
    pub sequence: u64,
    /// The history that the commit belongs to.
    pub history_id: Vec<u8>,
}

impl ScannedPage {
    /// Returns the point from which to watch: with that of the first page, a watcher misses nothing
    /// of what was changed since the scan began.
    pub fn resume_point(&self) -> ResumePoint {
        ResumePoint {
            history_id: self.history_id.clone(),
            sequence: self.sequence,
        }
    }
}

impl PagedMethod for Scan {
    type Page = ScannedPage;

    fn page(reply: &Reply<Scan>) -> (ScannedPage, bool) {
        let page: ScanPage<'_> = reply.message();
        // They were decoded when the page came.
        let entries = page.entries.iter().flatten();
        let scanned = ScannedPage {
            entries: entries.map(|entry| StoredEntry::of(&entry)).collect(),
            sequence: page.sequence,
            history_id: page.history_id.to_vec(),
        };
        (scanned, page.last)
    }
}

impl<S: ReplySource> Pages<Scan, S> {
    /// Returns the entries of all pages, one by one.
    pub fn entries(self) -> ScanEntries<S> {
        ScanEntries {
            pages: self,
            entries: VecDeque::new(),
        }
    }
}

/// The entries of a scan, in order. Ends behind the first error.
#[derive(Debug)]
pub struct ScanEntries<S> {
    pages: Pages<Scan, S>,
    entries: VecDeque<StoredEntry>,
}

impl<S: ReplySource> Iterator for ScanEntries<S> {
    type Item = Result<StoredEntry, CallError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(entry) = self.entries.pop_front() {
                return Some(Ok(entry));
            }
            match self.pages.next()? {
                Ok(page) => self.entries = page.entries.into(),
                Err(error) => return Some(Err(error)),
            }
        }
    }
}

impl<S: ReplySource> FusedIterator for ScanEntries<S> {}
