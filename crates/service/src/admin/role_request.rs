//! What callers ask for who change roles, checked as far as that needs no look at those that are.

use super::invalid;
use super::token_request::{audited_rights, check_no_token, read_rights};
use crate::actions::Administration;
use crate::method::Method;
use crate::rights::{Rights, is_identity_name};
use crate::status::{Status, quoted};
use api::admin::{DropRoleRequest, ListRolesRequest, SetRoleRequest};
use protobuf::DecodeError;

/// What is asked for.
pub(super) enum RoleRequest {
    List,
    Set { name: Box<str>, rights: Rights },
    Drop { name: Box<str> },
}

impl RoleRequest {
    /// Reads the request of a call.
    pub(super) fn read(
        method: Method,
        bytes: &[u8],
        actions: &mut impl Administration,
    ) -> Result<RoleRequest, Status> {
        let malformed = |error: DecodeError| invalid(method, error);
        match method {
            Method::AdminSetRole => {
                let request = SetRoleRequest::decode(bytes).map_err(malformed)?;
                actions.set_audited(request.name, &audited_rights(request.rights.iter(), ""));
                set(method, &request)
            }
            Method::AdminDropRole => {
                let request = DropRoleRequest::decode(bytes).map_err(malformed)?;
                actions.set_audited(request.name, "");
                Ok(RoleRequest::Drop {
                    name: request.name.into(),
                })
            }
            _ => {
                ListRolesRequest::decode(bytes).map_err(malformed)?;
                Ok(RoleRequest::List)
            }
        }
    }
}

fn set(method: Method, request: &SetRoleRequest<'_>) -> Result<RoleRequest, Status> {
    check_no_token(request.name)?;
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
