//! The segments of the log of a committer: which it needs, and which nobody needs any more.

use wal::{PrepareError, ReadySegment, RetiredSegment, SegmentStock, WantedSegment};

use super::DurableCommitter;
use crate::durable::event::StorageEvent;
use crate::durable::segments::LogSegments;

impl DurableCommitter {
    /// The segment that the log will need next.
    pub(in crate::durable) fn wanted_segment(&self) -> Option<WantedSegment> {
        self.segments.wanted()
    }

    /// Brings the segment that was wanted.
    pub(in crate::durable) fn take_segment(&mut self, segment: ReadySegment) {
        let event = self.segments.take(segment);
        self.supply_has_changed(event);
    }

    /// Says that no segment could be made ready: commits that grow a database are refused until
    /// there is one.
    pub(in crate::durable) fn no_segment(&mut self, error: &PrepareError) {
        let event = self.segments.lack(error);
        self.supply_has_changed(event);
    }

    /// Makes the next segment ready, if one is wanted and nobody has taken the stock.
    pub(in crate::durable) fn prepare_segment(&mut self) {
        let event = self.segments.prepare();
        self.supply_has_changed(event);
    }

    /// There is room for more log again, or none any more.
    fn supply_has_changed(&mut self, event: Option<StorageEvent>) {
        let Some(event) = event else { return };
        self.groups.refuse_growth(self.segments.shortage());
        self.events.push(event);
        self.show_statistics();
    }

    /// Whether there is no room on the disk for more log.
    pub(in crate::durable) fn is_full(&self) -> bool {
        self.segments.is_full()
    }

    /// Gives away what makes segments ready, to another thread.
    pub(in crate::durable) fn take_stock(&mut self) -> Option<SegmentStock> {
        self.segments.take_stock()
    }

    /// Gives away the segments that nobody needs any more once every index has, on its own device,
    /// what the log holds up to a sequence, and that are not to be kept: they are for
    /// [`SegmentStock::retire`].
    pub(in crate::durable) fn retire_through(
        &mut self,
        sequence: u64,
        now_ms: u64,
    ) -> Vec<RetiredSegment> {
        // Where the disk does not tell, as if there were none.
        let free_bytes = self.snapshots.disk().free_bytes().unwrap_or(0);
        let retired = (self.segments).retire_through(sequence, now_ms, free_bytes);
        self.show_statistics();
        retired
    }

    /// The log with its supply of segments.
    pub(in crate::durable) fn segments(&self) -> &LogSegments {
        &self.segments
    }

    /// Takes such segments back, if nobody has taken the stock.
    pub(in crate::durable) fn retire_segments(&mut self, retired: Vec<RetiredSegment>) {
        if let Err(error) = self.segments.retire(retired) {
            self.not_retired(&error);
        }
    }

    /// Says that segments could not be taken back.
    pub(in crate::durable) fn not_retired(&mut self, error: &PrepareError) {
        self.events
            .push(StorageEvent::NotRetired(error.to_string()));
    }

    /// Takes back what makes segments ready, from a thread that has ended.
    pub(in crate::durable) fn give_stock(&mut self, stock: SegmentStock) {
        self.segments.give_stock(stock);
    }
}
