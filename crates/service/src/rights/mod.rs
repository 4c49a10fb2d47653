//! What a caller may do: a short list of grants, and the questions that calls ask of it.
//!
//! A call asks with the *name* of a database, before it looks whether there is one, so that a
//! refusal does not tell what exists.

mod grant;

use std::sync::Arc;

pub(crate) use grant::is_identity_name;
pub use grant::{DEFAULT_DATABASE, DropIn, Grant, GrantError, Right, Scope, shown_right};

/// What a caller may do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rights {
    /// All identities that have these from one role share them.
    grants: Arc<[Grant]>,
    /// The largest right on the server as a whole, of which most questions are answered.
    on_server: Option<Right>,
}

impl Rights {
    /// Everything: a caller of this machine, where nothing else was asked for.
    pub fn everything() -> Rights {
        Rights::new(vec![Grant::In(Right::Admin, Scope::Server)])
    }

    /// The sum of the grants.
    pub fn new(grants: impl Into<Arc<[Grant]>>) -> Rights {
        let grants = grants.into();
        let on_server = grants.iter().filter_map(|grant| match grant {
            Grant::In(right, Scope::Server) => Some(*right),
            _ => None,
        });
        Rights {
            on_server: on_server.max(),
            grants,
        }
    }

    /// Returns the grants, in the order given.
    pub fn grants(&self) -> &[Grant] {
        &self.grants
    }

    /// Returns whether the right holds on the server as a whole.
    #[inline]
    pub fn on_server(&self, needed: Right) -> bool {
        self.on_server >= Some(needed)
    }

    /// Returns whether the right holds on the entries of a database.
    #[inline]
    pub fn on_database(&self, needed: Right, name: &str) -> bool {
        self.on_server(needed) || self.on_named(needed, name)
    }

    fn on_named(&self, needed: Right, name: &str) -> bool {
        self.grants.iter().any(|grant| match grant {
            Grant::In(right, Scope::Database(database)) => *right >= needed && **database == *name,
            _ => false,
        })
    }

    /// Returns whether the right holds on all blobs of a database whose names begin with `name`, so
    /// also on the blob of that name.
    pub fn on_blobs(&self, needed: Right, database: &str, name: &str) -> bool {
        let is_granted = |grant: &Grant| match grant {
            Grant::In(
                right,
                Scope::Blobs {
                    database: of,
                    prefix,
                },
            ) => *right >= needed && **of == *database && name.starts_with(&**prefix),
            _ => false,
        };
        self.on_database(needed, database) || self.grants.iter().any(is_granted)
    }

    /// Returns whether everything that a drop-in service does is granted by its name.
    pub fn on_drop_in(&self, service: DropIn) -> bool {
        self.grants.contains(&Grant::DropIn(service))
    }

    /// Returns whether the right holds anywhere. If not, a call that needs it is refused before its
    /// request is looked at.
    pub fn anywhere(&self, needed: Right) -> bool {
        self.grants.iter().any(|grant| match grant {
            Grant::In(right, _) => *right >= needed,
            Grant::DropIn(_) | Grant::Role(_) => false,
        })
    }

    /// Returns whether these rights let their holder do all that the others do.
    pub fn include(&self, others: &Rights) -> bool {
        if Arc::ptr_eq(&self.grants, &others.grants) {
            return true;
        }
        // Most are in both, and in the same order: only the others are looked for among all.
        let mut rest = &self.grants[..];
        others.grants.iter().all(|grant| {
            if let Some((first, behind)) = rest.split_first()
                && first == grant
            {
                rest = behind;
                return true;
            }
            if let Some(at) = self.grants.iter().position(|own| own == grant) {
                rest = self.grants.get(at + 1..).unwrap_or_default();
                return true;
            }
            self.includes(grant)
        })
    }

    fn includes(&self, grant: &Grant) -> bool {
        match grant {
            Grant::In(right, Scope::Server) => self.on_server(*right),
            Grant::In(right, Scope::Database(name)) => self.on_database(*right, name),
            Grant::In(right, Scope::Blobs { database, prefix }) => {
                self.on_blobs(*right, database, prefix)
            }
            // Whoever may write everywhere may do what it does without its name.
            Grant::DropIn(service) => self.on_drop_in(*service) || self.on_server(Right::Write),
            Grant::Role(_) => true,
        }
    }

    /// Returns the names of roles in them.
    pub fn roles(&self) -> impl Iterator<Item = &str> {
        self.grants.iter().filter_map(|grant| match grant {
            Grant::Role(name) => Some(&**name),
            _ => None,
        })
    }

    /// Returns how many bytes the grants have in text.
    pub fn text_bytes(&self) -> usize {
        self.grants.iter().map(Grant::text_bytes).sum()
    }

    /// Returns whether nothing is granted.
    pub fn is_nothing(&self) -> bool {
        self.grants.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rights(texts: &[&str]) -> Rights {
        let grants = texts.iter().map(|text| text.parse().expect(text));
        Rights::new(grants.collect::<Vec<Grant>>())
    }

    #[test]
    fn a_right_includes_those_before_it() {
        for (index, right) in Right::ALL.into_iter().enumerate() {
            for (other, needed) in Right::ALL.into_iter().enumerate() {
                let expected = other <= index;
                let server = rights(&[right.name()]);
                let one = rights(&[&format!("{}:one", right.name())]);
                assert_eq!(server.on_server(needed), expected);
                assert_eq!(server.on_database(needed, "any"), expected);
                assert_eq!(server.on_blobs(needed, "", "any"), expected);
                assert_eq!(server.anywhere(needed), expected);
                assert!(!one.on_server(needed));
                assert_eq!(one.on_database(needed, "one"), expected);
                assert_eq!(one.on_blobs(needed, "one", "any"), expected);
                assert_eq!(one.anywhere(needed), expected);
            }
        }
    }

    #[test]
    fn a_right_holds_where_it_was_given_only() {
        let some = rights(&["read:one", "write:two/images/", "write:default"]);
        assert!(!some.on_database(Right::Read, "two"));
        assert!(!some.on_database(Right::Read, "on"));
        assert!(!some.on_database(Right::Read, "one2"));
        assert!(!some.on_database(Right::Write, "one"));
        assert!(some.on_database(Right::Write, ""));
        assert!(!some.on_database(Right::Write, "default"));
        assert!(some.on_blobs(Right::Read, "one", "x"));
        assert!(some.on_blobs(Right::Write, "two", "images/"));
        assert!(some.on_blobs(Right::Write, "two", "images/a"));
        assert!(!some.on_blobs(Right::Write, "two", "images"));
        assert!(!some.on_blobs(Right::Write, "two", ""));
        assert!(!some.on_blobs(Right::Write, "one", "images/a"));
        assert!(!some.on_server(Right::Read));
        assert!(some.anywhere(Right::Write) && !some.anywhere(Right::Admin));
    }

    #[test]
    fn rights_include_those_that_are_no_larger() {
        let all = [
            "read",
            "write",
            "admin",
            "read:a",
            "write:a",
            "admin:a",
            "read:b",
            "read:a/",
            "write:a/x",
            "read:a/x",
            "read:a/xy",
            "service:kvstore",
            "service:gupload",
        ];
        let included = |one: &str, other: &str| rights(&[one]).include(&rights(&[other]));
        for service in DropIn::ALL.map(|service| format!("service:{}", service.name())) {
            for (one, expected) in [
                ("admin", true),
                ("write", true),
                ("read", false),
                ("write:default", false),
                (&service, true),
            ] {
                assert_eq!(included(one, &service), expected, "{one} {service}");
            }
        }
        for (one, others) in [
            (
                "read",
                &[
                    "read",
                    "read:a",
                    "read:b",
                    "read:a/",
                    "read:a/x",
                    "read:a/xy",
                ][..],
            ),
            (
                "write:a",
                &[
                    "read:a",
                    "write:a",
                    "read:a/",
                    "write:a/x",
                    "read:a/x",
                    "read:a/xy",
                ],
            ),
            // The database has entries beside its blobs, so `read:a` is more than `read:a/`.
            ("read:a", &["read:a", "read:a/", "read:a/x", "read:a/xy"]),
            ("read:a/", &["read:a/", "read:a/x", "read:a/xy"]),
            ("read:b", &["read:b"]),
            ("write:a/x", &["write:a/x", "read:a/x", "read:a/xy"]),
            ("read:a/xy", &["read:a/xy"]),
            ("service:kvstore", &["service:kvstore"]),
        ] {
            let found: Vec<&str> = all
                .into_iter()
                .filter(|other| included(one, other))
                .collect();
            assert_eq!(found, others, "{one}");
        }
        assert!(rights(&["read:a", "write:b"]).include(&rights(&["read:b", "read:a/x"])));
        assert!(!rights(&["read:a"]).include(&rights(&["read:a", "read:b"])));
        assert!(rights(&[]).include(&rights(&[])) && rights(&["read"]).include(&rights(&[])));
    }

    #[test]
    fn a_role_grants_nothing_by_itself() {
        let role = rights(&["role:reader"]);
        assert!(!role.anywhere(Right::Read) && !role.on_database(Right::Read, ""));
        assert_eq!(role.roles().collect::<Vec<_>>(), ["reader"]);
        assert_eq!(role.text_bytes(), "role:reader".len());
    }

    #[test]
    fn a_drop_in_service_opens_nothing_else() {
        let kvstore = rights(&["service:kvstore"]);
        assert!(kvstore.on_drop_in(DropIn::Kvstore) && !kvstore.on_drop_in(DropIn::Gupload));
        assert!(!kvstore.anywhere(Right::Read) && !kvstore.on_database(Right::Read, ""));
        assert!(!Rights::everything().on_drop_in(DropIn::Kvstore));
        assert!(!kvstore.is_nothing() && Rights::default().is_nothing());
        assert!(!Rights::default().on_database(Right::Read, ""));
    }
}
