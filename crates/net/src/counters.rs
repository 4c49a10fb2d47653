//! What a loop counts.

use crate::tls::TlsFailureKind;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Defines the counters once, as plain numbers for readers and as cells for the loop.
macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        /// What one loop did since it started, and what it holds now.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct LoopCounters {
            $($(#[$doc])* pub $name: u64,)*
        }

        /// The loop's own cells. Only the loop writes, so plain loads and stores suffice.
        #[derive(Debug, Default)]
        pub(crate) struct CounterCells {
            $(pub(crate) $name: Cell,)*
        }

        impl CounterCells {
            pub(crate) fn read(&self) -> LoopCounters {
                LoopCounters { $($name: self.$name.get(),)* }
            }
        }
    };
}

counters! {
    /// Turns of the loop.
    ticks,
    /// Turns that waited in the kernel with nothing to do.
    waits,
    /// Turns that had to wait for one of the permits of the blocking driver, as too many computed.
    permit_waits,
    /// `recv` calls.
    reads,
    /// `send` calls.
    writes,
    /// Bytes received.
    bytes_in,
    /// Bytes sent.
    bytes_out,
    /// `send` calls that could not take all: the peer is slower than this side.
    short_writes,
    /// Times that a peer's waiting output rose above the high-water mark, so that reading stopped.
    chokes,
    /// Connections opened.
    opened,
    /// Connections closed.
    closed,
    /// Connections opened only to be refused, because of the connection limit.
    refused,
    /// Connections refused or closed at once, since there were too many from their address.
    refused_by_address,
    /// Connections closed because their peer took nothing for too long.
    stalled,
    /// TLS handshakes done.
    handshakes,
    /// Of those, resumed sessions.
    resumed,
    /// TLS connections that failed since their first bytes were no TLS.
    failed_not_tls,
    /// Since the peer's certificate was missing or not accepted.
    failed_certificate,
    /// Since there was no version, cipher or protocol in common.
    failed_incompatible,
    /// Since the peer refused this side, most often its certificate.
    failed_refused_by_peer,
    /// Since the peer broke the rules.
    failed_broken,
    /// Since the peer went in the midst of the handshake.
    failed_ended,
    /// Since the handshake took too long.
    failed_timed_out,
    /// Since the handshake was too large.
    failed_too_large,
    /// Since too many handshakes were under way.
    failed_crowded_out,
    /// Connections whose turn the last tick had no time for.
    turns_left,
    /// TLS handshakes that wait for their turn now: their peers have sent something.
    handshakes_due,
    /// 1 while a thread turns the loop. A thread of the blocking driver ends when it has been idle,
    /// and leaves its counters to the next one.
    threads,
    /// Connections that the loop has now, with those lingering.
    connections,
    /// Connections that hold an input buffer now.
    input_buffers_lent,
    /// Connections that hold an output buffer now.
    output_buffers_lent,
    /// Free buffers in the loop's pool now.
    buffers_pooled,
    /// Buffers allocated so far: constant in a steady state.
    buffers_allocated,
}

impl CounterCells {
    /// The loop's thread has ended, and all that it had is gone with it.
    pub(crate) fn end(&self) {
        let gauges = [
            &self.threads,
            &self.turns_left,
            &self.handshakes_due,
            &self.connections,
            &self.input_buffers_lent,
            &self.output_buffers_lent,
            &self.buffers_pooled,
        ];
        gauges.into_iter().for_each(|gauge| gauge.set(0));
    }

    /// A TLS connection failed.
    pub(crate) fn count_failure(&self, kind: TlsFailureKind) {
        let cell = match kind {
            TlsFailureKind::NotTls => &self.failed_not_tls,
            TlsFailureKind::Certificate => &self.failed_certificate,
            TlsFailureKind::Incompatible => &self.failed_incompatible,
            TlsFailureKind::RefusedByPeer => &self.failed_refused_by_peer,
            TlsFailureKind::Broken => &self.failed_broken,
            TlsFailureKind::Ended => &self.failed_ended,
            TlsFailureKind::TimedOut => &self.failed_timed_out,
            TlsFailureKind::TooLarge => &self.failed_too_large,
            TlsFailureKind::CrowdedOut => &self.failed_crowded_out,
        };
        cell.add(1);
    }
}

#[derive(Debug, Default)]
pub(crate) struct Cell(AtomicU64);

impl Cell {
    pub(crate) fn add(&self, count: u64) {
        self.0
            .store(self.0.load(Relaxed).wrapping_add(count), Relaxed);
    }

    pub(crate) fn subtract(&self, count: u64) {
        self.0
            .store(self.0.load(Relaxed).wrapping_sub(count), Relaxed);
    }

    pub(crate) fn set(&self, value: u64) {
        self.0.store(value, Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_failure_is_counted_by_itself() {
        let kinds = [
            TlsFailureKind::NotTls,
            TlsFailureKind::Certificate,
            TlsFailureKind::Incompatible,
            TlsFailureKind::RefusedByPeer,
            TlsFailureKind::Broken,
            TlsFailureKind::Ended,
            TlsFailureKind::TimedOut,
            TlsFailureKind::TooLarge,
            TlsFailureKind::CrowdedOut,
        ];
        for (index, kind) in kinds.into_iter().enumerate() {
            let cells = CounterCells::default();
            (0..2).for_each(|_| cells.count_failure(kind));
            let read = cells.read();
            let counted = [
                read.failed_not_tls,
                read.failed_certificate,
                read.failed_incompatible,
                read.failed_refused_by_peer,
                read.failed_broken,
                read.failed_ended,
                read.failed_timed_out,
                read.failed_too_large,
                read.failed_crowded_out,
            ];
            let mut expected = [0; 9];
            expected[index] = 2;
            assert_eq!(counted, expected, "{kind:?}");
        }
    }

    #[test]
    fn what_a_thread_has_ends_with_it_and_what_it_did_stays() {
        let cells = CounterCells::default();
        cells.ticks.add(3);
        cells.buffers_allocated.add(4);
        for gauge in [
            &cells.threads,
            &cells.connections,
            &cells.input_buffers_lent,
            &cells.output_buffers_lent,
            &cells.buffers_pooled,
        ] {
            gauge.set(7);
            gauge.subtract(1);
            assert_eq!(gauge.get(), 6);
        }
        cells.end();
        let expected = LoopCounters {
            ticks: 3,
            buffers_allocated: 4,
            ..LoopCounters::default()
        };
        assert_eq!(cells.read(), expected);
    }
}
