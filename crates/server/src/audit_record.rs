//! A line of the audit trail, as it goes to the log.

use net::PeerAddress;
use service::Code;
use service::identities::Identity;
use service::redact::without_tokens;

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
    /// Lines of this kind (denials, changes of databases, all others) that were left out before
    /// this one. Changes of tokens and roles always have one.
    pub suppressed: u64,
}

/// What the audit trail has lines about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuditEvent {
    /// A call that administrates.
    Administration,
    /// A change of tokens or roles, or a look at all of them.
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
    /// The holder of a token, a certificate or a user, by the name that this is bound to.
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
    let clean = without_tokens(text);
    match clean.chars().all(|char| char == ' ' || is_plain(char)) {
        true => clean,
        false => clean.chars().flat_map(escaped).collect(),
    }
}

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

#[cfg(test)]
mod tests {
    use service::identities::TOKEN_PREFIX;

    use super::*;

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
}
