//! The time that a caller gives its call: the value of `grpc-timeout`, at most eight digits and a
//! unit (gRPC over HTTP/2, "Timeout").

use crate::limits;

/// The value of `grpc-timeout` is not one to eight digits and one of `H`, `M`, `S`, `m`, `u`, `n`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("grpc-timeout is not one to eight digits followed by one of H, M, S, m, u, n")]
pub struct BadTimeout;

/// The units, shortest first, each with its nanoseconds.
const UNITS: [(u8, u64); 6] = [
    (b'n', 1),
    (b'u', 1_000),
    (b'm', 1_000_000),
    (b'S', 1_000_000_000),
    (b'M', 60 * 1_000_000_000),
    (b'H', 3600 * 1_000_000_000),
];

const MAX_DIGITS: usize = 8;

/// Reads a value, in nanoseconds. More than [`limits::MAX_TIMEOUT_NS`] is taken for it.
///
/// # Errors
/// If it has another form.
#[inline]
pub fn parse(value: &[u8]) -> Result<u64, BadTimeout> {
    let (&unit, digits) = value.split_last().ok_or(BadTimeout)?;
    if digits.is_empty() || digits.len() > MAX_DIGITS {
        return Err(BadTimeout);
    }
    let mut number = 0u64;
    for digit in digits {
        let digit = digit.wrapping_sub(b'0');
        if digit > 9 {
            return Err(BadTimeout);
        }
        number = number * 10 + u64::from(digit);
    }
    let unit_ns = match unit {
        b'n' => 1,
        b'u' => 1_000,
        b'm' => 1_000_000,
        b'S' => 1_000_000_000,
        b'M' => 60_000_000_000,
        b'H' => 3_600_000_000_000,
        _ => return Err(BadTimeout),
    };
    Ok(number.saturating_mul(unit_ns).min(limits::MAX_TIMEOUT_NS))
}

/// A value of `grpc-timeout`, ready to be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimeoutValue {
    bytes: [u8; MAX_DIGITS + 1],
    len: u8,
}

impl TimeoutValue {
    /// In the shortest unit in which `timeout_ns` has at most eight digits, rounded up: rounded
    /// down, a server could give up before its caller does. No time left is one nanosecond, since
    /// the number must be positive.
    pub fn new(timeout_ns: u64) -> TimeoutValue {
        const MAX_NUMBER: u64 = 10u64.pow(MAX_DIGITS as u32) - 1;
        let (unit, number) = UNITS
            .iter()
            .map(|&(unit, unit_ns)| (unit, timeout_ns.div_ceil(unit_ns).max(1)))
            .find(|&(_, number)| number <= MAX_NUMBER)
            .expect("all nanoseconds of a u64 are fewer than 99999999 hours");
        let mut bytes = [0; MAX_DIGITS + 1];
        let len = 1 + number.ilog10() as usize;
        let mut rest = number;
        for place in bytes[..len].iter_mut().rev() {
            *place = b'0' + (rest % 10) as u8;
            rest /= 10;
        }
        bytes[len] = unit;
        TimeoutValue {
            bytes,
            len: len as u8 + 1,
        }
    }

    /// The bytes of the value.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use testkit::Random;

    #[test]
    fn units() {
        assert_eq!(parse(b"1n"), Ok(1));
        assert_eq!(parse(b"20u"), Ok(20_000));
        assert_eq!(parse(b"300m"), Ok(300_000_000));
        assert_eq!(parse(b"4S"), Ok(4_000_000_000));
        assert_eq!(parse(b"5M"), Ok(300_000_000_000));
        assert_eq!(parse(b"00000006H"), Ok(6 * 3_600_000_000_000));
        assert_eq!(parse(b"0S"), Ok(0));
    }

    #[test]
    fn too_much_is_clamped() {
        for huge in ["99999999H", "99999999M", "99999999S"] {
            assert_eq!(parse(huge.as_bytes()), Ok(limits::MAX_TIMEOUT_NS));
        }
        assert_eq!(parse(b"99999999m"), Ok(99_999_999_000_000));
    }

    #[test]
    fn other_forms_are_errors() {
        for wrong in [
            "",
            "S",
            "1",
            "123456789S",
            "1s",
            "-1S",
            "+1S",
            "1.5S",
            " 1S",
            "1S ",
            "1 S",
            "1h",
            "１S",
        ] {
            assert_eq!(parse(wrong.as_bytes()), Err(BadTimeout), "{wrong:?}");
        }
    }

    #[test]
    fn values_are_in_the_shortest_unit_and_rounded_up() {
        let text = |timeout_ns| {
            String::from_utf8(TimeoutValue::new(timeout_ns).as_bytes().to_vec()).expect("ASCII")
        };
        assert_eq!(text(0), "1n");
        assert_eq!(text(99_999_999), "99999999n");
        assert_eq!(text(100_000_000), "100000u");
        assert_eq!(text(100_000_001), "100001u");
        assert_eq!(text(99_999_999_001), "100000m");
        assert_eq!(text(u64::MAX), "5124096H");
    }

    #[test]
    fn what_is_sent_is_never_read_as_less() {
        let mut random = Random::new(0x5eed_0012);
        for _ in 0..10_000 {
            let timeout_ns = (random.number() >> random.below(64)).clamp(1, limits::MAX_TIMEOUT_NS);
            let read = parse(TimeoutValue::new(timeout_ns).as_bytes()).expect("our own");
            assert!(
                read >= timeout_ns && read - timeout_ns <= timeout_ns / 100_000,
                "{timeout_ns} {read} {random:?}"
            );
        }
    }
}
