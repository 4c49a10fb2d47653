//! What the time of a connection goes to.

use super::direction::TapDirection;

/// What one stretch of a connection's time went to: who could have moved, and did not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TimeUse {
    /// No call was open: the client had nothing to send, or did not send it.
    NoCall,
    /// Calls were open, and some had been answered since the client had last sent something; it
    /// began the next ones only now.
    ClientSilent,
    /// The client was in the midst of a request and had window to go on.
    ClientInRequest,
    /// The server had a whole request and had yet to answer.
    Server,
    /// The same with as many calls open as the server allows at a time.
    ServerAtLimit,
    /// A request waited for window that the server had not given.
    ServerWindow,
    /// A response waited for window that the client had not given.
    ClientWindow,
    /// Bytes waited in the tap for the server to read them.
    ServerNotReading,
    /// Bytes waited in the tap for the client to read them.
    ClientNotReading,
    /// The tap kept bytes back, as a rate of bytes or packets was asked for.
    Shaped,
}

impl TimeUse {
    /// All, in the order of a report.
    pub const ALL: [TimeUse; 10] = [
        TimeUse::NoCall,
        TimeUse::ClientSilent,
        TimeUse::ClientInRequest,
        TimeUse::ClientWindow,
        TimeUse::ClientNotReading,
        TimeUse::Server,
        TimeUse::ServerAtLimit,
        TimeUse::ServerWindow,
        TimeUse::ServerNotReading,
        TimeUse::Shaped,
    ];

    /// The name in JSON.
    pub fn name(self) -> &'static str {
        match self {
            TimeUse::NoCall => "no_call",
            TimeUse::ClientSilent => "client_silent",
            TimeUse::ClientInRequest => "client_in_request",
            TimeUse::Server => "server",
            TimeUse::ServerAtLimit => "server_at_limit",
            TimeUse::ServerWindow => "server_window",
            TimeUse::ClientWindow => "client_window",
            TimeUse::ServerNotReading => "server_not_reading",
            TimeUse::ClientNotReading => "client_not_reading",
            TimeUse::Shaped => "shaped",
        }
    }

    /// What a report says of it.
    pub fn words(self) -> &'static str {
        match self {
            TimeUse::NoCall => "no call open: the client sent nothing",
            TimeUse::ClientSilent => "answers had come, the client sent nothing",
            TimeUse::ClientInRequest => "the client was in the midst of a request",
            TimeUse::Server => "the server had requests and sent nothing",
            TimeUse::ServerAtLimit => "the server had requests, and as many as it allows",
            TimeUse::ServerWindow => "requests waited for the server's window",
            TimeUse::ClientWindow => "responses waited for the client's window",
            TimeUse::ServerNotReading => "the server did not read from its socket",
            TimeUse::ClientNotReading => "the client did not read from its socket",
            TimeUse::Shaped => "the tap kept bytes back, as its flags ask for",
        }
    }

    fn index(self) -> usize {
        self as usize
    }
}

/// How much time went to each use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TimeTable([u64; TimeUse::ALL.len()]);

impl TimeTable {
    /// Adds time.
    pub fn add(&mut self, time_use: TimeUse, ns: u64) {
        if let Some(sum) = self.0.get_mut(time_use.index()) {
            *sum = sum.saturating_add(ns);
        }
    }

    /// Adds all of another table.
    pub fn add_all(&mut self, other: &TimeTable) {
        for time_use in TimeUse::ALL {
            self.add(time_use, other.ns(time_use));
        }
    }

    /// Nanoseconds of a use.
    pub fn ns(&self, time_use: TimeUse) -> u64 {
        self.0.get(time_use.index()).copied().unwrap_or_default()
    }

    /// Nanoseconds of all.
    pub fn total_ns(&self) -> u64 {
        self.0.iter().sum()
    }

    /// The share of these uses in all, from 0 to 1; 0 if nothing was measured.
    pub fn share(&self, uses: &[TimeUse]) -> f64 {
        let part: u64 = uses.iter().map(|&time_use| self.ns(time_use)).sum();
        match self.total_ns() {
            0 => 0.0,
            total => part as f64 / total as f64,
        }
    }
}

/// Something that keeps bytes from going on, for as long as it lasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RelayHold {
    /// The receiver's window is used up.
    Window(TapDirection),
    /// The receiver does not read from its socket.
    Unread(TapDirection),
    /// A rate that was asked for.
    Shaped(TapDirection),
}

impl RelayHold {
    /// All; where two last at once, the time is the first one's.
    pub(super) const ALL: [RelayHold; 6] = [
        RelayHold::Shaped(TapDirection::ToServer),
        RelayHold::Shaped(TapDirection::ToClient),
        RelayHold::Window(TapDirection::ToServer),
        RelayHold::Window(TapDirection::ToClient),
        RelayHold::Unread(TapDirection::ToServer),
        RelayHold::Unread(TapDirection::ToClient),
    ];

    pub(super) fn time_use(self) -> TimeUse {
        match self {
            RelayHold::Window(TapDirection::ToServer) => TimeUse::ServerWindow,
            RelayHold::Window(TapDirection::ToClient) => TimeUse::ClientWindow,
            RelayHold::Unread(TapDirection::ToServer) => TimeUse::ServerNotReading,
            RelayHold::Unread(TapDirection::ToClient) => TimeUse::ClientNotReading,
            RelayHold::Shaped(_) => TimeUse::Shaped,
        }
    }
}

/// How long one hold has lasted since it was last asked.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct HoldClock {
    since_ns: Option<u64>,
    passed_ns: u64,
}

impl HoldClock {
    pub(super) fn set(&mut self, is_on: bool, now_ns: u64) {
        match (self.since_ns, is_on) {
            (None, true) => self.since_ns = Some(now_ns),
            (Some(since_ns), false) => {
                self.passed_ns += now_ns.saturating_sub(since_ns);
                self.since_ns = None;
            }
            _ => {}
        }
    }

    /// Returns what has passed, and begins again.
    pub(super) fn take(&mut self, now_ns: u64) -> u64 {
        let running_ns = self
            .since_ns
            .map_or(0, |since_ns| now_ns.saturating_sub(since_ns));
        if self.since_ns.is_some() {
            self.since_ns = Some(now_ns);
        }
        std::mem::take(&mut self.passed_ns) + running_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_use_has_a_place_and_a_name_of_its_own() {
        let mut table = TimeTable::default();
        for (index, time_use) in TimeUse::ALL.into_iter().enumerate() {
            table.add(time_use, index as u64 + 1);
        }
        for (index, time_use) in TimeUse::ALL.into_iter().enumerate() {
            assert_eq!(table.ns(time_use), index as u64 + 1);
        }
        assert_eq!(table.total_ns(), 55);
        assert_eq!(table.share(&[TimeUse::NoCall]), 1.0 / 55.0);
        let names: std::collections::HashSet<_> = TimeUse::ALL.map(TimeUse::name).into();
        let words: std::collections::HashSet<_> = TimeUse::ALL.map(TimeUse::words).into();
        assert_eq!((names.len(), words.len()), (10, 10));
        let mut sum = table;
        sum.add_all(&table);
        assert_eq!(sum.total_ns(), 110);
        assert_eq!(TimeTable::default().share(&TimeUse::ALL), 0.0);
    }

    #[test]
    fn a_hold_counts_once_however_often_it_is_set_and_asked() {
        let mut clock = HoldClock::default();
        assert_eq!(clock.take(5), 0);
        clock.set(true, 10);
        clock.set(true, 12);
        assert_eq!(clock.take(15), 5);
        clock.set(false, 18);
        clock.set(false, 30);
        clock.set(true, 40);
        assert_eq!(clock.take(41), 3 + 1);
        clock.set(false, 41);
        assert_eq!(clock.take(50), 0);
    }
}
