//! Whose calls there are without a token: by the certificate or the user of the peer.

use std::sync::Arc;

use net::Handler;
use net::tls::{Agreed, ClientTrust, PeerCertificate, ServerTls, ServerTlsOptions, SubjectName};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use service::Method;
use service::identities::{Identity, IssuedToken, NEVER_MS, TOKEN_BYTES, Token};
use service::rights::Rights;
use wire::grpc::Code;

use super::identities::{BEGIN_MS, ask, end_of, ends, header, increment, open_streams, rights};
use super::path;
use crate::pair::Pair;

/// A connection of a client with a certificate for `w.example`, valid until this second.
fn with_certificate(anonymous: Rights, not_after_s: u64) -> Pair {
    with_trust(anonymous, not_after_s, None)
}

/// The same; `trust`: by which it is checked again.
fn with_trust(anonymous: Rights, not_after_s: u64, trust: Option<ClientTrust>) -> Pair {
    let certificate = PeerCertificate {
        fingerprint: [7; 32],
        not_after_s,
        names: vec![SubjectName::Dns("W.example".into())],
        trust,
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
    let identities = &pair.handler.shared().identities;
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
        assert_eq!(pair.handler.running(), 0);
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
        // Calls that have ended leave no timer behind that comes too early.
        assert_eq!(ask(&mut pair, Method::Get, None), Code::Ok);
        pair.now_ns += 1_000_000_000;
    }
    let calls = open_streams(&mut pair, None);
    let next_ns = pair.handler.next_deadline_ns().expect("it ends");
    assert!(next_ns <= due_ns, "the loop wakes by itself: {next_ns}");
    pair.now_ns = due_ns - 1_000_000;
    pair.turn();
    assert_eq!(
        pair.handler.running(),
        2,
        "not before its last second is over"
    );
    pair.now_ns = due_ns;
    assert_eq!(ends(&mut pair, calls), [Some(Code::Unauthenticated); 2]);
    assert_eq!(pair.handler.running(), 0);
    for _ in 0..2 {
        assert_eq!(ask(&mut pair, Method::Get, None), Code::Unauthenticated);
        assert_eq!(ask(&mut pair, Method::Get, Some(&header(1))), Code::Ok);
    }
    let next_ns = pair.handler.next_deadline_ns();
    assert!(next_ns.is_none_or(|at_ns| at_ns > due_ns), "{next_ns:?}");
}

/// The end of a proof is waited for once: while others run, it keeps no loop awake.
#[test]
fn a_proof_that_has_ended_keeps_no_loop_awake_while_others_run() {
    let end_s = BEGIN_MS / 1_000 + 5;
    let mut pair = with_certificate(Rights::default(), end_s);
    bind(&pair, &[(WORKER, "write", NEVER_MS)]);
    let stays = pair.call_with((&path(Method::HealthWatch), Some(&header(1))), b"", true);
    let ends = pair.call_with((&path(Method::HealthWatch), None), b"", true);
    assert_eq!(end_of(&mut pair, stays), None);
    assert_eq!(pair.handler.running(), 2);
    pair.now_ns = 6 * 1_000_000_000;
    assert_eq!(end_of(&mut pair, ends), Some(Code::Unauthenticated));
    for _ in 0..2 {
        pair.turn();
        assert_eq!(pair.handler.running(), 1, "that of the token goes on");
        let next_ns = pair.handler.next_deadline_ns();
        assert!(
            next_ns.is_none_or(|at_ns| at_ns > pair.now_ns),
            "{next_ns:?}"
        );
        pair.now_ns += 1_000_000_000;
    }
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

/// The same, valid from the beginning of time, which is that of these tests.
fn valid(mut params: CertificateParams) -> CertificateParams {
    params.not_before = rcgen::date_time_ymd(1970, 1, 1);
    params
}

/// A server's TLS, and two authorities whose certificates it takes.
struct TwoAuthorities {
    authorities: [CertifiedIssuer<'static, KeyPair>; 2],
    tls: ServerTls,
}

impl TwoAuthorities {
    fn new() -> TwoAuthorities {
        let key = || KeyPair::generate().expect("random numbers");
        let own_key = key();
        let own = valid(CertificateParams::new(["localhost".into()]).expect("a name"));
        let own = own.self_signed(&own_key).expect("signed").pem();
        let own = [own, own_key.serialize_pem()];
        let authorities = ["one", "two"].map(|name| {
            let mut params = valid(CertificateParams::default());
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            (params.distinguished_name).push(rcgen::DnType::CommonName, name);
            CertifiedIssuer::self_signed(params, key()).expect("signed")
        });
        let both = authorities[0].pem() + &authorities[1].pem();
        let tls = ServerTls::new(&options(&own, &both)).expect("valid");
        TwoAuthorities { authorities, tls }
    }

    /// Has the server trust these only. Returns whether one was taken away.
    fn trust_only(&self, which: &[usize]) -> bool {
        let pem: String = which.iter().map(|&at| self.authorities[at].pem()).collect();
        let replaced = self.tls.replace_authorities(pem.as_bytes());
        replaced.expect("valid")
    }

    /// The trust in a client of one of them that connects now.
    fn client_of(&self, which: usize) -> ClientTrust {
        let key = KeyPair::generate().expect("random numbers");
        let params = valid(CertificateParams::new(["w.example".into()]).expect("a name"));
        let signed = params.signed_by(&key, &self.authorities[which]);
        let chain = [signed.expect("signed").der().to_vec()];
        ClientTrust::new(
            self.tls.clients().clone(),
            self.tls.clients().version(),
            &chain,
        )
    }
}

fn options<'a>(own: &'a [String; 2], authorities: &'a str) -> ServerTlsOptions<'a> {
    ServerTlsOptions {
        certificate: own[0].as_bytes(),
        key: own[1].as_bytes(),
        client_authorities: Some(authorities.as_bytes()),
        client_certificate_optional: false,
        applications: &[b"h2"],
        now_s: BEGIN_MS / 1_000,
    }
}

/// What runs on it ends, with a token as without, and it takes no more calls.
#[test]
fn a_connection_ends_when_its_authority_is_trusted_no_more() {
    let two = TwoAuthorities::new();
    for _ in 0..2 {
        let make = |which| {
            let trust = Some(two.client_of(which));
            let pair = with_trust(rights("write"), NEVER_MS, trust);
            bind(&pair, &[(WORKER, "write", NEVER_MS)]);
            pair
        };
        let (mut gone, mut stays) = (make(0), make(1));
        let calls = [None, Some(header(1))].map(|header| {
            let path = path(Method::HealthWatch);
            gone.call_with((&path, header.as_deref()), b"", true)
        });
        gone.turn();
        let others = open_streams(&mut stays, None);
        assert_eq!(gone.handler.running(), 2);
        assert!(two.trust_only(&[1]));
        for pair in [&gone, &stays] {
            pair.handler
                .shared()
                .identities
                .check_certificates(BEGIN_MS);
        }
        assert_eq!(ends(&mut gone, calls), [Some(Code::Unauthenticated); 2]);
        assert_eq!(gone.handler.running(), 0);
        stays.turn();
        assert_eq!(stays.handler.running(), 2, "{others:?}");
        assert_eq!(ask(&mut stays, Method::Get, None), Code::Ok);
        // The first GOAWAY, and the last one when the peer has answered a PING.
        for _ in 0..3 {
            gone.turn();
        }
        assert!(gone.client.close_reason().is_some() || gone.io.is_closing());
        assert!(!stays.io.is_closing());
        assert!(!two.trust_only(&[0, 1]));
    }
}

/// A walk over all connections for each change of a token would make changes slow where there are
/// many connections.
#[test]
fn connections_are_not_looked_at_for_changes_of_identities() {
    let two = TwoAuthorities::new();
    let mut pair = with_trust(rights("write"), NEVER_MS, Some(two.client_of(0)));
    bind(&pair, &[(WORKER, "write", NEVER_MS)]);
    open_streams(&mut pair, None);
    let running = pair.handler.running();
    for _ in 0..2 {
        assert!(two.trust_only(&[1]));
        // Nobody has said yet that an authority is gone: a walk would find that.
        bind(&pair, &[(WORKER, "write", NEVER_MS)]);
        pair.turn();
        assert_eq!(pair.handler.running(), running);
        assert!(!two.trust_only(&[0, 1]));
    }
    assert!(two.trust_only(&[1]));
    (pair.handler.shared().identities).check_certificates(BEGIN_MS);
    pair.turn();
    assert_eq!(pair.handler.running(), 0);
}

/// Before a loop has come round to it, and where only calls bring a loop round.
#[test]
fn a_call_is_refused_when_the_authority_of_its_connection_is_trusted_no_more() {
    let two = TwoAuthorities::new();
    for _ in 0..2 {
        let mut pair = with_trust(rights("write"), NEVER_MS, Some(two.client_of(0)));
        bind(&pair, &[(WORKER, "write", NEVER_MS)]);
        assert_eq!(ask(&mut pair, Method::Get, None), Code::Ok);
        assert!(two.trust_only(&[1]));
        (pair.handler.shared().identities).check_certificates(BEGIN_MS);
        assert_eq!(ask(&mut pair, Method::Get, None), Code::Unauthenticated);
        assert!(!two.trust_only(&[0, 1]));
    }
}

/// One whose handshake was under way when the authority was taken away.
#[test]
fn a_connection_that_opens_too_late_is_not_served() {
    let two = TwoAuthorities::new();
    for _ in 0..2 {
        let (late, good) = (two.client_of(0), two.client_of(1));
        assert!(two.trust_only(&[1]));
        for (trust, is_served) in [(late, false), (good, true)] {
            let mut pair = with_trust(rights("write"), NEVER_MS, Some(trust));
            for _ in 0..4 {
                pair.turn();
            }
            let is_over = pair.io.is_closing() || pair.client.close_reason().is_some();
            assert_eq!(is_over, !is_served);
        }
        assert!(!two.trust_only(&[0, 1]));
    }
}
