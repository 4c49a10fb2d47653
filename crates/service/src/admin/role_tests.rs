//! Calls about roles, over a store in memory.

use api::admin::*;

use super::token_tests::{Server, refused};
use crate::identities::{Identity, IdentityKey};
use crate::limits::{GRANTS_MAX, IDENTITIES_BYTES_MAX, ROLES_MAX};
use crate::method::Method;
use crate::rights::{Right, Rights};
use crate::status::{Code, Status};

fn set(server: &Server, name: &str, rights: &[&str]) -> Result<bool, Status> {
    let mut request = Vec::new();
    let rights = rights.into();
    SetRoleRequest { name, rights }.encode(&mut request);
    let answer = server.call(Method::AdminSetRole, &request)?;
    Ok(SetRoleResponse::decode(&answer)
        .expect("it is a message")
        .created)
}

fn drop_role(server: &Server, name: &str) -> Result<(), Status> {
    let mut request = Vec::new();
    DropRoleRequest { name }.encode(&mut request);
    server
        .call(Method::AdminDropRole, &request)
        .map(|answer| assert!(answer.is_empty()))
}

/// Names, rights, and how many tokens have them.
fn list(server: &Server) -> Vec<(String, Vec<String>, u32)> {
    let answer = server
        .call(Method::AdminListRoles, &[])
        .expect("it is there");
    let answer = ListRolesResponse::decode(&answer).expect("it is a message");
    let one = |role: RoleDescription<'_>| {
        let rights = role
            .rights
            .iter()
            .map(|right| right.expect("text").to_owned());
        (role.name.to_owned(), rights.collect(), role.tokens)
    };
    answer
        .roles
        .iter()
        .map(|role| one(role.expect("a message")))
        .collect()
}

fn key(server: &Server, token: &str) -> IdentityKey {
    let header = format!("Bearer {token}");
    let table = server.shared().identities.table();
    table.resolve(header.as_bytes(), 0).expect("it is good")
}

fn may(server: &Server, key: IdentityKey, right: Right, database: &str) -> Option<bool> {
    let table = server.shared().identities.table();
    let rights = table.get(key).map(Identity::rights)?;
    Some(rights.on_database(right, database))
}

#[test]
fn each_state_of_a_role_twice() {
    let server = Server::new(Rights::everything());
    for _ in 0..2 {
        let unknown = server.create("ci", &["read:a", "role:dev"], 0);
        refused(unknown, Code::InvalidArgument, &["no role \"dev\""]);
        assert_eq!(set(&server, "dev", &["read:b", "write:c/x/"]), Ok(true));
        assert_eq!(list(&server)[0].2, 0);
        let token = server
            .create("ci", &["read:a", "role:dev"], 0)
            .expect("it is made");
        let first = key(&server, &token);
        for (right, database, expected) in [
            (Right::Read, "a", true),
            (Right::Read, "b", true),
            (Right::Write, "b", false),
            (Right::Read, "c", false),
        ] {
            assert_eq!(
                may(&server, first, right, database),
                Some(expected),
                "{database}"
            );
        }
        // What it was given is shown, and not what that means.
        assert_eq!(server.list()[0].rights, ["read:a", "role:dev"]);
        let expected = vec!["read:b".to_owned(), "write:c/x/".to_owned()];
        assert_eq!(list(&server), [("dev".to_owned(), expected, 1)]);
        refused(
            drop_role(&server, "dev"),
            Code::FailedPrecondition,
            &["in use by \"ci\""],
        );
        // More: what runs goes on, with more.
        assert_eq!(set(&server, "dev", &["write:b", "write:c"]), Ok(false));
        assert_eq!(may(&server, first, Right::Write, "b"), Some(true));
        // Less: what runs ends, and begins anew with less.
        assert_eq!(set(&server, "dev", &["read:b"]), Ok(false));
        assert_eq!(may(&server, first, Right::Read, "b"), None);
        let second = key(&server, &token);
        assert_eq!(may(&server, second, Right::Write, "b"), Some(false));
        assert_eq!(may(&server, second, Right::Read, "b"), Some(true));
        // Rotated it has the role still.
        let token = server.rotate("ci", 0, 0).expect("it is there");
        assert_eq!(set(&server, "dev", &["write:b"]), Ok(false));
        assert_eq!(
            may(&server, key(&server, &token), Right::Write, "b"),
            Some(true)
        );
        server.revoke("ci", "").expect("it is there");
        drop_role(&server, "dev").expect("nobody has it");
        refused(
            drop_role(&server, "dev"),
            Code::NotFound,
            &["no role \"dev\""],
        );
        assert_eq!(list(&server), []);
    }
}

#[test]
fn a_role_is_no_way_to_lose_the_last_administrator() {
    let server = Server::new(Rights::default());
    for _ in 0..2 {
        set(&server, "ops", &["admin"]).expect("it is made");
        server.create("one", &["role:ops"], 0).expect("it is made");
        let last = server.revoke("one", "");
        refused(last, Code::FailedPrecondition, &["the last token"]);
        let fewer = set(&server, "ops", &["write"]);
        refused(
            fewer,
            Code::FailedPrecondition,
            &["nobody would have the right admin"],
        );
        server.create("two", &["admin"], 0).expect("it is made");
        set(&server, "ops", &["write"]).expect("there is another one");
        server.revoke("one", "").expect("it is none any more");
        server.revoke("two", "two").expect("it was confirmed");
        drop_role(&server, "ops").expect("nobody has it");
    }
}

#[test]
fn what_is_wrong_with_a_role_is_said() {
    let server = Server::new(Rights::everything());
    let long = "n".repeat(65);
    for name in ["", "a b", "a:b", &long] {
        refused(
            set(&server, name, &["read"]),
            Code::InvalidArgument,
            &["field name"],
        );
    }
    let many = vec!["read"; GRANTS_MAX + 1];
    for (rights, words) in [
        (&[][..], "0 rights"),
        (&many, "65 rights"),
        (&["reed"], "is no right"),
        (&["role:other"], "not of other roles"),
    ] {
        refused(
            set(&server, "dev", rights),
            Code::InvalidArgument,
            &["field rights", words],
        );
    }
    for at in 0..ROLES_MAX {
        set(&server, &format!("r{at}"), &["read"]).expect("there is room");
    }
    refused(
        set(&server, "more", &["read"]),
        Code::ResourceExhausted,
        &["drop one first"],
    );
    set(&server, "r1", &["write"]).expect("it is no other one");
}

/// Neither many tokens nor large roles of a few get beyond the bound; and what is refused changes
/// nothing.
#[test]
fn the_rights_of_all_are_bounded_together() {
    let server = Server::new(Rights::everything());
    let wide = format!("read:a/{}", "x".repeat(1_400));
    let mut names = Vec::new();
    for at in 0..GRANTS_MAX {
        set(&server, &format!("r{at}"), &[&wide, &wide]).expect("there is room");
        names.push(format!("role:r{at}"));
    }
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let each_bytes = 2 * wide.len() * GRANTS_MAX;
    let mut made = 0;
    let refusal = loop {
        match server.create(&format!("t{made}"), &names, 0) {
            Ok(_) => made += 1,
            Err(status) => break status,
        }
        assert!(made * each_bytes <= IDENTITIES_BYTES_MAX, "{made}");
    };
    refused::<()>(Err(refusal), Code::ResourceExhausted, &["at most"]);
    assert!(
        (made + 1) * (each_bytes + 2_000) > IDENTITIES_BYTES_MAX,
        "{made}"
    );
    assert_eq!(server.list().len(), made);
    for at in 0..20 {
        set(&server, &format!("r{at}"), &["read:a"]).expect("it is less");
    }
    server
        .create("one-more", &names, 0)
        .expect("there is room again");
    let larger = (0..20).map(|at| set(&server, &format!("r{at}"), &[&wide, &wide]));
    let refusal = larger
        .into_iter()
        .find_map(Result::err)
        .expect("it is too much at last");
    assert_eq!(refusal.code(), Code::ResourceExhausted);
}

/// When a role was made is when it was made, however often it is changed.
#[test]
fn a_role_that_is_changed_keeps_the_time_when_it_was_made() {
    let mut server = Server::new(Rights::everything());
    let created_ms = |server: &Server| {
        let answer = server.call(Method::AdminListRoles, &[]);
        let answer = answer.expect("it is there");
        let answer = ListRolesResponse::decode(&answer).expect("it is a message");
        let role = answer.roles.iter().next().expect("there is one");
        role.expect("a message").created_at_ms
    };
    for _ in 0..2 {
        let made_ms = server.now_ms;
        assert_eq!(set(&server, "dev", &["read:a"]), Ok(true));
        for rights in ["write:a", "read:b"] {
            server.now_ms += 1_000;
            assert_eq!(set(&server, "dev", &[rights]), Ok(false));
            assert_eq!(created_ms(&server), made_ms);
        }
        drop_role(&server, "dev").expect("nobody has it");
    }
}

/// Who may make changes is looked up when they are decided, and not as the loop of the caller knows
/// it: neither an identity that has expired since, nor one whose role has become smaller.
#[test]
fn no_change_is_made_by_who_has_expired_or_whose_role_has_become_smaller() {
    let mut server = Server::new(Rights::default());
    server.create("admin", &["admin"], 0).expect("it is made");
    let request = [(1, "ghosts"), (2, "admin")];
    let mut message = Vec::new();
    for (field, text) in request {
        protobuf::writer::bytes(&mut message, field, text.as_bytes());
    }
    for _ in 0..2 {
        assert_eq!(set(&server, "power", &["admin"]), Ok(true));
        for expires in [true, false] {
            let after_ms = if expires { 1_000 } else { 0 };
            let token = server.create("thief", &["role:power"], after_ms);
            let caller = server.caller(&token.expect("it is made"));
            let may = |server: &Server, method| {
                server.call_as(caller.clone(), method, &message, &mut || {})
            };
            for method in [Method::AdminSetRole, Method::AdminListRoles] {
                assert_eq!(may(&server, method).map(drop), Ok(()));
            }
            match expires {
                true => server.now_ms += 1_000,
                false => assert_eq!(set(&server, "power", &["write"]), Ok(false)),
            }
            for method in [
                Method::AdminSetRole,
                Method::AdminListRoles,
                Method::AdminListTokens,
                Method::AdminCreateToken,
            ] {
                let refusal = may(&server, method);
                let why = match expires {
                    true => "was revoked or has expired",
                    false => "were changed",
                };
                refused(refusal, Code::Unauthenticated, &[why]);
            }
            server.revoke("thief", "").expect("it is there");
            drop_role(&server, "ghosts").expect("nobody has it");
        }
        drop_role(&server, "power").expect("nobody has it");
    }
}
