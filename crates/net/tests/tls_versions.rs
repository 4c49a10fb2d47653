//! TLS as RFC 9113 section 9.2 demands it: version 1.2 or higher, without compression.

mod common;

use std::io::Write;

use common::tls::{APPLICATIONS, Authority, read_to_end};
use common::{Server, blocking, one_loop};
use net::Listen;
use net::tls::{ClientTls, ClientTlsOptions, ServerTls, TlsFailure, TlsPipe, Trust};

const TLS_1_0: u16 = 0x0301;
const TLS_1_1: u16 = 0x0302;
const TLS_1_2: u16 = 0x0303;
const TLS_1_3: u16 = 0x0304;
/// The methods of compression: none, and DEFLATE (RFC 3749).
const NULL: u8 = 0;
const DEFLATE: u8 = 1;
/// Alerts: RFC 8446 section 6.
const ILLEGAL_PARAMETER: u8 = 47;
const PROTOCOL_VERSION: u8 = 70;
/// TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, and one with CBC for what is older.
const CIPHER_SUITES: [u8; 4] = [0xc0, 0x2b, 0xc0, 0x09];
/// The renegotiation indication of RFC 5746, the groups, the forms of points and the signatures
/// that all versions before 1.3 need.
const EXTENSIONS: [u8; 31] = [
    0xff, 1, 0, 1, 0, // renegotiation_info
    0, 10, 0, 4, 0, 2, 0, 23, // supported_groups: secp256r1
    0, 11, 0, 2, 1, 0, // ec_point_formats: uncompressed
    0, 13, 0, 8, 0, 6, 4, 3, 4, 1, 2, 3, // signature_algorithms
];

/// A handshake message in a record of its own.
fn record(kind: u8, body: &[u8]) -> Vec<u8> {
    let length = u16::try_from(body.len()).expect("short");
    let mut bytes = vec![22, 3, 1];
    bytes.extend((length + 4).to_be_bytes());
    bytes.extend([kind, 0]);
    bytes.extend(length.to_be_bytes());
    bytes.extend(body);
    bytes
}

/// A ClientHello without the extension `supported_versions` (RFC 5246 section 7.4.1.2).
fn client_hello(version: u16, compressions: &[u8]) -> Vec<u8> {
    let mut body = version.to_be_bytes().to_vec();
    body.extend([7; 32]);
    body.push(0); // no session
    body.extend([0, CIPHER_SUITES.len() as u8]);
    body.extend(CIPHER_SUITES);
    body.push(compressions.len() as u8);
    body.extend(compressions);
    body.extend([0, EXTENSIONS.len() as u8]);
    body.extend(EXTENSIONS);
    record(1, &body)
}

/// A ServerHello of TLS 1.2 or less (RFC 5246 section 7.4.1.3).
fn server_hello(version: u16, compression: u8) -> Vec<u8> {
    let mut body = version.to_be_bytes().to_vec();
    body.extend([7; 32]);
    body.push(0);
    body.extend(&CIPHER_SUITES[..2]);
    body.push(compression);
    body.extend([0, 5]);
    body.extend(&EXTENSIONS[..5]);
    record(2, &body)
}

/// Each driver with a server of its own.
fn for_both(tls: &ServerTls, test: impl Fn(&Server)) {
    for mut config in [one_loop(), blocking(8)] {
        config.listen = vec![Listen {
            address: "127.0.0.1:0".parse().expect("valid"),
            tls: Some(tls.clone()),
        }];
        let server = Server::start(config);
        test(&server);
        assert!(server.stop().expect("no failure").drained);
    }
}

#[test]
fn a_server_refuses_versions_below_1_2_and_compression() {
    let authority = Authority::new();
    for_both(&authority.server(), |server| {
        for (version, compressions, alert) in [
            (TLS_1_0, &[NULL][..], PROTOCOL_VERSION),
            (TLS_1_1, &[NULL], PROTOCOL_VERSION),
            (TLS_1_1, &[DEFLATE, NULL], PROTOCOL_VERSION),
            (TLS_1_2, &[DEFLATE], ILLEGAL_PARAMETER),
        ] {
            let mut stream = server.connect();
            let hello = client_hello(version, compressions);
            stream.write_all(&hello).expect("open");
            let answer = read_to_end(&mut stream);
            assert_eq!(answer.first(), Some(&21), "{version:#x}: an alert");
            assert_eq!(answer.last(), Some(&alert), "{version:#x} {compressions:?}");
        }
    });
}

/// The same ClientHello with nothing wrong in it is accepted, and of two methods of compression the
/// server takes none.
#[test]
fn a_server_takes_1_2_without_compression() {
    let authority = Authority::new();
    for_both(&authority.server(), |server| {
        for compressions in [&[NULL][..], &[DEFLATE, NULL]] {
            let mut stream = server.connect();
            let hello = client_hello(TLS_1_2, compressions);
            stream.write_all(&hello).expect("open");
            stream.shutdown(std::net::Shutdown::Write).expect("open");
            let answer = read_to_end(&mut stream);
            // Record header, message header, version, random, session, cipher suite.
            assert_eq!((answer[0], answer[5]), (22, 2), "a ServerHello");
            assert_eq!(answer[9..11], TLS_1_2.to_be_bytes());
            let session_bytes = usize::from(answer[43]);
            assert_eq!(answer[44 + session_bytes..][..3], [0xc0, 0x2b, NULL]);
        }
    });
}

fn client_pipe() -> TlsPipe {
    let tls = ClientTls::new(&ClientTlsOptions {
        trust: Trust::Anybody,
        identity: None,
        server_name: None,
        applications: APPLICATIONS,
    });
    let address = "localhost:1".parse().expect("valid");
    tls.expect("valid").connect(&address).expect("a name")
}

#[test]
fn a_client_refuses_versions_below_1_2_and_compression() {
    let hear = |version, compression| -> Result<(), TlsFailure> {
        client_pipe().received(&server_hello(version, compression), &mut |_| {})
    };
    assert_eq!(hear(TLS_1_2, NULL), Ok(()));
    for (version, compression) in [(TLS_1_0, NULL), (TLS_1_1, NULL), (TLS_1_2, DEFLATE)] {
        hear(version, compression).expect_err("it ends the handshake");
    }
}

#[test]
fn a_client_offers_1_2_and_1_3_without_compression() {
    let pipe = client_pipe();
    let hello = pipe.output();
    let mut at = 5 + 4 + 2 + 32;
    at += 1 + usize::from(hello[at]);
    at += 2 + usize::from(u16::from_be_bytes([hello[at], hello[at + 1]]));
    assert_eq!(hello[at..at + 2], [1, NULL], "one method of compression");
    at += 2 + 2;
    let mut versions = Vec::new();
    while at < hello.len() {
        let number = |at: usize| u16::from_be_bytes([hello[at], hello[at + 1]]);
        let (kind, length) = (number(at), usize::from(number(at + 2)));
        if kind == 43 {
            versions = (at + 5..at + 4 + length).step_by(2).map(number).collect();
        }
        at += 4 + length;
    }
    versions.sort_unstable();
    assert_eq!(versions, [TLS_1_2, TLS_1_3]);
}
