//! Segments: the files of the log, and how they come and go.

use std::collections::{BTreeSet, VecDeque};
use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;

use super::limits;
use crate::disk::{Advised, Disk, DiskFile, NoRoom, is_out_of_descriptors};

const LOG_SUFFIX: &str = ".log";
const SPARE_SUFFIX: &str = ".spare";

/// A segment in the making. There is one at a time.
const NEW_NAME: &str = "segment.new";

/// The name of the file of a segment.
pub fn segment_name(ordinal: u64) -> String {
    file_name(ordinal, LOG_SUFFIX)
}

/// The ordinal of a segment by the name of its file; `None`: the file is not a segment.
pub(super) fn segment_ordinal(name: &str) -> Option<u64> {
    ordinal_of(name, LOG_SUFFIX)
}

fn file_name(ordinal: u64, suffix: &str) -> String {
    format!("{ordinal:020}{suffix}")
}

/// The ordinal in the name of a file of ours; `None`: it only ends like one.
fn ordinal_of(name: &str, suffix: &str) -> Option<u64> {
    let ordinal = name.strip_suffix(suffix)?.parse().ok()?;
    (file_name(ordinal, suffix) == name).then_some(ordinal)
}

/// A segment that is open: its file, and the room in it.
#[derive(Clone, Debug)]
pub(super) struct Segment {
    pub(super) ordinal: u64,
    pub(super) file: Arc<dyn DiskFile>,
    pub(super) bytes: u64,
}

/// A segment that was found, not open: there may be more of them than files can be open at a time.
#[derive(Clone, Copy, Debug)]
pub(super) struct FoundSegment {
    pub(super) ordinal: u64,
    pub(super) bytes: u64,
}

impl FoundSegment {
    pub(super) fn open(&self, disk: &dyn Disk) -> io::Result<Segment> {
        Ok(Segment {
            ordinal: self.ordinal,
            file: disk.open(&segment_name(self.ordinal))?,
            bytes: self.bytes,
        })
    }
}

/// Whether a file of this name is a segment.
pub fn is_segment(name: &str) -> bool {
    segment_ordinal(name).is_some()
}

/// Whether a file of this name is one of a log: a segment, a spare one, or one in the making.
pub fn is_log_file(name: &str) -> bool {
    is_segment(name) || ordinal_of(name, SPARE_SUFFIX).is_some() || name == NEW_NAME
}

/// Is told of each segment that has its name on the device, before anything is written to it.
pub trait SegmentListener: fmt::Debug + Send + Sync {
    /// Called on the thread that makes segments ready. The log was durable through
    /// `durable_sequence` when the segment was asked for.
    fn segment_ready(&self, segment: u64, durable_sequence: u64);
}

/// The segment that a log will need next, to be [prepared](SegmentStock::prepare).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WantedSegment {
    pub(super) ordinal: u64,
    /// The log is durable through it.
    pub(super) durable_sequence: u64,
}

/// A segment that is durable in name and size.
#[derive(Debug)]
pub struct ReadySegment(pub(super) Segment);

/// A segment that nobody needs any more.
#[derive(Debug)]
pub struct RetiredSegment {
    pub(super) ordinal: u64,
    pub(super) bytes: u64,
}

/// A file that is open and not needed any more, kept for the sake of its descriptor: where no other
/// can be had, it is closed, and the next segment gets its place. Shared by the writer, whose full
/// segments come here, and the stock.
#[derive(Clone, Debug, Default)]
pub(super) struct SpareDescriptor(Arc<Mutex<Option<Arc<dyn DiskFile>>>>);

impl SpareDescriptor {
    /// Keeps a file open, in the place of the one before.
    pub(super) fn keep(&self, file: Arc<dyn DiskFile>) {
        *self.0.lock() = Some(file);
    }

    /// Closes the file; returns whether there was one.
    fn close(&self) -> bool {
        self.0.lock().take().is_some()
    }

    /// Opens a file, or makes one, in the place of the one that is kept if there is no other.
    fn open(
        &self,
        open: impl Fn() -> io::Result<Arc<dyn DiskFile>>,
    ) -> io::Result<Arc<dyn DiskFile>> {
        match open() {
            Err(error) if is_out_of_descriptors(&error) && self.close() => open(),
            opened => opened,
        }
    }
}

/// Whether the log stands still until the next segment is ready. Shared by who waits for it and the
/// stock.
#[derive(Clone, Debug, Default)]
pub struct SegmentDemand(Arc<AtomicBool>);

impl SegmentDemand {
    /// Says that somebody waits, or no longer.
    pub fn set_waiting(&self, is_waiting: bool) {
        self.0.store(is_waiting, Ordering::Relaxed);
    }

    fn is_waiting(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// The first segment that a start needs. Shared by the writer and the stock: whether older ones are
/// still there is no matter.
#[derive(Clone, Debug, Default)]
pub(super) struct FirstNeeded(Arc<AtomicU64>);

impl FirstNeeded {
    pub(super) fn set(&self, ordinal: u64) {
        self.0.store(ordinal, Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Makes segments ready and takes them back. Its steps take milliseconds or more: it can live on a
/// thread of its own.
#[derive(Debug)]
pub struct SegmentStock {
    disk: Arc<dyn Disk>,
    segment_bytes: u64,
    spares: Vec<String>,
    /// Segments that were made ready since some were last taken back.
    taken: usize,
    /// Segments that are to go, oldest first. One that cannot go keeps the later ones here, since a
    /// hole in the row would be damage.
    leaving: VecDeque<RetiredSegment>,
    /// It is not known which names are durable; only a restart finds out.
    broken: bool,
    /// Segments that a start will look for.
    in_use: BTreeSet<u64>,
    first_needed: FirstNeeded,
    descriptor: SpareDescriptor,
    demand: SegmentDemand,
    listener: Option<Arc<dyn SegmentListener>>,
}

impl SegmentStock {
    /// A stock with the spares that lie in the folder, where what a previous run left half-made is
    /// cleared away.
    pub(super) fn open(disk: Arc<dyn Disk>, segment_bytes: u64) -> io::Result<SegmentStock> {
        let mut spares = Vec::new();
        for name in disk.list()? {
            if name == NEW_NAME {
                disk.remove(&name)?;
            } else if ordinal_of(&name, SPARE_SUFFIX).is_some() {
                if spares.len() < limits::SPARE_SEGMENTS_MAX
                    && disk.open(&name)?.len()? == segment_bytes
                {
                    spares.push(name);
                } else {
                    disk.remove(&name)?;
                }
            }
        }
        // What the previous run renamed may not be durable yet.
        disk.sync_folder()?;
        Ok(SegmentStock {
            disk,
            segment_bytes,
            spares,
            taken: 0,
            leaving: VecDeque::new(),
            in_use: BTreeSet::new(),
            broken: false,
            first_needed: FirstNeeded::default(),
            descriptor: SpareDescriptor::default(),
            demand: SegmentDemand::default(),
            listener: None,
        })
    }

    /// Has each segment that is made ready from now on told to somebody.
    pub fn set_listener(&mut self, listener: Arc<dyn SegmentListener>) {
        self.listener = Some(listener);
    }

    /// Notes segments that were there at the start.
    pub(super) fn note_in_use(&mut self, ordinals: impl IntoIterator<Item = u64>) {
        self.in_use.extend(ordinals);
    }

    /// An error if the folder of the log is no longer where it was opened, or a segment in use is
    /// no longer in it: whatever is written then is lost at the next start.
    pub fn check_place(&self) -> Result<(), PrepareError> {
        let place = self.disk.check_place();
        place.map_err(|source| self.error("", source))?;
        // A folder that cannot be listed says nothing of what is in it: the next look may.
        let Ok(names) = self.disk.list() else {
            return Ok(());
        };
        let there: BTreeSet<u64> = names
            .iter()
            .filter_map(|name| segment_ordinal(name))
            .collect();
        let first_needed = self.first_needed.get();
        let mut gone = self.in_use.difference(&there);
        match gone.find(|&&ordinal| ordinal >= first_needed) {
            None => Ok(()),
            Some(&gone) => Err(PrepareError::Removed {
                file: self.disk.describe(&segment_name(gone)),
            }),
        }
    }

    /// Where is said that somebody waits for the segment that is being prepared.
    pub fn demand(&self) -> SegmentDemand {
        self.demand.clone()
    }

    /// Where the writer says which segments are needed.
    pub(super) fn first_needed(&self) -> FirstNeeded {
        self.first_needed.clone()
    }

    /// Where the writer leaves the files that it does not need any more.
    pub(super) fn descriptor(&self) -> SpareDescriptor {
        self.descriptor.clone()
    }

    /// Makes a segment ready: a spare, or a new file filled with zeros, on the device with its
    /// name.
    ///
    /// After an error the next call tries again, but for one that left open which names are
    /// durable.
    pub fn prepare(&mut self, wanted: WantedSegment) -> Result<ReadySegment, PrepareError> {
        let ready = self.make_ready(wanted)?;
        self.taken += 1;
        if let Some(listener) = &self.listener {
            listener.segment_ready(wanted.ordinal, wanted.durable_sequence);
        }
        Ok(ready)
    }

    fn make_ready(&mut self, wanted: WantedSegment) -> Result<ReadySegment, PrepareError> {
        if self.broken {
            return Err(PrepareError::Stopped);
        }
        self.check_place()?;
        while let Some(name) = self.spares.last().cloned() {
            if let Some(file) = self.open_spare(&name)? {
                let ready = self.install(&name, file, wanted.ordinal, self.segment_bytes)?;
                self.spares.pop();
                return Ok(ready);
            }
            // Somebody has removed or cut it, or the device has lost it: nothing in it counts.
            self.spares.pop();
            let _ = self.disk.remove(&name);
        }
        self.prepare_new(wanted.ordinal, self.segment_bytes)
    }

    /// Opens a spare; `None`: it cannot be used. An error may be over later.
    fn open_spare(&self, name: &str) -> Result<Option<Arc<dyn DiskFile>>, PrepareError> {
        match self.descriptor.open(|| self.disk.open(name)) {
            Ok(file) => Ok(Some(file).filter(|file| {
                let bytes = file.len();
                bytes.is_ok_and(|bytes| bytes == self.segment_bytes)
            })),
            Err(error) if is_out_of_descriptors(&error) => Err(self.error(name, error)),
            Err(_) => Ok(None),
        }
    }

    /// Makes the first segment of a log ready. It must be full of zeros, since what stands at its
    /// beginning counts; and it is small, since the start waits for it.
    pub(super) fn prepare_first(&mut self, ordinal: u64) -> Result<ReadySegment, PrepareError> {
        self.prepare_new(ordinal, self.segment_bytes.min(limits::FIRST_SEGMENT_BYTES))
    }

    /// Makes a segment ready that is full of zeros.
    fn prepare_new(&mut self, ordinal: u64, bytes: u64) -> Result<ReadySegment, PrepareError> {
        let installed = self
            .make_new(bytes)
            .and_then(|file| self.install(NEW_NAME, file, ordinal, bytes));
        if installed.is_err() {
            // Frees the room. If it fails, the next attempt does it, or a start.
            let _ = self.disk.remove(NEW_NAME);
        }
        installed
    }

    /// Gives a file its place in the row. It is open before: after the name is durable nothing may
    /// fail any more.
    fn install(
        &mut self,
        source_name: &str,
        file: Arc<dyn DiskFile>,
        ordinal: u64,
        bytes: u64,
    ) -> Result<ReadySegment, PrepareError> {
        let name = segment_name(ordinal);
        self.disk
            .rename(source_name, &name)
            .map_err(|source| self.error(&name, source))?;
        self.sync_names(&name)?;
        self.in_use.insert(ordinal);
        Ok(ReadySegment(Segment {
            ordinal,
            file,
            bytes,
        }))
    }

    fn make_new(&self, bytes: u64) -> Result<Arc<dyn DiskFile>, PrepareError> {
        let create = || self.descriptor.open(|| self.disk.create(NEW_NAME));
        let created = match create() {
            // An earlier attempt has failed, and could not remove it.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                self.disk.remove(NEW_NAME).and_then(|()| create())
            }
            created => created,
        };
        created
            .and_then(|file| fill_and_sync(&*file, bytes, &self.demand).map(|()| file))
            .map_err(|source| self.error(NEW_NAME, source))
    }

    /// Takes segments back, to use them again or to remove them.
    pub fn retire(
        &mut self,
        segments: impl IntoIterator<Item = RetiredSegment>,
    ) -> Result<(), PrepareError> {
        let segments = segments.into_iter();
        self.leaving.extend(segments.inspect(|segment| {
            self.in_use.remove(&segment.ordinal);
        }));
        if self.leaving.is_empty() {
            return Ok(());
        }
        let most = self.most_spares();
        self.taken = 0;
        while let Some(segment) = self.leaving.front() {
            if self.broken {
                return Err(PrepareError::Stopped);
            }
            let name = segment_name(segment.ordinal);
            let spare_name = file_name(segment.ordinal, SPARE_SUFFIX);
            let keep = segment.bytes == self.segment_bytes && self.spares.len() < most;
            let gone = if keep {
                self.disk.rename(&name, &spare_name)
            } else {
                self.disk.remove(&name)
            };
            let is_kept = match gone {
                Ok(()) => keep,
                // Somebody else has removed it: it would be tried for ever.
                Err(error) if error.kind() == io::ErrorKind::NotFound => false,
                Err(source) => return Err(self.error(&name, source)),
            };
            // One after the other: the next one goes when it is durable that this one is gone.
            self.sync_names(&name)?;
            if is_kept {
                self.spares.push(spare_name);
            }
            self.leaving.pop_front();
        }
        // Less is written than before. One that cannot be removed goes at the next start.
        for name in self.spares.drain(self.spares.len().min(most)..) {
            let _ = self.disk.remove(&name);
        }
        Ok(())
    }

    /// How many spares are worth their room.
    fn most_spares(&self) -> usize {
        // Where the disk does not tell, as if there were none.
        let free_bytes = self.disk.free_bytes().unwrap_or(0);
        let room = free_bytes / (limits::SPARE_ROOM_TIMES * self.segment_bytes);
        let most = usize::try_from(room).unwrap_or(usize::MAX);
        (self.taken)
            .min(most.min(limits::SPARE_SEGMENTS_MAX))
            .max(limits::SPARE_SEGMENTS)
    }

    /// Makes what was renamed or removed durable.
    fn sync_names(&mut self, name: &str) -> Result<(), PrepareError> {
        self.disk.sync_folder().map_err(|source| {
            self.broken = true;
            let file = self.disk.describe(name);
            PrepareError::Unsure { file, source }
        })
    }

    fn error(&self, name: &str, source: io::Error) -> PrepareError {
        let file = self.disk.describe(name);
        match NoRoom::of(&source) {
            Some(NoRoom::Disk | NoRoom::Quota) => PrepareError::Full { file, source },
            Some(NoRoom::FileSize) | None => PrepareError::Device { file, source },
        }
    }
}

/// Gives a new file its bytes, all zeros, and syncs it.
///
/// Zeros are written while the log is written to an earlier segment, a piece at a time: a sync of
/// the log waits for what the device has taken in before, so that must not be much. Once the log
/// waits for this segment, the room of the rest is only reserved: to write it twice takes longer
/// than the metadata that its first use costs.
fn fill_and_sync(file: &dyn DiskFile, bytes: u64, demand: &SegmentDemand) -> io::Result<()> {
    let mut filled = 0;
    while filled < bytes {
        let end = if demand.is_waiting() {
            file.allocate(filled, bytes)?;
            bytes
        } else {
            let end = bytes.min(filled + limits::FILL_SYNC_BYTES);
            file.write_zeros(filled, end)?;
            end
        };
        file.sync()?;
        filled = end;
    }
    Ok(())
}

/// Why no segment was made ready, or none taken back.
#[derive(Debug, thiserror::Error)]
pub enum PrepareError {
    /// There is no room on the disk, or in what the user may have of it. Try again when there is.
    #[error("no room for {file}, the next piece of the log: {}", Advised(.source))]
    Full {
        /// The file.
        file: String,
        /// What the operating system said.
        source: io::Error,
    },
    /// The device, or the operating system, refused.
    #[error(
        "{file}, a piece of the log, cannot be prepared or removed: {}",
        Advised(.source)
    )]
    Device {
        /// The file.
        file: String,
        /// What it said.
        source: io::Error,
    },
    /// A file that is in use, of the log or of a database, is no longer in its folder. Nothing that
    /// is written from now on would be found.
    #[error(
        "{file}, which is in use, is no longer in its folder: somebody removed or renamed it while \
         the server ran, and what is written from now on would be lost at the next start; put it \
         back, or back up what the server still has, before you restart it"
    )]
    Removed {
        /// The file.
        file: String,
    },
    /// It is not known which names are durable; only a restart finds out.
    #[error(
        "{file}, a piece of the log: whether its name is on the device is not known, as its folder \
         could not be synced: {source}"
    )]
    Unsure {
        /// The file.
        file: String,
        /// What the sync of its folder said.
        source: io::Error,
    },
    /// After such an error.
    #[error("no more pieces of the log are prepared after an earlier error; restart the server")]
    Stopped,
}

impl PrepareError {
    /// Whether nothing is tried again.
    pub fn is_final(&self) -> bool {
        matches!(
            self,
            PrepareError::Unsure { .. } | PrepareError::Removed { .. } | PrepareError::Stopped
        )
    }
}
