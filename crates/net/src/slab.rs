//! Values in numbered slots; a number is only good together with its slot's generation.

use crate::handler::ConnectionId;

/// Slots are reused, the last freed first, so that a small set of connections stays in few cache
/// lines.
pub(crate) struct Slab<T> {
    slots: Vec<SlabSlot<T>>,
    free: Vec<u32>,
}

struct SlabSlot<T> {
    generation: u32,
    value: Option<T>,
}

/// No connection has this generation: drivers use it to mark what is no connection.
pub(crate) const NO_GENERATION: u32 = u32::MAX;

impl<T> Slab<T> {
    pub(crate) fn new() -> Slab<T> {
        Slab {
            slots: Vec::new(),
            free: Vec::new(),
        }
    }

    pub(crate) fn insert(&mut self, value: T) -> ConnectionId {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(SlabSlot {
                generation: 0,
                value: None,
            });
            u32::try_from(self.slots.len() - 1).expect("sockets are fewer than 2^32")
        });
        let entry = &mut self.slots[slot as usize];
        debug_assert!(entry.value.is_none());
        entry.value = Some(value);
        ConnectionId {
            slot,
            generation: entry.generation,
        }
    }

    pub(crate) fn remove(&mut self, id: ConnectionId) -> Option<T> {
        let entry = self.slots.get_mut(id.slot as usize)?;
        if entry.generation != id.generation {
            return None;
        }
        let value = entry.value.take()?;
        entry.generation = (entry.generation + 1) % NO_GENERATION;
        self.free.push(id.slot);
        Some(value)
    }

    pub(crate) fn get_mut(&mut self, id: ConnectionId) -> Option<&mut T> {
        let entry = self.slots.get_mut(id.slot as usize)?;
        if entry.generation == id.generation {
            entry.value.as_mut()
        } else {
            None
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (ConnectionId, &T)> {
        self.slots.iter().enumerate().filter_map(|(slot, entry)| {
            let id = ConnectionId {
                slot: slot as u32,
                generation: entry.generation,
            };
            entry.value.as_ref().map(|value| (id, value))
        })
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dead_id_finds_nothing_though_its_slot_lives() {
        let mut slab = Slab::new();
        let first = slab.insert('a');
        assert_eq!(slab.remove(first), Some('a'));
        let second = slab.insert('b');
        assert_eq!(second.slot, first.slot);
        assert_eq!(slab.get_mut(first), None);
        assert_eq!(slab.remove(first), None);
        assert_eq!(slab.get_mut(second), Some(&mut 'b'));
        assert_eq!(slab.len(), 1);
    }

    #[test]
    fn generations_wrap_before_the_reserved_one() {
        let mut slab = Slab::new();
        let id = slab.insert(());
        slab.slots[0].generation = NO_GENERATION - 1;
        slab.remove(ConnectionId {
            generation: NO_GENERATION - 1,
            ..id
        });
        assert_eq!(slab.insert(()).generation, 0);
    }
}
