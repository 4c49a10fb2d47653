//! Who may do what, as far as anybody can know who only sees answers.
//!
//! Moments order what clients do and hear; milliseconds are those of the wall clock, which clients
//! and server share.

use std::collections::BTreeSet;

use super::roles::{Right, RoleFact, RoleState};

/// Later than every moment.
pub const NEVER: u64 = u64::MAX;

/// How late the server's clock may be: a loop reads it once in a turn.
const CLOCK_STALE_MS: u64 = 2;

/// A token that somebody was given.
#[derive(Debug)]
pub struct TokenFact {
    /// The value of the header.
    pub header: String,
    pub right: Right,
    /// From this moment on it may be good no longer: somebody has asked for that.
    pub may_end_at: u64,
    /// From this moment on it is not good: a revocation was acknowledged, or a call was refused.
    pub ended_at: u64,
    /// The same by the clock.
    pub ended_ms: u64,
    pub expires_ms: u64,
}

/// What is known of a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NameState {
    Absent,
    /// With these tokens, the newest last; others may be there that nobody was told.
    Present(Vec<usize>),
    /// A change was lost on its way, or its answer. These tokens may be good.
    Unsure(Vec<usize>),
}

impl NameState {
    pub fn tokens(&self) -> &[usize] {
        match self {
            NameState::Absent => &[],
            NameState::Present(tokens) | NameState::Unsure(tokens) => tokens,
        }
    }
}

/// From when to when a call ran.
#[derive(Clone, Copy, Debug)]
pub struct Span {
    pub begun_at: u64,
    pub begun_ms: u64,
}

/// What became of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    Unknown,
    Acknowledged,
    Refused,
}

/// A write of a key of its own.
#[derive(Debug)]
pub struct WriteFact {
    token: usize,
    span: Span,
    pub fate: Fate,
}

/// How a call with a token ended, as far as that depends on the token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The server knew it.
    Good,
    /// UNAUTHENTICATED.
    NotGood,
}

#[derive(Debug, Default)]
pub struct Model {
    pub tokens: Vec<TokenFact>,
    pub names: Vec<NameState>,
    pub roles: Vec<RoleFact>,
    pub writes: Vec<WriteFact>,
    moment: u64,
    now_ms: u64,
}

impl Model {
    pub fn new(names: usize, roles: usize) -> Model {
        Model {
            names: vec![NameState::Absent; names],
            roles: vec![RoleFact::ABSENT; roles],
            ..Model::default()
        }
    }

    pub fn set_now(&mut self, now_ms: u64) {
        self.now_ms = now_ms;
    }

    pub fn now_ms(&self) -> u64 {
        self.now_ms
    }

    pub fn next_moment(&mut self) -> u64 {
        self.moment += 1;
        self.moment
    }

    pub fn begin(&mut self) -> Span {
        Span {
            begun_at: self.next_moment(),
            begun_ms: self.now_ms,
        }
    }

    /// A write with a token begins; its number is that of its key.
    pub fn begin_write(&mut self, token: usize) -> usize {
        let span = self.begin();
        self.writes.push(WriteFact {
            token,
            span,
            fate: Fate::Unknown,
        });
        self.writes.len() - 1
    }

    /// Somebody asks for the end of all tokens of a name.
    pub fn begin_end(&mut self, name: usize) {
        let moment = self.next_moment();
        for &token in self.names[name].clone().tokens() {
            let may_end_at = &mut self.tokens[token].may_end_at;
            *may_end_at = moment.min(*may_end_at);
        }
    }

    /// These tokens are good no longer.
    pub fn end(&mut self, tokens: &[usize]) {
        let moment = self.next_moment();
        for &token in tokens {
            let fact = &mut self.tokens[token];
            if fact.ended_at == NEVER {
                (fact.ended_at, fact.ended_ms) = (moment, self.now_ms);
            }
            fact.may_end_at = fact.may_end_at.min(moment);
        }
    }

    fn must_be_good(&self, token: usize) -> bool {
        let fact = &self.tokens[token];
        fact.may_end_at == NEVER && self.now_ms < fact.expires_ms
    }

    fn must_not_be_good(&self, token: usize, span: Span) -> bool {
        let fact = &self.tokens[token];
        let has_expired = fact.expires_ms.saturating_add(CLOCK_STALE_MS) <= span.begun_ms;
        fact.ended_at < span.begun_at || has_expired
    }

    /// A call that began then ends now.
    pub fn check(&mut self, token: usize, span: Span, verdict: Verdict) {
        let fact = &self.tokens[token];
        match verdict {
            Verdict::Good => assert!(
                !self.must_not_be_good(token, span),
                "a token that was taken back, or has expired, is good again: {fact:?} for {span:?}"
            ),
            Verdict::NotGood => {
                assert!(
                    !self.must_be_good(token),
                    "a token was refused that nobody has taken back: {fact:?} for {span:?} at {}",
                    self.now_ms
                );
                // Who was refused once is refused for ever.
                self.end(&[token]);
            }
        }
    }

    /// Whether the right of the token of a write may have been such while it ran.
    pub fn may_have_been(&self, write: usize, state: RoleState) -> bool {
        let WriteFact { token, span, .. } = self.writes[write];
        match self.tokens[token].right {
            Right::Read => state == RoleState::Read,
            Right::Write => state == RoleState::Write,
            Right::Role(role) => self.roles[role].may_have_been(state, span),
        }
    }

    pub fn check_write(&mut self, write: usize, verdict: Verdict) {
        let WriteFact { token, span, .. } = self.writes[write];
        self.check(token, span, verdict);
    }

    /// Whether a stream of this token that began then has gone on for so long after the end of the
    /// token.
    pub fn outlives(&self, token: usize, span: Span, after_ms: u64) -> bool {
        let ended_ms = self.tokens[token].ended_ms;
        ended_ms.max(span.begun_ms).saturating_add(after_ms) < self.now_ms
    }

    /// What has taken effect at the end: all that was acknowledged, and nothing that was refused or
    /// began after the end of its token.
    pub fn check_effects(&self, found: &BTreeSet<usize>) {
        for (number, write) in self.writes.iter().enumerate() {
            let is_there = found.contains(&number);
            match write.fate {
                Fate::Acknowledged => assert!(is_there, "{number} was lost: {write:?}"),
                Fate::Refused => assert!(!is_there, "{number} was refused: {write:?}"),
                Fate::Unknown => {}
            }
            let fact = &self.tokens[write.token];
            assert!(
                !(is_there && self.must_not_be_good(write.token, write.span)),
                "{number} took effect after the end of its token: {write:?} {fact:?}"
            );
            assert!(
                !is_there || self.may_have_been(number, RoleState::Write),
                "{number} took effect without the right: {write:?} {fact:?}"
            );
        }
    }
}
