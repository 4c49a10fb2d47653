//! A client that does not read for a while.

use net::Io;

use super::world::World;

const MILLISECOND_NS: u64 = 1_000_000;

/// Until when a connection is not read, if it is not.
#[derive(Default)]
pub struct ReadingPause {
    until_ns: Option<u64>,
}

impl ReadingPause {
    pub fn next_deadline_ns(&self) -> Option<u64> {
        self.until_ns
    }

    /// Begins one now and then.
    pub fn begin_by_chance(&mut self, world: &mut World, io: &mut Io, now_ns: u64) {
        if world.random.chance(6_000) && self.until_ns.is_none() {
            world.counts.pauses += 1;
            io.pause_reading(true);
            self.until_ns = Some(now_ns + world.random.between(1, 300) * MILLISECOND_NS);
        }
    }

    /// Ends it when its time has come.
    pub fn end_if_due(&mut self, io: &mut Io, now_ns: u64) {
        if self.until_ns.take_if(|at_ns| *at_ns <= now_ns).is_some() {
            io.pause_reading(false);
        }
    }
}
