//! The audit trail: a line of the log for each call that administrates, and for calls that are
//! denied, as far as nobody can fill the log with them.

use std::sync::{Mutex, MutexGuard, PoisonError};

use net::PeerAddress;
use service::identities::{Identity, IdentityKey, TOKEN_BYTES, TOKEN_PREFIX};
use service::{Code, Method};
use store::blob::UploadPeer;

use crate::connection::Link;
use crate::limits;
use crate::pace::{Pace, PaceTable, Rate};
use crate::settings::Log;

/// One line of the audit trail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AuditRecord<'a> {
    /// What kind of event it is.
    pub event: AuditEvent,
    /// The method that was called, or the flag of a start.
    pub method: &'a str,
    /// On what, in the words of the request: the name of a database, a token or a backup. Empty if
    /// there is no such name, or nobody has looked at it.
    pub subject: &'a str,
    /// Who asked.
    pub caller: AuditCaller<'a>,
    /// From where; `None`: it was the start of the server.
    pub peer: Option<&'a PeerAddress>,
    /// How it ended.
    pub code: Code,
    /// Why, if it was denied; else what is worth a line, such as the rights of a token. In the
    /// words of the request, too.
    pub detail: &'a str,
    /// Lines of this kind that were left out before this one.
    pub suppressed: u64,
}

/// What the audit trail has lines about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuditEvent {
    /// A call that administrates.
    Administration,
    /// A change of tokens, or a look at all of them.
    Token,
    /// A call whose caller may not do what it asked for, or is not known.
    Denial,
}

impl AuditEvent {
    /// Returns the name that the event has in the log.
    pub fn name(self) -> &'static str {
        match self {
            AuditEvent::Administration => "administration",
            AuditEvent::Token => "token",
            AuditEvent::Denial => "denial",
        }
    }
}

/// Who asked, as the audit trail names them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuditCaller<'a> {
    /// The holder of a token, by the name of that.
    Token(&'a str),
    /// Somebody without a token.
    Anonymous,
    /// Somebody with a token that is not good, or not any more.
    Unknown,
    /// Whoever started the server.
    Operator,
}

impl<'a> AuditCaller<'a> {
    /// Returns how an identity is named.
    pub(crate) fn of(identity: Option<&'a Identity>) -> AuditCaller<'a> {
        match identity {
            None => AuditCaller::Unknown,
            Some(identity) if identity.is_anonymous() => AuditCaller::Anonymous,
            Some(identity) => AuditCaller::Token(identity.name()),
        }
    }

    /// Returns the text of a line. No token has a name with parentheses.
    pub fn name(self) -> &'a str {
        match self {
            AuditCaller::Token(name) => name,
            AuditCaller::Anonymous => "(anonymous)",
            AuditCaller::Unknown => "(unknown)",
            AuditCaller::Operator => "(operator)",
        }
    }
}

/// Returns a text of a caller as it may stand in a log: in one line, without what is no character
/// to be seen, and without tokens, should somebody have taken one for a name.
pub fn audit_text(text: &str) -> String {
    let mut rest = text;
    let mut clean = String::with_capacity(text.len());
    while let Some(at) = rest.find(TOKEN_PREFIX) {
        let (before, found) = rest.split_at(at + TOKEN_PREFIX.len());
        let is_of_token = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_".contains(byte);
        let digits = found.bytes().take_while(|byte| is_of_token(byte)).count();
        clean.push_str(before);
        let is_token = digits >= TOKEN_DIGITS;
        if is_token {
            clean.push('…');
        }
        rest = &found[if is_token { digits } else { 0 }..];
    }
    clean.push_str(rest);
    match clean.chars().all(|char| char == ' ' || is_plain(char)) {
        true => clean,
        false => clean.chars().flat_map(escaped).collect(),
    }
}

/// Digits of base64 without padding that a token has.
const TOKEN_DIGITS: usize = (TOKEN_BYTES * 8).div_ceil(6);

fn is_plain(char: char) -> bool {
    let mut escaped = char.escape_debug();
    "\"'\\".contains(char) || escaped.next() == Some(char)
}

fn escaped(char: char) -> impl Iterator<Item = char> {
    let (plain, unusual) = match is_plain(char) || char == ' ' {
        true => (Some(char), None),
        false => (None, Some(char.escape_debug())),
    };
    plain.into_iter().chain(unusual.into_iter().flatten())
}

/// What is kept of a call that administrates, until it ends.
#[derive(Debug)]
pub(crate) struct AuditedCall {
    /// The name of whose call it is; `None` without a token. When it ends its token may be revoked,
    /// by itself.
    name: Option<Box<str>>,
    subject: Box<str>,
    detail: Box<str>,
}

/// A call that has ended, or was refused before it began.
#[derive(Debug)]
pub(crate) struct EndedCall<'a> {
    pub method: Method,
    pub code: Code,
    /// Whose it is; `None`: not known.
    pub key: Option<IdentityKey>,
    pub caller: AuditCaller<'a>,
    pub subject: &'a str,
    pub detail: &'a str,
}

impl AuditedCall {
    /// Makes what is kept of a call of this identity.
    pub fn of(identity: &Identity) -> AuditedCall {
        AuditedCall {
            name: (!identity.is_anonymous()).then(|| identity.name().into()),
            subject: Box::default(),
            detail: Box::default(),
        }
    }

    /// Notes what the call is about, in the words of its request.
    pub fn set(&mut self, subject: &str, detail: &str) {
        (self.subject, self.detail) = (shortened(subject), shortened(detail));
    }

    /// Returns the name of what the call is about.
    pub fn subject(&self) -> &str {
        &self.subject
    }

    /// Returns what else is worth a line.
    pub fn detail(&self) -> &str {
        &self.detail
    }

    /// Returns whose call it is.
    pub fn caller(&self) -> AuditCaller<'_> {
        match &self.name {
            Some(name) => AuditCaller::Token(name),
            None => AuditCaller::Anonymous,
        }
    }
}

fn shortened(text: &str) -> Box<str> {
    match text.char_indices().nth(limits::AUDIT_TEXT_CHARACTERS) {
        None => text.into(),
        Some((end, _)) => format!("{}…", &text[..end]).into(),
    }
}

/// Returns whether a call that ends so was denied.
#[inline]
pub(crate) fn is_denial(code: Code) -> bool {
    matches!(code, Code::PermissionDenied | Code::Unauthenticated)
}

/// Returns what a line is about, of a call that has ended so.
fn event_of(method: Method, code: Code) -> AuditEvent {
    match method {
        _ if is_denial(code) => AuditEvent::Denial,
        Method::AdminCreateToken
        | Method::AdminListTokens
        | Method::AdminRevokeToken
        | Method::AdminRotateToken => AuditEvent::Token,
        _ => AuditEvent::Administration,
    }
}

/// How many lines there may be, for all loops of a server.
#[derive(Debug)]
pub(crate) struct AuditTrail {
    denials: Mutex<LineLimit>,
    actions: Mutex<LineLimit>,
}

/// The lines of one connection about denials.
#[derive(Debug, Default)]
pub(crate) struct ConnectionDenials {
    pace: Pace,
    /// Denials without a line, since the last one that had one.
    missed: u64,
    /// Whose the last of these was.
    owner: Option<LineOwner>,
}

/// Whose lines are counted together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum LineOwner {
    /// The holder of a token.
    Identity(IdentityKey),
    /// Those from an address who have none, or one that is not good.
    Address(UploadPeer),
}

/// How many lines of a kind there may be, of each and of all.
#[derive(Debug)]
struct LineLimit {
    owners: PaceTable<LineOwner>,
    of_owner: Rate,
    all: Pace,
    of_all: Rate,
}

const OF_CONNECTION: Rate = Rate {
    burst: limits::DENIAL_LINES_PER_CONNECTION,
    interval_ms: limits::DENIAL_LINE_CONNECTION_MS,
};

impl Default for AuditTrail {
    fn default() -> AuditTrail {
        let limit = |(owner, owner_ms), (all, all_ms)| {
            let rate = |burst, interval_ms| Rate { burst, interval_ms };
            Mutex::new(LineLimit {
                owners: PaceTable::new(limits::AUDIT_OWNERS),
                of_owner: rate(owner, owner_ms),
                all: Pace::default(),
                of_all: rate(all, all_ms),
            })
        };
        AuditTrail {
            denials: limit(
                (
                    limits::DENIAL_LINES_PER_CALLER,
                    limits::DENIAL_LINE_CALLER_MS,
                ),
                (limits::DENIAL_LINES, limits::DENIAL_LINE_MS),
            ),
            actions: limit(
                (
                    limits::ACTION_LINES_PER_CALLER,
                    limits::ACTION_LINE_CALLER_MS,
                ),
                (limits::ACTION_LINES, limits::ACTION_LINE_MS),
            ),
        }
    }
}

impl AuditTrail {
    /// Adds a line about a call that was denied, or that administrates, if there may be one.
    pub fn note(
        &self,
        log: &dyn Log,
        (link, denials): (&Link, &mut ConnectionDenials),
        ended: &EndedCall<'_>,
        now_ns: u64,
    ) {
        let of_address = LineOwner::Address(link.caller.address);
        let owner = match (ended.caller, ended.key) {
            (AuditCaller::Token(_), Some(key)) => LineOwner::Identity(key),
            _ => of_address,
        };
        let event = event_of(ended.method, ended.code);
        let suppressed = match event {
            AuditEvent::Denial => self.denial(denials, owner, now_ns),
            AuditEvent::Administration | AuditEvent::Token => self.action(owner, now_ns),
        };
        let Some(suppressed) = suppressed else {
            return;
        };
        log.audit(&AuditRecord {
            event,
            method: ended.method.label(),
            subject: ended.subject,
            caller: ended.caller,
            peer: Some(&link.address),
            code: ended.code,
            detail: ended.detail,
            suppressed,
        });
    }

    /// Returns whether there is a line for a denial, and if so how many had none before. Denials of
    /// a connection that has had its lines take no lock.
    fn denial(
        &self,
        connection: &mut ConnectionDenials,
        owner: LineOwner,
        now_ns: u64,
    ) -> Option<u64> {
        if !connection.pace.may(OF_CONNECTION, now_ns) {
            connection.missed += 1;
            connection.owner = Some(owner);
            return None;
        }
        connection.pace.push(OF_CONNECTION, now_ns);
        let missed = std::mem::take(&mut connection.missed);
        lock(&self.denials).line(owner, missed, now_ns)
    }

    /// Returns whether there is a line for a call that administrates, and if so how many had none
    /// before.
    fn action(&self, owner: LineOwner, now_ns: u64) -> Option<u64> {
        lock(&self.actions).line(owner, 0, now_ns)
    }

    /// The connection is gone: what had no line is counted by the next one.
    pub fn close(&self, connection: &mut ConnectionDenials, now_ns: u64) {
        let missed = std::mem::take(&mut connection.missed);
        if let Some(owner) = connection.owner.filter(|_| missed > 0) {
            lock(&self.denials).add_missed(owner, missed, now_ns);
        }
    }
}

impl LineLimit {
    /// Notes an event, and so many before it that had no line. Returns whether it has one, and if
    /// so how many had none before.
    fn line(&mut self, owner: LineOwner, missed: u64, now_ns: u64) -> Option<u64> {
        let entry = self.owners.entry(owner, self.of_owner, now_ns);
        entry.missed += missed;
        if !(entry.pace.may(self.of_owner, now_ns) && self.all.may(self.of_all, now_ns)) {
            entry.missed += 1;
            return None;
        }
        entry.pace.push(self.of_owner, now_ns);
        self.all.push(self.of_all, now_ns);
        let missed = std::mem::take(&mut entry.missed);
        Some(missed + self.owners.take_missed_by_others())
    }

    fn add_missed(&mut self, owner: LineOwner, missed: u64, now_ns: u64) {
        self.owners.entry(owner, self.of_owner, now_ns).missed += missed;
    }
}

fn lock(limit: &Mutex<LineLimit>) -> MutexGuard<'_, LineLimit> {
    // Whole entries are put in and changed: sound whoever panicked.
    limit.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG_NS: u64 = 1_000_000_000_000;

    fn address(number: u32) -> LineOwner {
        LineOwner::Address(UploadPeer::with_address(
            std::net::Ipv4Addr::from(number).into(),
        ))
    }

    #[test]
    fn no_text_makes_a_line_of_its_own_or_shows_a_token() {
        let token = format!("{TOKEN_PREFIX}{}", "x_-9".repeat(11));
        for (text, expected) in [
            ("orders", "orders"),
            ("größe \"a\" b\\c", "größe \"a\" b\\c"),
            (
                "a\nb\r\u{2028}\u{85}\u{202e}\u{1b}[31m",
                r"a\nb\r\u{2028}\u{85}\u{202e}\u{1b}[31m",
            ),
            (TOKEN_PREFIX, TOKEN_PREFIX),
            ("pelton_test pelton_", "pelton_test pelton_"),
            (&format!("a {token}é"), "a pelton_…é"),
            (&format!("pelton_{token}/{token}"), "pelton_…/pelton_…"),
        ] {
            assert_eq!(audit_text(text), expected, "{text:?}");
        }
    }

    #[test]
    fn a_connection_has_some_lines_and_the_next_one_says_how_many_had_none() {
        let trail = AuditTrail::default();
        let mut connection = ConnectionDenials::default();
        for round in 1..=2 {
            let now_ns = round * LONG_NS;
            let mut denial = || trail.denial(&mut connection, address(1), now_ns);
            for line in 0..limits::DENIAL_LINES_PER_CONNECTION {
                let missed = if line == 0 && round == 2 { 7 } else { 0 };
                assert_eq!(denial(), Some(missed));
            }
            for _ in 0..7 {
                assert_eq!(denial(), None);
            }
        }
    }

    /// Connections that follow each other share what their address has, and what they leave behind
    /// is counted by the next line.
    #[test]
    fn the_connections_of_an_address_share_its_lines() {
        let trail = AuditTrail::default();
        for round in 1..=2 {
            let now_ns = round * LONG_NS;
            let (mut lines, mut missed) = (0, 0);
            for _ in 0..200 {
                let mut connection = ConnectionDenials::default();
                for _ in 0..50 {
                    let line = trail.denial(&mut connection, address(1), now_ns);
                    lines += u64::from(line.is_some());
                    missed += line.unwrap_or(0);
                }
                trail.close(&mut connection, now_ns);
            }
            assert_eq!(lines, limits::DENIAL_LINES_PER_CALLER);
            let later_ns = now_ns + LONG_NS / 2;
            let mut other = ConnectionDenials::default();
            let last = trail.denial(&mut other, address(1), later_ns);
            missed += last.expect("there is a line again");
            assert_eq!(lines + missed, 200 * 50, "all are counted");
            // Another address has its own.
            let mut other = ConnectionDenials::default();
            assert_eq!(trail.denial(&mut other, address(2), later_ns), Some(0));
        }
    }

    #[test]
    fn all_together_have_so_many_lines() {
        let trail = AuditTrail::default();
        for round in 1..=2 {
            let now_ns = round * LONG_NS;
            let lines = (0..100_000).filter(|&number| {
                let mut connection = ConnectionDenials::default();
                (trail.denial(&mut connection, address(number), now_ns)).is_some()
            });
            assert_eq!(lines.count() as u64, limits::DENIAL_LINES);
            assert!(lock(&trail.denials).owners.len() <= limits::AUDIT_OWNERS);
        }
    }

    #[test]
    fn those_who_administrate_have_many_lines() {
        let trail = AuditTrail::default();
        for round in 1..=2 {
            let now_ns = round * LONG_NS;
            let lines = (0..10_000).filter(|_| trail.action(address(1), now_ns).is_some());
            assert_eq!(lines.count() as u64, limits::ACTION_LINES_PER_CALLER);
            assert!(trail.action(address(2), now_ns).is_some());
        }
    }
}
