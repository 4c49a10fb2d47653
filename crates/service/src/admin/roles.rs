//! SetRole, ListRoles and DropRole: what is decided, and the responses.

use super::identity_change::{DecidedChange, MadeIdentity, check_bytes};
use super::last_admin::{administrated_until_ms, loses_admin};
use super::role_request::RoleRequest;
use crate::actions::Responses;
use crate::call::Shared;
use crate::identities::Identity;
use crate::identities::record::StoredIdentities;
use crate::identities::role::RoleRecord;
use crate::limits::ROLES_MAX;
use crate::rights::Grant;
use crate::status::{Code, Status, quoted};
use api::admin::{DropRoleResponse, ListRolesResponse, RoleDescription, SetRoleResponse};
use protobuf::writer;

/// Names of identities that stand in the refusal to drop their role.
const NAMES_IN_REFUSAL: usize = 3;

/// Decides on a change of a role.
pub(super) fn decide(
    request: &RoleRequest,
    stored: &StoredIdentities,
    shared: &Shared,
    now_ms: u64,
) -> Result<DecidedChange, Status> {
    match request {
        RoleRequest::List => Err(Status::internal("a list changes nothing")),
        RoleRequest::Set { name, rights } => {
            let before = stored.find_role(name);
            let role = RoleRecord {
                name: name.clone(),
                rights: rights.clone(),
                created_ms: before.map_or(now_ms, |role| role.created_ms),
            };
            let value = role.encode();
            check_set(role, stored, shared, now_ms)?;
            Ok(DecidedChange {
                key: RoleRecord::key(name),
                value: Some(value),
                revoked: None,
                made: MadeIdentity::Role {
                    is_new: before.is_none(),
                },
            })
        }
        RoleRequest::Drop { name } => {
            check_drop(name, stored)?;
            Ok(DecidedChange {
                key: RoleRecord::key(name),
                value: None,
                revoked: None,
                made: MadeIdentity::Nothing,
            })
        }
    }
}

/// Responds to a change that was made.
pub(super) fn respond(made: &MadeIdentity, actions: &mut impl Responses) {
    actions.respond(|out| match *made {
        MadeIdentity::Role { is_new } => SetRoleResponse { created: is_new }.encode(out),
        _ => DropRoleResponse {}.encode(out),
    });
}

/// Refuses a role that is too much, or that leaves nobody who may administrate.
fn check_set(
    role: RoleRecord,
    stored: &StoredIdentities,
    shared: &Shared,
    now_ms: u64,
) -> Result<(), Status> {
    let before_ms = administrated_until_ms(stored.records.iter(), shared, now_ms);
    if stored.find_role(&role.name).is_none() && stored.roles.len() >= ROLES_MAX {
        return Err(Status::resource_exhausted(format!(
            "there are {ROLES_MAX} roles, and there can be no more: drop one first"
        )));
    }
    let mut after = stored.clone();
    after.set_role(role);
    check_bytes(after.text_bytes())?;
    let after_ms = administrated_until_ms(after.records.iter(), shared, now_ms);
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
    if stored.find_role(name).is_none() {
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
    let identities = stored.records.iter().map(|record| &*record.identity);
    let has_it = move |identity: &&Identity| identity.granted().roles().any(|name| name == role);
    identities.filter(has_it).map(|identity| identity.name())
}

/// Responds with all roles.
pub(super) fn list(stored: &StoredIdentities, actions: &mut impl Responses) {
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
