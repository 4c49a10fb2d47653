//! The audit trail: a line of the log for each call that administrates, and for calls that are
//! denied, as far as nobody can fill the log with them.

use std::sync::{Mutex, MutexGuard, PoisonError};

use net::PeerAddress;
use service::identities::{Identity, IdentityKey};
use service::method::AuditedAct;
use service::redact::shortened_without_tokens;
use service::{Code, Method};
use store::blob::UploadPeer;

use crate::audit_record::{AuditCaller, AuditEvent, AuditRecord};
use crate::limits;
use crate::pace::{OwnerPace, PaceTable, Rate};
use crate::settings::Log;

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
    /// It has done what it was to do, or that is under way.
    pub may_have_changed: bool,
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

/// Returns as much of a text of a caller as stands in a line, without tokens.
pub(crate) fn shortened(text: &str) -> Box<str> {
    let (mut short, is_cut) = shortened_without_tokens(text, limits::AUDIT_TEXT_CHARACTERS);
    short.extend(is_cut.then_some('…'));
    short.into()
}

/// Returns whether a call that ends so was denied.
#[inline]
pub(crate) fn is_denial(code: Code) -> bool {
    matches!(code, Code::PermissionDenied | Code::Unauthenticated)
}

/// Returns what a line is about, of a call that has ended so; `None`: calls of the method that are
/// not denied have no line.
fn event_of(method: Method, code: Code) -> Option<AuditEvent> {
    if is_denial(code) {
        return Some(AuditEvent::Denial);
    }
    Some(match method.entry().act? {
        AuditedAct::TokenChange | AuditedAct::TokenList => AuditEvent::Token,
        AuditedAct::DatabaseChange | AuditedAct::Recurring => AuditEvent::Administration,
    })
}

/// Which lines are bounded together, so that those of other kinds do not keep one from being there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LineKind {
    Denial,
    /// Whoever may change tokens and roles can hide behind no number of lines: each of these
    /// changes has cost a synced commit.
    TokenChange,
    /// A change of databases, or a copy of them.
    DatabaseChange,
    /// A list, what a replica repeats, or a change that was refused.
    Rest,
}

impl LineKind {
    fn of(event: AuditEvent, ended: &EndedCall<'_>) -> LineKind {
        match event {
            AuditEvent::Denial => LineKind::Denial,
            _ if !ended.may_have_changed => LineKind::Rest,
            _ => match ended.method.entry().act {
                Some(AuditedAct::TokenChange) => LineKind::TokenChange,
                Some(AuditedAct::DatabaseChange) => LineKind::DatabaseChange,
                Some(AuditedAct::TokenList | AuditedAct::Recurring) | None => LineKind::Rest,
            },
        }
    }
}

/// How many lines there may be, for all loops of a server.
#[derive(Debug)]
pub(crate) struct AuditTrail {
    denials: Mutex<LineLimit>,
    changes: Mutex<LineLimit>,
    /// Of lists, and of what was refused.
    rest: Mutex<LineLimit>,
}

/// The lines of one connection about denials.
#[derive(Debug, Default)]
pub(crate) struct ConnectionDenials {
    pace: OwnerPace,
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
    all: OwnerPace,
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
                all: OwnerPace::default(),
                of_all: rate(all, all_ms),
            })
        };
        let administration = || {
            let of_caller = (
                limits::ACTION_LINES_PER_CALLER,
                limits::ACTION_LINE_CALLER_MS,
            );
            limit(of_caller, (limits::ACTION_LINES, limits::ACTION_LINE_MS))
        };
        AuditTrail {
            denials: limit(
                (
                    limits::DENIAL_LINES_PER_CALLER,
                    limits::DENIAL_LINE_CALLER_MS,
                ),
                (limits::DENIAL_LINES, limits::DENIAL_LINE_MS),
            ),
            changes: administration(),
            rest: administration(),
        }
    }
}

impl AuditTrail {
    /// Adds a line about a call that was denied, or that administrates, if there may be one.
    pub fn note(
        &self,
        log: &dyn Log,
        (peer, address): (&PeerAddress, UploadPeer),
        denials: &mut ConnectionDenials,
        ended: &EndedCall<'_>,
        now_ns: u64,
    ) {
        let of_address = LineOwner::Address(address);
        let owner = match (ended.caller, ended.key) {
            (AuditCaller::Token(_), Some(key)) => LineOwner::Identity(key),
            _ => of_address,
        };
        let Some(event) = event_of(ended.method, ended.code) else {
            return;
        };
        let suppressed = match LineKind::of(event, ended) {
            LineKind::Denial => self.denial(denials, owner, now_ns),
            LineKind::TokenChange => Some(0),
            LineKind::DatabaseChange => lock(&self.changes).line(owner, 0, now_ns),
            LineKind::Rest => lock(&self.rest).line(owner, 0, now_ns),
        };
        let Some(suppressed) = suppressed else {
            return;
        };
        log.audit(&AuditRecord {
            event,
            method: ended.method.label(),
            subject: ended.subject,
            caller: ended.caller,
            peer: Some(peer),
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
    use service::identities::{Identities, TOKEN_BYTES, TOKEN_PREFIX, Token, TokenKey};
    use service::method::Access;
    use service::rights::Rights;

    use super::*;
    use crate::settings::SilentLog;

    const LONG_NS: u64 = 1_000_000_000_000;

    fn address(number: u32) -> LineOwner {
        LineOwner::Address(UploadPeer::with_address(
            std::net::Ipv4Addr::from(number).into(),
        ))
    }

    /// Wherever the token stands that somebody has taken for a name.
    #[test]
    fn no_part_of_a_token_is_left_where_a_text_is_cut() {
        let token = Token::new([7; TOKEN_BYTES]).text();
        for before in [0, limits::AUDIT_TEXT_CHARACTERS - 30] {
            let text = format!("{}{}", "n".repeat(before), *token);
            let short = shortened(&text);
            assert!(
                !short.contains(&token[TOKEN_PREFIX.len()..][..4]),
                "{short}"
            );
        }
        let long = "ä".repeat(limits::AUDIT_TEXT_CHARACTERS);
        assert_eq!(shortened(&format!("{long}b")), format!("{long}…").into());
        assert_eq!(shortened(&long), long.into());
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

    /// Each method with the right admin is in the audit trail, also one that is added later, and no
    /// other.
    #[test]
    fn each_method_that_administrates_has_an_event() {
        for &method in Method::ALL {
            let is_admin = method.entry().access == Access::Administer;
            let event = event_of(method, Code::Ok);
            assert_eq!(event.is_some(), is_admin, "{method:?}");
            assert_eq!(
                event_of(method, Code::PermissionDenied),
                Some(AuditEvent::Denial)
            );
            let is_of_tokens = ["Token", "Role"]
                .iter()
                .any(|word| is_admin && method.label().rsplit('/').any(|name| name.contains(word)));
            assert_eq!(event == Some(AuditEvent::Token), is_of_tokens, "{method:?}");
        }
    }

    /// A call of somebody without a token.
    fn ended(method: Method) -> EndedCall<'static> {
        EndedCall {
            method,
            code: Code::Ok,
            may_have_changed: false,
            key: None,
            caller: AuditCaller::Anonymous,
            subject: "",
            detail: "",
        }
    }

    fn kind_of(method: Method, may_have_changed: bool) -> LineKind {
        let ended = EndedCall {
            may_have_changed,
            ..ended(method)
        };
        let event = event_of(method, Code::Ok);
        LineKind::of(event.expect("it administrates"), &ended)
    }

    #[test]
    fn changes_are_bounded_apart_from_lists_and_from_what_was_refused() {
        for &method in Method::ALL {
            let Some(event) = event_of(method, Code::Ok) else {
                continue;
            };
            // What a caller, or a replica, repeats must not hide what is done once.
            let is_repeated = ["/List", "/Follow", "/ReadContent", "/Acknowledge"];
            let is_repeated = is_repeated.map(|word| method.label().contains(word));
            let changed = match event {
                _ if is_repeated.contains(&true) => LineKind::Rest,
                AuditEvent::Token => LineKind::TokenChange,
                _ => LineKind::DatabaseChange,
            };
            assert_eq!(kind_of(method, true), changed, "{method:?}");
            assert_eq!(kind_of(method, false), LineKind::Rest, "{method:?}");
        }
    }

    #[test]
    fn those_who_administrate_have_many_lines_and_all_are_counted() {
        let trail = AuditTrail::default();
        for limit in [&trail.changes, &trail.rest] {
            for round in 1..=2 {
                let now_ns = round * LONG_NS;
                let line = |number, now_ns| lock(limit).line(address(number), 0, now_ns);
                let lines = (0..10_000).filter(|_| line(1, now_ns).is_some());
                assert_eq!(lines.count() as u64, limits::ACTION_LINES_PER_CALLER);
                assert_eq!(line(2, now_ns), Some(0));
                let missed = 10_000 - limits::ACTION_LINES_PER_CALLER;
                assert_eq!(line(1, now_ns + LONG_NS / 2), Some(missed));
            }
        }
    }

    /// Whoever has shown a token uses up its own lines, not those of others at its address.
    #[test]
    fn lines_of_a_token_are_not_those_of_its_address() {
        let table = Identities::new(TokenKey::new(&[1; 32]), vec![Rights::default()]).table();
        let key = table.of_listener(0);
        let is_change = |method: &&Method| {
            event_of(**method, Code::Ok).is_some()
                && kind_of(**method, true) == LineKind::DatabaseChange
        };
        let &method = Method::ALL.iter().find(is_change).expect("there is one");
        let LineOwner::Address(from) = address(1) else {
            unreachable!("it is one");
        };
        for (caller, of_token) in [
            (AuditCaller::Token("a"), true),
            (AuditCaller::Anonymous, false),
        ] {
            let trail = AuditTrail::default();
            for _ in 0..limits::ACTION_LINES_PER_CALLER {
                let ended = EndedCall {
                    may_have_changed: true,
                    key: Some(key),
                    caller,
                    ..ended(method)
                };
                let peer = (&PeerAddress::Unix, from);
                let denials = &mut ConnectionDenials::default();
                trail.note(&SilentLog, peer, denials, &ended, LONG_NS);
            }
            let left = |owner| lock(&trail.changes).line(owner, 0, LONG_NS).is_some();
            assert_eq!(left(LineOwner::Identity(key)), !of_token);
            assert_eq!(left(address(1)), of_token);
        }
    }

    /// What a connection had no line for stays counted where its caller, or all, have none left.
    #[test]
    fn denials_of_a_connection_are_counted_also_where_its_caller_has_no_line_left() {
        let trail = AuditTrail::default();
        for round in 1..=2 {
            let mut now_ns = round * LONG_NS;
            let mut one = ConnectionDenials::default();
            let (mut denied, mut lines, mut told) = (0, 0, 0);
            let mut deny = |connection: &mut ConnectionDenials, now_ns| {
                let line = trail.denial(connection, address(1), now_ns);
                denied += 1;
                lines += u64::from(line.is_some());
                told += line.unwrap_or(0);
                line.is_some()
            };
            for _ in 0..limits::DENIAL_LINES_PER_CONNECTION + 5 {
                deny(&mut one, now_ns);
            }
            // When the connection may have one again, others from there have used up all lines.
            now_ns += limits::DENIAL_LINE_CONNECTION_MS * 1_000_000;
            while deny(&mut ConnectionDenials::default(), now_ns) {}
            assert!(!deny(&mut one, now_ns));
            let later_ns = now_ns + LONG_NS / 2;
            assert!(deny(&mut ConnectionDenials::default(), later_ns));
            assert_eq!(lines + told, denied);
        }
    }
}
