//! Certificates of clients: who is let in, and what the handler learns of them.

mod common;

use std::time::Duration;

use common::tls::{APPLICATIONS, Authority, Identity, Secured};
use common::{Server, blocking, one_loop};
use net::tls::{ServerTls, ServerTlsOptions, SubjectName, TlsFailureKind};
use net::{Listen, LoopConfig};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, KeyUsagePurpose};

fn start(mut config: LoopConfig, tls: ServerTls) -> Server {
    config.listen = vec![Listen {
        address: "127.0.0.1:0".parse().expect("valid"),
        tls: Some(tls),
    }];
    Server::start(config)
}

fn tls(authority: &Authority, clients: &str, is_optional: bool) -> ServerTls {
    let identity = authority.identity("localhost", 2020..2090);
    let options = ServerTlsOptions {
        client_certificate_optional: is_optional,
        ..identity.options(Some(clients))
    };
    ServerTls::new(&options).expect("valid")
}

/// What an echo says that is asked for with this certificate.
fn echo(
    server: &Server,
    authority: &Authority,
    identity: Option<&Identity>,
) -> Result<(), TlsFailureKind> {
    let client = authority.client_with(identity, APPLICATIONS);
    let mut client = Secured::new(server.connect(), &client);
    let outcome = client.shake_hands().and_then(|()| {
        client.send(b"x");
        client.receive(1).map(drop)
    });
    client.flush();
    outcome.map_err(|failure| failure.kind)
}

/// A certificate of a client that signs itself, and what it could sign as an authority.
fn self_signed(is_ca: IsCa, usage: KeyUsagePurpose) -> (Identity, Identity) {
    let mut params = CertificateParams::new(["alice.example".into()]).expect("a name");
    params.is_ca = is_ca;
    params.key_usages = vec![usage, KeyUsagePurpose::DigitalSignature];
    let key = KeyPair::generate().expect("random numbers");
    let own = CertifiedIssuer::self_signed(params, key).expect("signed");
    let params = CertificateParams::new(["somebody-else.example".into()]).expect("a name");
    let key = KeyPair::generate().expect("random numbers");
    let signed = params.signed_by(&key, &own).expect("signed");
    let forged = Identity {
        certificate: signed.pem(),
        key: key.serialize_pem(),
    };
    let own = Identity {
        certificate: own.pem(),
        key: own.key().serialize_pem(),
    };
    (own, forged)
}

#[test]
fn the_handler_sees_the_certificate_of_a_client_also_in_a_resumed_session() {
    let authority = Authority::new();
    let identity = authority.identity("worker.example", 2020..2061);
    for config in [one_loop(), blocking(4)] {
        let server = start(config, tls(&authority, &authority.pem(), true));
        let client = authority.client_with(Some(&identity), APPLICATIONS);
        for _ in 0..2 {
            let mut client = Secured::new(server.connect(), &client);
            client.shake_hands().expect("both sides agree");
            client.send(b"x");
            client.receive(1).expect("echo");
        }
        assert_eq!(echo(&server, &authority, None), Ok(()));
        let peers = server.habits.peers.lock().expect("no panic").clone();
        let agreed: Vec<_> = peers.into_iter().filter_map(|peer| peer.tls).collect();
        let resumed: Vec<bool> = agreed.iter().map(|one| one.resumed).collect();
        assert_eq!(resumed, [false, true, false]);
        let shown: Vec<_> = agreed.into_iter().map(|one| one.certificate).collect();
        assert!(shown[0].is_some() && shown[0] == shown[1] && shown[2].is_none());
        let certificate = shown[0].as_deref().expect("it was shown");
        assert_eq!(
            certificate.names,
            [SubjectName::Dns("worker.example".into())]
        );
        assert_eq!(certificate.not_after_s, 2_871_763_200);
        let fingerprint = net::tls::fingerprint(identity.certificate.as_bytes());
        let bytes = certificate.fingerprint.map(|byte| format!("{byte:02X}"));
        assert_eq!(fingerprint, Ok(bytes.join(":")));
    }
}

#[test]
fn certificates_are_optional_and_one_that_is_shown_must_be_good() {
    let (authority, strange) = (Authority::new(), Authority::new());
    let good = authority.identity("a client", 2020..2090);
    let old = authority.identity("a client", 2020..2021);
    let unknown = strange.identity("a client", 2020..2090);
    for config in [one_loop(), blocking(4)] {
        let server = start(config, tls(&authority, &authority.pem(), true));
        for _ in 0..2 {
            assert_eq!(echo(&server, &authority, None), Ok(()));
            assert_eq!(echo(&server, &authority, Some(&good)), Ok(()));
            for (bad, words) in [(&old, "expired"), (&unknown, "unknown issuer")] {
                let refused = echo(&server, &authority, Some(bad));
                assert_eq!(refused, Err(TlsFailureKind::RefusedByPeer));
                let notice = server.notices.recv_timeout(Duration::from_secs(10));
                let notice = notice.expect("it is logged");
                assert!(notice.contains(words), "{notice}");
            }
        }
        assert_eq!(server.sum(|one| one.failed_certificate), 4);
    }
}

/// Whoever may be somebody must not be able to make somebody else.
#[test]
fn a_certificate_of_a_client_that_was_given_signs_for_nobody_unless_it_says_it_is_an_authority() {
    let authority = Authority::new();
    let (alice, by_alice) = self_signed(IsCa::ExplicitNoCa, KeyUsagePurpose::KeyAgreement);
    let (bob, by_bob) = self_signed(IsCa::NoCa, KeyUsagePurpose::KeyAgreement);
    let root = IsCa::Ca(BasicConstraints::Unconstrained);
    let (root, by_root) = self_signed(root, KeyUsagePurpose::KeyCertSign);
    let leaves = alice.certificate.clone() + &bob.certificate;
    for (given, by_root_is_good) in [
        (leaves.clone(), Err(TlsFailureKind::RefusedByPeer)),
        (leaves + &root.certificate, Ok(())),
    ] {
        let server = start(one_loop(), tls(&authority, &given, false));
        for _ in 0..2 {
            for good in [&alice, &bob] {
                assert_eq!(echo(&server, &authority, Some(good)), Ok(()));
            }
            for forged in [&by_alice, &by_bob] {
                let refused = echo(&server, &authority, Some(forged));
                assert_eq!(refused, Err(TlsFailureKind::RefusedByPeer));
            }
            let refused = echo(&server, &authority, Some(&by_root));
            assert_eq!(refused, by_root_is_good);
        }
    }
}
