//! TLS over the kernel's sockets, with both drivers: handshakes that succeed, fail, are slow, or
//! are many.

mod common;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::sync::atomic::Ordering;
use std::time::Duration;

use common::tls::{APPLICATIONS, Authority, Identity, Secured, read_to_end};
use common::{Directory, Habits, Server, blocking, eventually, one_loop};
use net::limits::{HANDSHAKES_PER_ADDRESS, HANDSHAKES_PER_LOOP, PIPE_KEPT_BYTES};
use net::sim::SplitMix;
use net::tls::{
    CertificateFault, ClientTls, ClientTlsOptions, ServerTls, ServerTlsOptions, TlsConfigError,
    TlsFailure, TlsFailureKind, Trust, Validity,
};
use net::{Listen, LoopConfig};

/// As `openssl x509 -req -signkey` of OpenSSL 3.0 makes it: no extensions, and so X.509 version 1.
const VERSION_1: &str = "\
-----BEGIN CERTIFICATE-----
MIIBIzCBywIURQ3vo0Jl+tOphv0sSpGFdxrYKrUwCgYIKoZIzj0EAwIwFDESMBAG
A1UEAwwJbG9jYWxob3N0MCAXDTI2MTEyMjExMDEwMFoYDzIxMjYxMDI5MTEwMTAw
WjAUMRIwEAYDVQQDDAlsb2NhbGhvc3QwWTATBgcqhkjOPQIBBggqhkjOPQMBBwNC
AASEMewInQ4HlUvitBA+AWfdzpFBjssvK1s1H+LmCy22alAR4gGbCdcr+nBJlRVO
mBCVYWCMmiQGXTEtF1WFJAZ3MAoGCCqGSM49BAMCA0cAMEQCIEGQcx5DPijTwU7H
xtqbU79qsul/te7XmYb9Dd/pv7/iAiA17L2f6WCMSA8PR+08dIPpkpfgY2IejGdY
eJcOaxb8qQ==
-----END CERTIFICATE-----
";

fn with_tls(mut config: LoopConfig, tls: ServerTls) -> LoopConfig {
    config.listen = vec![Listen {
        address: "127.0.0.1:0".parse().expect("valid"),
        tls: Some(tls),
    }];
    config
}

/// Each driver with a server of its own.
fn for_both(tls: &ServerTls, test: impl Fn(&Server)) {
    for config in [one_loop(), blocking(8)] {
        let server = Server::start(with_tls(config, tls.clone()));
        test(&server);
        let ended = server.stop().expect("no failure");
        assert!(ended.drained);
    }
}

fn connect(server: &Server, tls: &ClientTls) -> Secured {
    let mut secured = Secured::new(server.connect(), tls);
    secured.shake_hands().expect("both sides agree");
    secured
}

#[test]
fn bytes_come_back_and_both_sides_send_a_closure_alert() {
    let authority = Authority::new();
    for_both(&authority.server(), |server| {
        let mut client = connect(server, &authority.client());
        assert_eq!(
            client.pipe.agreed().application.as_deref(),
            Some(&b"h2"[..])
        );
        let bytes: Vec<u8> = (0..100_000_u32).map(|n| (n * 7) as u8).collect();
        for _ in 0..30 {
            client.send(&bytes);
            assert!(client.receive(bytes.len()).expect("whole records") == bytes);
        }
        // The closure alert alone, not the end of the socket, is what the server hears.
        client.pipe.close();
        client.flush();
        assert_eq!(client.receive_all().expect("a closure alert"), b"");
        drop(client);
        eventually("the connection is gone", || {
            server.sum(|one| one.closed) == 1
        });
        assert_eq!(server.sum(|one| one.handshakes), 1);
        assert_eq!(
            server.sum(|one| one.input_buffers_lent + one.output_buffers_lent),
            0
        );
    });
}

#[test]
fn an_answer_of_many_megabytes_comes_whole() {
    let authority = Authority::new();
    let habits = || {
        let habits = Habits::default();
        *habits.last_answer.lock().expect("no panic") = Some(vec![7; 9_000_000]);
        habits
    };
    for config in [one_loop(), blocking(2)] {
        let server = Server::start_with(with_tls(config, authority.server()), habits());
        let mut client = connect(&server, &authority.client());
        client.send(b"all of it");
        let all = client.receive_all().expect("a closure alert behind it");
        assert!(all.len() == 9_000_000 && all.iter().all(|&byte| byte == 7));
    }
}

#[test]
fn sessions_are_resumed_until_the_certificate_is_replaced() {
    let authority = Authority::new();
    let tls = authority.server();
    let other = authority.identity("localhost", 2020..2080);
    for_both(&tls, |server| {
        let client_tls = authority.client();
        let resumed = || {
            let mut client = connect(server, &client_tls);
            client.send(b"x");
            client.receive(1).expect("echo"); // the tickets came before it
            client.pipe.agreed().resumed
        };
        assert!(!resumed());
        assert!(resumed());
        other.replace_in(&tls).expect("valid");
        assert!(!resumed(), "the new certificate is shown once more");
        assert_eq!(server.sum(|one| one.resumed), 1);
    });
    let expected = Validity::of_pem(other.certificate.as_bytes());
    assert_eq!(Ok(tls.validity()), expected);
}

#[test]
fn what_does_not_fit_is_refused_and_the_old_certificate_stays() {
    let authority = Authority::new();
    let good = authority.identity("localhost", 2020..2090);
    let tls = good.server(None).expect("valid");
    let before = tls.validity();
    let old = authority.identity("localhost", 2020..2021);
    let early = authority.identity("localhost", 2085..2090);
    let mixed = Identity {
        certificate: good.certificate.clone(),
        key: old.key.clone(),
    };
    let no_key = Identity {
        certificate: good.certificate.clone(),
        key: good.certificate.clone(),
    };
    let garbage = Identity {
        certificate: "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n".into(),
        key: good.key.clone(),
    };
    let version_1 = Identity {
        certificate: VERSION_1.into(),
        key: good.key.clone(),
    };
    let replace = |identity: &Identity| identity.replace_in(&tls).expect_err("wrong");
    assert!(matches!(replace(&old), TlsConfigError::Expired(_)));
    assert!(matches!(replace(&early), TlsConfigError::NotYetValid(_)));
    assert_eq!(replace(&mixed), TlsConfigError::KeyMismatch);
    assert_eq!(replace(&version_1), TlsConfigError::OldCertificate);
    assert!(matches!(replace(&no_key), TlsConfigError::BadKey(_)));
    assert!(matches!(
        replace(&garbage),
        TlsConfigError::BadCertificate(_)
    ));
    let no_authority = tls.replace_authorities(b"no certificate");
    assert!(matches!(
        no_authority,
        Err(TlsConfigError::BadAuthorities(_))
    ));
    assert_eq!(tls.validity(), before);
    let server = Server::start(with_tls(one_loop(), tls));
    connect(&server, &authority.client());
}

#[test]
fn a_server_knows_whether_its_certificate_names_hosts() {
    let authority = Authority::new();
    let named = authority.identity("localhost", 2020..2090);
    let nameless = authority.identity_of(&[], 2020..2090);
    let tls = named.server(None).expect("valid");
    for _ in 0..2 {
        assert!(tls.names_hosts());
        nameless.replace_in(&tls).expect("valid");
        assert!(!tls.names_hosts());
        named.replace_in(&tls).expect("valid");
    }
}

/// Not a test by itself: a client with the authorities of its system, which the test below makes
/// up.
#[test]
fn child() {
    let Ok(address) = std::env::var("NET_TEST_ADDRESS") else {
        return;
    };
    let tls = ClientTls::new(&ClientTlsOptions {
        trust: Trust::System,
        identity: None,
        server_name: Some("localhost"),
        applications: APPLICATIONS,
    });
    let outcome = tls.map_err(|error| error.to_string()).and_then(|tls| {
        let stream = TcpStream::connect(&address).expect("somebody listens");
        let mut client = Secured::new(stream, &tls);
        let agreed = client.shake_hands().map_err(|failure| failure.to_string());
        client.flush();
        agreed
    });
    println!("\noutcome: {outcome:?}");
}

#[test]
fn the_authorities_of_the_system_are_believed_and_no_others() {
    let (authority, strange) = (Authority::new(), Authority::new());
    let server = Server::start(with_tls(one_loop(), authority.server()));
    let directory = Directory::new("system-authorities");
    let outcome = |authorities: &str| {
        let file = directory.0.join("authorities.pem");
        std::fs::write(&file, authorities).expect("it is ours");
        let child = Command::new(std::env::current_exe().expect("a test binary"))
            .args(["--exact", "child", "--nocapture"])
            .env("NET_TEST_ADDRESS", server.addresses[0].to_string())
            .env("SSL_CERT_FILE", &file)
            .env_remove("SSL_CERT_DIR")
            .output();
        let text = String::from_utf8(child.expect("it runs").stdout).expect("text");
        let lines = text.lines();
        let found = lines
            .filter_map(|line| line.strip_prefix("outcome: "))
            .next();
        found.expect("it says how it went").to_owned()
    };
    assert_eq!(outcome(&authority.pem()), "Ok(())");
    let distrusts = outcome(&strange.pem());
    assert!(distrusts.contains("unknown issuer"), "{distrusts}");
    // Certificates that cannot be used do not hinder the others.
    let broken = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    assert_eq!(outcome(&(broken.to_owned() + &authority.pem())), "Ok(())");
    let none = outcome("");
    assert!(none.contains("this system has none"), "{none}");
}

/// How a client fails that is refused.
fn refusal(server: &Server, tls: &ClientTls) -> TlsFailureKind {
    let mut client = Secured::new(server.connect(), tls);
    // In TLS 1.3 a client is done before the server has looked at its certificate.
    let outcome = client.shake_hands().and_then(|()| client.receive(1));
    let failure = outcome.expect_err("one of the sides refuses");
    client.flush();
    failure.kind
}

#[test]
fn mutual_tls_lets_in_whom_the_authority_knows() {
    let (authority, strange) = (Authority::new(), Authority::new());
    let identity = authority.identity("localhost", 2020..2090);
    let tls = identity.server(Some(&authority.pem())).expect("valid");
    for_both(&tls, |server| {
        let known = authority.identity("a client", 2020..2090);
        let mut client = connect(server, &authority.client_with(Some(&known), APPLICATIONS));
        client.send(b"x");
        assert_eq!(client.receive(1).expect("echo"), b"x");
        client.close();
        let old = authority.identity("a client", 2020..2021);
        let unknown = strange.identity("a client", 2020..2090);
        for identity in [None, Some(&old), Some(&unknown)] {
            let client = authority.client_with(identity, APPLICATIONS);
            assert_eq!(refusal(server, &client), TlsFailureKind::RefusedByPeer);
        }
        eventually("all are counted", || {
            server.sum(|one| one.failed_certificate) == 3
        });
        assert_eq!(server.habits.closed.lock().expect("no panic").len(), 1);
    });
}

#[test]
fn a_client_that_does_not_trust_the_server_says_so() {
    let (authority, strange) = (Authority::new(), Authority::new());
    for_both(&authority.server(), |server| {
        let client = strange.client();
        assert_eq!(refusal(server, &client), TlsFailureKind::Certificate);
        let wrong_name = ClientTls::new(&ClientTlsOptions {
            trust: Trust::Authorities(authority.pem().as_bytes()),
            identity: None,
            server_name: Some("elsewhere.test"),
            applications: APPLICATIONS,
        });
        let client = wrong_name.expect("valid");
        assert_eq!(refusal(server, &client), TlsFailureKind::Certificate);
        eventually("the server heard both", || {
            server.sum(|one| one.failed_refused_by_peer) == 2
        });
        let client = authority.client_with(None, &[b"spdy/1"]);
        assert_eq!(refusal(server, &client), TlsFailureKind::RefusedByPeer);
        assert_eq!(server.sum(|one| one.failed_incompatible), 1);
        let trusting = ClientTls::new(&ClientTlsOptions {
            trust: Trust::Anybody,
            identity: None,
            server_name: None,
            applications: &[b"http/1.1"],
        });
        let client = connect(server, &trusting.expect("valid"));
        let agreed = client.pipe.agreed();
        assert_eq!(agreed.application.as_deref(), Some(&b"http/1.1"[..]));
    });
}

#[test]
fn a_plain_client_gets_an_alert() {
    let authority = Authority::new();
    for_both(&authority.server(), |server| {
        for greeting in [
            &b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..],
            b"GET / HTTP/1.1\r\n\r\n",
        ] {
            let mut stream = server.connect();
            stream.write_all(greeting).expect("open");
            let answer = read_to_end(&mut stream);
            // A fatal alert: RFC 8446 section 6.
            assert!(matches!(answer[..], [21, 3, _, 0, 2, 2, _]), "{answer:?}");
            let notice = server.notices.recv_timeout(Duration::from_secs(10));
            let notice = notice.expect("it is said");
            assert!(
                notice.contains("a plain client on a port with TLS"),
                "{notice}"
            );
        }
        assert_eq!(server.sum(|one| one.failed_not_tls), 2);
        // One that only looks whether somebody listens is not worth a line.
        drop(server.connect());
        eventually("it is gone", || server.sum(|one| one.failed_ended) == 1);
        assert!(server.notices.try_recv().is_err());
    });
}

#[test]
fn garbage_damages_nothing() {
    let authority = Authority::new();
    let seed = 20_261_121_u64;
    println!("seed {seed}");
    for_both(&authority.server(), |server| {
        let mut random = SplitMix::new(seed);
        let mut honest = connect(server, &authority.client());
        for _ in 0..60 {
            let mut stream = server.connect();
            let mut client = Secured::new(server.connect(), &authority.client());
            let mut bytes = client.pipe.output().to_vec();
            for _ in 0..1 + random.below(4) {
                let place = random.below(bytes.len() as u64) as usize;
                bytes[place] ^= 1 << random.below(8);
                bytes.truncate(bytes.len() - random.below(3) as usize);
            }
            let _ = stream.write_all(&bytes);
            let _ = stream.write_all(&[random.below(256) as u8; 40_000]);
            let _ = stream.shutdown(std::net::Shutdown::Write);
            read_to_end(&mut stream);
            // And behind a whole handshake.
            client.shake_hands().expect("nothing is wrong so far");
            client.send(b"x");
            let _ = client.stream.write_all(&bytes);
            let _ = client.stream.shutdown(std::net::Shutdown::Write);
            read_to_end(&mut client.stream);
            honest.send(b"still there");
            assert_eq!(honest.receive(11).expect("echo"), b"still there");
        }
        eventually("all are gone", || server.sum(|one| one.connections) == 1);
        // Also buffers that a session made itself, for its last words, are counted and given back.
        eventually("and all that they held", || {
            server.sum(|one| one.input_buffers_lent + one.output_buffers_lent) == 0
        });
    });
}

#[test]
fn a_peer_that_vanishes_in_the_midst_of_its_handshake_leaves_nothing() {
    let authority = Authority::new();
    for_both(&authority.server(), |server| {
        let hello = Secured::new(server.connect(), &authority.client());
        let hello = hello.pipe.output().to_vec();
        for length in (0..hello.len()).step_by(37) {
            let mut stream = server.connect();
            stream.write_all(&hello[..length]).expect("open");
        }
        eventually("all are gone", || server.sum(|one| one.connections) == 0);
        assert_eq!(server.sum(|one| one.input_buffers_lent), 0);
        assert!(server.habits.closed.lock().expect("no panic").is_empty());
    });
}

#[test]
fn half_open_handshakes_are_bounded_and_keep_nobody_out() {
    let authority = Authority::new();
    let server = Server::start(with_tls(one_loop(), authority.server()));
    let silent: Vec<TcpStream> = (0..HANDSHAKES_PER_LOOP + 50)
        .map(|_| server.connect())
        .collect();
    eventually("the oldest are closed", || {
        server.sum(|one| one.failed_crowded_out) == 50
    });
    assert_eq!(
        server.sum(|one| one.input_buffers_lent),
        0,
        "silent ones have none"
    );
    let mut client = connect(&server, &authority.client());
    client.send(b"x");
    assert_eq!(client.receive(1).expect("echo"), b"x");
    assert_eq!(server.sum(|one| one.failed_crowded_out), 51);
    let mut oldest = &silent[0];
    assert_eq!(oldest.read(&mut [0]).expect("closed"), 0);
    // A stop does not wait for them.
    assert!(server.stop().expect("no failure").drained);
}

/// Opens connections one after the other that go no further than the first message, or than the
/// connection itself.
fn open_half_way(server: &Server, hello: &[u8], count: usize) -> Vec<TcpStream> {
    let open = |_| {
        let opened = server.sum(|one| one.opened);
        let mut stream = server.connect();
        eventually("it is open", || server.sum(|one| one.opened) > opened);
        if !hello.is_empty() {
            stream.write_all(hello).expect("open");
            stream.read_exact(&mut [0]).expect("an answer");
        }
        stream
    };
    (0..count).map(open).collect()
}

fn assert_served(client: &mut Secured) {
    client.send(b"x");
    assert_eq!(client.receive(1).expect("echo"), b"x");
}

/// Where connections are bounded, of one address or of all, those whose handshake is not finished
/// make room for whoever comes, and those that are served stay.
#[test]
fn half_open_handshakes_up_to_a_limit_of_connections_shut_nobody_out() {
    const MOST: usize = 12;
    let authority = Authority::new();
    let hello = {
        let server = Server::start(with_tls(one_loop(), authority.server()));
        let client = Secured::new(server.connect(), &authority.client());
        client.pipe.output().to_vec()
    };
    let of_address = |config| LoopConfig {
        max_connections_per_address: MOST,
        limit_loopback: true,
        ..config
    };
    let of_all = |config| LoopConfig {
        max_connections: MOST,
        ..config
    };
    let (both, other) = ([one_loop(), blocking(8)], [one_loop(), blocking(8)]);
    for config in (both.map(of_address).into_iter()).chain(other.map(of_all)) {
        let server = Server::start(with_tls(config, authority.server()));
        let mut kept = connect(&server, &authority.client());
        for hello in [&hello[..], b"", &hello, b""] {
            let before = server.sum(|one| one.failed_crowded_out);
            let half_open = open_half_way(&server, hello, 2 * MOST);
            for _ in 0..2 {
                assert_served(&mut connect(&server, &authority.client()));
                assert_served(&mut kept);
            }
            let crowded_out = server.sum(|one| one.failed_crowded_out) - before;
            assert!(crowded_out > MOST as u64, "{crowded_out}");
            let mut oldest = &half_open[0];
            while oldest.read(&mut [0; 4096]).is_ok_and(|count| count > 0) {}
            drop(half_open);
            eventually("all but one are gone", || {
                server.sum(|one| one.connections) == 1
            });
        }
        let refused = server.sum(|one| one.refused + one.refused_by_address);
        assert_eq!(refused, 0);
        kept.close();
        assert!(server.stop().expect("no failure").drained);
    }
}

#[test]
fn an_address_has_its_bound_of_half_open_handshakes() {
    let authority = Authority::new();
    for config in [one_loop(), blocking(8)] {
        let config = LoopConfig {
            limit_loopback: true,
            ..config
        };
        let server = Server::start(with_tls(config, authority.server()));
        for round in 1..=2 {
            let half_open = open_half_way(&server, b"", HANDSHAKES_PER_ADDRESS + 5);
            eventually("the oldest are closed", || {
                server.sum(|one| one.failed_crowded_out) == 5 * round
            });
            for (at, stream) in half_open.iter().enumerate() {
                stream.set_nonblocking(true).expect("open");
                let (mut stream, is_closed) = (stream, at < 5);
                eventually("it is closed if it is among the oldest", || {
                    stream.read(&mut [0]).is_ok_and(|count| count == 0) == is_closed
                });
            }
            drop(half_open);
            eventually("all are gone", || server.sum(|one| one.connections) == 0);
        }
        assert!(server.stop().expect("no failure").drained);
    }
}

#[test]
fn an_endless_handshake_ends() {
    let authority = Authority::new();
    for_both(&authority.server(), |server| {
        // Records of a client hello that says that it is 16 MB long: RFC 8446 sections 4 and 5.1.
        let mut record = vec![22, 3, 1, 0x40, 0];
        record.extend_from_slice(&[1, 0xff, 0xff, 0xff]);
        record.resize(5 + 0x4000, 0);
        let mut stream = server.connect();
        for _ in 0..20 {
            if stream.write_all(&record).is_err() {
                break;
            }
        }
        read_to_end(&mut stream);
        eventually("it is closed", || {
            server.sum(|one| one.failed_too_large + one.failed_broken + one.failed_not_tls) == 1
        });
    });
}

#[test]
fn a_stop_waits_for_what_runs_over_tls() {
    let authority = Authority::new();
    for config in [one_loop(), blocking(2)] {
        let server = Server::start(with_tls(config, authority.server()));
        server.habits.busy.store(true, Ordering::Relaxed);
        let mut client = connect(&server, &authority.client());
        let mut half_open = server.connect();
        client.send(b"before");
        assert_eq!(client.receive(6).expect("echo"), b"before");
        // One that still waits to be accepted would be reset with the listener.
        eventually("both are there", || server.sum(|one| one.connections) == 2);
        server.stop.stop();
        eventually("it drains", || {
            server.habits.stops.load(Ordering::Relaxed) >= 1
        });
        let closed = half_open.read(&mut [0]);
        assert_eq!(closed.expect("at once, while others go on"), 0);
        client.send(b"meanwhile");
        assert_eq!(client.receive(9).expect("echo"), b"meanwhile");
        server.habits.busy.store(false, Ordering::Relaxed);
        for waker in &*server.habits.wakers.lock().expect("no panic") {
            waker.wake();
        }
        assert_eq!(client.receive_all().expect("a closure alert"), b"");
        drop(client);
        assert!(server.wait_for_end().expect("no failure").drained);
    }
}

/// How a handshake fails on the client's side.
fn client_failure(server_tls: ServerTls, tls: &ClientTls) -> TlsFailure {
    let server = Server::start(with_tls(one_loop(), server_tls));
    let mut client = Secured::new(server.connect(), tls);
    let failure = client.shake_hands().expect_err("the client refuses");
    client.flush();
    failure
}

#[test]
fn what_is_wrong_with_a_certificate_is_named() {
    let (authority, strange) = (Authority::new(), Authority::new());
    let client = authority.client();
    let refused = |identity: Identity, expected: CertificateFault| {
        // A server that was started when the certificate was good.
        let now_s = Validity::of_pem(identity.certificate.as_bytes())
            .expect("a certificate")
            .not_before_s;
        let options = ServerTlsOptions {
            now_s,
            ..identity.options(None)
        };
        let server = ServerTls::new(&options).expect("valid");
        let failure = client_failure(server, &client);
        let found = (failure.kind, failure.fault);
        assert_eq!(found, (TlsFailureKind::Certificate, Some(expected)));
        failure.reason
    };
    let unknown = strange.identity("localhost", 2020..2090);
    refused(unknown, CertificateFault::UnknownIssuer);
    let elsewhere = authority.identity("elsewhere.test", 2020..2090);
    refused(elsewhere, CertificateFault::WrongName);
    let nameless = authority.identity_of(&[], 2020..2090);
    refused(nameless, CertificateFault::NoName);
    let old = authority.identity("localhost", 2020..2021);
    refused(old, CertificateFault::OutOfDate);
    let early = authority.identity("localhost", 2085..2090);
    refused(early, CertificateFault::OutOfDate);
    let reason = refused(strange.own_identity(), CertificateFault::IsAuthority);
    assert!(reason.contains("self-signed or an authority's"), "{reason}");
    // Nothing is wrong with a certificate when something else is.
    let other = authority.client_with(None, &[b"spdy/1"]);
    let server = Server::start(with_tls(one_loop(), authority.server()));
    let mut client = Secured::new(server.connect(), &other);
    let failure = client.shake_hands().expect_err("nothing in common");
    assert_eq!(failure.fault, None);
}

#[test]
fn the_name_of_the_server_is_that_of_the_address_unless_another_is_given() {
    let authority = Authority::new();
    let tls = |server_name| {
        ClientTls::new(&ClientTlsOptions {
            trust: Trust::Authorities(authority.pem().as_bytes()),
            identity: None,
            server_name,
            applications: APPLICATIONS,
        })
        .expect("valid")
    };
    // The first word names it in the clear (RFC 6066 section 3).
    let asks_for = |tls: &ClientTls, address: &str, name: &[u8]| {
        let address = address.parse().expect("valid");
        let pipe = tls.connect(&address).expect("a name");
        let hello = pipe.output();
        hello.windows(name.len()).any(|bytes| bytes == name)
    };
    assert!(asks_for(&tls(None), "one.test:1", b"one.test"));
    assert!(asks_for(&tls(None), "unix:/run/a.sock", b"localhost"));
    let given = tls(Some("two.test"));
    for address in ["one.test:1", "unix:/run/a.sock"] {
        assert!(asks_for(&given, address, b"two.test"));
        assert!(!asks_for(&given, address, b"one.test"));
    }
}

#[test]
fn what_waits_in_a_pipe_goes_out_in_pieces_of_any_size() {
    let authority = Authority::new();
    let server = Server::start(with_tls(one_loop(), authority.server()));
    let mut client = Secured::new(server.connect(), &authority.client());
    assert!(client.pipe.is_handshaking() && !client.pipe.peer_closed());
    let agreed = client.pipe.agreed();
    assert_eq!((agreed.application, agreed.resumed), (None, false));
    client.pipe.close();
    let hello = client.pipe.output().to_vec();
    assert!(
        !hello.is_empty(),
        "nothing is said of an end before there is a beginning"
    );
    client = connect(&server, &authority.client());
    assert!(!client.pipe.is_handshaking());
    let content: Vec<u8> = (0..150_000_u32).map(|at| (at % 251) as u8).collect();
    for piece_bytes in [1 << 20, 70_001, 1_000] {
        client.pipe.seal(&content).expect("agreed");
        client.pipe.seal(b"behind").expect("agreed");
        let sealed = client.pipe.output().to_vec();
        assert!(sealed.len() > content.len() + 6);
        for piece in sealed.chunks(piece_bytes) {
            assert!(client.pipe.output().starts_with(piece));
            client.stream.write_all(piece).expect("open");
            client.pipe.sent(piece.len());
        }
        assert_eq!(client.pipe.output(), b"");
        let echo = client.receive(content.len() + 6).expect("echo");
        assert!(echo == [&content[..], b"behind"].concat());
    }
    // An end is said once, and nothing after it.
    client.pipe.close();
    let end = client.pipe.output().to_vec();
    assert!(!end.is_empty());
    client.pipe.close();
    assert_eq!(client.pipe.output(), end);
    client.pipe.seal(b"more").expect_err("it has ended");
    client.flush();
    assert_eq!(client.receive_all().expect("a closure alert"), b"");
    assert!(client.pipe.peer_closed());
}

/// Nothing of this reaches the server: what is sealed goes in order and is counted, whatever buffer
/// it lies in.
#[test]
fn a_pipe_does_not_keep_a_buffer_that_grew_large() {
    let authority = Authority::new();
    let server = Server::start(with_tls(one_loop(), authority.server()));
    let mut client = connect(&server, &authority.client());
    let content = vec![7; 2 * PIPE_KEPT_BYTES];
    for _ in 0..2 {
        let held = allocation_counter::measure(|| {
            client.pipe.seal(&content).expect("agreed");
            let sealed = client.pipe.output().to_vec();
            for piece in sealed.chunks(100_000) {
                assert!(client.pipe.output().starts_with(piece));
                client.pipe.sent(piece.len());
            }
            assert_eq!(client.pipe.output(), b"");
        });
        assert!(held.bytes_current <= 0, "{held:?}");
    }
    // One that did not is used again: only the library makes another copy.
    for is_first in [true, false] {
        let used = allocation_counter::measure(|| {
            client.pipe.seal(&content[..10_000]).expect("agreed");
            client.pipe.sent(client.pipe.output().len());
        });
        assert_eq!(used.bytes_total < 20_000, !is_first, "{used:?}");
    }
}
