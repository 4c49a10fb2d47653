//! A disk for tests that does what a real one may do at its worst, by seed.
//!
//! A power loss ([`SimulatedDisk::lose_power`]) leaves of each unsynced block of 512 bytes the
//! content that was last durable, or that of any write since; lengths and names of files likewise.
//! Each step that changes something has a number, each [access](Step::is_access) has one of another
//! row, and a [`Fault`] can be planned for each of them. Files that are open are counted, and can
//! be bounded as the descriptors of a process are.

mod faults;
mod file;
mod numbers;
mod world;

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};

pub use self::faults::{DiskFaultCounts, Fault, Step};
use self::file::FileState;
use self::numbers::Numbers;
use self::world::{DiskPlace, FolderChange, Planned, World, device_error, power_lost};
use super::{Disk, DiskFile, FolderLock};

/// A simulated disk. A handle: clones are the same disk.
#[derive(Clone, Debug)]
pub struct SimulatedDisk {
    world: Arc<Mutex<World>>,
    /// What stands before the names of this folder: nothing, or that of a folder within and a
    /// slash.
    prefix: Arc<str>,
}

impl SimulatedDisk {
    /// An empty disk with unbounded room, which decides by the numbers of a seeded generator.
    pub fn new(numbers: impl Iterator<Item = u64> + Clone + Send + 'static) -> SimulatedDisk {
        let world = World {
            random: Numbers::new(numbers),
            files: Vec::new(),
            names: BTreeMap::new(),
            durable_names: BTreeMap::new(),
            pending: Vec::new(),
            capacity_bytes: u64::MAX,
            steps: Vec::new(),
            accesses: Vec::new(),
            plan: BTreeMap::new(),
            plan_of_accesses: BTreeMap::new(),
            plan_of_kind: Vec::new(),
            counts: DiskFaultCounts::default(),
            powerless: false,
            locked: false,
            handles: 0,
            handle_limit: usize::MAX,
            life: 0,
        };
        SimulatedDisk {
            world: Arc::new(Mutex::new(world)),
            prefix: "".into(),
        }
    }

    fn full(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    /// Lets a step go wrong. Steps are counted from 0.
    pub fn plan(&self, step: usize, fault: Fault) {
        self.world().plan.insert(step, fault);
    }

    /// Lets an access go wrong. Accesses are counted from 0, apart from other steps.
    pub fn plan_access(&self, access: usize, fault: Fault) {
        self.world().plan_of_accesses.insert(access, fault);
    }

    /// Lets a step of one kind in this folder, or in one within, go wrong, after `before` of them
    /// that do not. Forgotten when the process ends.
    pub fn plan_next(&self, kind: Step, before: usize, fault: Fault) {
        let planned = Planned {
            prefix: Arc::clone(&self.prefix),
            kind,
            before,
            fault,
        };
        self.world().plan_of_kind.push(planned);
    }

    /// A folder in this one. Folders are there with their first file.
    pub fn folder(&self, name: &str) -> SimulatedDisk {
        SimulatedDisk {
            world: Arc::clone(&self.world),
            prefix: format!("{}{name}/", self.prefix).into(),
        }
    }

    /// Lets nothing more go wrong that was planned.
    pub fn forget_plans(&self) {
        let mut world = self.world();
        world.plan.clear();
        world.plan_of_accesses.clear();
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

    /// The accesses so far.
    pub fn accesses(&self) -> Vec<Step> {
        self.world().accesses.clone()
    }

    /// How many files are open.
    pub fn open_handles(&self) -> usize {
        self.world().handles
    }

    /// Bounds how many files may be open at a time, from now on, over all folders of the disk.
    pub fn set_handle_limit(&self, handles: usize) {
        self.world().handle_limit = handles;
    }

    /// Takes what is not durable away, at random, and turns the power on again. All open files are
    /// dead.
    pub fn lose_power(&self) {
        self.world().lose_power();
    }

    /// The process dies, the machine goes on. All open files are dead.
    pub fn kill(&self) {
        let mut world = self.world();
        world.counts.kills += 1;
        world.end_life();
    }

    /// Another disk that is as this one is now, of which nothing is open. What becomes of one is
    /// nothing to the other.
    pub fn fork(&self) -> SimulatedDisk {
        let mut world = self.world().clone();
        world.end_life();
        SimulatedDisk {
            world: Arc::new(Mutex::new(world)),
            prefix: self.prefix.clone(),
        }
    }

    /// Lets the operating system forget what it believes to be on the device too, so that it is
    /// read again from there.
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
        let file = world.find(&self.full(name)).expect("the file exists");
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
        let file = world.find(&self.full(name)).expect("the file exists");
        world.files[file].cached.clone()
    }

    fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock()
    }

    fn file(&self, id: usize) -> Arc<dyn DiskFile> {
        Arc::new(SimulatedFile {
            id,
            handle: OpenHandle::new(self),
        })
    }
}

impl Disk for SimulatedDisk {
    fn create(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        let name = self.full(name);
        let id = {
            let mut world = self.world();
            if world.names.contains_key(&name) {
                return Err(io::ErrorKind::AlreadyExists.into());
            }
            let id = world.files.len();
            world.files.push(FileState::default());
            world.change_folder(FolderChange::Create(name, id))?;
            id
        };
        Ok(self.file(id))
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        let id = {
            let mut world = self.world();
            let name = self.full(name);
            world.plain_step(Step::Open, DiskPlace::Name(&name))?;
            world.find(&name)?
        };
        Ok(self.file(id))
    }

    fn list(&self) -> io::Result<Vec<String>> {
        let mut world = self.world();
        world.plain_step(Step::List, DiskPlace::Name(&self.prefix))?;
        let here = |name: &String| {
            let name = name.strip_prefix(&*self.prefix)?;
            (!name.contains('/')).then(|| name.to_owned())
        };
        Ok(world.names.keys().filter_map(here).collect())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let mut world = self.world();
        let name = self.full(name);
        world.find(&name)?;
        world.change_folder(FolderChange::Remove(name))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut world = self.world();
        let (from, to) = (self.full(from), self.full(to));
        let file = world.find(&from)?;
        world.change_folder(FolderChange::Rename { from, to, file })
    }

    fn sync_folder(&self) -> io::Result<()> {
        self.world().sync_folder(&self.prefix)
    }

    fn lock(&self) -> io::Result<Option<FolderLock>> {
        {
            let mut world = self.world();
            world.plain_step(Step::Open, DiskPlace::Name(&self.prefix))?;
            if std::mem::replace(&mut world.locked, true) {
                return Ok(None);
            }
        }
        Ok(Some(FolderLock::new(LockGuard(OpenHandle::new(self)))))
    }

    fn free_bytes(&self) -> io::Result<u64> {
        let world = self.world();
        Ok(world.capacity_bytes.saturating_sub(world.used_bytes()))
    }

    fn subfolder(&self, name: &str) -> io::Result<Arc<dyn Disk>> {
        self.world().check_power()?;
        Ok(Arc::new(self.folder(name)))
    }

    fn has_subfolder(&self, name: &str) -> io::Result<bool> {
        let world = self.world();
        world.check_power()?;
        let prefix = self.full(&format!("{name}/"));
        let is_in_it = |other: &String| other.starts_with(&prefix);
        Ok(world.names.keys().any(is_in_it))
    }

    fn remove_subfolder(&self, _name: &str) -> io::Result<()> {
        self.world().check_power()
    }

    fn describe(&self, name: &str) -> String {
        format!("simulated/{}{name}", self.prefix)
    }
}

/// An open file, as far as it is counted.
#[derive(Debug)]
struct OpenHandle {
    disk: SimulatedDisk,
    life: u64,
}

impl OpenHandle {
    fn new(disk: &SimulatedDisk) -> OpenHandle {
        let mut world = disk.world();
        world.handles += 1;
        OpenHandle {
            life: world.life,
            disk: disk.clone(),
        }
    }
}

impl Drop for OpenHandle {
    fn drop(&mut self) {
        let mut world = self.disk.world();
        if world.life == self.life {
            world.handles -= 1;
        }
    }
}

#[derive(Debug)]
struct LockGuard(OpenHandle);

impl Drop for LockGuard {
    fn drop(&mut self) {
        let mut world = self.0.disk.world();
        if world.life == self.0.life {
            world.locked = false;
        }
    }
}

#[derive(Debug)]
struct SimulatedFile {
    id: usize,
    handle: OpenHandle,
}

impl SimulatedFile {
    fn world(&self) -> io::Result<MutexGuard<'_, World>> {
        let world = self.handle.disk.world();
        if world.life != self.handle.life {
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
        world.plain_step(Step::SetLen, DiskPlace::File(self.id))?;
        world.files[self.id].set_len(bytes as usize);
        world.check_power()
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut world = self.world()?;
        let fault = world.step(Step::Read, DiskPlace::File(self.id))?;
        let cached = &world.files[self.id].cached;
        let rest = cached.get(offset as usize..).unwrap_or_default();
        let mut count = rest.len().min(buffer.len());
        match fault {
            Some(Fault::Error | Fault::Full) => return Err(device_error()),
            Some(Fault::PowerLoss) => return Err(power_lost()),
            Some(Fault::Short) => count = count.div_ceil(2),
            Some(Fault::NoDescriptor | Fault::Denied) | None => {}
        }
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
