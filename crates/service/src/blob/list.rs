//! List.

use std::ops::{Bound, ControlFlow};

use store::blob::limits::{CONTENT_TYPE_BYTES, NAME_BYTES};
use store::blob::{Description, key, split_key};
use store::{DatabaseId, Direction, Range, ReadView, ScanEnd};

use super::refuse;
use super::storing::with_description;
use crate::actions::{DatabaseAccess, Permissions, Responses, SendRoom};
use crate::call::Shared;
use crate::limits::{SCAN_PAGE_BYTES, SCAN_PAGE_ROWS};
use crate::method::Method;
use crate::rights::Right;
use crate::status::Status;
use api::blob::{ListRequest, ListResponse};
use protobuf::writer;

const _: () = assert!(
    SCAN_PAGE_ROWS as usize * (NAME_BYTES + CONTENT_TYPE_BYTES + 100) <= SCAN_PAGE_BYTES,
    "a page of the longest names is no larger than others"
);

/// A list between two pages.
pub(super) struct BlobListing {
    prefix: Vec<u8>,
    /// The last key that was passed.
    passed: Option<Vec<u8>>,
    left: u64,
    asked: bool,
}

impl BlobListing {
    pub(super) fn begin(
        bytes: &[u8],
        shared: &Shared,
        actions: &mut (impl DatabaseAccess + Permissions),
    ) -> Result<BlobListing, Status> {
        let request =
            ListRequest::decode(bytes).map_err(|error| refuse::invalid(Method::BlobList, error))?;
        let place = (request.database, request.prefix);
        let (database, _) = refuse::database(Right::Read, place, shared, actions)?;
        if !request.start_after.is_empty() && !request.start_after.starts_with(request.prefix) {
            return Err(Status::invalid_argument(
                "field start_after does not begin with prefix",
            ));
        }
        let behind = (!request.start_after.is_empty()).then(|| key(database, request.start_after));
        actions.read_long(DatabaseId::BLOBS);
        Ok(BlobListing {
            prefix: key(database, request.prefix),
            passed: behind,
            left: match request.limit {
                0 => u64::MAX,
                limit => limit,
            },
            asked: true,
        })
    }

    /// Sends a page.
    pub(super) fn read(
        &mut self,
        view: &ReadView<'_>,
        actions: &mut (impl DatabaseAccess + Responses + SendRoom),
    ) {
        self.asked = false;
        if !actions.can_send() {
            return;
        }
        let mut is_complete = false;
        actions.message(|out| is_complete = self.encode_page(view, out));
        match is_complete {
            true => actions.finish(Status::OK),
            false => self.go_on(actions),
        }
    }

    /// Asks for the next page as soon as there is room for it.
    pub(super) fn go_on(&mut self, actions: &mut (impl DatabaseAccess + SendRoom)) {
        if !self.asked && actions.can_send() {
            self.asked = true;
            actions.read_long(DatabaseId::BLOBS);
        }
    }

    /// Appends a page; returns whether it is the last. Its bytes are bounded by its rows.
    fn encode_page(&mut self, view: &ReadView<'_>, out: &mut Vec<u8>) -> bool {
        let mut buffer = Vec::new();
        let mut range = Range::prefix(&self.prefix, &mut buffer);
        let passed = self.passed.take();
        if let Some(passed) = &passed {
            range.start = Bound::Excluded(passed);
        }
        let (mut left, mut last) = (self.left, None);
        let end = view.scan(
            &range,
            Direction::Forward,
            0,
            SCAN_PAGE_ROWS,
            &mut |entry| {
                last = Some(entry.key.to_vec());
                if let (Some((_, name)), Some(description)) = (
                    split_key(entry.key),
                    Description::decode(entry.value.bytes()),
                ) {
                    with_description(name, entry.version, &description, |blob| {
                        let number = ListResponse::NUMBERS.blobs;
                        writer::message(out, number, |out| blob.encode(out));
                    });
                    left -= 1;
                }
                match left == 0 {
                    true => ControlFlow::Break(()),
                    false => ControlFlow::Continue(()),
                }
            },
        );
        self.left = left;
        // The index of blobs is in memory, where nothing need be fetched.
        let end = end.unwrap_or(ScanEnd::Complete);
        if let ScanEnd::BudgetSpent(key) = end {
            last = Some(key.to_vec());
        }
        self.passed = last.or(passed);
        let is_complete = end == ScanEnd::Complete || left == 0;
        writer::bool(out, ListResponse::NUMBERS.last, is_complete);
        is_complete
    }
}
