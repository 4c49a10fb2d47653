//! The one place where spurious frames are charged.
//!
//! Every reset, whoever sends it, every glitch and every control frame takes a token from a bucket
//! that refills with time, or with honest traffic. When a bucket is empty the connection ends with
//! ENHANCE_YOUR_CALM. Charging in one place is a lesson of others: a fix for MadeYouReset that
//! counted in one handler missed the next.

use super::config::{Config, Role};
use super::error::ConnectionError;
use crate::limits;

/// What is charged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum GlitchCharge {
    /// RST_STREAM, received or sent because of the peer, or a call that we ended because of what
    /// the peer sent, unless that was only more than a limit.
    Reset,
    /// Odd but legal: PRIORITY, an unknown frame, a late frame.
    Glitch,
    /// Client: an interim head, or RST_STREAM on a stream that is closed. Each call may have some;
    /// beyond that they are glitches.
    BesideCall,
    /// PING, SETTINGS, GOAWAY.
    Control,
    /// WINDOW_UPDATE: a control frame, unless it is one of those that answer what we have sent.
    WindowUpdate,
    /// A DATA frame with this many bytes that brought neither a message to its end nor the stream.
    Fragment(u32),
    /// SETTINGS that change the windows of this many places for streams.
    Windows(usize),
    /// A message that became this many bytes more when it was decompressed than others do.
    Inflated(u32),
}

/// All budgets of a connection.
#[derive(Debug)]
pub(crate) struct Guard {
    resets: Bucket,
    glitches: Bucket,
    controls: Bucket,
    small_data: Bucket,
    inflated: Bucket,
    /// Client: frames beside the answers of calls that may still come free of charge.
    beside_calls: u32,
    /// WINDOW_UPDATE frames that answer what we have sent.
    window_updates: u32,
}

impl Guard {
    pub(crate) fn new(config: &Config, now_ns: u64) -> Guard {
        Guard {
            resets: Bucket::new(config.reset_burst, config.resets_per_second, now_ns),
            glitches: Bucket::new(limits::GLITCH_BURST, limits::GLITCHES_PER_SECOND, now_ns),
            controls: Bucket::new(limits::CONTROL_BURST, limits::CONTROLS_PER_SECOND, now_ns),
            small_data: match config.role {
                Role::Server => Bucket::new(
                    limits::SMALL_DATA_BUDGET,
                    limits::SMALL_DATA_PER_SECOND,
                    now_ns,
                ),
                Role::Client => Bucket::new(
                    limits::CLIENT_SMALL_DATA_BUDGET,
                    limits::CLIENT_SMALL_DATA_PER_SECOND,
                    now_ns,
                ),
            },
            inflated: Bucket::new(
                limits::INFLATE_BURST_BYTES,
                limits::INFLATE_BYTES_PER_SECOND,
                now_ns,
            ),
            beside_calls: 0,
            window_updates: 0,
        }
    }

    /// Takes what this costs.
    #[inline]
    pub(crate) fn charge(
        &mut self,
        charge: GlitchCharge,
        now_ns: u64,
    ) -> Result<(), ConnectionError> {
        let (paid, why) = match charge {
            GlitchCharge::Fragment(length) if length >= limits::SMALL_DATA_BYTES => {
                self.small_data.earn(length - limits::SMALL_DATA_BYTES);
                return Ok(());
            }
            GlitchCharge::Fragment(length) => (
                self.small_data
                    .take(limits::SMALL_DATA_BYTES - length, now_ns),
                "too many small DATA frames",
            ),
            GlitchCharge::BesideCall if self.beside_calls > 0 => {
                self.beside_calls -= 1;
                return Ok(());
            }
            GlitchCharge::WindowUpdate if self.window_updates > 0 => {
                self.window_updates -= 1;
                return Ok(());
            }
            GlitchCharge::Control | GlitchCharge::WindowUpdate => (
                self.controls.take(1, now_ns),
                "too many PING, SETTINGS or WINDOW_UPDATE frames",
            ),
            GlitchCharge::Reset => (self.resets.take(1, now_ns), "too many resets"),
            GlitchCharge::Glitch | GlitchCharge::BesideCall => {
                (self.glitches.take(1, now_ns), "too many spurious frames")
            }
            GlitchCharge::Windows(places) => (
                self.glitches
                    .take((places / limits::WINDOWS_PER_GLITCH) as u32, now_ns),
                "SETTINGS change the windows of many streams too often",
            ),
            // One message may always be as large as messages may be.
            GlitchCharge::Inflated(bytes) => (
                self.inflated
                    .take(bytes.min(limits::INFLATE_BURST_BYTES), now_ns),
                "messages become too large when they are decompressed",
            ),
        };
        if paid {
            Ok(())
        } else {
            Err(ConnectionError::calm(why))
        }
    }

    /// A stream began, or a DATA frame brought a message to its end: work that is charged
    /// elsewhere.
    #[inline]
    pub(crate) fn did_something(&mut self) {
        self.controls.earn(limits::CONTROLS_PER_STREAM);
        self.small_data.earn(limits::SMALL_DATA_BYTES);
    }

    /// Client: a call has begun.
    #[inline]
    pub(crate) fn call_began(&mut self) {
        let earned = limits::FRAMES_BESIDE_CALL;
        self.beside_calls = self.beside_calls.saturating_add(earned);
    }

    /// We sent a DATA frame, which the peer may well answer with WINDOW_UPDATE frames.
    #[inline]
    pub(crate) fn data_sent(&mut self) {
        self.controls.earn(limits::CONTROLS_PER_DATA_SENT);
        // Not bounded by the burst: they come when what was sent in a burst has arrived.
        let answers = limits::WINDOW_UPDATES_PER_DATA_SENT;
        self.window_updates = self.window_updates.saturating_add(answers);
    }
}

/// A token bucket. It looks at the time only when it runs empty, so that its usual cost is a
/// subtraction.
#[derive(Debug)]
struct Bucket {
    tokens: u32,
    burst: u32,
    per_second: u32,
    refilled_ns: u64,
}

impl Bucket {
    fn new(burst: u32, per_second: u32, now_ns: u64) -> Bucket {
        Bucket {
            tokens: burst,
            burst,
            per_second,
            refilled_ns: now_ns,
        }
    }

    #[inline]
    fn take(&mut self, count: u32, now_ns: u64) -> bool {
        if self.tokens < count {
            self.refill(now_ns);
        }
        let paid = self.tokens >= count;
        self.tokens = self.tokens.saturating_sub(count);
        paid
    }

    #[inline]
    fn earn(&mut self, count: u32) {
        self.tokens = self.tokens.saturating_add(count).min(self.burst);
    }

    fn refill(&mut self, now_ns: u64) {
        let elapsed_ns = now_ns.saturating_sub(self.refilled_ns);
        let earned = u128::from(elapsed_ns) * u128::from(self.per_second) / 1_000_000_000;
        // The remainder of a token is kept: many short intervals earn as much as a long one.
        if earned > 0 {
            let spent_ns = (earned * 1_000_000_000).div_ceil(u128::from(self.per_second));
            self.refilled_ns += u64::try_from(spent_ns)
                .unwrap_or(elapsed_ns)
                .min(elapsed_ns);
            self.earn(u32::try_from(earned).unwrap_or(u32::MAX));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn a_bucket_gives_its_burst_and_then_its_rate() {
        let mut bucket = Bucket::new(10, 2, 0);
        assert_eq!((0..20).filter(|_| bucket.take(1, 0)).count(), 10);
        assert!(!bucket.take(1, SECOND / 4));
        assert!(bucket.take(1, SECOND / 2));
        assert!(!bucket.take(1, SECOND / 2));
        assert_eq!((0..20).filter(|_| bucket.take(1, SECOND * 100)).count(), 10);
    }

    /// Asked more often than it earns, and each time between two tokens: the rest of each interval
    /// counts too.
    #[test]
    fn many_short_intervals_earn_as_much_as_a_long_one() {
        for per_second in [1, 3, 7, 100, 999] {
            for asks_per_second in [1, 2, 3, 1_000, 1_500] {
                let mut bucket = Bucket::new(u32::MAX, per_second, 0);
                assert!(bucket.take(u32::MAX, 0));
                let mut earned = 0;
                let seconds = 10;
                for ask in 1..=asks_per_second * seconds {
                    bucket.refill(ask * SECOND / asks_per_second);
                    earned += u64::from(std::mem::take(&mut bucket.tokens));
                }
                let expected = seconds * u64::from(per_second);
                // Rounding up to whole nanoseconds may keep the last one back.
                assert!(
                    earned == expected || earned + 1 == expected,
                    "{earned} of {expected} at {per_second} and {asks_per_second} a second"
                );
            }
        }
    }

    #[test]
    fn large_data_pays_for_small() {
        let mut guard = Guard::new(&Config::server(), 0);
        for _ in 0..10_000 {
            guard
                .charge(GlitchCharge::Fragment(1), 0)
                .expect("the large ones make up for the small");
            guard
                .charge(GlitchCharge::Fragment(1_000), 0)
                .expect("large frames cost nothing");
        }
        let empty = (0..1_000)
            .take_while(|_| guard.charge(GlitchCharge::Fragment(0), 0).is_ok())
            .count();
        assert_eq!(
            empty as u32,
            limits::SMALL_DATA_BUDGET / limits::SMALL_DATA_BYTES
        );
    }

    #[test]
    fn a_client_takes_many_more_small_frames_of_the_server_that_it_has_chosen() {
        let mut guard = Guard::new(&Config::client(), 0);
        let empty = (0..1_000_000)
            .take_while(|_| guard.charge(GlitchCharge::Fragment(0), 0).is_ok())
            .count();
        let expected = limits::CLIENT_SMALL_DATA_BUDGET / limits::SMALL_DATA_BYTES;
        assert_eq!(empty as u32, expected);
        // It regains as much each second.
        let again = (0..1_000_000)
            .take_while(|_| guard.charge(GlitchCharge::Fragment(0), SECOND).is_ok())
            .count();
        assert_eq!(again as u32, expected);
    }

    /// A frame pays for what it lacks of the usual size, or earns what it has beyond: no byte more.
    #[test]
    fn small_and_large_data_are_weighed_to_the_byte() {
        let usual = limits::SMALL_DATA_BYTES;
        for length in [0, 1, usual / 2, usual - 1, usual, usual + 1, 3 * usual] {
            let mut guard = Guard::new(&Config::server(), 0);
            for _ in 0..2 {
                guard.small_data.tokens = 10_000;
                let paid = guard.charge(GlitchCharge::Fragment(length), 0);
                paid.expect("there is enough");
                assert_eq!(guard.small_data.tokens + usual, 10_000 + length);
            }
        }
    }
}
