//! Whose calls there are without a token: by the certificate or the user of the peer.

use std::sync::Arc;

use net::Handler;
use net::tls::{Agreed, PeerCertificate, SubjectName};
use service::Method;
use service::identities::{Identity, IssuedToken, NEVER_MS, TOKEN_BYTES, Token};
use service::rights::Rights;
use wire::grpc::Code;

use super::identities::{BEGIN_MS, ask, end_of, ends, header, increment, open_streams, rights};
use super::path;
use crate::pair::Pair;

/// A connection of a client with a certificate for `w.example`, valid until this second.
fn with_certificate(anonymous: Rights, not_after_s: u64) -> Pair {
    let certificate = PeerCertificate {
        fingerprint: [7; 32],
        not_after_s,
        names: vec![SubjectName::Dns("W.example".into())],
    };
    let agreed = Agreed {
        application: Some(b"h2".to_vec()),
        resumed: false,
        certificate: Some(Arc::new(certificate)),
    };
    Pair::of_peer(anonymous, Some(agreed), None)
}

/// Binds names to these: binding, right, and when it expires; and makes a token, the first one,
/// that may read.
fn bind(pair: &Pair, all: &[(&str, &str, u64)]) {
    let identities = &pair.worker.shared().identities;
    let one = |(index, &(binding, right, expires_ms)): (usize, &(&str, &str, u64))| {
        let binding = binding.parse().expect("a binding");
        let name = format!("n{index}");
        Identity::bound(&name, rights(right), expires_ms, binding).expect("sound")
    };
    let mut made: Vec<Identity> = all.iter().enumerate().map(one).collect();
    let issued = IssuedToken {
        hash: identities.key().hash(&Token::new([1; TOKEN_BYTES])),
        expires_ms: NEVER_MS,
    };
    let token = Identity::new("token", rights("read"), NEVER_MS, vec![issued]);
    made.push(token.expect("sound"));
    let now_ms = BEGIN_MS + pair.now_ns / 1_000_000;
    identities.replace(made, now_ms).expect("they differ");
}

const WORKER: &str = "san:dns:w.example";

#[test]
fn a_certificate_has_the_rights_of_what_it_is_bound_to_and_else_those_of_its_listener() {
    let mut pair = with_certificate(rights("read:other"), NEVER_MS);
    for _ in 0..2 {
        assert_eq!(ask(&mut pair, Method::Get, None), Code::PermissionDenied);
        bind(&pair, &[(WORKER, "write", NEVER_MS)]);
        for _ in 0..2 {
            assert_eq!(ask(&mut pair, Method::Get, None), Code::Ok);
            let call = pair.call_with((&path(Method::Increment), None), &increment(), true);
            assert_eq!(end_of(&mut pair, call), Some(Code::Ok));
        }
        bind(&pair, &[("san:dns:other.example", "write", NEVER_MS)]);
    }
}

/// The token decides, be it good for more or for less, or for nothing.
#[test]
fn a_token_comes_before_the_certificate_of_its_connection() {
    let mut pair = with_certificate(Rights::default(), NEVER_MS);
    bind(&pair, &[(WORKER, "write", NEVER_MS)]);
    for _ in 0..2 {
        assert_eq!(ask(&mut pair, Method::Get, Some(&header(1))), Code::Ok);
        let (with, bytes) = ((path(Method::Increment), header(1)), increment());
        let call = pair.call_with((&with.0, Some(&with.1)), &bytes, true);
        assert_eq!(end_of(&mut pair, call), Some(Code::PermissionDenied));
        let wrong = ask(&mut pair, Method::Get, Some(&header(2)));
        assert_eq!(wrong, Code::Unauthenticated);
        let call = pair.call_with((&path(Method::Increment), None), &bytes, true);
        assert_eq!(end_of(&mut pair, call), Some(Code::Ok));
    }
}

#[test]
fn open_streams_end_with_their_binding_and_those_with_a_token_go_on() {
    let mut pair = with_certificate(Rights::default(), NEVER_MS);
    for round in 0..4 {
        let at_ms = BEGIN_MS + pair.now_ns / 1_000_000 + 1_000;
        let expires_ms = if round % 2 == 0 { NEVER_MS } else { at_ms };
        bind(&pair, &[(WORKER, "write", expires_ms)]);
        let calls = open_streams(&mut pair, None);
        match round % 2 {
            0 => bind(&pair, &[]),
            _ => pair.now_ns += 1_000_000_000,
        }
        assert_eq!(ends(&mut pair, calls), [Some(Code::Unauthenticated); 2]);
        assert_eq!(pair.worker.running(), 0);
        assert_eq!(ask(&mut pair, Method::Get, None), Code::Unauthenticated);
        assert_eq!(ask(&mut pair, Method::Get, Some(&header(1))), Code::Ok);
    }
}

#[test]
fn open_streams_end_when_the_certificate_of_their_connection_does() {
    let end_s = BEGIN_MS / 1_000 + 5;
    let mut pair = with_certificate(Rights::default(), end_s);
    let due_ns = 6 * 1_000_000_000;
    bind(&pair, &[(WORKER, "write", NEVER_MS)]);
    for _ in 0..2 {
        // Calls that have ended leave no wish behind that comes too early.
        assert_eq!(ask(&mut pair, Method::Get, None), Code::Ok);
        pair.now_ns += 1_000_000_000;
    }
    let calls = open_streams(&mut pair, None);
    let next_ns = pair.worker.next_deadline_ns().expect("it ends");
    assert!(next_ns <= due_ns, "the loop wakes by itself: {next_ns}");
    pair.now_ns = due_ns - 1_000_000;
    pair.turn();
    assert_eq!(
        pair.worker.running(),
        2,
        "not before its last second is over"
    );
    pair.now_ns = due_ns;
    assert_eq!(ends(&mut pair, calls), [Some(Code::Unauthenticated); 2]);
    assert_eq!(pair.worker.running(), 0);
    for _ in 0..2 {
        assert_eq!(ask(&mut pair, Method::Get, None), Code::Unauthenticated);
        assert_eq!(ask(&mut pair, Method::Get, Some(&header(1))), Code::Ok);
    }
    let next_ns = pair.worker.next_deadline_ns();
    assert!(next_ns.is_none_or(|at_ns| at_ns > due_ns), "{next_ns:?}");
}

#[test]
fn the_user_of_a_unix_socket_has_the_rights_of_what_it_is_bound_to() {
    for (user, bound) in [(1000, Code::Ok), (1001, Code::PermissionDenied)] {
        let mut pair = Pair::of_peer(rights("read:other"), None, Some(user));
        for _ in 0..2 {
            assert_eq!(ask(&mut pair, Method::Get, None), Code::PermissionDenied);
            bind(&pair, &[("uid:1000", "write", NEVER_MS)]);
            assert_eq!(ask(&mut pair, Method::Get, None), bound);
            bind(&pair, &[]);
        }
    }
}
