//! Calls whose callers are known no more while their commits are under way.

use std::sync::Arc;

use api::admin::SetRoleRequest;
use service::Method;
use service::identities::{Identity, IdentityRecord, IssuedToken, NEVER_MS, TOKEN_BYTES, Token};
use store::durable::CommitLoop;
use store::{Condition, DatabaseId, Expiry, Mode, Operation, Store, StoreConfig};
use testkit::suite::StandingClock;
use wire::grpc::Code;

use super::identities::{BEGIN_MS, ends, header, replace, rights};
use super::path;
use crate::pair::Pair;
use crate::readers::Readers;
use crate::readers::tests::TempFolder;

/// Puts an administrator where changes of roles look for who asks for them.
fn store_admin(
    pair: &Pair,
    store: &Store,
    commit_loop: &mut CommitLoop,
    clock: &mut StandingClock,
) {
    let issued = IssuedToken {
        hash: (pair.handler.shared().identities.key()).hash(&Token::new([1; TOKEN_BYTES])),
        expires_ms: NEVER_MS,
    };
    let identity = Identity::new("n1", rights("admin"), NEVER_MS, vec![issued]);
    let record = IdentityRecord {
        identity: Arc::new(identity.expect("a sound identity")),
        created_ms: 0,
    };
    let mut batch = store.write_batch();
    let mut commit = batch.begin(0, DatabaseId::IDENTITIES, Mode::Atomic);
    let pushed = commit.push(&Operation::Put {
        key: b"n1",
        value: &record.encode(),
        condition: Condition::None,
        expiry: Expiry::None,
        want_previous: false,
    });
    pushed.expect("it fits");
    commit.submit();
    commit_loop.register(Box::new(|| {})).submit(&mut batch);
    while commit_loop.round(clock) {}
}

/// Of two changes that were decided by the same entries the second one is overtaken, and would look
/// again. It does not if its caller is gone by then, and the first one is told what it has done.
#[test]
fn a_call_without_a_caller_does_not_go_on_behind_its_commit() {
    let (folder, mut clock) = (TempFolder::new(), StandingClock { now_ms: BEGIN_MS });
    let config = StoreConfig::new(1);
    let (store, mut commit_loop) = testkit::store_on_disk(&folder.0, config, 1 << 20, &mut clock);
    let mailbox = commit_loop.register(Box::new(|| {}));
    let readers = Readers::Inline(store.clone());
    let mut pair = Pair::over(store.clone(), readers, mailbox, Arc::new(|| {}));
    store_admin(&pair, &store, &mut commit_loop, &mut clock);
    for _ in 0..2 {
        replace(&pair, &[(1, "admin", NEVER_MS)]);
        let calls = ["one", "two"].map(|name| {
            let (mut message, rights) = (Vec::new(), (&["read"][..]).into());
            SetRoleRequest { name, rights }.encode(&mut message);
            let head = (&*path(Method::AdminSetRole), Some(&*header(1)));
            pair.call_with(head, &message, true)
        });
        for _ in 0..3 {
            pair.turn();
        }
        assert_eq!(pair.handler.running(), 2);
        // Loops know of the end, and the entries that the calls would look at do not.
        replace(&pair, &[]);
        pair.turn();
        assert_eq!(pair.handler.running(), 2, "their commits are under way");
        while commit_loop.round(&mut clock) {}
        let codes = ends(&mut pair, calls);
        assert_eq!(codes, [Some(Code::Ok), Some(Code::Unauthenticated)]);
        assert_eq!(pair.handler.running(), 0);
    }
}
