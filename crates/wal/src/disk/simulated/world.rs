//! What is behind all handles of a simulated disk.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use super::faults::{DiskFaultCounts, Fault, Step};
use super::file::{BLOCK_BYTES, FileState, Left, Loss};
use super::numbers::Numbers;

#[derive(Clone, Debug)]
pub(super) struct World {
    pub(super) random: Numbers,
    /// All files that ever were. What is not named any more may come back.
    pub(super) files: Vec<FileState>,
    pub(super) names: BTreeMap<String, usize>,
    pub(super) durable_names: BTreeMap<String, usize>,
    /// Changes of names since the last sync of the folder.
    pub(super) pending: Vec<FolderChange>,
    pub(super) capacity_bytes: u64,
    /// Steps that changed something, or tried to.
    pub(super) steps: Vec<Step>,
    /// Steps that changed nothing.
    pub(super) accesses: Vec<Step>,
    pub(super) plan: BTreeMap<usize, Fault>,
    pub(super) plan_of_accesses: BTreeMap<usize, Fault>,
    pub(super) plan_of_kind: Vec<Planned>,
    pub(super) counts: DiskFaultCounts,
    pub(super) powerless: bool,
    pub(super) locked: bool,
    /// Files that are open at this moment.
    pub(super) handles: usize,
    pub(super) handle_limit: usize,
    /// Raised when the process dies: handles of a previous run are dead.
    pub(super) life: u64,
}

/// A fault for the next step of a kind.
#[derive(Clone, Debug)]
pub(super) struct Planned {
    /// What the names of the files begin with.
    pub(super) prefix: Arc<str>,
    pub(super) kind: Step,
    /// How many of them go well before.
    pub(super) before: usize,
    pub(super) fault: Fault,
}

/// What a step is about.
#[derive(Clone, Copy, Debug)]
pub(super) enum DiskPlace<'a> {
    File(usize),
    /// The name of a file, or a prefix of names.
    Name(&'a str),
}

#[derive(Clone, Debug)]
pub(super) enum FolderChange {
    Create(String, usize),
    Remove(String),
    Rename {
        from: String,
        to: String,
        /// The file that was renamed: an entry of a folder names a file, and not what another entry
        /// named.
        file: usize,
    },
}

impl FolderChange {
    pub(super) fn step(&self) -> Step {
        match self {
            FolderChange::Create(..) => Step::Create,
            FolderChange::Remove(_) => Step::Remove,
            FolderChange::Rename { .. } => Step::Rename,
        }
    }

    /// A name that it changes; all of them are in one folder.
    fn name(&self) -> &str {
        let (FolderChange::Create(name, _)
        | FolderChange::Remove(name)
        | FolderChange::Rename { from: name, .. }) = self;
        name
    }

    fn apply(&self, names: &mut BTreeMap<String, usize>) {
        match self {
            FolderChange::Create(name, file) => {
                names.insert(name.clone(), *file);
            }
            FolderChange::Remove(name) => {
                names.remove(name);
            }
            FolderChange::Rename { from, to, file } => {
                // After a loss of earlier changes another file may have the name, or none.
                if names.get(from) == Some(file) {
                    names.remove(from);
                }
                names.insert(to.clone(), *file);
            }
        }
    }
}

impl DiskPlace<'_> {
    fn is_in(self, prefix: &str, names: &BTreeMap<String, usize>) -> bool {
        let begins = |name: &str| name.starts_with(prefix);
        match self {
            DiskPlace::Name(name) => begins(name),
            DiskPlace::File(_) if prefix.is_empty() => true,
            DiskPlace::File(file) => names.iter().any(|(name, &id)| id == file && begins(name)),
        }
    }
}

impl World {
    /// Counts a step; returns what goes wrong in it.
    pub(super) fn step(&mut self, step: Step, place: DiskPlace<'_>) -> io::Result<Option<Fault>> {
        self.check_power()?;
        let (steps, plan) = match step.is_access() {
            true => (&mut self.accesses, &self.plan_of_accesses),
            false => (&mut self.steps, &self.plan),
        };
        let planned = plan.get(&steps.len()).copied();
        steps.push(step);
        let mut fault = self.planned_for_kind(step, place).or(planned);
        if step.needs_descriptor() && self.handles >= self.handle_limit {
            fault = Some(Fault::NoDescriptor);
        }
        if let Some(fault) = fault {
            self.counts.note(step, fault);
        }
        self.powerless = fault == Some(Fault::PowerLoss);
        Ok(fault)
    }

    /// The same for a step that is done or not.
    pub(super) fn plain_step(&mut self, step: Step, place: DiskPlace<'_>) -> io::Result<()> {
        match self.step(step, place)? {
            Some(Fault::Error) => Err(device_error()),
            Some(Fault::Full) => Err(io::ErrorKind::StorageFull.into()),
            Some(Fault::NoDescriptor) if step.needs_descriptor() => Err(no_descriptor()),
            Some(Fault::Denied) if step.needs_permission() => Err(denied()),
            Some(Fault::PowerLoss) if step.is_access() => Err(power_lost()),
            _ => Ok(()),
        }
    }

    fn planned_for_kind(&mut self, step: Step, place: DiskPlace<'_>) -> Option<Fault> {
        let mut due = None;
        let names = &self.names;
        self.plan_of_kind.retain_mut(|planned| {
            if planned.kind != step || !place.is_in(&planned.prefix, names) {
                return true;
            }
            if planned.before == 0 {
                due = Some(planned.fault);
                return false;
            }
            planned.before -= 1;
            true
        });
        due
    }

    pub(super) fn check_power(&self) -> io::Result<()> {
        if self.powerless {
            Err(power_lost())
        } else {
            Ok(())
        }
    }

    pub(super) fn used_bytes(&self) -> u64 {
        let blocks = |&file: &usize| {
            let allocated = &self.files[file].allocated;
            allocated.iter().filter(|&&allocated| allocated).count()
        };
        let blocks: usize = self.names.values().map(blocks).sum();
        (blocks * BLOCK_BYTES) as u64
    }

    /// How many bytes of a write need new room.
    pub(super) fn needed_bytes(&self, file: usize, offset: usize, len: usize) -> u64 {
        let allocated = &self.files[file].allocated;
        let blocks = offset / BLOCK_BYTES..(offset + len).div_ceil(BLOCK_BYTES);
        let new = blocks.filter(|&block| !allocated.get(block).copied().unwrap_or(false));
        (new.count() * BLOCK_BYTES) as u64
    }

    pub(super) fn write(&mut self, file: usize, bytes: &[u8], offset: usize) -> io::Result<usize> {
        let needed_bytes = self.needed_bytes(file, offset, bytes.len());
        if needed_bytes > 0 && self.used_bytes() + needed_bytes > self.capacity_bytes {
            self.step(Step::Write, DiskPlace::File(file))?;
            self.counts.full_writes += 1;
            return Err(io::ErrorKind::StorageFull.into());
        }
        let fault = self.step(Step::Write, DiskPlace::File(file))?;
        let part = self.random.below(bytes.len() + 1);
        let random = &mut self.random;
        let state = &mut self.files[file];
        match fault {
            None | Some(Fault::NoDescriptor | Fault::Denied) => state.write(bytes, offset, random),
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

    pub(super) fn sync(&mut self, file: usize) -> io::Result<()> {
        let fault = self.step(Step::Sync, DiskPlace::File(file))?;
        match fault {
            Some(Fault::PowerLoss) => Err(power_lost()),
            Some(Fault::Error | Fault::Full) => {
                let loss = Loss::draw(&mut self.random);
                self.files[file].lose(loss, &mut self.random);
                Err(match fault {
                    Some(Fault::Full) => io::ErrorKind::StorageFull.into(),
                    _ => device_error(),
                })
            }
            _ => {
                self.files[file].sync();
                Ok(())
            }
        }
    }

    pub(super) fn change_folder(&mut self, change: FolderChange) -> io::Result<()> {
        self.plain_step(change.step(), DiskPlace::Name(change.name()))?;
        change.apply(&mut self.names);
        self.pending.push(change);
        // If the power is gone, the change may have been under way.
        self.check_power()
    }

    /// Makes durable which files there are in the folder with this prefix.
    pub(super) fn sync_folder(&mut self, prefix: &str) -> io::Result<()> {
        match self.step(Step::SyncFolder, DiskPlace::Name(prefix))? {
            Some(Fault::PowerLoss) => Err(power_lost()),
            Some(Fault::Error) => Err(device_error()),
            Some(Fault::Full) => Err(io::ErrorKind::StorageFull.into()),
            _ => {
                let is_here = |name: &str| {
                    let rest = name.strip_prefix(prefix);
                    rest.is_some_and(|rest| !rest.contains('/'))
                };
                self.durable_names.retain(|name, _| !is_here(name));
                let here = self.names.iter().filter(|(name, _)| is_here(name));
                self.durable_names
                    .extend(here.map(|(name, &file)| (name.clone(), file)));
                self.pending.retain(|change| !is_here(change.name()));
                Ok(())
            }
        }
    }

    pub(super) fn find(&self, name: &str) -> io::Result<usize> {
        self.names
            .get(name)
            .copied()
            .ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    pub(super) fn lose_power(&mut self) {
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

    pub(super) fn end_life(&mut self) {
        self.life += 1;
        self.locked = false;
        self.handles = 0;
        self.plan_of_kind.clear();
    }
}

pub(super) fn power_lost() -> io::Error {
    io::Error::other("the power is lost")
}

pub(super) fn device_error() -> io::Error {
    rustix::io::Errno::IO.into()
}

pub(super) fn no_descriptor() -> io::Error {
    rustix::io::Errno::MFILE.into()
}

pub(super) fn denied() -> io::Error {
    rustix::io::Errno::ACCESS.into()
}
