//! The log with its supply of segments, and what follows where that runs dry.

use wal::disk::NoRoom;
use wal::{
    ALIGN_BYTES, GroupBuffer, LogWriter, PrepareError, ReadySegment, RetiredSegment,
    SegmentRetention, SegmentStock, WantedSegment, WriteError,
};

use super::event::StorageEvent;
use crate::keep_log::KeepLog;
use crate::outcome::Refusal;

/// The log of a committer, and what makes its segments ready.
#[derive(Debug)]
pub(super) struct LogSegments {
    log: LogWriter,
    /// Until somebody else [takes](LogSegments::take_stock) it.
    stock: Option<SegmentStock>,
    /// No next segment could be made ready, and why commits that grow a database are refused.
    shortage: Option<Refusal>,
    keep: KeepLog,
    /// Segments that hold nothing beyond this are needed by no index, and by nobody who holds them.
    unneeded_sequence: u64,
    /// How many segments there were when it was last looked which of these may go.
    looked_at: u64,
}

/// What has become of a group that was to be written.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Written {
    /// It is in the log.
    Done,
    /// The log needs its next segment: bring it, or say that there is none, and write again.
    NeedsSegment,
    /// There is no room for it, and nothing of it is in the log.
    NoRoom(Refusal),
    /// Nobody knows what of it is in the log, which takes nothing more.
    Failed(String),
}

impl LogSegments {
    /// A log with its supply, of which so much is kept that nobody needs any more.
    pub(super) fn new(log: LogWriter, stock: SegmentStock, keep: KeepLog) -> LogSegments {
        LogSegments {
            log,
            stock: Some(stock),
            shortage: None,
            keep,
            unneeded_sequence: 0,
            looked_at: 0,
        }
    }

    /// The log.
    pub(super) fn log(&self) -> &LogWriter {
        &self.log
    }

    /// Writes a group.
    pub(super) fn write(&mut self, records: &mut GroupBuffer, now_ms: u64) -> Written {
        match self.log.write_kept(records, now_ms) {
            Ok(_) => Written::Done,
            Err(WriteError::NoRoom { source: None, .. }) => match self.shortage {
                None => Written::NeedsSegment,
                Some(refusal) => Written::NoRoom(refusal),
            },
            // The next segment is there, and only this group too large for it: smaller ones go on.
            Err(WriteError::NoRoom {
                source: Some(source),
                ..
            }) => Written::NoRoom(match NoRoom::of(&source) {
                Some(NoRoom::Disk | NoRoom::Quota) => Refusal::LogFull,
                Some(NoRoom::FileSize) | None => Refusal::LogNotReady,
            }),
            Err(error) => Written::Failed(error.to_string()),
        }
    }

    /// Syncs what is written. An error says why it failed.
    pub(super) fn sync(&mut self) -> Result<(), String> {
        let synced = self.log.sync();
        synced.map(drop).map_err(|error| error.to_string())
    }

    /// Writes the closing group, and ends the log.
    pub(super) fn close(self, last_sequence: u64, now_ms: u64) -> Result<(), WriteError> {
        self.log.close(last_sequence, now_ms)
    }

    /// Why commits that grow a database are refused.
    pub(super) fn shortage(&self) -> Option<Refusal> {
        self.shortage
    }

    /// Whether there is no room on the disk for more log.
    pub(super) fn is_full(&self) -> bool {
        self.shortage == Some(Refusal::LogFull)
    }

    /// Whether the smallest group, a mark or the closing one, needs the next segment.
    pub(super) fn needs_segment_for_mark(&self) -> bool {
        self.log.is_short_of(ALIGN_BYTES as u64) && self.log.wanted_segment().is_some()
    }

    /// Whether there is no room even for a mark, and none is in sight.
    pub(super) fn has_no_room_for_mark(&self) -> bool {
        self.shortage.is_some() && self.needs_segment_for_mark()
    }

    /// Returns the segment that the log will need next.
    pub(super) fn wanted(&self) -> Option<WantedSegment> {
        self.log.wanted_segment()
    }

    /// Brings the segment that was wanted. Returns an event if there was a shortage, which is over.
    pub(super) fn take(&mut self, segment: ReadySegment) -> Option<StorageEvent> {
        self.log.take_segment(segment);
        self.shortage.take().map(|_| StorageEvent::RoomAgain)
    }

    /// Says that no segment could be made ready: commits that grow a database are refused until
    /// there is one. Returns an event if that is news.
    pub(super) fn lack(&mut self, error: &PrepareError) -> Option<StorageEvent> {
        let why = error.to_string();
        let (refusal, event) = match error {
            PrepareError::Full { .. } => (Refusal::LogFull, StorageEvent::Full(why)),
            PrepareError::Device { .. }
            | PrepareError::Unsure { .. }
            | PrepareError::Removed { .. }
            | PrepareError::Stopped => (Refusal::LogNotReady, StorageEvent::NotReady(why)),
        };
        let is_news = self.shortage.replace(refusal) != Some(refusal);
        is_news.then_some(event)
    }

    /// Makes the next segment ready, if one is wanted and nobody has taken the stock.
    pub(super) fn prepare(&mut self) -> Option<StorageEvent> {
        let (Some(stock), Some(wanted)) = (&mut self.stock, self.log.wanted_segment()) else {
            return None;
        };
        match stock.prepare(wanted) {
            Ok(segment) => self.take(segment),
            Err(error) => self.lack(&error),
        }
    }

    /// Gives away the segments that nobody needs any more once every index has, on its own device,
    /// what the log holds up to a sequence, and that are not to be kept: they are for
    /// [`SegmentStock::retire`].
    ///
    /// A lower sequence than before is no other one: then those go that were kept, and are too many
    /// or too old now.
    pub(super) fn retire_through(
        &mut self,
        sequence: u64,
        now_ms: u64,
        free_bytes: u64,
    ) -> Vec<RetiredSegment> {
        self.unneeded_sequence = self.unneeded_sequence.max(sequence);
        // Whoever writes comes before those who watch.
        let kept = match self.is_full() {
            true => SegmentRetention::NONE,
            false => SegmentRetention {
                bytes: self.keep.bytes,
                free_bytes,
                behind_ms: self
                    .keep
                    .age_ms
                    .map_or(0, |age_ms| now_ms.saturating_sub(age_ms)),
            },
        };
        let retired = self.log.retire_through(self.unneeded_sequence, kept);
        self.looked_at = self.log.segments();
        retired
    }

    /// Whether more segments may have to go than when it was last looked, whatever the time.
    pub(super) fn has_more_unneeded(&self) -> bool {
        self.looked_at != self.log.segments() || (self.is_full() && self.looked_at > 1)
    }

    /// Whether segments may have to go because they have become too old.
    pub(super) fn keeps_for_a_time(&self) -> bool {
        self.keep.age_ms.is_some() && self.log.segments() > 1
    }

    /// Takes such segments back, if nobody has taken the stock.
    pub(super) fn retire(&mut self, retired: Vec<RetiredSegment>) -> Result<(), PrepareError> {
        match &mut self.stock {
            Some(stock) => stock.retire(retired),
            None => Ok(()),
        }
    }

    /// Gives away what makes segments ready, to another thread.
    pub(super) fn take_stock(&mut self) -> Option<SegmentStock> {
        self.stock.take()
    }

    /// Takes back what makes segments ready, from a thread that has ended.
    pub(super) fn give_stock(&mut self, stock: SegmentStock) {
        self.stock = Some(stock);
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::Arc;

    use wal::{LogConfig, LogId, RawRecord};

    use super::*;

    fn segments() -> LogSegments {
        let id = LogId {
            history: 1,
            secret: 2,
        };
        let config = LogConfig {
            segment_bytes: 64 * 1024,
            ..LogConfig::new(id, 1)
        };
        let disk = Arc::new(testkit::simulated_disk(1));
        let read = wal::read(disk, &config, &mut |_| Ok(()));
        let (opened, _) = read.expect("an empty disk").open().expect("there is room");
        LogSegments::new(opened.log, opened.stock, KeepLog::NONE)
    }

    fn full() -> PrepareError {
        PrepareError::Full {
            file: "file".into(),
            source: io::ErrorKind::StorageFull.into(),
        }
    }

    #[test]
    fn a_shortage_is_reported_once_and_ends_with_the_next_segment() {
        let mut segments = segments();
        let stock = segments.take_stock();
        assert!(segments.prepare().is_none(), "somebody else has the stock");
        assert!(segments.wanted().is_some());
        assert!(matches!(
            segments.lack(&full()),
            Some(StorageEvent::Full(_))
        ));
        assert!(segments.is_full() && segments.lack(&full()).is_none());
        let event = segments.lack(&PrepareError::Stopped);
        assert!(matches!(event, Some(StorageEvent::NotReady(_))) && !segments.is_full());
        assert_eq!(segments.shortage(), Some(Refusal::LogNotReady));
        segments.give_stock(stock.expect("it was there"));
        assert_eq!(segments.prepare(), Some(StorageEvent::RoomAgain));
        assert!(segments.shortage().is_none() && segments.wanted().is_none());
        assert_eq!(segments.prepare(), None);
    }

    #[test]
    fn a_group_without_room_waits_for_a_segment_only_while_there_is_hope() {
        let mut segments = segments();
        let mut sequence = 0;
        let mut write = |segments: &mut LogSegments| {
            sequence = (segments.log().written().sequence).max(sequence) + 1;
            let mut records = GroupBuffer::new();
            records.push(&RawRecord {
                value: &[1; 4096],
                kind: 1,
                ..RawRecord::mark(sequence)
            });
            segments.write(&mut records, 1)
        };
        let first = (0..1024).find_map(|_| match write(&mut segments) {
            Written::Done => None,
            other => Some(other),
        });
        assert_eq!(first, Some(Written::NeedsSegment));
        let _ = segments.lack(&full());
        assert_eq!(write(&mut segments), Written::NoRoom(Refusal::LogFull));
        assert_eq!(segments.prepare(), Some(StorageEvent::RoomAgain));
        assert_eq!(write(&mut segments), Written::Done);
        assert_eq!(segments.sync(), Ok(()));
        assert_eq!(segments.log().durable(), segments.log().written());
    }
}
