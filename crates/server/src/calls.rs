//! The running calls of one loop.

use net::ConnectionId;
use service::Method;
use store::DatabaseId;
use wire::StreamKey;

use crate::tasks::TaskHandle;

/// Names a call of this loop; a late completion for a call that ended is recognised by the
/// generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct CallId {
    pub index: u32,
    pub generation: u32,
}

impl CallId {
    /// The form in which the id travels through the store as the tag of a commit.
    pub fn tag(self) -> u64 {
        joined(self.generation, self.index)
    }

    pub fn from_tag(tag: u64) -> CallId {
        CallId {
            index: tag as u32,
            generation: (tag >> 32) as u32,
        }
    }
}

/// Two numbers as one.
pub(crate) fn joined(high: u32, low: u32) -> u64 {
    (u64::from(high) << 32) + u64::from(low)
}

/// One running call: where it came from, and its state machine.
pub(crate) struct Running {
    pub connection: ConnectionId,
    pub stream: StreamKey,
    pub method: Method,
    pub call: service::Call,
    /// Of a plain request: whether its answer has begun.
    pub has_plain_head: bool,
    /// `u64::MAX`: the caller set no deadline.
    pub deadline_ns: u64,
    /// The time of the tick in which it began.
    pub begin_ns: u64,
    /// When it asked to be woken; an alarm with another time is an earlier wish, taken back.
    pub wake_at_ns: u64,
    /// Commits of it that are with the committer; one that was begun and given up counts too.
    pub commits: u32,
    /// The database on disk that its short read is fetched from.
    pub reads_from: Option<DatabaseId>,
    /// Wants to be woken when the topic it subscribed to changes.
    pub subscribed: bool,
    /// What is done for it beside the loop; ends with it.
    pub task: Option<TaskHandle>,
}

struct Slot {
    generation: u32,
    running: Option<Running>,
}

/// A slab of running calls. Slots are reused, so the steady state allocates nothing.
#[derive(Default)]
pub(crate) struct Calls {
    slots: Vec<Slot>,
    free: Vec<u32>,
}

impl Calls {
    pub fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    pub fn insert(&mut self, running: Running) -> CallId {
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
        self.slots.push(Slot {
            generation: 0,
            running: Some(running),
        });
        CallId {
            index,
            generation: 0,
        }
    }

    pub fn get(&self, id: CallId) -> Option<&Running> {
        let slot = self.slots.get(id.index as usize)?;
        slot.running
            .as_ref()
            .filter(|_| slot.generation == id.generation)
    }

    pub fn get_mut(&mut self, id: CallId) -> Option<&mut Running> {
        let slot = self.slots.get_mut(id.index as usize)?;
        if slot.generation == id.generation {
            slot.running.as_mut()
        } else {
            None
        }
    }

    /// The id of the call that is in a slot now. The stream that carries `index` as its token is
    /// alive, so is its call.
    pub fn current(&self, index: u32) -> Option<CallId> {
        let slot = self.slots.get(index as usize)?;
        slot.running.as_ref()?;
        Some(CallId {
            index,
            generation: slot.generation,
        })
    }

    pub fn remove(&mut self, id: CallId) -> Option<Running> {
        let slot = self.slots.get_mut(id.index as usize)?;
        if slot.generation != id.generation {
            return None;
        }
        let running = slot.running.take()?;
        slot.generation = slot.generation.wrapping_add(1);
        self.free.push(id.index);
        Some(running)
    }

    /// The running calls that wait for a topic.
    pub fn subscribers(&self) -> impl Iterator<Item = CallId> + '_ {
        self.ids().filter(|id| {
            let running = self.slots[id.index as usize].running.as_ref();
            running.is_some_and(|running| running.subscribed)
        })
    }

    /// Every running call, for the rare walks of draining and topic changes.
    pub fn ids(&self) -> impl Iterator<Item = CallId> + '_ {
        (0..self.slots.len() as u32).filter_map(|index| self.current(index))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A tag that named another call would answer it with the outcome of a commit that is not its
    /// own.
    #[test]
    fn a_tag_names_one_call() {
        for (index, generation, tag) in [
            (0, 0, 0),
            (7, 0, 7),
            (u32::MAX, 0, 0xffff_ffff),
            (0, 1, 0x1_0000_0000),
            (5, 3, 0x3_0000_0005),
            (3, 5, 0x5_0000_0003),
            (u32::MAX, u32::MAX, u64::MAX),
        ] {
            let id = CallId { index, generation };
            assert_eq!(id.tag(), tag, "{id:?}");
            assert_eq!(CallId::from_tag(tag), id);
        }
    }
}
