//! How long the machine lets a program wait that only wants to run: what is lost there no server
//! can give back.

use std::time::Duration;

/// Less is what an interrupt takes.
const STALL: Duration = Duration::from_micros(300);

/// When a thread was not on its CPU although it had work.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Stalls {
    /// How long was looked.
    pub watched: Duration,
    /// Times of at least 300 µs.
    pub count: u64,
    /// Those together.
    pub stalled: Duration,
    /// The longest of them.
    pub longest: Duration,
}

impl Stalls {
    /// Looks at the clock again and again for so long.
    pub fn watch(duration: Duration, mut now: impl FnMut() -> Duration) -> Stalls {
        let mut stalls = Stalls::default();
        let begin = now();
        let mut last = begin;
        while stalls.watched < duration {
            let at = now();
            let gap = at - last;
            if gap >= STALL {
                stalls.count += 1;
                stalls.stalled += gap;
                stalls.longest = stalls.longest.max(gap);
            }
            last = at;
            stalls.watched = at - begin;
        }
        stalls
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_are_told_from_the_usual() {
        let micros = Duration::from_micros;
        let mut moments = [5, 6, 7, 306, 606, 607, 5_607, 5_700, 10_005].into_iter();
        let watched = Stalls::watch(micros(10_000), || micros(moments.next().expect("enough")));
        let expected = Stalls {
            watched: micros(10_000),
            count: 3,
            stalled: micros(300 + 5_000 + 4_305),
            longest: micros(5_000),
        };
        assert_eq!(watched, expected);
        assert_eq!(moments.next(), None);
    }
}
