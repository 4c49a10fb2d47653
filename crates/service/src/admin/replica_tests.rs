//! Calls about replicas: what is wanted of one, which count no more, and what is said of them.

use std::sync::Arc;

use api::admin::*;
use store::{EpochPlace, ReplicaId, ReplicaSetChange, ReplicasAcked};

use crate::call::Shared;
use crate::compat::gupload_tests::bench::Bench;
use crate::fake::{Fake, Sent, shared};
use crate::following::Following;
use crate::limits::{ORDER_LOOK_MS, REPLICA_ADDRESS_BYTES_MAX};
use crate::method::Method;
use crate::replica_orders::{
    EpochConfirmation, EpochProposal, OrderReport, PromotionOrder, PromotionReport, ReplicaOrder,
};
use crate::status::{Code, Status};

const ONE: ReplicaId = [1; 16];
const TWO: ReplicaId = [2; 16];
const OTHER: ReplicaId = [0xab; 16];

fn begun(method: Method, request: &[u8], shared: &Shared) -> Fake {
    let mut fake = Fake::new(method, shared);
    fake.message(request, true, shared);
    fake
}

fn refused(method: Method, request: &[u8], shared: &Shared, code: Code, words: &str) {
    let status = begun(method, request, shared).take_status();
    let status = status.expect("it is refused");
    assert_eq!(status.code(), code, "{}", status.message());
    assert!(status.message().contains(words), "{}", status.message());
}

fn response(fake: &mut Fake) -> Vec<u8> {
    match fake.take_sent().as_mut_slice() {
        [Sent::Response(response)] => std::mem::take(response),
        other => panic!("{other:?}"),
    }
}

/// The call looks again in a while, and has sent nothing.
fn assert_waits(fake: &mut Fake) {
    let at_ns = fake.actions.now_ns + ORDER_LOOK_MS * 1_000_000;
    assert_eq!(fake.actions.wake_at_ns, Some(at_ns));
    assert_eq!(fake.take_sent(), []);
}

fn encoded(encode: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut request = Vec::new();
    encode(&mut request);
    request
}

/// A replica that follows somebody.
fn replica() -> (Shared, Arc<Following>) {
    let following = Arc::new(Following::new("leader:1978", ONE, 7));
    let shared = Shared {
        following: Some(Arc::clone(&following)),
        ..shared()
    };
    (shared, following)
}

fn confirm(candidate: &[u8], address: &str) -> Vec<u8> {
    let request = ConfirmEpochRequest {
        history_id: &api::history_id_bytes(9),
        epoch: 3,
        candidate_id: candidate,
        address,
    };
    encoded(|out| request.encode(out))
}

fn promote(confirmations: &[ConfirmEpochResponse<'_>], address: &str) -> Vec<u8> {
    let request = PromoteRequest {
        force: true,
        address,
        least_epoch: 4,
        confirmations: confirmations.into(),
    };
    encoded(|out| request.encode(out))
}

const CONFIRMED: EpochConfirmation = EpochConfirmation {
    replica: ONE,
    epoch: 3,
    candidate: TWO,
    place: EpochPlace {
        epoch: 2,
        sequence: 8,
    },
};

fn confirmation<'a>(replica_id: &'a [u8], candidate_id: &'a [u8]) -> ConfirmEpochResponse<'a> {
    ConfirmEpochResponse {
        replica_id,
        epoch: 3,
        candidate_id,
        log_epoch: 2,
        sequence: 8,
    }
}

#[test]
fn an_epoch_is_confirmed_by_the_thread_that_follows() {
    let (shared, following) = replica();
    for _ in 0..2 {
        let request = confirm(&TWO, "two:1978");
        let mut fake = begun(Method::AdminConfirmEpoch, &request, &shared);
        assert_waits(&mut fake);
        fake.wake_in_time(&shared);
        assert_waits(&mut fake);
        following.orders().carry_out(|order| {
            let expected = EpochProposal {
                history_id: 9,
                epoch: 3,
                candidate: TWO,
                address: "two:1978".into(),
            };
            assert_eq!(order, ReplicaOrder::Confirm(expected));
            Ok(OrderReport::Confirmed(CONFIRMED))
        });
        fake.wake_in_time(&shared);
        let response = response(&mut fake);
        let response = ConfirmEpochResponse::decode(&response).expect("it is one");
        assert_eq!(response, confirmation(&ONE, &TWO));
    }
}

#[test]
fn a_promotion_says_what_came_of_it_or_why_nothing_did() {
    let (shared, following) = replica();
    for promoted in [true, false] {
        let request = promote(&[confirmation(&ONE, &TWO)], "one:1978");
        let mut fake = begun(Method::AdminPromote, &request, &shared);
        assert_waits(&mut fake);
        following.orders().carry_out(|order| {
            let expected = PromotionOrder {
                force: true,
                address: "one:1978".into(),
                least_epoch: 4,
                confirmations: vec![CONFIRMED],
            };
            assert_eq!(order, ReplicaOrder::Promote(expected));
            Ok(OrderReport::Promotion(PromotionReport {
                promoted,
                epoch: 5,
                replica: ONE,
                history_id: 9,
                sequence: 10,
                leader_sequence: 11,
                problem: "behind".into(),
                needs_confirmations: !promoted,
            }))
        });
        fake.wake_in_time(&shared);
        let response = response(&mut fake);
        let expected = PromoteResponse {
            promoted,
            epoch: 5,
            replica_id: &ONE,
            history_id: &api::history_id_bytes(9),
            sequence: 10,
            leader_sequence: 11,
            problem: "behind",
            needs_confirmations: !promoted,
        };
        assert_eq!(PromoteResponse::decode(&response), Ok(expected));

        let mut fake = begun(Method::AdminPromote, &promote(&[], ""), &shared);
        let failed = Status::new(Code::Unavailable, "not now");
        (following.orders()).carry_out(|_| Err(failed.clone()));
        fake.wake_in_time(&shared);
        assert_eq!(fake.take_status(), Some(failed));
    }
}

#[test]
fn one_is_wanted_of_a_replica_at_a_time_until_its_caller_leaves() {
    let (shared, following) = replica();
    let request = promote(&[], "");
    for _ in 0..2 {
        let first = begun(Method::AdminPromote, &request, &shared);
        let confirm = confirm(&TWO, "");
        refused(
            Method::AdminPromote,
            &request,
            &shared,
            Code::Aborted,
            "just now",
        );
        refused(
            Method::AdminConfirmEpoch,
            &confirm,
            &shared,
            Code::Aborted,
            "just now",
        );
        assert!(following.orders().is_waiting());
        drop(first);
        assert!(!following.orders().is_waiting());
    }
}

#[test]
fn what_is_wrong_with_a_promotion_is_said() {
    let (shared, _following) = replica();
    let (method, code) = (Method::AdminPromote, Code::InvalidArgument);
    let long = "a".repeat(REPLICA_ADDRESS_BYTES_MAX + 1);
    for address in [&long[..], "a b", "ü", "a\n"] {
        refused(
            method,
            &promote(&[], address),
            &shared,
            code,
            "field address",
        );
        let request = confirm(&TWO, address);
        refused(
            Method::AdminConfirmEpoch,
            &request,
            &shared,
            code,
            "field address",
        );
    }
    assert_waits(&mut begun(method, &promote(&[], &long[1..]), &shared));
    for length in [0, 15, 17] {
        let (id, words) = ([1; 17], format!("it has {length} bytes"));
        let id = &id[..length];
        let request = confirm(id, "");
        refused(Method::AdminConfirmEpoch, &request, &shared, code, &words);
        for wrong in [confirmation(id, &TWO), confirmation(&ONE, id)] {
            refused(method, &promote(&[wrong], ""), &shared, code, &words);
        }
    }
    let most = store::limits::REPLICA_SET_MAX;
    let many = vec![confirmation(&ONE, &TWO); most + 1];
    refused(method, &promote(&many, ""), &shared, code, "too many");
    let mut fake = begun(method, &promote(&many[1..], ""), &shared);
    assert_waits(&mut fake);
    drop(fake);
    for method in [method, Method::AdminConfirmEpoch] {
        refused(method, &[0xff], &shared, code, "");
    }
}

#[test]
fn a_server_that_follows_nobody_is_not_promoted() {
    let shared = shared();
    let (code, words) = (Code::FailedPrecondition, "is no replica");
    refused(
        Method::AdminPromote,
        &promote(&[], ""),
        &shared,
        code,
        words,
    );
    let request = confirm(&TWO, "");
    refused(Method::AdminConfirmEpoch, &request, &shared, code, words);
}

fn forget(ids: &[&[u8]]) -> Vec<u8> {
    let request = ForgetReplicasRequest {
        replica_ids: ids.into(),
    };
    encoded(|out| request.encode(out))
}

/// A leader of two replicas, which of them must hold a commit.
fn leader() -> Bench {
    let mut bench = Bench::new();
    for id in [ONE, TWO] {
        bench.change_replica_set(&[ReplicaSetChange::Add(id)]);
        bench.change_replica_set(&[ReplicaSetChange::Settle]);
    }
    let wanted = ReplicasAcked {
        replicas: 1,
        timeout_ms: 1_000,
    };
    bench.shared.store.require_replicas(wanted, 0);
    bench
}

#[test]
fn replicas_are_forgotten_by_name_or_all_that_are_absent() {
    let bench = leader();
    let (shared, method) = (&bench.shared, Method::AdminForgetReplicas);
    let sequence = u64::MAX;
    for _ in 0..2 {
        let one = shared.store.begin_follower_session(ONE, sequence);
        for request in [forget(&[&TWO]), forget(&[])] {
            let mut fake = begun(method, &request, shared);
            for _ in 0..2 {
                assert_waits(&mut fake);
                fake.wake_in_time(shared);
            }
        }
        let words = "replica 01010101010101010101010101010101 is connected";
        let code = Code::FailedPrecondition;
        for request in [forget(&[&ONE]), forget(&[&TWO, &ONE])] {
            refused(method, &request, shared, code, words);
        }
        let words = "replica abababababababababababababababab is none";
        refused(
            method,
            &forget(&[&TWO, &OTHER]),
            shared,
            Code::NotFound,
            words,
        );
        // None of them is absent.
        let two = shared.store.begin_follower_session(TWO, sequence);
        let mut fake = begun(method, &forget(&[]), shared);
        fake.wake_in_time(shared);
        let response = response(&mut fake);
        let response = ForgetReplicasResponse::decode(&response).expect("it is one");
        assert_eq!((response.replica_ids.iter().count(), response.left), (0, 2));
        drop((one, two));
    }
}

/// As long as the call is there that wants it.
#[test]
fn a_lost_replica_counts_no_more_when_that_is_committed() {
    let mut bench = leader();
    let method = Method::AdminForgetReplicas;
    let _one = (bench.shared.store).begin_follower_session(ONE, u64::MAX);
    bench.commit_changes();
    drop(begun(method, &forget(&[&TWO]), &bench.shared));
    bench.commit_changes();
    let members = |bench: &Bench| bench.shared.store.replica_set().members().len();
    assert_eq!(members(&bench), 2, "its caller has left");
    let mut fake = begun(method, &forget(&[&TWO]), &bench.shared);
    assert_waits(&mut fake);
    bench.commit_changes();
    assert_eq!(members(&bench), 1);
    fake.wake_in_time(&bench.shared);
    let response = response(&mut fake);
    let response = ForgetReplicasResponse::decode(&response).expect("it is one");
    let ids: Vec<&[u8]> = response.replica_ids.iter().flatten().collect();
    assert_eq!((ids, response.left), (vec![&TWO[..]], 1));
}

#[test]
fn what_is_wrong_with_replicas_to_forget_is_said() {
    let bench = leader();
    let (shared, method) = (&bench.shared, Method::AdminForgetReplicas);
    let code = Code::InvalidArgument;
    for length in [0, 15, 17] {
        let words = format!("has {length} bytes");
        let request = forget(&[&ONE, &[1; 17][..length]]);
        refused(method, &request, shared, code, &words);
    }
    let most = store::limits::REPLICA_SET_MAX;
    let many = vec![&OTHER[..]; most + 1];
    refused(method, &forget(&many), shared, code, "too many");
    refused(method, &forget(&many[1..]), shared, Code::NotFound, "");
    refused(method, &[0xff], shared, code, "");
    let (alone, code) = (crate::fake::shared(), Code::FailedPrecondition);
    refused(method, &forget(&[]), &alone, code, "counts no replicas");
}

#[test]
fn statistics_say_what_followers_hold_and_who_is_absent() {
    let bench = leader();
    let alone = shared();
    let statistics = |shared: &Shared| response(&mut begun(Method::AdminStatistics, b"", shared));
    for _ in 0..2 {
        let bytes = statistics(&alone);
        let none = StatisticsResponse::decode(&bytes).expect("it is one");
        assert!(none.acknowledged.is_none(), "nobody asks for it");
        let bytes = statistics(&bench.shared);
        let nobody = StatisticsResponse::decode(&bytes).expect("it is one");
        let nobody = nobody.acknowledged.expect("they are required");
        assert_eq!((nobody.required, nobody.followers.iter().count()), (1, 0));
        let sessions = [&alone, &bench.shared].map(|one| one.store.begin_follower_session(ONE, 9));
        for (shared, required) in [(&alone, 0), (&bench.shared, 1)] {
            let bytes = statistics(shared);
            let response = StatisticsResponse::decode(&bytes).expect("it is one");
            let said = response.acknowledged.expect("there is a follower");
            assert_eq!((said.required, said.late), (required, required > 0));
            assert_eq!(said.sequence, if required > 0 { 9 } else { 0 });
            let followers: Vec<_> = said.followers.iter().flatten().collect();
            let one = FollowerStatistics {
                replica_id: &ONE,
                sequence: 9,
            };
            assert_eq!(followers, [one]);
            let absent: Vec<&[u8]> = said.absent.iter().flatten().collect();
            assert_eq!(absent.is_empty(), required == 0);
            assert!(absent.iter().all(|id| *id == TWO));
        }
        drop(sessions);
    }
}
