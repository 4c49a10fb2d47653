//! A disk for tests that does what a real one may do at its worst, by seed.
//!
//! A power loss ([`SimulatedDisk::lose_power`]) leaves of each unsynced block of 512 bytes the content that was last
//! durable, or that of any write since; lengths and names of files likewise. Each step that changes something has a
//! number, and a [`Fault`] can be planned for it.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};

use super::{Disk, DiskFile, FolderLock};
use crate::suite::Random;

/// What a device writes whole or not at all.
const BLOCK_BYTES: usize = 512;

/// Versions of an unsynced block that are remembered; more add nothing but memory.
const BLOCK_VERSIONS: usize = 4;

/// What kind of step was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// [`DiskFile::write_at`].
    Write,
    /// [`DiskFile::set_len`].
    SetLen,
    /// [`DiskFile::sync`].
    Sync,
    /// [`Disk::create`], [`Disk::rename`] or [`Disk::remove`].
    Folder,
    /// [`Disk::sync_folder`].
    SyncFolder,
}

/// What goes wrong in a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// An error. A write may have been done in part; of what a sync should have made durable, any part is, and the
    /// rest counts as clean, so that a later sync passes over it.
    Error,
    /// A write writes less than it was given, and says so.
    Short,
    /// A write finds no room.
    Full,
    /// The power goes in the midst of the step; it and all that follow fail until
    /// [`lose_power`](SimulatedDisk::lose_power).
    PowerLoss,
}

/// How often each fault happened: a test can assert that it tested something.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskFaultCounts {
    /// Losses of power.
    pub power_losses: u64,
    /// Deaths of the process alone.
    pub kills: u64,
    /// Files of which a loss of power took all that was written and not synced.
    pub lost_writes: u64,
    /// Files of which a loss of power took some blocks that were written and not synced, and left others, or left an
    /// older content than the last.
    pub torn_writes: u64,
    /// Writes that failed, perhaps done in part.
    pub failed_writes: u64,
    /// Writes that took a part, and said so.
    pub short_writes: u64,
    /// Writes that found no room.
    pub full_writes: u64,
    /// Syncs that failed.
    pub failed_syncs: u64,
}

impl DiskFaultCounts {
    /// Adds those of another disk.
    pub fn add(&mut self, other: &DiskFaultCounts) {
        self.power_losses += other.power_losses;
        self.kills += other.kills;
        self.lost_writes += other.lost_writes;
        self.torn_writes += other.torn_writes;
        self.failed_writes += other.failed_writes;
        self.short_writes += other.short_writes;
        self.full_writes += other.full_writes;
        self.failed_syncs += other.failed_syncs;
    }
}

/// What a loss of power made of the unsynced blocks of a file.
#[derive(Clone, Copy, Debug, Default)]
struct Left {
    /// With their last content.
    whole: usize,
    /// Without it.
    lost: usize,
}

/// A simulated disk. A handle: clones are the same disk.
#[derive(Clone, Debug)]
pub struct SimulatedDisk {
    world: Arc<Mutex<World>>,
}

#[derive(Debug)]
struct World {
    random: Random,
    /// All files that ever were. What is not named any more may come back.
    files: Vec<FileState>,
    names: BTreeMap<String, usize>,
    durable_names: BTreeMap<String, usize>,
    /// Changes of names since the last sync of the folder.
    pending: Vec<FolderChange>,
    capacity_bytes: u64,
    steps: Vec<Step>,
    plan: BTreeMap<usize, Fault>,
    /// Faults for the next steps of a kind: how many of them go well before.
    plan_of_kind: Vec<(Step, usize, Fault)>,
    counts: DiskFaultCounts,
    powerless: bool,
    locked: bool,
    /// Raised when the process dies: handles of an earlier life are dead.
    life: u64,
}

#[derive(Clone, Debug)]
enum FolderChange {
    Create(String, usize),
    Remove(String),
    Rename(String, String),
}

impl FolderChange {
    fn apply(&self, names: &mut BTreeMap<String, usize>) {
        match self {
            FolderChange::Create(name, file) => {
                names.insert(name.clone(), *file);
            }
            FolderChange::Remove(name) => {
                names.remove(name);
            }
            FolderChange::Rename(from, to) => {
                // The file may be missing after a loss of earlier changes.
                if let Some(file) = names.remove(from) {
                    names.insert(to.clone(), file);
                }
            }
        }
    }
}

/// A file as processes see it, and as the device has it.
#[derive(Debug, Default)]
struct FileState {
    cached: Vec<u8>,
    device: Vec<u8>,
    /// The contents that each unsynced block has had since it was last clean.
    dirty: BTreeMap<usize, Vec<Vec<u8>>>,
    /// Which blocks have been given space: a hole has none.
    allocated: Vec<bool>,
    /// The least length since the last sync: what the device has beyond it is gone when the length is durable.
    shortest: usize,
}

impl FileState {
    fn block(&self, block: usize) -> Vec<u8> {
        let start = block * BLOCK_BYTES;
        let end = self.cached.len().min(start + BLOCK_BYTES);
        self.cached
            .get(start..end)
            .map_or(Vec::new(), <[u8]>::to_vec)
    }

    fn write(&mut self, bytes: &[u8], offset: usize, random: &mut Random) {
        if bytes.is_empty() {
            return;
        }
        let end = offset + bytes.len();
        if self.cached.len() < end {
            self.set_len(end);
        }
        self.cached[offset..end].copy_from_slice(bytes);
        for block in offset / BLOCK_BYTES..end.div_ceil(BLOCK_BYTES) {
            self.allocated[block] = true;
            let content = self.block(block);
            let versions = self.dirty.entry(block).or_default();
            if versions.len() == BLOCK_VERSIONS {
                versions.remove(random.below(BLOCK_VERSIONS));
            }
            versions.push(content);
        }
    }

    fn set_len(&mut self, bytes: usize) {
        self.cached.resize(bytes, 0);
        let blocks = bytes.div_ceil(BLOCK_BYTES);
        self.allocated.resize(blocks, false);
        self.dirty.split_off(&blocks);
        self.shortest = self.shortest.min(bytes);
    }

    fn sync_len(&mut self) {
        self.device.truncate(self.shortest);
        self.device.resize(self.cached.len(), 0);
        self.shortest = self.cached.len();
    }

    fn sync(&mut self) {
        self.sync_len();
        for &block in self.dirty.keys() {
            let start = block * BLOCK_BYTES;
            let end = self.cached.len().min(start + BLOCK_BYTES);
            self.device[start..end].copy_from_slice(&self.cached[start..end]);
        }
        self.dirty.clear();
    }

    /// Lets the device keep what it happens to have of the unsynced blocks, and forgets that they were unsynced.
    fn lose(&mut self, loss: Loss, random: &mut Random) -> Left {
        if loss.keeps(random) {
            self.sync_len();
        }
        let mut left = Left::default();
        for (block, versions) in std::mem::take(&mut self.dirty) {
            if !loss.keeps(random) {
                left.lost += 1;
                continue;
            }
            let last = versions.len() - 1;
            let which = match loss {
                Loss::Nothing => last,
                _ => random.below(versions.len()),
            };
            left.whole += usize::from(which == last);
            left.lost += usize::from(which != last);
            let version = &versions[which];
            let start = block * BLOCK_BYTES;
            let room = self.device.len().saturating_sub(start).min(version.len());
            if room > 0 {
                self.device[start..start + room].copy_from_slice(&version[..room]);
            }
        }
        left
    }

    /// Forgets the cached content of clean blocks.
    fn evict(&mut self) {
        let mut cached = self.device.clone();
        cached.resize(self.cached.len(), 0);
        for &block in self.dirty.keys() {
            let start = block * BLOCK_BYTES;
            let end = self.cached.len().min(start + BLOCK_BYTES);
            cached[start..end].copy_from_slice(&self.cached[start..end]);
        }
        self.cached = cached;
    }
}

/// How much of the unsynced things a power loss takes.
#[derive(Clone, Copy, Debug)]
enum Loss {
    Everything,
    Most,
    Half,
    Little,
    Nothing,
}

impl Loss {
    fn draw(random: &mut Random) -> Loss {
        random.pick(&[
            Loss::Everything,
            Loss::Most,
            Loss::Half,
            Loss::Little,
            Loss::Nothing,
        ])
    }

    fn keeps(self, random: &mut Random) -> bool {
        match self {
            Loss::Everything => false,
            Loss::Most => random.once_in(8),
            Loss::Half => random.once_in(2),
            Loss::Little => !random.once_in(8),
            Loss::Nothing => true,
        }
    }
}

impl World {
    /// Counts a step; says what goes wrong in it.
    fn step(&mut self, step: Step) -> io::Result<Option<Fault>> {
        self.check_power()?;
        let number = self.steps.len();
        self.steps.push(step);
        let planned = self.plan.get(&number).copied();
        let fault = self.planned_for_kind(step).or(planned);
        self.count(step, fault);
        self.powerless = fault == Some(Fault::PowerLoss);
        Ok(fault)
    }

    fn planned_for_kind(&mut self, step: Step) -> Option<Fault> {
        let mut due = None;
        self.plan_of_kind.retain_mut(|(kind, before, fault)| {
            if *kind == step && *before == 0 {
                due = Some(*fault);
                return false;
            }
            *before -= usize::from(*kind == step);
            true
        });
        due
    }

    fn count(&mut self, step: Step, fault: Option<Fault>) {
        let counts = &mut self.counts;
        match (step, fault) {
            (Step::Write, Some(Fault::Error)) => counts.failed_writes += 1,
            (Step::Write, Some(Fault::Short)) => counts.short_writes += 1,
            (Step::Write, Some(Fault::Full)) => counts.full_writes += 1,
            (Step::Sync, Some(Fault::Error)) => counts.failed_syncs += 1,
            _ => {}
        }
    }

    fn check_power(&self) -> io::Result<()> {
        if self.powerless {
            Err(power_lost())
        } else {
            Ok(())
        }
    }

    fn used_bytes(&self) -> u64 {
        let blocks = |&file: &usize| {
            let allocated = &self.files[file].allocated;
            allocated.iter().filter(|&&allocated| allocated).count()
        };
        let blocks: usize = self.names.values().map(blocks).sum();
        (blocks * BLOCK_BYTES) as u64
    }

    /// How many bytes of a write need new room.
    fn needed_bytes(&self, file: usize, offset: usize, len: usize) -> u64 {
        let allocated = &self.files[file].allocated;
        let blocks = offset / BLOCK_BYTES..(offset + len).div_ceil(BLOCK_BYTES);
        let new = blocks.filter(|&block| !allocated.get(block).copied().unwrap_or(false));
        (new.count() * BLOCK_BYTES) as u64
    }

    fn write(&mut self, file: usize, bytes: &[u8], offset: usize) -> io::Result<usize> {
        let needed_bytes = self.needed_bytes(file, offset, bytes.len());
        if needed_bytes > 0 && self.used_bytes() + needed_bytes > self.capacity_bytes {
            self.step(Step::Write)?;
            self.counts.full_writes += 1;
            return Err(io::ErrorKind::StorageFull.into());
        }
        let fault = self.step(Step::Write)?;
        let part = self.random.below(bytes.len() + 1);
        let random = &mut self.random;
        let state = &mut self.files[file];
        match fault {
            None => state.write(bytes, offset, random),
            Some(Fault::Full) => return Err(io::ErrorKind::StorageFull.into()),
            Some(Fault::Short) if bytes.len() > 1 => {
                let part = part.clamp(1, bytes.len() - 1);
                state.write(&bytes[..part], offset, random);
                return Ok(part);
            }
            Some(Fault::Short) => state.write(bytes, offset, random),
            Some(Fault::Error) => {
                state.write(&bytes[..part], offset, random);
                return Err(device_error());
            }
            // All of it may have been under way.
            Some(Fault::PowerLoss) => {
                state.write(bytes, offset, random);
                return Err(power_lost());
            }
        }
        Ok(bytes.len())
    }

    fn sync(&mut self, file: usize) -> io::Result<()> {
        let fault = self.step(Step::Sync)?;
        match fault {
            Some(Fault::PowerLoss) => Err(power_lost()),
            Some(Fault::Error) => {
                let loss = Loss::draw(&mut self.random);
                self.files[file].lose(loss, &mut self.random);
                Err(device_error())
            }
            _ => {
                self.files[file].sync();
                Ok(())
            }
        }
    }

    fn change_folder(&mut self, change: FolderChange) -> io::Result<()> {
        match self.step(Step::Folder)? {
            Some(Fault::Error) => return Err(device_error()),
            Some(Fault::Full) => return Err(io::ErrorKind::StorageFull.into()),
            _ => {}
        }
        change.apply(&mut self.names);
        self.pending.push(change);
        // If the power is gone, the change may have been under way.
        self.check_power()
    }

    fn sync_folder(&mut self) -> io::Result<()> {
        match self.step(Step::SyncFolder)? {
            Some(Fault::PowerLoss) => Err(power_lost()),
            Some(Fault::Error) => Err(device_error()),
            _ => {
                self.durable_names = self.names.clone();
                self.pending.clear();
                Ok(())
            }
        }
    }

    fn find(&self, name: &str) -> io::Result<usize> {
        self.names
            .get(name)
            .copied()
            .ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn lose_power(&mut self) {
        let loss = Loss::draw(&mut self.random);
        for change in std::mem::take(&mut self.pending) {
            if loss.keeps(&mut self.random) {
                change.apply(&mut self.durable_names);
            }
        }
        self.names = self.durable_names.clone();
        for file in &mut self.files {
            let Left { whole, lost } = file.lose(loss, &mut self.random);
            self.counts.lost_writes += u64::from(whole == 0 && lost > 0);
            self.counts.torn_writes += u64::from(whole > 0 && lost > 0);
            file.cached = file.device.clone();
            file.shortest = file.cached.len();
            file.allocated
                .resize(file.device.len().div_ceil(BLOCK_BYTES), true);
        }
        self.counts.power_losses += 1;
        self.powerless = false;
        self.end_life();
    }

    fn end_life(&mut self) {
        self.life += 1;
        self.locked = false;
        self.plan_of_kind.clear();
    }
}

fn power_lost() -> io::Error {
    io::Error::other("the power is lost")
}

fn device_error() -> io::Error {
    io::Error::other("injected device error")
}

impl SimulatedDisk {
    /// An empty disk with unbounded room.
    pub fn new(seed: u64) -> SimulatedDisk {
        let world = World {
            random: Random::new(seed),
            files: Vec::new(),
            names: BTreeMap::new(),
            durable_names: BTreeMap::new(),
            pending: Vec::new(),
            capacity_bytes: u64::MAX,
            steps: Vec::new(),
            plan: BTreeMap::new(),
            plan_of_kind: Vec::new(),
            counts: DiskFaultCounts::default(),
            powerless: false,
            locked: false,
            life: 0,
        };
        SimulatedDisk {
            world: Arc::new(Mutex::new(world)),
        }
    }

    /// Lets a step go wrong. Steps are counted from 0.
    pub fn plan(&self, step: usize, fault: Fault) {
        self.world().plan.insert(step, fault);
    }

    /// Lets a step of one kind go wrong, after `before` of them that do not. Forgotten when the process ends.
    pub fn plan_next(&self, kind: Step, before: usize, fault: Fault) {
        self.world().plan_of_kind.push((kind, before, fault));
    }

    /// Lets nothing more go wrong that was planned.
    pub fn forget_plans(&self) {
        let mut world = self.world();
        world.plan.clear();
        world.plan_of_kind.clear();
    }

    /// Whether the power is there.
    pub fn has_power(&self) -> bool {
        !self.world().powerless
    }

    /// What went wrong so far.
    pub fn fault_counts(&self) -> DiskFaultCounts {
        self.world().counts
    }

    /// Bytes that the contents of all files take.
    pub fn used_bytes(&self) -> u64 {
        self.world().used_bytes()
    }

    /// The steps taken so far.
    pub fn steps(&self) -> Vec<Step> {
        self.world().steps.clone()
    }

    /// How many steps have been taken so far: the number of the next one.
    pub fn step_count(&self) -> usize {
        self.world().steps.len()
    }

    /// Takes what is not durable away, at random, and turns the power on again. All open files are dead.
    pub fn lose_power(&self) {
        self.world().lose_power();
    }

    /// The process dies, the machine goes on. All open files are dead.
    pub fn kill(&self) {
        let mut world = self.world();
        world.counts.kills += 1;
        world.end_life();
    }

    /// Lets the operating system forget what it believes to be on the device too, so that it is read again from there.
    pub fn evict(&self) {
        for file in &mut self.world().files {
            file.evict();
        }
    }

    /// Bounds the room for the contents of all files.
    pub fn set_capacity_bytes(&self, bytes: u64) {
        self.world().capacity_bytes = bytes;
    }

    /// Changes bits of a byte, on the device too.
    ///
    /// # Panics
    /// If there is no such file or byte.
    pub fn flip(&self, name: &str, offset: usize, bits: u8) {
        let mut world = self.world();
        let file = world.find(name).expect("the file exists");
        let file = &mut world.files[file];
        file.cached[offset] ^= bits;
        if let Some(byte) = file.device.get_mut(offset) {
            *byte ^= bits;
        }
    }

    /// What a file holds.
    ///
    /// # Panics
    /// If there is no such file.
    pub fn contents(&self, name: &str) -> Vec<u8> {
        let world = self.world();
        let file = world.find(name).expect("the file exists");
        world.files[file].cached.clone()
    }

    fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock()
    }

    fn file(&self, id: usize) -> Arc<dyn DiskFile> {
        Arc::new(SimulatedFile {
            disk: self.clone(),
            id,
            life: self.world().life,
        })
    }
}

impl Disk for SimulatedDisk {
    fn create(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        let id = {
            let mut world = self.world();
            if world.names.contains_key(name) {
                return Err(io::ErrorKind::AlreadyExists.into());
            }
            let id = world.files.len();
            world.files.push(FileState::default());
            world.change_folder(FolderChange::Create(name.into(), id))?;
            id
        };
        Ok(self.file(id))
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        let id = {
            let world = self.world();
            world.check_power()?;
            world.find(name)?
        };
        Ok(self.file(id))
    }

    fn list(&self) -> io::Result<Vec<String>> {
        let world = self.world();
        world.check_power()?;
        Ok(world.names.keys().cloned().collect())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let mut world = self.world();
        world.find(name)?;
        world.change_folder(FolderChange::Remove(name.into()))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut world = self.world();
        world.find(from)?;
        world.change_folder(FolderChange::Rename(from.into(), to.into()))
    }

    fn sync_folder(&self) -> io::Result<()> {
        self.world().sync_folder()
    }

    fn lock(&self) -> io::Result<Option<FolderLock>> {
        let mut world = self.world();
        world.check_power()?;
        if std::mem::replace(&mut world.locked, true) {
            return Ok(None);
        }
        let guard = LockGuard {
            disk: self.clone(),
            life: world.life,
        };
        Ok(Some(FolderLock::new(guard)))
    }

    fn free_bytes(&self) -> io::Result<u64> {
        let world = self.world();
        Ok(world.capacity_bytes.saturating_sub(world.used_bytes()))
    }

    fn describe(&self, name: &str) -> String {
        format!("simulated/{name}")
    }
}

#[derive(Debug)]
struct LockGuard {
    disk: SimulatedDisk,
    life: u64,
}

impl Drop for LockGuard {
    fn drop(&mut self) {
        let mut world = self.disk.world();
        if world.life == self.life {
            world.locked = false;
        }
    }
}

#[derive(Debug)]
struct SimulatedFile {
    disk: SimulatedDisk,
    id: usize,
    life: u64,
}

impl SimulatedFile {
    fn world(&self) -> io::Result<MutexGuard<'_, World>> {
        let world = self.disk.world();
        if world.life != self.life {
            return Err(io::Error::other("the process that opened the file is dead"));
        }
        world.check_power()?;
        Ok(world)
    }
}

impl DiskFile for SimulatedFile {
    fn len(&self) -> io::Result<u64> {
        Ok(self.world()?.files[self.id].cached.len() as u64)
    }

    fn set_len(&self, bytes: u64) -> io::Result<()> {
        let mut world = self.world()?;
        if let Some(Fault::Error | Fault::Full) = world.step(Step::SetLen)? {
            return Err(device_error());
        }
        world.files[self.id].set_len(bytes as usize);
        world.check_power()
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let world = self.world()?;
        let cached = &world.files[self.id].cached;
        let rest = cached.get(offset as usize..).unwrap_or_default();
        let count = rest.len().min(buffer.len());
        buffer[..count].copy_from_slice(&rest[..count]);
        Ok(count)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        self.world()?.write(self.id, bytes, offset as usize)
    }

    fn sync(&self) -> io::Result<()> {
        self.world()?.sync(self.id)
    }
}
