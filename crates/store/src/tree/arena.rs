//! Things fetched from the device, kept for as long as a view lives, so that it can lend them.

use std::cell::{Cell, OnceCell};

/// Room in the first chunk; each further one has twice as much.
const FIRST: usize = 16;

/// Chunks: room for more than memory can hold.
const CHUNKS: usize = 48;

/// Only grows; what is in it never moves.
pub(crate) struct Arena<T> {
    len: Cell<usize>,
    chunks: [OnceCell<Box<[OnceCell<T>]>>; CHUNKS],
}

impl<T> Arena<T> {
    pub(crate) fn new() -> Arena<T> {
        Arena {
            len: Cell::new(0),
            chunks: [const { OnceCell::new() }; CHUNKS],
        }
    }

    /// Keeps a thing, and lends it.
    pub(crate) fn keep(&self, thing: T) -> &T {
        let place = self.len.get();
        self.len.set(place + 1);
        // Chunk n begins at FIRST * (2^n - 1).
        let chunk = (place / FIRST + 1).ilog2() as usize;
        let within = place - FIRST * ((1 << chunk) - 1);
        let cells = self.chunks[chunk]
            .get_or_init(|| (0..FIRST << chunk).map(|_| OnceCell::new()).collect());
        cells[within].get_or_init(|| thing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_moves() {
        let arena = Arena::new();
        let kept: Vec<&usize> = (0..10_000).map(|number| arena.keep(number)).collect();
        assert!(
            kept.iter()
                .enumerate()
                .all(|(number, &&kept)| kept == number)
        );
    }
}
