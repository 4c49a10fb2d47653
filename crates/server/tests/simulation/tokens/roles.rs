//! Roles: what is known of each, and what clients make of the answers of calls about them.

use api::admin::{DropRoleRequest, DropRoleResponse, SetRoleRequest, SetRoleResponse};
use wire::grpc::{Code, Status};

use super::calls::{has_done_nothing, is_trouble};
use super::model::{Model, NEVER, NameState, Span};
use super::world::World;

/// What a token was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Right {
    Read,
    Write,
    /// What the role of this number grants.
    Role(usize),
}

impl Right {
    /// As a request has it.
    pub fn text(self) -> String {
        match self {
            Right::Read => "read".into(),
            Right::Write => "write".into(),
            Right::Role(role) => format!("role:{}", role_name(role)),
        }
    }
}

/// What a role is, and grants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RoleState {
    Absent,
    Read,
    Write,
}

/// A role.
#[derive(Clone, Copy, Debug)]
pub struct RoleFact {
    /// The last moment at which it may have been in each state; [`NEVER`]: it may be so now.
    last: [u64; 3],
    /// The same before the change that is under way.
    before: [u64; 3],
}

impl RoleFact {
    pub const ABSENT: RoleFact = RoleFact {
        last: [NEVER, 0, 0],
        before: [NEVER, 0, 0],
    };

    /// Whether it may have been in a state while a call ran that has just ended.
    pub fn may_have_been(&self, state: RoleState, span: Span) -> bool {
        self.last[state as usize] >= span.begun_at
    }

    /// Whether it is there for certain.
    pub fn is_surely_there(&self) -> bool {
        self.last[RoleState::Absent as usize] != NEVER
    }

    pub fn could_be_absent(&self) -> bool {
        self.before[RoleState::Absent as usize] == NEVER
    }

    pub fn could_be_there(&self) -> bool {
        self.before[1..].contains(&NEVER)
    }

    /// Somebody asks for a change.
    pub fn begin(&mut self, to: RoleState) {
        self.before = self.last;
        self.last[to as usize] = NEVER;
    }

    /// It is in this state, and in no other one from this moment on.
    pub fn settle(&mut self, state: RoleState, moment: u64) {
        for (other, last) in self.last.iter_mut().enumerate() {
            if other != state as usize && *last == NEVER {
                *last = moment;
            }
        }
    }
}

fn role_name(role: usize) -> String {
    format!("role-{role}")
}

/// The request for a change. What it may change is noted.
pub fn request(model: &mut Model, role: usize, to: RoleState, out: &mut Vec<u8>) {
    model.roles[role].begin(to);
    let name = &*role_name(role);
    let rights = match to {
        RoleState::Absent => return DropRoleRequest { name }.encode(out),
        RoleState::Read => ["read"],
        RoleState::Write => ["write"],
    };
    let rights = (&rights[..]).into();
    SetRoleRequest { name, rights }.encode(out);
}

/// The answer to a change, or a status.
pub fn changed(world: &mut World, role: usize, to: RoleState, answer: &[u8], status: &Status) {
    if is_trouble(status.code()) {
        world.counts.trouble += 1;
        return world.lose_role(role);
    }
    let fact = world.model.roles[role];
    match (to, status.code()) {
        (RoleState::Absent, Code::Ok) => {
            DropRoleResponse::decode(answer).expect("it is a message");
            assert!(fact.could_be_there(), "{role} was dropped twice: {fact:?}");
            let user = users(world, role).find(|state| matches!(state, NameState::Present(_)));
            assert_eq!(user, None, "role {role} was dropped, and is in use");
            world.counts.roles_dropped += 1;
        }
        (RoleState::Absent, Code::NotFound) => {
            assert!(fact.could_be_absent(), "role {role} was lost: {fact:?}");
        }
        (RoleState::Absent, Code::FailedPrecondition) if status.message().contains("in use") => {
            assert!(fact.could_be_there(), "role {role} is back: {fact:?}");
            let user = users(world, role).find(|state| **state != NameState::Absent);
            assert!(user.is_some(), "nobody has role {role}");
            world.counts.roles_in_use += 1;
            return undo(world, role);
        }
        (_, Code::Ok) => {
            let answer = SetRoleResponse::decode(answer).expect("it is a message");
            match answer.created {
                true => assert!(fact.could_be_absent(), "role {role} was lost: {fact:?}"),
                false => assert!(fact.could_be_there(), "role {role} is back: {fact:?}"),
            }
            world.counts.roles_set += 1;
        }
        (_, code) if has_done_nothing(code) => return undo(world, role),
        _ => panic!("a change of role {role} ended with {status:?}"),
    }
    if !world.is_loose_role(role) {
        let moment = world.model.next_moment();
        world.model.roles[role].settle(to, moment);
    }
}

/// Nothing was done, unless an earlier change is still on its way.
pub fn undo(world: &mut World, role: usize) {
    if !world.is_loose_role(role) {
        let fact = &mut world.model.roles[role];
        fact.last = fact.before;
    }
}

/// The states of the names that have a role, if they are there.
fn users(world: &World, role: usize) -> impl Iterator<Item = &NameState> {
    let named = world.rights.iter().zip(&world.model.names);
    named.filter_map(move |(right, state)| (*right == Right::Role(role)).then_some(state))
}
