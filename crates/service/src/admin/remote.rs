//! What is said of databases on an engine elsewhere.

use api::admin::{
    DatabaseDescription, DatabaseKind, DurabilityMode, RemoteOrder as OrderNumber,
    RemotePromise as PromiseNumber,
};
use store::Kind;
use store::remote::{RemoteOrder, RemotePromise, RemoteShape};

use crate::keyvalue::messages::Invalid;

/// Returns the kind of a database that is to be made. On a server whose databases are elsewhere it
/// is that if the request does not say.
pub(super) fn kind_of(
    wanted: &DatabaseDescription<'_>,
    is_remote_server: bool,
) -> Result<Kind, Invalid> {
    let kind = match DatabaseKind::from_number(wanted.kind) {
        Some(DatabaseKind::Unspecified) if is_remote_server => return remote_kind(wanted),
        Some(DatabaseKind::Remote) => return remote_kind(wanted),
        Some(DatabaseKind::Unspecified | DatabaseKind::Memory) => Kind::Memory,
        Some(DatabaseKind::Disk) => Kind::Disk,
        None => {
            return Err(Invalid::rule(
                "database.kind",
                "is not a DatabaseKind that this version knows",
            ));
        }
    };
    for (field, number) in [
        ("database.promise", wanted.promise),
        ("database.order", wanted.order),
        ("database.buckets", i32::from(wanted.buckets != 0)),
    ] {
        if number != 0 {
            return Err(Invalid::rule(field, "is for databases of the kind REMOTE"));
        }
    }
    Ok(kind)
}

fn remote_kind(wanted: &DatabaseDescription<'_>) -> Result<Kind, Invalid> {
    let promise = match PromiseNumber::from_number(wanted.promise) {
        Some(PromiseNumber::Unspecified | PromiseNumber::Linearizable) => {
            RemotePromise::Linearizable
        }
        Some(PromiseNumber::Quorum) => RemotePromise::Quorum,
        None => {
            return Err(Invalid::rule(
                "database.promise",
                "is not a RemotePromise that this version knows",
            ));
        }
    };
    let order = match OrderNumber::from_number(wanted.order) {
        Some(OrderNumber::Unspecified | OrderNumber::Hash) => RemoteOrder::Hash,
        Some(OrderNumber::Merged) => RemoteOrder::Merged,
        None => {
            return Err(Invalid::rule(
                "database.order",
                "is not a RemoteOrder that this version knows",
            ));
        }
    };
    let mut shape = RemoteShape::new(promise, order);
    if wanted.buckets != 0 {
        shape.buckets = u16::try_from(wanted.buckets).unwrap_or(u16::MAX);
    }
    if shape.check().is_err() {
        return Err(Invalid::rule(
            "database.buckets",
            "is more than a database can have: 16384 with the order HASH, 64 with MERGED",
        ));
    }
    let is_own = |mode| matches!(mode, DurabilityMode::Unspecified | DurabilityMode::Synced);
    if !DurabilityMode::from_number(wanted.durability).is_some_and(is_own) {
        return Err(Invalid::rule(
            "database.durability",
            "is that of the storage engine where the kind is REMOTE: leave it out",
        ));
    }
    if wanted.quota_bytes != 0 {
        return Err(Invalid::rule(
            "database.quota_bytes",
            "cannot be set where the kind is REMOTE: the storage engine has the room",
        ));
    }
    Ok(Kind::Remote(shape))
}

/// Returns the number of a promise in the API.
pub(super) fn number_of_promise(promise: RemotePromise) -> i32 {
    match promise {
        RemotePromise::Linearizable => PromiseNumber::Linearizable.number(),
        RemotePromise::Quorum => PromiseNumber::Quorum.number(),
    }
}

/// Returns the number of an order in the API.
pub(super) fn number_of_order(order: RemoteOrder) -> i32 {
    match order {
        RemoteOrder::Hash => OrderNumber::Hash.number(),
        RemoteOrder::Merged => OrderNumber::Merged.number(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_database_elsewhere_has_the_shape_that_the_request_names() {
        let with = |promise, order, buckets| DatabaseDescription {
            kind: DatabaseKind::Remote.number(),
            promise,
            order,
            buckets,
            ..DatabaseDescription::default()
        };
        for (promise, expected) in [
            (0, RemotePromise::Linearizable),
            (1, RemotePromise::Linearizable),
            (2, RemotePromise::Quorum),
        ] {
            for (order, buckets, of_order, of_buckets) in [
                (0, 0, RemoteOrder::Hash, 1_024),
                (1, 16_384, RemoteOrder::Hash, 16_384),
                (2, 0, RemoteOrder::Merged, 16),
                (2, 64, RemoteOrder::Merged, 64),
            ] {
                let shape = RemoteShape {
                    promise: expected,
                    order: of_order,
                    buckets: of_buckets,
                };
                for is_remote_server in [false, true] {
                    let kind = kind_of(&with(promise, order, buckets), is_remote_server);
                    assert_eq!(kind.ok(), Some(Kind::Remote(shape)));
                }
                assert_eq!(number_of_promise(expected), promise.max(1));
                assert_eq!(number_of_order(of_order), order.max(1));
            }
        }
        let unspecified = DatabaseDescription::default();
        assert_eq!(kind_of(&unspecified, false).ok(), Some(Kind::Memory));
        let usual = RemoteShape::new(RemotePromise::Linearizable, RemoteOrder::Hash);
        assert_eq!(kind_of(&unspecified, true).ok(), Some(Kind::Remote(usual)));
    }

    #[test]
    fn what_does_not_go_together_is_refused_by_its_field() {
        type Change = fn(&mut DatabaseDescription<'_>);
        let wrong: [(&str, Change); 7] = [
            ("promise", |wanted| wanted.promise = 3),
            ("order", |wanted| wanted.order = 3),
            ("buckets", |wanted| wanted.buckets = 16_385),
            ("buckets", |wanted| wanted.buckets = 65_537),
            ("buckets", |wanted| (wanted.buckets, wanted.order) = (65, 2)),
            ("durability", |wanted| wanted.durability = 4),
            ("quota_bytes", |wanted| wanted.quota_bytes = 1),
        ];
        let only_remote: [(&str, Change); 3] = [
            ("promise", |wanted| wanted.promise = 1),
            ("order", |wanted| wanted.order = 1),
            ("buckets", |wanted| wanted.buckets = 1),
        ];
        for (kind, changes) in [
            (DatabaseKind::Remote, &wrong[..]),
            (DatabaseKind::Memory, &only_remote[..]),
        ] {
            for (field, change) in changes {
                let mut wanted = DatabaseDescription {
                    kind: kind.number(),
                    ..DatabaseDescription::default()
                };
                change(&mut wanted);
                let refused = kind_of(&wanted, false).err();
                let words = refused.map(|invalid| invalid.to_string());
                let names_it = words.as_ref().is_some_and(|words| words.contains(field));
                assert!(names_it, "{field}: {words:?}");
            }
        }
    }
}
