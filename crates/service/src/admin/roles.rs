//! SetRole, ListRoles and DropRole, in the way of calls about tokens.

use store::{CommitOutcome, DatabaseId, ReadView};

use super::identity_change::{Committed, check_bytes, check_caller, commit_change, committed};
use super::invalid;
use super::last_admin::{administrated_until_ms, loses_admin};
use super::token_request::{audited_rights, read_rights};
use crate::actions::{Administration, CallClock, DatabaseAccess, Permissions, Responses, SendRoom};
use crate::call::Shared;
use crate::identities::record::StoredIdentities;
use crate::identities::role::RoleRecord;
use crate::limits::ROLES_MAX;
use crate::method::Method;
use crate::rights::{Grant, Rights, is_identity_name};
use crate::status::{Code, Status, quoted};
use api::admin::{
    DropRoleRequest, DropRoleResponse, ListRolesRequest, ListRolesResponse, RoleDescription,
    SetRoleRequest, SetRoleResponse,
};
use protobuf::{DecodeError, writer};

/// Names of identities that stand in the refusal to drop their role.
const NAMES_IN_REFUSAL: usize = 3;

/// A call about roles, from its request to its response.
pub(super) struct RoleCall {
    wanted: RoleRequest,
    /// How often a change was decided.
    tries: u32,
    /// The role was not there, as the commit under way has seen it.
    is_new: bool,
    /// A list that waits until it can be sent.
    waits: bool,
}

/// What is asked for.
enum RoleRequest {
    List,
    Set { name: Box<str>, rights: Rights },
    Drop { name: Box<str> },
}

impl RoleCall {
    /// Takes the request up, and asks for all identities.
    pub(super) fn begin(
        method: Method,
        bytes: &[u8],
        actions: &mut (impl DatabaseAccess + Administration),
    ) -> Result<Box<RoleCall>, Status> {
        let malformed = |error: DecodeError| invalid(method, error);
        let wanted = match method {
            Method::AdminSetRole => {
                let request = SetRoleRequest::decode(bytes).map_err(malformed)?;
                actions.set_audited(request.name, &audited_rights(request.rights.iter(), ""));
                set(method, &request)?
            }
            Method::AdminDropRole => {
                let request = DropRoleRequest::decode(bytes).map_err(malformed)?;
                actions.set_audited(request.name, "");
                RoleRequest::Drop {
                    name: request.name.into(),
                }
            }
            _ => {
                ListRolesRequest::decode(bytes).map_err(malformed)?;
                RoleRequest::List
            }
        };
        actions.read_long(DatabaseId::IDENTITIES);
        Ok(Box::new(RoleCall {
            wanted,
            tries: 0,
            is_new: false,
            waits: false,
        }))
    }

    /// Decides, with all identities at hand.
    pub(super) fn read(
        &mut self,
        shown: &ReadView<'_>,
        shared: &Shared,
        actions: &mut (impl DatabaseAccess + Permissions + Responses + SendRoom + CallClock),
    ) -> Result<(), Status> {
        let mut stored = StoredIdentities::read(shown);
        let now_ms = actions.now_ms();
        check_caller(&stored, now_ms, actions)?;
        let seen = (stored.changes_version, shared);
        match &self.wanted {
            RoleRequest::List => {
                self.waits = !actions.can_send();
                if !self.waits {
                    list(&stored, actions);
                }
                return Ok(());
            }
            RoleRequest::Set { name, rights } => {
                let before = stored.roles.iter().find(|role| role.name == *name);
                self.is_new = before.is_none();
                let role = RoleRecord {
                    name: name.clone(),
                    rights: rights.clone(),
                    created_ms: before.map_or(now_ms, |role| role.created_ms),
                };
                let value = role.encode();
                check_set(role, &mut stored, shared, now_ms)?;
                commit_change(&RoleRecord::key(name), Some(&value), seen, actions);
            }
            RoleRequest::Drop { name } => {
                check_drop(name, &stored)?;
                commit_change(&RoleRecord::key(name), None, seen, actions);
            }
        }
        self.tries += 1;
        Ok(())
    }

    /// Goes on with a list that has waited.
    pub(super) fn writable(&mut self, actions: &mut (impl DatabaseAccess + SendRoom)) {
        if self.waits && actions.can_send() {
            self.waits = false;
            actions.read_long(DatabaseId::IDENTITIES);
        }
    }

    /// The change was made, or has to be decided anew.
    pub(super) fn committed(
        &mut self,
        outcome: &CommitOutcome<'_>,
        actions: &mut (impl DatabaseAccess + Responses),
    ) -> Result<(), Status> {
        match committed(outcome, self.tries)? {
            Committed::Again => actions.read_long(DatabaseId::IDENTITIES),
            Committed::Done => actions.respond(|out| match self.wanted {
                RoleRequest::Set { .. } => SetRoleResponse {
                    created: self.is_new,
                }
                .encode(out),
                _ => DropRoleResponse {}.encode(out),
            }),
        }
        Ok(())
    }
}

fn set(method: Method, request: &SetRoleRequest<'_>) -> Result<RoleRequest, Status> {
    if !is_identity_name(request.name) {
        return Err(Status::invalid_argument(format!(
            "field name is {}; a role's name is one that a token may have",
            quoted(request.name)
        )));
    }
    let (rights, _) = read_rights(method, (request.rights.len(), request.rights.iter()))?;
    if rights.roles().next().is_some() {
        return Err(Status::invalid_argument(
            "field rights: a role is made of rights, and not of other roles",
        ));
    }
    Ok(RoleRequest::Set {
        name: request.name.into(),
        rights,
    })
}

/// Refuses a role that is too much, or that leaves nobody who may administrate.
fn check_set(
    role: RoleRecord,
    stored: &mut StoredIdentities,
    shared: &Shared,
    now_ms: u64,
) -> Result<(), Status> {
    let before_ms = administrated_until_ms(stored.records.iter(), now_ms);
    let place = stored
        .roles
        .iter()
        .position(|other| other.name == role.name);
    if place.is_none() && stored.roles.len() >= ROLES_MAX {
        return Err(Status::resource_exhausted(format!(
            "there are {ROLES_MAX} roles, and there can be no more: drop one first"
        )));
    }
    match place.and_then(|at| stored.roles.get_mut(at)) {
        Some(before) => *before = role,
        None => stored.roles.push(role),
    }
    stored.apply_roles();
    check_bytes(stored)?;
    let after_ms = administrated_until_ms(stored.records.iter(), now_ms);
    match loses_admin(before_ms, after_ms, shared) {
        true => Err(Status::new(
            Code::FailedPrecondition,
            match after_ms {
                0 => {
                    "nobody would have the right admin any more, and so could make tokens or \
                     change roles: give it to somebody else first"
                }
                _ => {
                    "nobody would have the right admin any more when the tokens that have it have \
                     expired: give it to somebody whose token does not expire first"
                }
            },
        )),
        false => Ok(()),
    }
}

fn check_drop(name: &str, stored: &StoredIdentities) -> Result<(), Status> {
    if !stored.roles.iter().any(|role| *role.name == *name) {
        return Err(Status::not_found(format!(
            "field name: there is no role {}",
            quoted(name)
        )));
    }
    let users: Vec<String> = (users(name, stored).take(NAMES_IN_REFUSAL))
        .map(quoted)
        .collect();
    match users.is_empty() {
        true => Ok(()),
        false => Err(Status::new(
            Code::FailedPrecondition,
            format!(
                "the role {} is in use by {}: revoke these first, or give the role other rights",
                quoted(name),
                users.join(", ")
            ),
        )),
    }
}

/// The names of those who have a role.
fn users<'a>(role: &'a str, stored: &'a StoredIdentities) -> impl Iterator<Item = &'a str> {
    let identities = stored.records.iter().map(|record| &record.identity);
    let has_it = move |identity: &&crate::identities::Identity| {
        identity.granted().roles().any(|name| name == role)
    };
    identities.filter(has_it).map(|identity| identity.name())
}

fn list(stored: &StoredIdentities, actions: &mut impl Responses) {
    actions.respond(|out| {
        for role in &stored.roles {
            let rights: Vec<String> = role.rights.grants().iter().map(Grant::to_string).collect();
            let rights: Vec<&str> = rights.iter().map(String::as_str).collect();
            let description = RoleDescription {
                name: &role.name,
                rights: (&rights[..]).into(),
                created_at_ms: role.created_ms,
                tokens: users(&role.name, stored).count() as u32,
            };
            let number = ListRolesResponse::NUMBERS.roles;
            writer::message(out, number, |out| description.encode(out));
        }
    });
}
