//! A file of the simulated disk.

use std::collections::BTreeMap;

use super::numbers::Numbers;

/// What a device writes whole or not at all.
pub(super) const BLOCK_BYTES: usize = 512;

/// Versions of an unsynced block that are remembered; more add nothing but memory.
const BLOCK_VERSIONS: usize = 4;

/// What a loss of power made of the unsynced blocks of a file.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Left {
    /// With their last content.
    pub(super) whole: usize,
    /// Without it.
    pub(super) lost: usize,
}

/// A file as processes see it, and as the device has it.
#[derive(Clone, Debug, Default)]
pub(super) struct FileState {
    pub(super) cached: Vec<u8>,
    pub(super) device: Vec<u8>,
    /// The contents that each unsynced block has had since it was last clean.
    pub(super) dirty: BTreeMap<usize, Vec<Vec<u8>>>,
    /// Which blocks have been given space: a hole has none.
    pub(super) allocated: Vec<bool>,
    /// The least length since the last sync: what the device has beyond it is gone when the length
    /// is durable.
    pub(super) shortest: usize,
}

impl FileState {
    pub(super) fn block(&self, block: usize) -> Vec<u8> {
        let start = block * BLOCK_BYTES;
        let end = self.cached.len().min(start + BLOCK_BYTES);
        self.cached
            .get(start..end)
            .map_or(Vec::new(), <[u8]>::to_vec)
    }

    pub(super) fn write(&mut self, bytes: &[u8], offset: usize, random: &mut Numbers) {
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

    pub(super) fn set_len(&mut self, bytes: usize) {
        self.cached.resize(bytes, 0);
        let blocks = bytes.div_ceil(BLOCK_BYTES);
        self.allocated.resize(blocks, false);
        self.dirty.split_off(&blocks);
        self.shortest = self.shortest.min(bytes);
    }

    pub(super) fn sync_len(&mut self) {
        self.device.truncate(self.shortest);
        self.device.resize(self.cached.len(), 0);
        self.shortest = self.cached.len();
    }

    pub(super) fn sync(&mut self) {
        self.sync_len();
        for &block in self.dirty.keys() {
            let start = block * BLOCK_BYTES;
            let end = self.cached.len().min(start + BLOCK_BYTES);
            self.device[start..end].copy_from_slice(&self.cached[start..end]);
        }
        self.dirty.clear();
    }

    /// Lets the device keep what it happens to have of the unsynced blocks, and forgets that they
    /// were unsynced.
    pub(super) fn lose(&mut self, loss: Loss, random: &mut Numbers) -> Left {
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
    pub(super) fn evict(&mut self) {
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
pub(super) enum Loss {
    Everything,
    Most,
    Half,
    Little,
    Nothing,
}

impl Loss {
    pub(super) fn draw(random: &mut Numbers) -> Loss {
        random.pick(&[
            Loss::Everything,
            Loss::Most,
            Loss::Half,
            Loss::Little,
            Loss::Nothing,
        ])
    }

    pub(super) fn keeps(self, random: &mut Numbers) -> bool {
        match self {
            Loss::Everything => false,
            Loss::Most => random.once_in(8),
            Loss::Half => random.once_in(2),
            Loss::Little => !random.once_in(8),
            Loss::Nothing => true,
        }
    }
}
