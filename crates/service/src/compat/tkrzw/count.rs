//! Count: counts all records, in slices.

use std::ops::Bound;

use api::tkrzw::{CountRequest, CountResponse};
use store::tree::{NotFetched, ReadPlan};
use store::{DatabaseId, Range, ReadView};

use super::decode::decode;
use super::result::RequestResult;
use super::target::target;
use super::{TkrzwActions, TkrzwStep};
use crate::actions::{CallClock, DatabaseAccess, Responses};
use crate::call::Shared;
use crate::limits::COUNT_SLICE_ROWS;
use crate::method::Method;
use crate::rights::Right;
use crate::status::Status;

/// A count between two slices.
pub(super) struct Count {
    database: DatabaseId,
    passed: Option<Vec<u8>>,
    counted: u64,
}

impl Count {
    /// Takes up a request.
    pub(super) fn begin(
        method: Method,
        bytes: &[u8],
        shared: &Shared,
        actions: &mut impl TkrzwActions,
    ) -> Result<Option<TkrzwStep>, Status> {
        let request: CountRequest = decode(method, bytes)?;
        let database = target(request.dbm_index, Right::Read, shared, actions)?.id;
        actions.read_long(database);
        Ok(Some(TkrzwStep::Count(Box::new(Count {
            database,
            passed: None,
            counted: 0,
        }))))
    }

    /// Whether it walks over keys: all of a database are counted without that.
    pub(super) fn reads_in_order(&self) -> bool {
        self.passed.is_some()
    }

    fn range(&self) -> Range<'_> {
        let passed = self.passed.as_deref();
        Range {
            start: passed.map_or(Bound::Unbounded, Bound::Excluded),
            end: Bound::Unbounded,
        }
    }

    pub(super) fn plan_reads(&self, plan: &mut ReadPlan) {
        plan.count(&self.range(), COUNT_SLICE_ROWS, false);
    }

    /// Counts one slice.
    pub(super) fn read(
        &mut self,
        view: &ReadView<'_>,
        actions: &mut (impl DatabaseAccess + Responses + CallClock),
    ) -> Result<(), NotFetched> {
        let slice = view.count(&self.range(), actions.now_ms(), COUNT_SLICE_ROWS)?;
        self.counted += slice.count;
        if let Some(key) = slice.passed {
            self.passed = Some(key.to_vec());
            actions.read_long(self.database);
            return Ok(());
        }
        let counted = i64::try_from(self.counted).unwrap_or(i64::MAX);
        actions.respond(|out| {
            RequestResult::SUCCESS.encode(out);
            let response = CountResponse {
                count: counted,
                ..CountResponse::default()
            };
            response.encode(out);
        });
        Ok(())
    }
}
