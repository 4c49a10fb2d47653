//! What clients ask for, and what they make of the answers.

use api::admin::{
    CreateTokenRequest, CreateTokenResponse, ListTokensResponse, RevokeTokenRequest,
    RotateTokenRequest, RotateTokenResponse, TokenDescription,
};
use api::keyvalue::PipeAnswers;
use store::{Condition, Expiry, Mode, Operation};
use testkit::keyvalue::{OperationRequest, encode_pipe};
use wire::grpc::{Code, Status};

use super::bindings;
use super::model::{Fate, NEVER, NameState, Span, TokenFact, Verdict};
use super::roles::{self, Right, RoleState};
use super::world::World;

/// A call.
#[derive(Debug)]
pub enum Asked {
    Create {
        name: usize,
        right: Right,
        expires_after_ms: u64,
    },
    Revoke {
        name: usize,
    },
    Rotate {
        name: usize,
        keep_for_ms: u64,
    },
    /// Or drop it.
    SetRole {
        role: usize,
        to: RoleState,
    },
    /// Binds an identity to a user, or revokes it.
    Bind {
        user: usize,
        to: RoleState,
    },
    /// A write of a user, without a token.
    WriteAs {
        user: usize,
        span: Span,
    },
    /// Those of one who administrates: nobody else changes their names.
    List {
        names: std::ops::Range<usize>,
    },
    Get {
        token: usize,
        span: Span,
    },
    Write {
        token: usize,
        write: usize,
    },
    /// A stream, with the batches that were sent and not answered.
    Pipe {
        token: usize,
        span: Span,
        sent: Vec<usize>,
        done: usize,
    },
}

pub fn name_of(name: usize) -> String {
    format!("name-{name}")
}

fn key_of(write: usize) -> String {
    format!("w{write:06}")
}

/// The number of the write of a key.
pub fn write_of(key: &[u8]) -> Option<usize> {
    std::str::from_utf8(key)
        .ok()?
        .strip_prefix('w')?
        .parse()
        .ok()
}

fn put(key: &[u8]) -> Operation<'_> {
    Operation::Put {
        key,
        value: b"v",
        condition: Condition::None,
        expiry: Expiry::None,
        want_previous: false,
    }
}

/// A batch of a Pipe with this write.
pub fn batch(write: usize) -> Vec<u8> {
    let (mut out, key) = (Vec::new(), key_of(write));
    let operations = [put(key.as_bytes())];
    encode_pipe(&mut out, "", PipeAnswers::All, Mode::Atomic, 0, &operations);
    out
}

/// A status that says nothing of a token: the disk is in trouble, and nobody knows what was done.
pub fn is_trouble(code: Code) -> bool {
    matches!(
        code,
        Code::Unavailable | Code::ResourceExhausted | Code::DataLoss | Code::Unknown
    )
}

/// A status of a change that says that nothing was done: the log has failed before, or others have
/// changed tokens at the same moment.
pub fn has_done_nothing(code: Code) -> bool {
    matches!(code, Code::FailedPrecondition | Code::Aborted)
}

impl Asked {
    pub fn path(&self) -> &'static str {
        match self {
            Asked::Create { .. } => "/pelton.v1.Admin/CreateToken",
            Asked::Revoke { .. } => "/pelton.v1.Admin/RevokeToken",
            Asked::Rotate { .. } => "/pelton.v1.Admin/RotateToken",
            Asked::SetRole {
                to: RoleState::Absent,
                ..
            } => "/pelton.v1.Admin/DropRole",
            Asked::SetRole { .. } => "/pelton.v1.Admin/SetRole",
            Asked::List { .. } => "/pelton.v1.Admin/ListTokens",
            Asked::Get { .. } => "/pelton.v1.KeyValue/Get",
            Asked::Bind {
                to: RoleState::Absent,
                ..
            } => "/pelton.v1.Admin/RevokeToken",
            Asked::Bind { .. } => "/pelton.v1.Admin/CreateToken",
            Asked::Write { .. } | Asked::WriteAs { .. } => "/pelton.v1.KeyValue/Put",
            Asked::Pipe { .. } => "/pelton.v1.KeyValue/Pipe",
        }
    }

    /// Whose token goes with it.
    pub fn token(&self) -> Option<usize> {
        match self {
            Asked::Get { token, .. } | Asked::Write { token, .. } | Asked::Pipe { token, .. } => {
                Some(*token)
            }
            _ => None,
        }
    }

    /// The first message. What it may change is noted.
    pub fn first(&self, world: &mut World) -> Vec<u8> {
        let mut out = Vec::new();
        match *self {
            Asked::Create {
                name,
                right,
                expires_after_ms,
            } => {
                let (name, right) = (name_of(name), right.text());
                let rights = [&*right];
                let rights = (&rights[..]).into();
                CreateTokenRequest {
                    name: &name,
                    rights,
                    expires_after_ms,
                    binding: "",
                }
                .encode(&mut out);
            }
            Asked::Revoke { name } => {
                world.model.begin_end(name);
                let (name, confirm_name) = (&*name_of(name), "");
                RevokeTokenRequest { name, confirm_name }.encode(&mut out);
            }
            Asked::Rotate { name, keep_for_ms } => {
                world.model.begin_end(name);
                let (name, expires_after_ms) = (&*name_of(name), 0);
                RotateTokenRequest {
                    name,
                    keep_for_ms,
                    expires_after_ms,
                    // The model knows of no refusal for it.
                    revoke_kept: true,
                    ..RotateTokenRequest::default()
                }
                .encode(&mut out);
            }
            Asked::SetRole { role, to } => roles::request(&mut world.model, role, to, &mut out),
            Asked::Bind { user, to } => bindings::request(&mut world.model, user, to, &mut out),
            Asked::WriteAs { .. } => operation(put(b"u"), &mut out),
            Asked::List { .. } => {}
            Asked::Get { .. } => operation(Operation::Get { key: b"k" }, &mut out),
            Asked::Write { write, .. } => operation(put(key_of(write).as_bytes()), &mut out),
            Asked::Pipe { ref sent, .. } => out = batch(sent[0]),
        }
        out
    }

    /// A message came; of a Pipe, an answer to its next batch.
    pub fn message(&mut self, world: &mut World, message: &[u8]) -> bool {
        let Asked::Pipe { sent, done, .. } = self else {
            return false;
        };
        let answer = api::keyvalue::PipeResponse::decode(message).expect("it is a message");
        let write = sent[*done];
        *done += 1;
        if answer.failure.is_none() {
            world.model.check_write(write, Verdict::Good);
            world.model.writes[write].fate = Fate::Acknowledged;
            world.counts.piped += 1;
        }
        true
    }

    /// The call has ended with a status.
    pub fn ended(self, world: &mut World, answer: &[u8], status: &Status) {
        match self {
            Asked::Create { name, right, .. } => created(world, (name, right), answer, status),
            Asked::Revoke { name } => revoked(world, name, status),
            Asked::Rotate { name, keep_for_ms } => {
                rotated(world, (name, keep_for_ms), answer, status);
            }
            Asked::SetRole { role, to } => roles::changed(world, role, to, answer, status),
            Asked::Bind { user, to } => bindings::changed(world, user, to, status),
            Asked::WriteAs { user, span } => bindings::written(world, user, span, status),
            Asked::List { names } => listed(world, names, answer, status),
            Asked::Get { token, span } => {
                if let Some(verdict) = verdict(world, status) {
                    world.model.check(token, span, verdict);
                }
            }
            Asked::Write { token, write } => written(world, token, write, status),
            Asked::Pipe { token, span, .. } => {
                if let Some(verdict) = verdict(world, status) {
                    // One that ended by itself was good while it began.
                    world.model.check(token, span, verdict);
                    world.counts.pipes_ended += u64::from(verdict == Verdict::NotGood);
                }
            }
        }
    }

    /// Nobody knows how it ended.
    pub fn lost(self, world: &mut World) {
        world.counts.lost += 1;
        match self {
            Asked::Create { name, .. } | Asked::Revoke { name } | Asked::Rotate { name, .. } => {
                world.lose(name);
            }
            Asked::SetRole { role, .. } => world.lose_role(role),
            Asked::Bind { user, .. } => world.lose_role(bindings::fact_of(user)),
            _ => {}
        }
    }
}

fn operation(operation: Operation<'_>, out: &mut Vec<u8>) {
    let database = "";
    OperationRequest {
        database,
        operation,
    }
    .encode(out);
}

/// What a status says of the token; `None`: nothing.
fn verdict(world: &mut World, status: &Status) -> Option<Verdict> {
    match status.code() {
        Code::Ok => {
            world.counts.good += 1;
            Some(Verdict::Good)
        }
        Code::Unauthenticated => {
            world.counts.refused += 1;
            Some(Verdict::NotGood)
        }
        code if is_trouble(code) || has_done_nothing(code) => None,
        _ => panic!("a call with a token ended with {status:?}"),
    }
}

fn written(world: &mut World, token: usize, write: usize, status: &Status) {
    let right = world.model.tokens[token].right;
    let is_of_role = matches!(right, Right::Role(_));
    if status.code() == Code::PermissionDenied {
        assert!(
            world.model.may_have_been(write, RoleState::Read),
            "{status:?} for {:?}",
            world.model.tokens[token]
        );
        world.model.check_write(write, Verdict::Good);
        world.model.writes[write].fate = Fate::Refused;
        world.counts.denied += 1;
        world.counts.role_denied += u64::from(is_of_role);
        return;
    }
    let Some(verdict) = verdict(world, status) else {
        return;
    };
    world.model.check_write(write, verdict);
    assert!(
        verdict == Verdict::NotGood || world.model.may_have_been(write, RoleState::Write),
        "a token that reads has written: {right:?}"
    );
    world.counts.role_written += u64::from(is_of_role && verdict == Verdict::Good);
    world.model.writes[write].fate = match verdict {
        Verdict::Good => Fate::Acknowledged,
        Verdict::NotGood => Fate::Refused,
    };
}

/// Whether a change was made, or certainly not; else the name is unsure from now on.
fn is_sure(world: &mut World, name: usize, status: &Status) -> bool {
    let is_sure = !is_trouble(status.code());
    if !is_sure {
        world.counts.trouble += 1;
        world.lose(name);
    }
    is_sure
}

fn new_token(
    world: &mut World,
    (name, right): (usize, Right),
    token: &str,
    description: Option<TokenDescription<'_>>,
) -> usize {
    let description = description.expect("it is described");
    let expires_ms = match description.expires_at_ms {
        0 => NEVER,
        at_ms => at_ms,
    };
    // A change that was lost may end it as soon as it is there.
    let may_end_at = match world.is_loose(name) {
        true => world.model.next_moment(),
        false => NEVER,
    };
    world.model.tokens.push(TokenFact {
        header: format!("Bearer {token}"),
        right,
        may_end_at,
        ended_at: NEVER,
        ended_ms: NEVER,
        expires_ms,
    });
    world.model.tokens.len() - 1
}

fn created(world: &mut World, (name, right): (usize, Right), answer: &[u8], status: &Status) {
    if !is_sure(world, name, status) {
        return;
    }
    let state = world.state(name);
    match status.code() {
        Code::Ok => {
            assert!(
                !matches!(state, NameState::Present(_)),
                "{state:?} was lost"
            );
            let answer = CreateTokenResponse::decode(answer).expect("it is a message");
            let token = answer.token.reveal();
            let made = new_token(world, (name, right), token, answer.description);
            world.model.end(state.tokens());
            world.learn(name, Some(vec![made]));
            world.counts.created += 1;
        }
        Code::AlreadyExists => {
            assert_ne!(state, NameState::Absent, "what was revoked is back");
        }
        code if has_done_nothing(code) => {}
        _ => panic!("CreateToken ended with {status:?}"),
    }
}

fn revoked(world: &mut World, name: usize, status: &Status) {
    if !is_sure(world, name, status) {
        return;
    }
    let state = world.state(name);
    match status.code() {
        Code::Ok => {
            assert_ne!(state, NameState::Absent, "what was revoked is back");
            world.counts.revoked += 1;
        }
        Code::NotFound => assert!(
            !matches!(state, NameState::Present(_)),
            "{state:?} was lost"
        ),
        code if has_done_nothing(code) => return,
        _ => panic!("RevokeToken ended with {status:?}"),
    }
    world.model.end(state.tokens());
    world.learn(name, None);
}

fn rotated(world: &mut World, (name, keep_for_ms): (usize, u64), answer: &[u8], status: &Status) {
    if !is_sure(world, name, status) {
        return;
    }
    let state = world.state(name);
    match status.code() {
        Code::Ok => {}
        Code::NotFound => {
            assert!(
                !matches!(state, NameState::Present(_)),
                "{state:?} was lost"
            );
            world.model.end(state.tokens());
            world.learn(name, None);
            return;
        }
        // It has expired.
        Code::InvalidArgument => return,
        code if has_done_nothing(code) => return,
        _ => panic!("RotateToken ended with {status:?}"),
    }
    assert_ne!(state, NameState::Absent, "what was revoked is back");
    let answer = RotateTokenResponse::decode(answer).expect("it is a message");
    let kept_until_ms = answer
        .description
        .map_or(0, |known| known.previous_expires_at_ms);
    // It may be over when the answer is made.
    let kept_until_ms = match kept_until_ms {
        0 => world.model.now_ms(),
        kept_until_ms => kept_until_ms,
    };
    let before = state.tokens().to_vec();
    let right = world.rights[name];
    let made = new_token(
        world,
        (name, right),
        answer.token.reveal(),
        answer.description,
    );
    // The newest is kept, if nobody has rotated it meanwhile unseen; the others are not good.
    let is_known = matches!(state, NameState::Present(_)) && !world.is_loose(name);
    let (newest, older) = match before.split_last() {
        Some((newest, older)) if keep_for_ms > 0 => (Some(*newest), older),
        _ => (None, &before[..]),
    };
    world.model.end(older);
    if let Some(newest) = newest {
        let fact = &mut world.model.tokens[newest];
        fact.expires_ms = fact.expires_ms.min(kept_until_ms);
        if is_known && fact.ended_at == NEVER {
            fact.may_end_at = NEVER;
        }
    }
    let tokens = newest.into_iter().chain([made]).collect();
    world.learn(name, Some(tokens));
    world.counts.rotated += 1;
}

fn listed(world: &mut World, names: std::ops::Range<usize>, answer: &[u8], status: &Status) {
    if is_trouble(status.code()) {
        return;
    }
    assert_eq!(status.code(), Code::Ok, "{status:?}");
    let answer = ListTokensResponse::decode(answer).expect("it is a message");
    let there = |name: usize| {
        let mut tokens = answer
            .tokens
            .iter()
            .map(|one| one.expect("it is a message"));
        tokens.any(|one| one.name == name_of(name))
    };
    for name in names {
        match world.state(name) {
            NameState::Absent => assert!(!there(name), "{name} was revoked, and is listed"),
            NameState::Present(_) => assert!(there(name), "{name} was made, and is not listed"),
            NameState::Unsure(_) => {}
        }
    }
    world.counts.listed += 1;
}
