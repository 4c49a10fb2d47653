//! Whether callers may do what they ask for, and what those are told who may not.
//!
//! A call is looked at twice: when it begins, by its method ([`check_begin`]), and where it names a
//! database, before anybody looks whether there is one. A refusal repeats the words of the request,
//! and so tells nothing about what exists.

#[cfg(test)]
mod by_method;

use crate::actions::Permissions;
use crate::identities::{Binding, Identity, Unauthenticated};
use crate::method::{Access, DatabaseName, Method};
use crate::rights::{DEFAULT_DATABASE, DropIn, Grant, Right, Scope, shown_right};
use crate::status::{Code, Status, shortened_with_dots};

/// From where a call comes, as far as it matters for what it may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerKind {
    /// A UNIX socket of this machine.
    Unix,
    /// A loopback address of this machine.
    Loopback,
    /// Anywhere else, with TLS.
    RemoteTls,
    /// Anywhere else, in plain text.
    RemotePlain,
}

/// Returns whether a call of `method` may begin. `identity` is whose call it is; `None`: somebody's
/// who was revoked.
///
/// # Errors
/// If the right that the method needs holds nowhere, or a call that administrates could be seen and
/// changed on its way.
#[inline]
pub fn check_begin(
    method: Method,
    identity: Option<&Identity>,
    peer: PeerKind,
) -> Result<(), Status> {
    let entry = method.entry();
    let Some(needed) = entry.access.least_right() else {
        return Ok(());
    };
    let Some(identity) = identity else {
        return Err(Unauthenticated::Ended.status());
    };
    let rights = identity.rights();
    let is_of_server = matches!(entry.database, DatabaseName::Server);
    let holds = rights.on_server(needed)
        || !is_of_server && rights.anywhere(needed)
        || (method.drop_in()).is_some_and(|service| rights.on_drop_in(service));
    if !holds {
        return Err(match method.drop_in() {
            Some(service) => refused_drop_in(identity, service),
            None if is_of_server => refused(identity, needed, Scope::Server),
            None => refused_anywhere(identity, needed),
        });
    }
    match peer == PeerKind::RemotePlain && entry.access == Access::Administer {
        true => Err(in_plain_text(method)),
        false => Ok(()),
    }
}

/// Returns whether a right holds on the entries of a database.
#[inline]
pub(crate) fn holds(right: Right, database: &str, actions: &impl Permissions) -> bool {
    let identity = actions.identity();
    identity.is_some_and(|identity| identity.rights().on_database(right, database))
}

/// Refuses those who have no such right on the entries of a database.
#[inline]
pub(crate) fn check_database(
    right: Right,
    database: &str,
    actions: &impl Permissions,
) -> Result<(), Status> {
    match holds(right, database, actions) {
        true => Ok(()),
        false => Err(refused_database(right, database, actions)),
    }
}

/// Refuses those who have no such right on all blobs of a database whose names begin so.
pub(crate) fn check_blobs(
    right: Right,
    (database, prefix): (&str, &str),
    actions: &impl Permissions,
) -> Result<(), Status> {
    let Some(identity) = actions.identity() else {
        return Err(Unauthenticated::Ended.status());
    };
    if identity.rights().on_blobs(right, database, prefix) {
        return Ok(());
    }
    if database == DEFAULT_DATABASE {
        return Err(refused_written_default(identity, right));
    }
    let scope = Scope::Blobs {
        database: shortened_with_dots(database).into(),
        prefix: shortened_with_dots(prefix).into(),
    };
    Err(refused(identity, right, scope))
}

/// Returns whether everything that a drop-in service does is granted by its name.
pub(crate) fn has_drop_in(service: DropIn, actions: &impl Permissions) -> bool {
    let identity = actions.identity();
    identity.is_some_and(|identity| identity.rights().on_drop_in(service))
}

#[cold]
fn refused_database(right: Right, database: &str, actions: &impl Permissions) -> Status {
    match actions.identity() {
        None => Unauthenticated::Ended.status(),
        Some(identity) if database == DEFAULT_DATABASE => refused_written_default(identity, right),
        Some(identity) => refused(
            identity,
            right,
            Scope::Database(shortened_with_dots(database).into()),
        ),
    }
}

/// The caller lacks a right in a place.
#[cold]
fn refused(identity: &Identity, right: Right, scope: Scope) -> Status {
    let needed = Grant::In(right, scope).to_string();
    denied(identity, &format!("the right `{}`", shown_right(&needed)))
}

/// The caller has written the name of the default database as it stands in rights. The right would
/// be written as that on the default database, which they may well have.
#[cold]
fn refused_written_default(identity: &Identity, right: Right) -> Status {
    denied(
        identity,
        &format!(
            "the right `{}` on a database of the name `{DEFAULT_DATABASE}`, which there is not: \
             the default database has the empty name in requests, so leave the field out",
            right.name()
        ),
    )
}

/// The caller has a right nowhere.
#[cold]
fn refused_anywhere(identity: &Identity, right: Right) -> Status {
    let needed = right.name();
    denied(
        identity,
        &format!("the right `{needed}`, which it has nowhere"),
    )
}

/// The caller may not use a drop-in service. Of the rights that open it the smallest is named: any
/// other opens more than this service.
#[cold]
fn refused_drop_in(identity: &Identity, service: DropIn) -> Status {
    let needed = Grant::DropIn(service).to_string();
    denied(identity, &format!("the right `{needed}`"))
}

fn denied(identity: &Identity, needed: &str) -> Status {
    if !identity.is_anonymous() {
        let (name, noun) = (
            identity.name(),
            identity.binding().map_or("token", Binding::noun),
        );
        let words = format!("the call needs {needed}: the {noun} of {name:?} is not good for it");
        return Status::new(Code::PermissionDenied, words);
    }
    if identity.rights().is_nothing() {
        return Unauthenticated::Missing.status();
    }
    let words = format!("the call needs {needed}: it came without a token");
    Status::new(Code::PermissionDenied, words)
}

#[cold]
fn in_plain_text(method: Method) -> Status {
    Status::new(
        Code::PermissionDenied,
        format!(
            "{} is served over TLS, on loopback addresses and on UNIX sockets, and this connection \
             comes from elsewhere in plain text",
            method.path()
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identities::{
        Identities, IssuedToken, NEVER_MS, Proof, TOKEN_BYTES, TOKEN_PREFIX, Token, TokenHash,
        TokenKey,
    };
    use crate::limits::QUOTED_CHARACTERS;
    use crate::rights::Rights;

    struct Caller(Option<Identity>);

    impl Permissions for Caller {
        fn identity(&self) -> Option<&Identity> {
            self.0.as_ref()
        }

        fn proof(&self) -> Option<&Proof> {
            None
        }
    }

    fn rights(texts: &[&str]) -> Rights {
        let grants = texts.iter().map(|text| text.parse().expect(text));
        Rights::new(grants.collect::<Vec<Grant>>())
    }

    fn with_token(texts: &[&str]) -> Identity {
        let issued = IssuedToken {
            hash: TokenHash::from_bytes([1; 32]),
            expires_ms: NEVER_MS,
        };
        Identity::new("ci", rights(texts), NEVER_MS, vec![issued]).expect("sound")
    }

    fn without_token(texts: &[&str]) -> Identity {
        let key = TokenKey::new(&[1; 32]);
        let table = Identities::new(key, vec![rights(texts)]).table();
        (table.get(table.of_listener(0)).expect("a listener")).clone()
    }

    fn begins(method: Method, identity: &Identity, peer: PeerKind) -> Option<Code> {
        check_begin(method, Some(identity), peer)
            .err()
            .map(|status| status.code())
    }

    #[test]
    fn a_call_begins_if_its_right_holds_anywhere() {
        use Method as M;
        for (grants, refused) in [
            (&["admin"][..], &[][..]),
            (
                &["write"],
                &[M::AdminCreateDatabase, M::AdminBackup, M::AdminSnapshot],
            ),
            (
                &["admin:a"],
                &[M::AdminBackup, M::AdminSnapshot, M::AdminStatistics],
            ),
            (
                &["read"],
                &[M::Put, M::BlobDelete, M::AdminBackup, M::GuploadUpload],
            ),
            (
                &["read:a/x"],
                &[M::Put, M::AdminStatistics, M::KvstoreCreate],
            ),
        ] {
            let identity = with_token(grants);
            for method in [
                M::HealthCheck,
                M::ReflectionV1,
                M::EchoUnary,
                M::YdbPingUnary,
                M::Get,
                M::Batch,
                M::Transact,
                M::Pipe,
                M::BlobStat,
                M::AdminListDatabases,
                M::KvstoreRetrieve,
            ] {
                assert_eq!(
                    begins(method, &identity, PeerKind::RemoteTls),
                    None,
                    "{method:?}"
                );
            }
            for &method in refused {
                let code = begins(method, &identity, PeerKind::Loopback);
                assert_eq!(code, Some(Code::PermissionDenied), "{grants:?} {method:?}");
            }
        }
    }

    #[test]
    fn without_a_right_only_what_is_open_begins() {
        for &method in Method::ALL {
            let is_open = method.entry().access == Access::Open;
            for (identity, code) in [
                (without_token(&[]), Code::Unauthenticated),
                (with_token(&[]), Code::PermissionDenied),
            ] {
                let expected = (!is_open).then_some(code);
                assert_eq!(
                    begins(method, &identity, PeerKind::Unix),
                    expected,
                    "{method:?}"
                );
            }
            let gone = check_begin(method, None, PeerKind::Unix);
            let expected = (!is_open).then_some(Code::Unauthenticated);
            assert_eq!(gone.err().map(|status| status.code()), expected);
        }
    }

    #[test]
    fn a_drop_in_service_is_opened_by_its_name_and_opens_nothing_else() {
        for service in DropIn::ALL {
            let identity = without_token(&[&format!("service:{}", service.name())]);
            for &method in Method::ALL {
                let is_open = method.entry().access == Access::Open;
                let is_its_own = method.drop_in() == Some(service);
                let expected = (!is_open && !is_its_own).then_some(Code::PermissionDenied);
                assert_eq!(begins(method, &identity, PeerKind::RemotePlain), expected);
            }
        }
    }

    /// `read` anywhere would do for some of them, and be a right on entries that nobody asked for.
    #[test]
    fn a_refusal_by_a_drop_in_service_names_the_right_that_opens_it_alone() {
        for &method in Method::ALL {
            let Some(service) = method.drop_in() else {
                continue;
            };
            let needed = format!("the call needs the right `service:{}`: ", service.name());
            let other = match service {
                DropIn::Kvstore => "service:gupload",
                _ => "service:kvstore",
            };
            for identity in [with_token(&[other]), without_token(&[other])] {
                let refused = check_begin(method, Some(&identity), PeerKind::Loopback);
                let status = refused.expect_err("it has another right");
                assert_eq!(status.code(), Code::PermissionDenied);
                let told = status.message();
                assert!(told.starts_with(&needed), "{method:?}: {told}");
            }
        }
    }

    #[test]
    fn who_administrates_from_elsewhere_does_it_over_tls() {
        let admin = with_token(&["admin"]);
        for &method in Method::ALL {
            let is_admin = method.entry().access == Access::Administer;
            let plain = begins(method, &admin, PeerKind::RemotePlain);
            assert_eq!(
                plain,
                is_admin.then_some(Code::PermissionDenied),
                "{method:?}"
            );
            for peer in [PeerKind::RemoteTls, PeerKind::Loopback, PeerKind::Unix] {
                assert_eq!(begins(method, &admin, peer), None, "{method:?}");
            }
        }
    }

    #[test]
    fn who_writes_the_default_database_as_it_stands_in_rights_is_told_its_name() {
        let caller = Caller(Some(with_token(&["read:default"])));
        for refused in [
            check_database(Right::Read, "default", &caller),
            check_blobs(Right::Read, ("default", "x"), &caller),
        ] {
            let status = refused.expect_err("there is none of this name");
            assert_eq!(status.code(), Code::PermissionDenied);
            let told = status.message();
            assert!(told.contains("has the empty name in requests"), "{told}");
        }
        assert_eq!(check_database(Right::Read, "", &caller), Ok(()));
    }

    #[test]
    fn a_refusal_names_the_right_in_the_words_of_the_request() {
        let words = |refused: Result<(), Status>| {
            let status = refused.expect_err("it is refused");
            (status.code(), status.message().to_owned())
        };
        let denied = |text: &str| (Code::PermissionDenied, text.to_owned());
        let caller = Caller(Some(with_token(&["read:a", "write:b/x/"])));
        assert_eq!(
            words(check_database(Right::Write, "a", &caller)),
            denied("the call needs the right `write:a`: the token of \"ci\" is not good for it")
        );
        assert_eq!(
            words(check_database(Right::Read, "", &caller)),
            denied(
                "the call needs the right `read:default`: the token of \"ci\" is not good for it"
            )
        );
        assert_eq!(
            words(check_blobs(Right::Write, ("b", "y"), &caller)),
            denied("the call needs the right `write:b/y`: the token of \"ci\" is not good for it")
        );
        assert_eq!(check_database(Right::Read, "a", &caller), Ok(()));
        assert_eq!(check_blobs(Right::Write, ("b", "x/y"), &caller), Ok(()));
        let long = "ä".repeat(QUOTED_CHARACTERS + 1);
        let (_, told) = words(check_database(Right::Read, &long, &caller));
        assert!(
            told.contains(&format!("{}…`", "ä".repeat(QUOTED_CHARACTERS))),
            "{told}"
        );
        assert_eq!(
            words(check_database(Right::Write, "a`\nb", &caller)),
            denied(
                "the call needs the right `\"write:a`\\nb\"`: the token of \"ci\" is not good for \
                 it"
            )
        );
        // Of a token that was taken for a name, no part is left where the name is cut.
        let token = Token::new([7; TOKEN_BYTES]).text();
        for before in [0, 10, QUOTED_CHARACTERS - 20, QUOTED_CHARACTERS - 2] {
            let name = format!("{}{}", "n".repeat(before), *token);
            for refused in [
                check_database(Right::Read, &name, &caller),
                check_blobs(Right::Read, ("b", &name), &caller),
            ] {
                let (_, told) = words(refused);
                assert!(!told.contains(&token[TOKEN_PREFIX.len()..][..4]), "{told}");
            }
        }
        let caller = Caller(Some(without_token(&["read:a"])));
        assert_eq!(
            words(check_database(Right::Write, "a", &caller)),
            denied("the call needs the right `write:a`: it came without a token")
        );
        let (code, told) = words(check_begin(Method::Put, caller.identity(), PeerKind::Unix));
        assert_eq!(code, Code::PermissionDenied);
        assert!(told.contains("`write`, which it has nowhere"), "{told}");
        for gone in [Caller(None), Caller(Some(without_token(&[])))] {
            for refused in [
                check_database(Right::Read, "a", &gone),
                check_blobs(Right::Read, ("a", "x"), &gone),
            ] {
                assert_eq!(words(refused).0, Code::Unauthenticated);
            }
            assert!(!has_drop_in(DropIn::Kvstore, &gone));
        }
    }
}
