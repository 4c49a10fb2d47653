//! What lies in the buffers of the connections to a port, looked at as often as that may cost.

use super::cpu_share::{CpuClock, CpuShare};
use super::limits::AGENT_LOOK_PERCENT;

/// Bytes in buffers, and how old that is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BufferedBytes {
    pub(super) unread: u64,
    pub(super) unsent: u64,
    /// How long before the report they were looked at.
    pub(super) age_ns: u64,
}

/// The last look at them, for all who watch.
#[derive(Debug)]
pub(super) struct SocketLook {
    share: CpuShare,
    /// When it was, and what was seen; `None`: the kernel does not say.
    last: Option<(u64, Option<[u64; 2]>)>,
}

impl SocketLook {
    pub(super) fn new() -> SocketLook {
        SocketLook {
            share: CpuShare::new(AGENT_LOOK_PERCENT),
            last: None,
        }
    }

    /// Returns what lies in the buffers: by `read`, unless that was done so shortly ago that it
    /// would take more than its share.
    pub(super) fn buffered(
        &mut self,
        clock: &CpuClock,
        now_ns: u64,
        read: impl FnOnce() -> Option<[u64; 2]>,
    ) -> Option<BufferedBytes> {
        if self.last.is_none() || now_ns >= self.share.next_ns() {
            let bytes = self.share.spend(clock, (now_ns, 1), read);
            self.last = Some((now_ns, bytes));
        }
        let (seen_ns, bytes) = self.last?;
        bytes.map(|[unread, unsent]| BufferedBytes {
            unread,
            unsent,
            age_ns: now_ns.saturating_sub(seen_ns),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::cpu_share::tests::counted_clock;
    use super::*;

    const MS: u64 = 1_000_000;

    /// Looks in ten seconds with a report in each 50 ms, if one look takes so long; and the oldest
    /// figures that were reported.
    fn looks_of(cost_ns: u64) -> (u32, u64) {
        let (used_ns, clock) = counted_clock();
        let (mut look, mut looks, mut oldest_ns) = (SocketLook::new(), 0, 0);
        for now_ms in (0..10_000).step_by(50) {
            let read = || {
                looks += 1;
                used_ns.set(used_ns.get() + cost_ns);
                Some([looks.into(), 7])
            };
            let seen = look.buffered(&clock, now_ms * MS, read);
            let seen = seen.expect("there are figures");
            assert_eq!((seen.unread, seen.unsent), (looks.into(), 7));
            oldest_ns = oldest_ns.max(seen.age_ns);
        }
        (looks, oldest_ns)
    }

    #[test]
    fn looks_take_a_share_of_the_time_and_figures_have_an_age() {
        assert_eq!(looks_of(MS / 2), (200, 0), "each report has its own");
        let (looks, oldest_ns) = looks_of(20 * MS);
        assert_eq!((looks, oldest_ns), (10, 950 * MS));
        assert!(u64::from(looks) * 20 <= 10_000 * u64::from(AGENT_LOOK_PERCENT) / 100);
    }

    #[test]
    fn what_the_kernel_does_not_say_is_not_asked_again_at_once() {
        let (used_ns, clock) = counted_clock();
        let mut look = SocketLook::new();
        let read = || {
            used_ns.set(used_ns.get() + MS);
            None
        };
        assert_eq!(look.buffered(&clock, 1, read), None);
        let again = || panic!("it was just read");
        assert_eq!(look.buffered(&clock, 10 * MS, again), None);
    }
}
