//! Where the running calls of a loop lie.

use super::RunningCall;
use crate::call_id::CallId;

struct CallSlot {
    generation: u32,
    running: Option<RunningCall>,
}

/// A slab of running calls. Slots are reused, so the steady state allocates nothing.
#[derive(Default)]
pub(super) struct CallSlab {
    slots: Vec<CallSlot>,
    free: Vec<u32>,
}

impl CallSlab {
    pub(super) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    #[inline]
    pub(super) fn insert(&mut self, running: RunningCall) -> CallId {
        if let Some(index) = self.free.pop() {
            let slot = &mut self.slots[index as usize];
            debug_assert!(slot.running.is_none(), "a free slot holds no call");
            slot.running = Some(running);
            return CallId {
                index,
                generation: slot.generation,
            };
        }
        let index =
            u32::try_from(self.slots.len()).expect("running calls are bounded far below 2^32");
        self.slots.push(CallSlot {
            generation: 0,
            running: Some(running),
        });
        CallId {
            index,
            generation: 0,
        }
    }

    #[inline]
    pub(super) fn get(&self, id: CallId) -> Option<&RunningCall> {
        let slot = self.slots.get(id.index as usize)?;
        slot.running
            .as_ref()
            .filter(|_| slot.generation == id.generation)
    }

    #[inline]
    pub(super) fn get_mut(&mut self, id: CallId) -> Option<&mut RunningCall> {
        let slot = self.slots.get_mut(id.index as usize)?;
        if slot.generation == id.generation {
            slot.running.as_mut()
        } else {
            None
        }
    }

    /// The id of the call that is in a slot now. The stream that carries `index` as its token is
    /// alive, so is its call.
    #[inline]
    pub(super) fn current(&self, index: u32) -> Option<CallId> {
        let slot = self.slots.get(index as usize)?;
        slot.running.as_ref()?;
        Some(CallId {
            index,
            generation: slot.generation,
        })
    }

    #[inline]
    pub(super) fn remove(&mut self, id: CallId) -> Option<RunningCall> {
        let slot = self.slots.get_mut(id.index as usize)?;
        if slot.generation != id.generation {
            return None;
        }
        let running = slot.running.take()?;
        slot.generation = slot.generation.wrapping_add(1);
        self.free.push(id.index);
        Some(running)
    }

    /// Drops a call where it lies.
    #[inline]
    pub(super) fn free(&mut self, id: CallId) {
        if let Some(slot) = self.slots.get_mut(id.index as usize)
            && slot.generation == id.generation
            && slot.running.is_some()
        {
            slot.running = None;
            slot.generation = slot.generation.wrapping_add(1);
            self.free.push(id.index);
        }
    }

    pub(super) fn ids(&self) -> impl Iterator<Item = CallId> + '_ {
        (0..self.slots.len() as u32).filter_map(|index| self.current(index))
    }
}
