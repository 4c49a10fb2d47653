//! Flow-control windows. RFC 9113 sections 5.2 and 6.9.

use super::frame::MAX_31_BIT;

/// What the peer may still send to us.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ReceiveWindow {
    /// May be negative after our SETTINGS made it smaller (RFC 9113 section 6.9.2).
    available: i64,
    /// What `available` is filled up to.
    size: u32,
    /// Received and consumed, not yet given back.
    credit: u32,
    /// What the peer may have in flight beyond `size`, since that was larger: not given back when
    /// it is consumed.
    excess: u32,
}

impl ReceiveWindow {
    pub(crate) fn new(size: u32) -> ReceiveWindow {
        ReceiveWindow {
            available: i64::from(size),
            size,
            credit: 0,
            excess: 0,
        }
    }

    /// Accounts for a DATA frame. False: the peer has sent more than it may. A frame without a byte
    /// may always be sent, also into a window that has become negative (RFC 9113 section 6.9.1).
    #[inline]
    #[must_use]
    pub(crate) fn take(&mut self, bytes: u32) -> bool {
        self.available -= i64::from(bytes);
        self.available >= 0 || bytes == 0
    }

    /// These bytes are out of the way.
    #[inline]
    pub(crate) fn give(&mut self, bytes: u32) {
        let kept = bytes.min(self.excess);
        self.excess -= kept;
        self.credit += bytes - kept;
        debug_assert!(self.available + i64::from(self.credit) <= i64::from(MAX_31_BIT));
    }

    /// The increment to announce, if it is worth a frame: half of the window has been given back.
    #[inline]
    pub(crate) fn announce(&mut self) -> Option<u32> {
        if u64::from(self.credit) * 2 < u64::from(self.size) {
            return None;
        }
        self.announce_all()
    }

    /// The increment to announce, if there is any.
    #[inline]
    pub(crate) fn announce_all(&mut self) -> Option<u32> {
        let increment = std::mem::take(&mut self.credit);
        self.available += i64::from(increment);
        (increment > 0).then_some(increment)
    }

    /// Returns what the peer may still send.
    #[inline]
    pub(crate) fn available(&self) -> u32 {
        self.available.clamp(0, i64::from(MAX_31_BIT)) as u32
    }

    /// Lets the peer send so many bytes, once: what goes beyond the window's size is not given back
    /// when it is consumed. Returns the increment to announce, if there is any.
    pub(crate) fn open_to(&mut self, bytes: u32) -> Option<u32> {
        let wanted = i64::from(bytes.min(MAX_31_BIT)) - self.available;
        let increment = u32::try_from(wanted).ok().filter(|&bytes| bytes > 0)?;
        let credit = self.credit.min(increment);
        self.credit -= credit;
        self.excess += increment - credit;
        self.available += i64::from(increment);
        Some(increment)
    }

    /// What the window is filled up to.
    #[inline]
    pub(crate) fn size(&self) -> u32 {
        self.size
    }

    /// Makes the window larger with the next announcement, unless it is as large.
    pub(crate) fn grow_to(&mut self, size: u32) {
        let Some(growth) = size.checked_sub(self.size) else {
            return;
        };
        let already = growth.min(self.excess);
        self.excess -= already;
        self.credit += growth - already;
        self.size = size;
    }

    /// Makes the window smaller, unless it is as small. The peer keeps what it was allowed, and is
    /// allowed less afterwards.
    pub(crate) fn shrink_to(&mut self, size: u32) {
        let Some(less) = self.size.checked_sub(size) else {
            return;
        };
        let unannounced = less.min(self.credit);
        self.credit -= unannounced;
        self.excess += less - unannounced;
        self.size = size;
    }

    /// Our SETTINGS with another initial window have been acknowledged.
    pub(crate) fn resize_initial(&mut self, from: u32, to: u32) {
        self.available += i64::from(to) - i64::from(from);
        self.size = to;
    }
}

/// What we may still send to the peer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SendWindow(i64);

impl SendWindow {
    pub(crate) fn new(size: u32) -> SendWindow {
        SendWindow(i64::from(size))
    }

    /// Bytes that may be sent.
    #[inline]
    pub(crate) fn available(self) -> usize {
        self.0.max(0) as usize
    }

    #[inline]
    pub(crate) fn take(&mut self, bytes: usize) {
        debug_assert!(bytes <= self.available());
        self.0 -= bytes as i64;
    }

    /// A WINDOW_UPDATE or a change of the initial window. False: "a sender MUST NOT allow a
    /// flow-control window to exceed 2^31-1 octets" (RFC 9113 section 6.9.1).
    #[must_use]
    pub(crate) fn change(&mut self, by: i64) -> bool {
        self.0 += by;
        self.0 <= i64::from(MAX_31_BIT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_of_the_window_is_worth_a_frame() {
        let mut window = ReceiveWindow::new(100);
        assert!(window.take(60));
        window.give(49);
        assert_eq!(window.announce(), None);
        window.give(1);
        assert_eq!(window.announce(), Some(50));
        assert_eq!(window.announce(), None);
        assert!(window.take(90));
        assert!(!window.take(1));
    }

    #[test]
    fn an_empty_frame_needs_no_window() {
        let mut window = ReceiveWindow::new(100);
        assert!(window.take(60));
        window.resize_initial(100, 10);
        assert!(window.take(0));
        assert!(!window.take(1));
    }

    #[test]
    fn growth_is_announced_once() {
        let mut window = ReceiveWindow::new(100);
        window.grow_to(300);
        window.grow_to(200);
        assert_eq!(window.announce(), Some(200));
        assert_eq!(window.announce(), None);
        assert!(window.take(300));
    }

    /// Whatever is grown, shrunk, sent and consumed: when all is consumed, the peer may send
    /// exactly a window.
    #[test]
    fn a_window_that_shrinks_and_grows_keeps_its_books() {
        let mut random = testkit::Random::new(42);
        for _ in 0..200 {
            let mut window = ReceiveWindow::new(1_000);
            let (mut allowed, mut unconsumed, mut size) = (1_000, 0, 1_000);
            for _ in 0..200 {
                let amount = random.below(2_000) as u32;
                match random.below(6) {
                    0 => {
                        window.grow_to(amount);
                        size = size.max(amount);
                    }
                    1 => {
                        window.shrink_to(amount);
                        size = size.min(amount);
                    }
                    2 => {
                        let sent = amount.min(allowed);
                        assert!(window.take(sent));
                        (allowed, unconsumed) = (allowed - sent, unconsumed + sent);
                    }
                    3 => {
                        let announced = window.open_to(amount).unwrap_or(0);
                        assert_eq!(announced, amount.saturating_sub(allowed));
                        allowed += announced;
                    }
                    4 => {
                        let consumed = amount.min(unconsumed);
                        window.give(consumed);
                        unconsumed -= consumed;
                    }
                    _ => {
                        allowed += window.announce().unwrap_or(0);
                    }
                }
            }
            window.give(unconsumed);
            allowed += window.announce_all().unwrap_or(0);
            // What the peer had been allowed before, and has not used, cannot be taken back.
            assert_eq!(allowed, size + window.excess);
            assert!(window.take(allowed));
            window.give(allowed);
            assert_eq!(window.announce_all().unwrap_or(0), size);
        }
    }

    #[test]
    fn a_send_window_may_become_negative() {
        let mut window = SendWindow::new(10);
        window.take(8);
        assert!(window.change(-5));
        assert_eq!(window.available(), 0);
        assert!(window.change(4));
        assert_eq!(window.available(), 1);
        assert!(!window.change(i64::from(MAX_31_BIT)));
    }
}
