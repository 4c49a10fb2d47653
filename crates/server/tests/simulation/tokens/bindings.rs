//! Bindings: what is known of the identity that is bound to each user, and what clients make of the
//! answers of calls about it.

use api::admin::{CreateTokenRequest, RevokeTokenRequest};
use wire::grpc::{Code, Status};

use super::calls::{has_done_nothing, is_trouble};
use super::model::{Model, Span};
use super::roles::{RoleState, undo};
use super::world::{ADMINS, World};

/// The user of a client; `None`: it administrates. Each of those who do binds one user.
pub fn user_of(client: usize) -> Option<usize> {
    client.checked_sub(ADMINS).map(|number| number % ADMINS)
}

/// The number by which a server knows a user.
pub fn number_of(user: usize) -> u32 {
    1_000 + user as u32
}

/// The place of what is known of a user's identity, behind that of roles: it has the same states.
/// Without an identity a user may do what the listener gives, which is everything.
pub fn fact_of(user: usize) -> usize {
    ADMINS + user
}

/// The request for a change. What it may change is noted.
pub fn request(model: &mut Model, user: usize, to: RoleState, out: &mut Vec<u8>) {
    model.roles[fact_of(user)].begin(to);
    let name = &*format!("bound-{user}");
    let rights = match to {
        RoleState::Absent => {
            let confirm_name = "";
            return RevokeTokenRequest { name, confirm_name }.encode(out);
        }
        RoleState::Read => ["read"],
        RoleState::Write => ["write"],
    };
    CreateTokenRequest {
        name,
        rights: (&rights[..]).into(),
        expires_after_ms: 0,
        binding: &format!("uid:{}", number_of(user)),
    }
    .encode(out);
}

/// The answer to a change, or a status.
pub fn changed(world: &mut World, user: usize, to: RoleState, status: &Status) {
    let place = fact_of(user);
    if is_trouble(status.code()) {
        world.counts.trouble += 1;
        return world.lose_role(place);
    }
    let fact = world.model.roles[place];
    match (to, status.code()) {
        (RoleState::Absent, Code::Ok) => {
            assert!(fact.could_be_there(), "{user} was revoked twice: {fact:?}");
            world.counts.unbound += 1;
        }
        (RoleState::Absent, Code::NotFound) => {
            assert!(fact.could_be_absent(), "{user} was lost: {fact:?}");
        }
        (RoleState::Read | RoleState::Write, Code::Ok) => {
            assert!(fact.could_be_absent(), "{user} was lost: {fact:?}");
            world.counts.bound += 1;
        }
        (RoleState::Read | RoleState::Write, Code::AlreadyExists) => {
            assert!(fact.could_be_there(), "{user} is back: {fact:?}");
            return undo(world, place);
        }
        (_, code) if has_done_nothing(code) => return undo(world, place),
        _ => panic!("a change of the binding of {user} ended with {status:?}"),
    }
    if !world.is_loose_role(place) {
        let moment = world.model.next_moment();
        world.model.roles[place].settle(to, moment);
    }
}

/// The end of a write of a user.
pub fn written(world: &mut World, user: usize, span: Span, status: &Status) {
    let fact = world.model.roles[fact_of(user)];
    let may_have_been = |state| fact.may_have_been(state, span);
    let may_be_bound = may_have_been(RoleState::Read) || may_have_been(RoleState::Write);
    match status.code() {
        Code::Ok => {
            let may_write = may_have_been(RoleState::Write) || may_have_been(RoleState::Absent);
            assert!(may_write, "{user} who reads has written: {fact:?} {span:?}");
            world.counts.bound_written += u64::from(!may_have_been(RoleState::Absent));
        }
        Code::PermissionDenied => {
            let may_read = may_have_been(RoleState::Read);
            assert!(may_read, "{user} was denied: {fact:?} {span:?}");
            world.counts.bound_denied += 1;
        }
        // The identity has ended while the call ran.
        Code::Unauthenticated => assert!(may_be_bound, "{user} is nobody: {fact:?} {span:?}"),
        code if is_trouble(code) || has_done_nothing(code) => {}
        _ => panic!("a write of {user} ended with {status:?}"),
    }
}
