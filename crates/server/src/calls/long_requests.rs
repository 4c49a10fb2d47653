//! Requests that wait for their turn or are under way, and commits that were taken back.

use super::CallTable;
use crate::call_id::CallId;
use crate::long_requests::LoopLongRequests;
use crate::waiting_request::WaitingRequest;

impl CallTable {
    /// Returns whether a large request of a call has many operations.
    pub fn has_long_request(&self, id: CallId) -> bool {
        let running = self.calls.get(id);
        running.is_some_and(|running| running.method.has_many_operations())
    }

    /// Keeps the request of a call until its turn.
    pub fn keep_request(&mut self, id: CallId, request: WaitingRequest) {
        if let Some(running) = self.calls.get_mut(id) {
            running.resources.make_rare().request = Some(request);
        }
    }

    /// Takes out the request of a call that waits.
    pub fn take_request(&mut self, id: CallId) -> Option<WaitingRequest> {
        self.calls.get_mut(id)?.resources.rare_mut()?.request.take()
    }

    /// Returns those of the loop that are under way, or wait for their turn.
    #[inline]
    pub fn long_requests(&self) -> &LoopLongRequests {
        &self.counts.long_requests
    }

    /// Counts a request of many operations, of so many bytes, as under way until its call ends.
    pub fn count_under_way(&mut self, id: CallId, bytes: usize) {
        if let Some(running) = self.calls.get_mut(id) {
            running.resources.make_rare().under_way_bytes += bytes;
            self.counts.long_requests.add(bytes);
        }
    }

    /// Returns the tags of commits whose callers have left in this tick, in order.
    #[cold]
    pub fn abandoned_tags(&self) -> Vec<u64> {
        let mut tags: Vec<_> = self.abandoned.iter().map(|&(_, tag)| tag).collect();
        tags.sort_unstable();
        tags
    }
}
