//! Scan and Count: walks over ranges of keys, cut into steps.

use std::ops::{Bound, ControlFlow};

use api::keyvalue::{CountResponse, Entry as EntryMessage, KeyRange, Keys, ScanPage};
use bytes::Bytes;
use protobuf::writer;
use store::remote::RemoteOrder;
use store::tree::{NotFetched, PageRequest, ReadPlan};
use store::{DatabaseId, Direction, Entry, Range, ReadView, ScanEnd, Store, Value};

use super::batch::point_of;
use super::messages::{HistoryPoint, Invalid, decode_count, decode_scan};
use super::refuse;
use crate::actions::{CallClock, DatabaseAccess, Permissions, ResponseMemory, Responses, SendRoom};
use crate::call::Shared;
use crate::limits::{
    COUNT_SLICE_ROWS, EXACT_COUNT_ROWS, HELD_KEY_BYTES, SCAN_PAGE_BYTES, SCAN_PAGE_ROWS,
};
use crate::method::Method;
use crate::rights::Right;
use crate::status::Status;

/// At most this many bytes are what an entry takes in a page beside its key and its value: four
/// tags, two lengths and two numbers.
const ENTRY_OVERHEAD_BYTES: usize = 6 + 6 + 11 + 11;

/// What is still to be walked of a range.
pub(super) struct Rest {
    start: Bound<Vec<u8>>,
    end: Bound<Vec<u8>>,
    /// The keys of the database are in the order of their hashes: what is behind a key may be below
    /// it.
    is_by_hash: bool,
    /// With that, the key that the walk has passed.
    passed: Option<Vec<u8>>,
}

impl Rest {
    pub(super) fn new(keys: Option<Keys<'_>>) -> Rest {
        let mut buffer = Vec::new();
        let range = match keys {
            None => Range::ALL,
            // An empty end is no bound: no key lies below the empty key.
            Some(Keys::Range(KeyRange { start, end })) => {
                Range::new(start, (!end.is_empty()).then_some(end))
            }
            Some(Keys::Prefix(prefix)) => Range::prefix(prefix, &mut buffer),
        };
        Rest {
            start: range.start.map(<[u8]>::to_vec),
            end: range.end.map(<[u8]>::to_vec),
            is_by_hash: false,
            passed: None,
        }
    }

    /// The same in the order of a database.
    fn in_order_of(self, database: DatabaseId, store: &Store) -> Rest {
        let config = match store.is_remote() {
            true => store.config(database),
            false => None,
        };
        let shape = config.and_then(|config| config.kind.remote());
        Rest {
            is_by_hash: shape.is_some_and(|shape| shape.order == RemoteOrder::Hash),
            ..self
        }
    }

    pub(super) fn range(&self) -> Range<'_> {
        fn borrowed(bound: &Bound<Vec<u8>>) -> Bound<&[u8]> {
            bound.as_ref().map(Vec::as_slice)
        }
        Range {
            start: borrowed(&self.start),
            end: borrowed(&self.end),
        }
    }

    /// What is kept of the keys, with the copy that waits for a disk; 0 if it is little. It never
    /// becomes less: a key that is passed has the room of a longer one before it.
    fn held_bytes(&self) -> usize {
        fn length(bound: &Bound<Vec<u8>>) -> usize {
            match bound {
                Bound::Included(key) | Bound::Excluded(key) => key.capacity(),
                Bound::Unbounded => 0,
            }
        }
        let passed_bytes = self.passed.as_ref().map_or(0, Vec::capacity);
        let bytes = 2 * (length(&self.start) + length(&self.end) + passed_bytes);
        if bytes >= HELD_KEY_BYTES { bytes } else { 0 }
    }

    /// Has what is kept of the keys counted as held by the caller's connection, for a call that has
    /// sent nothing yet.
    fn hold_request(&self, actions: &mut impl ResponseMemory) {
        let bytes = self.held_bytes();
        if bytes > 0 {
            actions.hold_request(bytes);
        }
    }

    /// The same between two pages, for a call that then holds more than others of its connection
    /// which have yet to begin. Anew after each page: it is given back when something is sent.
    fn hold_ready(&self, actions: &mut impl ResponseMemory) {
        let bytes = self.held_bytes();
        if bytes > 0 {
            actions.hold_ready(bytes);
        }
    }

    /// The walk has passed `key`.
    fn pass(&mut self, key: &[u8], direction: Direction) {
        if self.is_by_hash {
            let passed = self.passed.get_or_insert_default();
            passed.clear();
            passed.extend_from_slice(key);
            return;
        }
        let bound = match direction {
            Direction::Forward => &mut self.start,
            Direction::Backward => &mut self.end,
        };
        match bound {
            // The usual case, from the second step on: the room of the last key is used again.
            Bound::Excluded(passed) => {
                passed.clear();
                passed.extend_from_slice(key);
            }
            _ => *bound = Bound::Excluded(key.to_vec()),
        }
    }
}

/// A scan between two pages.
pub(super) struct Scan {
    database: DatabaseId,
    rest: Rest,
    direction: Direction,
    keys_only: bool,
    /// Entries that may still be sent.
    left: u64,
    /// A view was asked for and has not come yet: one page at a time.
    asked: bool,
    /// There was a page: where the next one begins is kept.
    has_begun: bool,
}

/// An entry with its value.
type LargeEntry<'v> = (Entry<'v>, &'v Bytes);

/// What one page has brought.
struct PageBounds<'v> {
    /// The walk has passed this key.
    passed: Option<&'v [u8]>,
    entries: u64,
    complete: bool,
}

impl Scan {
    /// Takes up a request.
    pub(super) fn begin(
        bytes: &[u8],
        shared: &Shared,
        actions: &mut (impl DatabaseAccess + Permissions + ResponseMemory),
    ) -> Result<Box<Scan>, Status> {
        let invalid = |invalid| refuse::invalid(Method::Scan, invalid);
        let (request, direction) = decode_scan(bytes).map_err(invalid)?;
        let database = refuse::find_database(Right::Read, request.database, shared, actions)?;
        let mut rest = Rest::new(request.keys).in_order_of(database, &shared.store);
        if let Some(key) = request.start_after {
            if !rest.range().contains(key) {
                return Err(invalid(Invalid::rule(
                    "start_after",
                    "lies outside of the range",
                )));
            }
            rest.pass(key, direction);
        }
        let left = match request.limit {
            0 => u64::MAX,
            limit => limit,
        };
        rest.hold_request(actions);
        actions.read_long(database);
        Ok(Box::new(Scan {
            database,
            rest,
            direction,
            keys_only: request.keys_only,
            left,
            asked: true,
            has_begun: false,
        }))
    }

    /// Says which page will be looked at.
    pub(super) fn plan_reads(&self, plan: &mut ReadPlan) {
        let page = PageRequest {
            direction: self.direction,
            keys_only: self.keys_only,
            rows: SCAN_PAGE_ROWS,
            entries: self.left,
            bytes: SCAN_PAGE_BYTES,
        };
        plan.page_behind(&self.rest.range(), self.rest.passed.as_deref(), page);
    }

    /// Sends one page, and sees to it that the next one follows.
    pub(super) fn read(
        &mut self,
        view: &ReadView<'_>,
        actions: &mut (impl DatabaseAccess + Responses + SendRoom + ResponseMemory + CallClock),
    ) -> Result<(), NotFetched> {
        self.asked = false;
        // Asked for while there was room; other calls of the same connection may have used it up
        // since.
        if !self.may_go_on(actions) {
            return Ok(());
        }
        let now_ms = actions.now_ms();
        let page = match self.large_first_entry(view, now_ms)? {
            Some((_, body))
                if body.len() > actions.message_bytes() && !actions.can_send_large(0) =>
            {
                return Ok(());
            }
            Some((entry, body)) => self.send_large(&entry, body, point_of(view), actions),
            None => {
                let mut page = None;
                let bytes = SCAN_PAGE_BYTES.min(actions.message_bytes());
                actions.message(|out| page = Some(self.encode_page(view, now_ms, bytes, out)));
                match page {
                    Some(page) => page?,
                    // The stream has ended: its call hears of that.
                    None => return Ok(()),
                }
            }
        };
        if page.complete {
            actions.finish(Status::OK);
            return Ok(());
        }
        self.left -= page.entries;
        if let Some(key) = page.passed {
            self.rest.pass(key, self.direction);
        }
        self.has_begun = true;
        self.rest.hold_ready(actions);
        self.go_on(actions);
        Ok(())
    }

    /// Asks for the next page as soon as there is room for it.
    pub(super) fn go_on(&mut self, actions: &mut (impl DatabaseAccess + SendRoom)) {
        if !self.asked && self.may_go_on(actions) {
            self.asked = true;
            actions.read_long(self.database);
        }
    }

    fn may_go_on(&self, actions: &mut impl SendRoom) -> bool {
        match self.has_begun {
            true => actions.can_send(),
            false => actions.can_begin(),
        }
    }

    /// The first entry, if it fills a page by itself and need not be copied.
    fn large_first_entry<'v>(
        &self,
        view: &'v ReadView<'_>,
        now_ms: u64,
    ) -> Result<Option<LargeEntry<'v>>, NotFetched> {
        if self.keys_only {
            return Ok(None);
        }
        let mut first = None;
        view.scan(
            &self.rest.range(),
            self.direction,
            now_ms,
            1,
            &mut |entry| {
                first = Some(*entry);
                ControlFlow::Break(())
            },
        )?;
        Ok(match first {
            Some(
                entry @ Entry {
                    value: Value::Shared(body),
                    ..
                },
            ) if body.len() >= SCAN_PAGE_BYTES => Some((entry, body)),
            _ => None,
        })
    }

    /// Sends a page of one large entry, whose value comes last so that it can follow the head
    /// without being copied.
    fn send_large<'v>(
        &self,
        entry: &Entry<'v>,
        body: &Bytes,
        point: HistoryPoint,
        actions: &mut impl Responses,
    ) -> PageBounds<'v> {
        let complete = self.left == 1;
        let mut entry_head = Vec::new();
        entry_message(entry, true).encode(&mut entry_head);
        writer::bytes_head(&mut entry_head, EntryMessage::NUMBERS.value, body.len());
        let head = |out: &mut Vec<u8>| {
            encode_page_head(point, complete, out);
            let entry_bytes = entry_head.len() + body.len();
            writer::bytes_head(out, ScanPage::NUMBERS.entries, entry_bytes);
            out.extend_from_slice(&entry_head);
        };
        actions.message_shared(head, body, 0..body.len());
        PageBounds {
            passed: Some(entry.key),
            entries: 1,
            complete,
        }
    }

    /// Appends a page of as many entries as `page_bytes` and the time of a step allow.
    fn encode_page<'v>(
        &self,
        view: &'v ReadView<'_>,
        now_ms: u64,
        page_bytes: usize,
        out: &mut Vec<u8>,
    ) -> Result<PageBounds<'v>, NotFetched> {
        let page_start = out.len();
        encode_page_head(point_of(view), false, out);
        let mut page = PageBounds {
            passed: None,
            entries: 0,
            complete: false,
        };
        let end = view.scan(
            &self.rest.range(),
            self.direction,
            now_ms,
            SCAN_PAGE_ROWS,
            &mut |entry| {
                let message = entry_message(entry, self.keys_only);
                let bytes = out.len() - page_start
                    + message.key.len()
                    + message.value.len()
                    + ENTRY_OVERHEAD_BYTES;
                if page.entries > 0 && bytes > page_bytes {
                    return ControlFlow::Break(());
                }
                writer::message(out, ScanPage::NUMBERS.entries, |out| message.encode(out));
                page.passed = Some(entry.key);
                page.entries += 1;
                if page.entries == self.left {
                    ControlFlow::Break(())
                } else {
                    ControlFlow::Continue(())
                }
            },
        )?;
        if let ScanEnd::BudgetSpent(key) = end {
            page.passed = Some(key);
        }
        page.complete = end == ScanEnd::Complete || page.entries == self.left;
        writer::bool(out, ScanPage::NUMBERS.last, page.complete);
        Ok(page)
    }
}

/// Appends a page without its entries.
fn encode_page_head(point: HistoryPoint, last: bool, out: &mut Vec<u8>) {
    ScanPage {
        sequence: point.sequence(),
        last,
        history_id: point.history_id(),
        ..ScanPage::default()
    }
    .encode(out);
}

fn entry_message<'v>(entry: &Entry<'v>, keys_only: bool) -> EntryMessage<'v> {
    EntryMessage {
        key: entry.key,
        value: if keys_only { &[] } else { entry.value.bytes() },
        version: entry.version,
        expires_at_ms: entry.expires_ms,
    }
}

/// A count between two slices.
pub(super) struct RangeCount {
    database: DatabaseId,
    rest: Rest,
    may_estimate: bool,
    counted: u64,
    views: u64,
}

impl RangeCount {
    /// Takes up a request.
    pub(super) fn begin(
        bytes: &[u8],
        shared: &Shared,
        actions: &mut (impl DatabaseAccess + Permissions + ResponseMemory),
    ) -> Result<Box<RangeCount>, Status> {
        let decoded = decode_count(bytes);
        let (request, may_estimate) =
            decoded.map_err(|invalid| refuse::invalid(Method::Count, invalid))?;
        let database = refuse::find_database(Right::Read, request.database, shared, actions)?;
        let rest = Rest::new(request.keys);
        rest.hold_request(actions);
        actions.read_long(database);
        Ok(Box::new(RangeCount {
            database,
            rest,
            may_estimate,
            counted: 0,
            views: 0,
        }))
    }

    /// Whether it walks over keys: all of a database are counted without that.
    pub(super) fn reads_in_order(&self) -> bool {
        self.rest.range() != store::Range::ALL
    }

    /// Says which slice will be looked at.
    pub(super) fn plan_reads(&self, plan: &mut ReadPlan) {
        let rows = match self.may_estimate {
            true => {
                let counted = u32::try_from(self.counted).unwrap_or(u32::MAX);
                EXACT_COUNT_ROWS.saturating_sub(counted).max(1)
            }
            false => COUNT_SLICE_ROWS,
        };
        plan.count(&self.rest.range(), rows, self.may_estimate);
    }

    /// Counts one slice. In memory, where an exact count is cheap, whoever would be content with an
    /// estimate gets one too.
    pub(super) fn read(
        &mut self,
        view: &ReadView<'_>,
        actions: &mut (impl DatabaseAccess + Responses + ResponseMemory + CallClock),
    ) -> Result<(), NotFetched> {
        let range = self.rest.range();
        let slice = view.count(&range, actions.now_ms(), COUNT_SLICE_ROWS)?;
        self.counted += slice.count;
        self.views += 1;
        match slice.passed {
            Some(key) => {
                self.rest.pass(key, Direction::Forward);
                self.rest.hold_request(actions);
                actions.read_long(self.database);
            }
            None => {
                let point = point_of(view);
                let response = CountResponse {
                    count: self.counted,
                    exact: !slice.is_estimate,
                    views: self.views,
                    sequence: point.sequence(),
                    history_id: point.history_id(),
                };
                actions.respond(|out| response.encode(out));
            }
        }
        Ok(())
    }
}
