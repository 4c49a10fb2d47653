//! `pelton role set|list|drop`

use api::admin::{DropRoleRequest, ListRolesRequest, SetRoleRequest};
use api::rpc::admin::{DropRole, ListRoles, SetRole};
use service::rights::shown_right;

use super::Caller;
use super::token::warn_of_databases;
use crate::arguments::{DropRoleArguments, ListRolesArguments, SetRoleArguments};
use crate::exit::{Exit, Failure};
use crate::output::{Output, in_columns, object};

/// Makes a role, or changes one.
pub fn set_role(arguments: &SetRoleArguments) -> Result<Exit, Failure> {
    let rights: Vec<String> = arguments.rights.iter().map(ToString::to_string).collect();
    let rights: Vec<&str> = rights.iter().map(String::as_str).collect();
    let request = SetRoleRequest {
        name: &arguments.name,
        rights: (&rights[..]).into(),
    };
    let connection = &arguments.connection;
    let reply = Caller::connect(connection)?.call::<SetRole>(&request)?;
    warn_of_databases(connection, &arguments.rights);
    let mut output = Output::new(connection.output);
    match (output.is_json(), reply.message().created) {
        (true, created) => output.object(object([("created", created.into())]))?,
        (false, true) => output.line("created")?,
        (false, false) => output.line("changed")?,
    }
    output.end()?;
    Ok(Exit::Done)
}

/// Removes a role.
pub fn drop_role(arguments: &DropRoleArguments) -> Result<Exit, Failure> {
    let name = &*arguments.name;
    let connection = &arguments.connection;
    let dropped = Caller::connect(connection)?.call::<DropRole>(&DropRoleRequest { name });
    dropped.map_err(|failure| {
        failure.or_miss(&format!("nothing dropped: there is no role `{name}`"))
    })?;
    let mut output = Output::new(connection.output);
    match output.is_json() {
        true => output.object(object([("dropped", true.into())]))?,
        false => output.line("dropped")?,
    }
    output.end()?;
    Ok(Exit::Done)
}

/// Lists all roles.
pub fn list_roles(arguments: &ListRolesArguments) -> Result<Exit, Failure> {
    let connection = &arguments.connection;
    let reply = Caller::connect(connection)?.call::<ListRoles>(&ListRolesRequest {})?;
    let mut output = Output::new(connection.output);
    let mut rows = vec![["NAME", "TOKENS", "RIGHTS"].map(str::to_owned)];
    for role in reply.message().roles.iter().flatten() {
        let rights: Vec<&str> = role.rights.iter().flatten().collect();
        match output.is_json() {
            true => output.object(object([
                ("name", role.name.into()),
                ("rights", rights.into()),
                ("created_at_ms", role.created_at_ms.into()),
                ("tokens", role.tokens.into()),
            ]))?,
            false => rows.push([
                shown_right(role.name).into_owned(),
                role.tokens.to_string(),
                shown_rights(&rights),
            ]),
        }
    }
    if !output.is_json() {
        for line in in_columns(rows, [false; 3]) {
            output.line(&line)?;
        }
    }
    output.end()?;
    Ok(Exit::Done)
}

/// The rights in one text, in which each is told from the others.
fn shown_rights(rights: &[&str]) -> String {
    let shown = rights.iter().map(|right| shown_right(right));
    shown.collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_right_of_a_role_is_taken_for_several_or_makes_a_line_of_its_own() {
        let shown = shown_rights(&["read:a", "read:a/x,admin", "read:a/\nroot"]);
        assert_eq!(shown, r#"read:a,"read:a/x,admin","read:a/\nroot""#);
    }
}
