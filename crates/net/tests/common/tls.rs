//! Certificates for tests, and a client that speaks TLS over a blocking socket.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{SystemTime, UNIX_EPOCH};

use net::tls::{
    ClientTls, ClientTlsOptions, ServerTls, ServerTlsOptions, TlsConfigError, TlsFailure, TlsPipe,
    Trust,
};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, KeyUsagePurpose,
};

pub const APPLICATIONS: &[&[u8]] = &[b"h2", b"http/1.1"];

/// Signs certificates.
pub struct Authority(CertifiedIssuer<'static, KeyPair>);

/// A certificate and its key, in PEM.
pub struct Identity {
    pub certificate: String,
    pub key: String,
}

pub fn now_s() -> u64 {
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH);
    since_1970.expect("after 1970").as_secs()
}

impl Authority {
    pub fn new() -> Authority {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        params
            .distinguished_name
            .push(DnType::CommonName, "authority of a test");
        let key = KeyPair::generate().expect("random numbers");
        Authority(CertifiedIssuer::self_signed(params, key).expect("signed"))
    }

    pub fn pem(&self) -> String {
        self.0.pem()
    }

    /// For `name`, valid in these years.
    pub fn identity(&self, name: &str, years: std::ops::Range<i32>) -> Identity {
        self.identity_of(&[name], years)
    }

    /// The certificate of the authority itself, which is not for servers.
    pub fn own_identity(&self) -> Identity {
        Identity {
            certificate: self.pem(),
            key: self.0.key().serialize_pem(),
        }
    }

    /// For all of these names.
    pub fn identity_of(&self, names: &[&str], years: std::ops::Range<i32>) -> Identity {
        let key = KeyPair::generate().expect("random numbers");
        let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
        let mut params = CertificateParams::new(names).expect("names");
        params.not_before = rcgen::date_time_ymd(years.start, 1, 1);
        params.not_after = rcgen::date_time_ymd(years.end, 1, 1);
        let certificate = params.signed_by(&key, &self.0).expect("signed");
        Identity {
            certificate: certificate.pem(),
            key: key.serialize_pem(),
        }
    }

    pub fn server(&self) -> ServerTls {
        let identity = self.identity("localhost", 2020..2090);
        identity.server(None).expect("valid")
    }

    pub fn client(&self) -> ClientTls {
        self.client_with(None, APPLICATIONS)
    }

    pub fn client_with(&self, identity: Option<&Identity>, applications: &[&[u8]]) -> ClientTls {
        let identity = identity.map(|one| (one.certificate.as_bytes(), one.key.as_bytes()));
        ClientTls::new(&ClientTlsOptions {
            trust: Trust::Authorities(self.pem().as_bytes()),
            identity,
            server_name: Some("localhost"),
            applications,
        })
        .expect("valid")
    }
}

impl Identity {
    pub fn options<'a>(&'a self, client_authorities: Option<&'a str>) -> ServerTlsOptions<'a> {
        ServerTlsOptions {
            certificate: self.certificate.as_bytes(),
            key: self.key.as_bytes(),
            client_authorities: client_authorities.map(str::as_bytes),
            client_certificate_optional: false,
            applications: APPLICATIONS,
            now_s: now_s(),
        }
    }

    /// Has a server show this one from now on.
    pub fn replace_in(&self, tls: &ServerTls) -> Result<(), TlsConfigError> {
        tls.replace_certificate(self.certificate.as_bytes(), self.key.as_bytes(), now_s())
    }

    pub fn server(&self, client_authorities: Option<&str>) -> Result<ServerTls, TlsConfigError> {
        ServerTls::new(&self.options(client_authorities))
    }
}

/// A blocking socket with TLS.
pub struct Secured {
    pub stream: TcpStream,
    pub pipe: TlsPipe,
    plain: Vec<u8>,
}

impl Secured {
    pub fn new(stream: TcpStream, tls: &ClientTls) -> Secured {
        let address = "localhost:1".parse().expect("valid");
        Secured {
            stream,
            pipe: tls.connect(&address).expect("a name"),
            plain: Vec::new(),
        }
    }

    /// Until the handshake is done on both sides: the server shows by its tickets that it has
    /// accepted.
    pub fn shake_hands(&mut self) -> Result<(), TlsFailure> {
        while self.pipe.is_handshaking() {
            self.flush();
            self.turn()?;
        }
        self.flush();
        Ok(())
    }

    pub fn send(&mut self, bytes: &[u8]) {
        self.pipe.seal(bytes).expect("the handshake is done");
        self.flush();
    }

    /// So many bytes of plaintext.
    pub fn receive(&mut self, count: usize) -> Result<Vec<u8>, TlsFailure> {
        while self.plain.len() < count {
            assert!(!self.pipe.peer_closed(), "the server has closed");
            self.turn()?;
        }
        Ok(self.plain.drain(..count).collect())
    }

    /// All plaintext until the closure alert of the server.
    pub fn receive_all(&mut self) -> Result<Vec<u8>, TlsFailure> {
        while !self.pipe.peer_closed() {
            self.turn()?;
        }
        Ok(std::mem::take(&mut self.plain))
    }

    /// One read.
    pub fn turn(&mut self) -> Result<(), TlsFailure> {
        let mut buffer = [0; 16_384];
        let count = self.stream.read(&mut buffer).expect("in time");
        assert!(count > 0, "the server went without a word");
        let plain = &mut self.plain;
        self.pipe.received(&buffer[..count], &mut |piece| {
            plain.extend_from_slice(piece)
        })
    }

    pub fn flush(&mut self) {
        while !self.pipe.output().is_empty() {
            let count = self.stream.write(self.pipe.output()).expect("it takes it");
            self.pipe.sent(count);
        }
    }

    /// Sends a closure alert, and ends its side.
    pub fn close(&mut self) {
        self.pipe.close();
        self.flush();
        let _ = self.stream.shutdown(Shutdown::Write);
    }
}

/// Everything until the end, however it comes.
pub fn read_to_end(stream: &mut TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    match stream.read_to_end(&mut bytes) {
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {}
        Err(error) => panic!("{error}"),
    }
    bytes
}
