//! Certificates that the user has given as trusted, when a peer shows one of them itself.
//!
//! webpki tells authorities and leaves apart: it refuses a leaf with CA:TRUE, and one that no
//! authority has signed. A self-signed certificate as `openssl req -x509` makes it is both at once.
//! OpenSSL, Go and curl accept it where it was given as trusted, since its key is then what the
//! user trusts: so does this. Name, validity, purpose and the signature of the handshake are
//! checked as for any other.

use std::sync::Arc;
use std::time::Duration;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{ParsedCertificate, WebPkiClientVerifier};
use rustls::{CertificateError, DistinguishedName, RootCertStore};
use x509_cert::Certificate;
use x509_cert::certificate::Version;
use x509_cert::der::Decode;
use x509_cert::der::asn1::ObjectIdentifier;
use x509_cert::ext::pkix::{BasicConstraints, ExtendedKeyUsage, KeyUsage};

use super::certificate::Validity;
use super::error::TlsConfigError;
use super::path;
use super::signatures::check_signatures;

/// Purposes of a certificate (RFC 5280 section 4.2.1.12).
const SERVER_AUTH: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.6.1.5.5.7.3.1");
const CLIENT_AUTH: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.6.1.5.5.7.3.2");

/// What the user trusts: authorities, and the same certificates as leaves.
pub(super) struct TrustedCertificates {
    roots: RootCertStore,
    leaves: Vec<CertificateDer<'static>>,
    /// The subjects of all of them.
    hints: Vec<DistinguishedName>,
}

impl TrustedCertificates {
    /// Returns the certificates in a PEM text, by which servers are checked.
    ///
    /// # Errors
    /// If there is none, or one that cannot be read.
    pub(super) fn of_pem(text: &[u8]) -> Result<TrustedCertificates, TlsConfigError> {
        TrustedCertificates::read(text, |_| Ok(true))
    }

    /// Returns these authorities, by which servers are checked.
    pub(super) fn of_roots(roots: RootCertStore) -> TrustedCertificates {
        TrustedCertificates {
            hints: Vec::new(),
            leaves: Vec::new(),
            roots,
        }
    }

    /// Returns the certificates in a PEM text, by which clients are checked. One that is no
    /// authority by what stands in it is none here: its holder could make certificates with the
    /// names of other clients. webpki takes each root that it is given for an authority.
    ///
    /// # Errors
    /// If there is none, or one that cannot be read.
    pub(super) fn of_clients(text: &[u8]) -> Result<TrustedCertificates, TlsConfigError> {
        TrustedCertificates::read(text, is_authority)
    }

    fn read(
        text: &[u8],
        is_root: impl Fn(&CertificateDer<'_>) -> Result<bool, TlsConfigError>,
    ) -> Result<TrustedCertificates, TlsConfigError> {
        let bad = |why: String| TlsConfigError::BadAuthorities(why);
        let (mut roots, mut others) = (RootCertStore::empty(), RootCertStore::empty());
        let mut leaves = Vec::new();
        for found in CertificateDer::pem_slice_iter(text) {
            let found = found.map_err(|error| bad(error.to_string()))?;
            let added = match is_root(&found)? {
                true => roots.add(found.clone()),
                false => others.add(found.clone()),
            };
            added.map_err(|error| bad(error.to_string()))?;
            leaves.push(found);
        }
        if leaves.is_empty() {
            return Err(bad("there is no PEM certificate in it".into()));
        }
        Ok(TrustedCertificates {
            hints: [roots.subjects(), others.subjects()].concat(),
            roots,
            leaves,
        })
    }
}

/// Whether a certificate may be that of an authority: of version 3 with CA:TRUE (RFC 5280 section
/// 4.2.1.9), or of an earlier one, which does not say.
///
/// # Errors
/// If it cannot be read: webpki might read it, and take it for one.
fn is_authority(der: &CertificateDer<'_>) -> Result<bool, TlsConfigError> {
    let certificate = Certificate::from_der(der)
        .map_err(|error| TlsConfigError::BadAuthorities(error.to_string()))?;
    let content = certificate.tbs_certificate();
    let constraints = content.get_extension::<BasicConstraints>();
    let says_so = constraints.is_ok_and(|found| found.is_some_and(|(_, one)| one.ca));
    let is_authority = says_so || content.version() != Version::V3;
    Ok(is_authority && may_sign_certificates(der))
}

/// Whether the key of a certificate may sign others: it says so, or does not say for what it is
/// (RFC 5280 section 4.2.1.3), which webpki does not look at. What cannot be read may not.
fn may_sign_certificates(der: &CertificateDer<'_>) -> bool {
    let Ok(certificate) = Certificate::from_der(der) else {
        return false;
    };
    let usage = certificate.tbs_certificate().get_extension::<KeyUsage>();
    usage.is_ok_and(|found| found.is_none_or(|(_, usage)| usage.key_cert_sign()))
}

/// A leaf that is byte for byte one that was given.
#[derive(Debug)]
struct TrustedLeaf {
    der: CertificateDer<'static>,
    validity: Validity,
    /// What it may be used for; `None`: for everything.
    purposes: Option<Vec<ObjectIdentifier>>,
}

impl TrustedLeaf {
    /// Returns `None` for what cannot be read here: it is good as an authority at most.
    fn new(der: CertificateDer<'static>) -> Option<TrustedLeaf> {
        let certificate = Certificate::from_der(&der).ok()?;
        let purposes = certificate
            .tbs_certificate()
            .get_extension::<ExtendedKeyUsage>()
            .ok()?;
        Some(TrustedLeaf {
            validity: Validity::of(&der).ok()?,
            purposes: purposes.map(|(_, purposes)| purposes.0),
            der,
        })
    }

    fn check(&self, purpose: ObjectIdentifier, now: UnixTime) -> Result<(), rustls::Error> {
        let after_1970 = |seconds| UnixTime::since_unix_epoch(Duration::from_secs(seconds));
        if now.as_secs() > self.validity.not_after_s {
            return Err(CertificateError::ExpiredContext {
                time: now,
                not_after: after_1970(self.validity.not_after_s),
            }
            .into());
        }
        if now.as_secs() < self.validity.not_before_s {
            return Err(CertificateError::NotValidYetContext {
                time: now,
                not_before: after_1970(self.validity.not_before_s),
            }
            .into());
        }
        match &self.purposes {
            Some(purposes) if !purposes.contains(&purpose) => {
                Err(CertificateError::InvalidPurpose.into())
            }
            _ => Ok(()),
        }
    }
}

fn trusted_leaves(leaves: Vec<CertificateDer<'static>>) -> Vec<TrustedLeaf> {
    leaves.into_iter().filter_map(TrustedLeaf::new).collect()
}

fn find<'a>(leaves: &'a [TrustedLeaf], shown: &CertificateDer<'_>) -> Option<&'a TrustedLeaf> {
    leaves.iter().find(|leaf| leaf.der == *shown)
}

/// Checks servers.
#[derive(Debug)]
pub(super) struct ServerVerifier {
    leaves: Vec<TrustedLeaf>,
    by_authority: Arc<WebPkiServerVerifier>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl ServerVerifier {
    pub(super) fn new(
        trusted: TrustedCertificates,
        provider: Arc<CryptoProvider>,
    ) -> Result<ServerVerifier, TlsConfigError> {
        let roots = Arc::new(trusted.roots);
        let algorithms = provider.signature_verification_algorithms;
        let by_authority = WebPkiServerVerifier::builder_with_provider(roots, provider).build();
        Ok(ServerVerifier {
            algorithms,
            leaves: trusted_leaves(trusted.leaves),
            by_authority: by_authority
                .map_err(|error| TlsConfigError::BadAuthorities(error.to_string()))?,
        })
    }
}

impl ServerCertVerifier for ServerVerifier {
    fn verify_server_cert(
        &self,
        shown: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let Some(leaf) = find(&self.leaves, shown) else {
            let by_authority = &self.by_authority;
            let chain = path::on_paths(shown, intermediates);
            return by_authority.verify_server_cert(shown, &chain, name, ocsp_response, now);
        };
        leaf.check(SERVER_AUTH, now)?;
        rustls::client::verify_server_name(&ParsedCertificate::try_from(shown)?, name)?;
        Ok(ServerCertVerified::assertion())
    }

    check_signatures!();
}

/// Checks clients.
#[derive(Debug)]
pub(super) struct ClientVerifier {
    leaves: Vec<TrustedLeaf>,
    /// `None`: all that were given are leaves.
    by_authority: Option<Arc<dyn ClientCertVerifier>>,
    /// The subjects of all certificates that were given: clients choose by them what to show.
    hints: Vec<DistinguishedName>,
    /// All certificates that were given, in order.
    given: Vec<CertificateDer<'static>>,
    is_mandatory: bool,
    algorithms: WebPkiSupportedAlgorithms,
}

impl ClientVerifier {
    /// `is_mandatory`: each must have a certificate.
    pub(super) fn new(
        trusted: TrustedCertificates,
        is_mandatory: bool,
        provider: Arc<CryptoProvider>,
    ) -> Result<ClientVerifier, TlsConfigError> {
        let algorithms = provider.signature_verification_algorithms;
        let by_authority = match trusted.roots.is_empty() {
            true => None,
            false => {
                let roots = Arc::new(trusted.roots);
                let builder = WebPkiClientVerifier::builder_with_provider(roots, provider);
                let built = builder.build();
                Some(built.map_err(|error| TlsConfigError::BadAuthorities(error.to_string()))?)
            }
        };
        let mut given = trusted.leaves.clone();
        given.sort_unstable_by(|one, other| one.as_ref().cmp(other.as_ref()));
        Ok(ClientVerifier {
            algorithms,
            leaves: trusted_leaves(trusted.leaves),
            by_authority,
            hints: trusted.hints,
            given,
            is_mandatory,
        })
    }

    /// Returns whether all certificates that were given to the other were given to this one too.
    pub(super) fn trusts_all_of(&self, other: &ClientVerifier) -> bool {
        let is_here = |one: &CertificateDer<'_>| {
            let by_bytes = |given: &CertificateDer<'_>| given.as_ref().cmp(one.as_ref());
            self.given.binary_search_by(by_bytes).is_ok()
        };
        other.given.iter().all(is_here)
    }
}

impl ClientCertVerifier for ClientVerifier {
    fn offer_client_auth(&self) -> bool {
        true
    }

    fn client_auth_mandatory(&self) -> bool {
        self.is_mandatory
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &self.hints
    }

    fn verify_client_cert(
        &self,
        shown: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        let Some(leaf) = find(&self.leaves, shown) else {
            let by_authority = self.by_authority.as_ref();
            let by_authority = by_authority.ok_or(CertificateError::UnknownIssuer)?;
            let mut chain = path::on_paths(shown, intermediates);
            chain.retain(|one| may_sign_certificates(one));
            return by_authority.verify_client_cert(shown, &chain, now);
        };
        leaf.check(CLIENT_AUTH, now)?;
        Ok(ClientCertVerified::assertion())
    }

    check_signatures!();
}

#[cfg(test)]
mod tests {
    use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, KeyPair};
    use rustls::pki_types::PrivateKeyDer;
    use rustls::server::{ClientHello, ResolvesServerCert};
    use rustls::sign::CertifiedKey;
    use rustls::{ClientConfig, ClientConnection, ServerConfig, ServerConnection, SignatureScheme};

    use super::*;
    use crate::tls::provider::provider;

    fn params() -> CertificateParams {
        let mut params = CertificateParams::new(["localhost".into()]).expect("a name");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params
    }

    /// A self-signed certificate as `openssl req -x509` makes it.
    fn certificate(key: &KeyPair, params: CertificateParams) -> CertificateDer<'static> {
        params.self_signed(key).expect("signed").der().clone()
    }

    /// Shows a certificate whether or not the key belongs to it.
    #[derive(Debug)]
    struct Presented(Arc<CertifiedKey>);

    impl ResolvesServerCert for Presented {
        fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
            Some(Arc::clone(&self.0))
        }
    }

    impl rustls::client::ResolvesClientCert for Presented {
        fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
            Some(Arc::clone(&self.0))
        }

        fn has_certs(&self) -> bool {
            true
        }
    }

    fn shown(certificate: &CertificateDer<'static>, key: &KeyPair) -> Arc<Presented> {
        let key = PrivateKeyDer::from_pem_slice(key.serialize_pem().as_bytes()).expect("a key");
        let key = provider().key_provider.load_private_key(key);
        let chain = vec![certificate.clone()];
        Arc::new(Presented(Arc::new(CertifiedKey::new(
            chain,
            key.expect("a known kind"),
        ))))
    }

    fn trusted(given: &CertificateDer<'static>) -> TrustedCertificates {
        let mut roots = RootCertStore::empty();
        roots.add(given.clone()).expect("readable");
        TrustedCertificates {
            hints: roots.subjects(),
            leaves: vec![given.clone()],
            roots,
        }
    }

    /// Both sides, until they agree or one gives up.
    fn handshake(client: ClientConfig, server: ServerConfig, name: &str) -> Result<(), String> {
        let name = ServerName::try_from(name.to_owned()).expect("a name");
        let mut client = ClientConnection::new(Arc::new(client), name).expect("valid");
        let mut server = ServerConnection::new(Arc::new(server)).expect("valid");
        for _ in 0..10 {
            let (mut to_server, mut to_client) = (Vec::new(), Vec::new());
            while client.wants_write() {
                client.write_tls(&mut to_server).expect("memory");
            }
            server.read_tls(&mut to_server.as_slice()).expect("memory");
            let served = server.process_new_packets();
            served.map_err(|error| format!("server: {error}"))?;
            while server.wants_write() {
                server.write_tls(&mut to_client).expect("memory");
            }
            client.read_tls(&mut to_client.as_slice()).expect("memory");
            let heard = client.process_new_packets();
            heard.map_err(|error| format!("client: {error}"))?;
        }
        match client.is_handshaking() || server.is_handshaking() {
            true => Err("it does not end".into()),
            false => Ok(()),
        }
    }

    /// A client that was given `given` calls a server that shows `shows`, in both versions of TLS.
    fn server_is_accepted(
        given: &CertificateDer<'static>,
        shows: &Arc<Presented>,
        name: &str,
    ) -> Result<(), String> {
        for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
            let verifier = ServerVerifier::new(trusted(given), provider());
            let client = ClientConfig::builder_with_provider(provider())
                .with_protocol_versions(&[version])
                .expect("known")
                .dangerous()
                .with_custom_certificate_verifier(Arc::new(verifier.expect("valid")))
                .with_no_client_auth();
            let server = ServerConfig::builder_with_provider(provider())
                .with_protocol_versions(&[version])
                .expect("known")
                .with_no_client_auth()
                .with_cert_resolver(Arc::clone(shows) as Arc<dyn ResolvesServerCert>);
            handshake(client, server, name)?;
        }
        Ok(())
    }

    /// A server that was given `given` is called by a client that shows `shows`.
    fn client_is_accepted(
        given: &CertificateDer<'static>,
        shows: &Arc<Presented>,
    ) -> Result<(), String> {
        let key = KeyPair::generate().expect("random numbers");
        let own = certificate(&key, params());
        let verifier = ServerVerifier::new(trusted(&own), provider());
        let client = ClientConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .expect("known")
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier.expect("valid")))
            .with_client_cert_resolver(Arc::clone(shows) as _);
        let verifier = ClientVerifier::new(trusted(given), true, provider());
        let server = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .expect("known")
            .with_client_cert_verifier(Arc::new(verifier.expect("valid")))
            .with_cert_resolver(shown(&own, &key));
        handshake(client, server, "localhost")
    }

    #[test]
    fn a_given_certificate_is_accepted_as_a_leaf_and_no_other_of_the_same_key() {
        let key = KeyPair::generate().expect("random numbers");
        let given = certificate(&key, params());
        let again = certificate(&key, params());
        assert_ne!(given, again, "another serial number");
        for _ in 0..2 {
            assert_eq!(
                server_is_accepted(&given, &shown(&given, &key), "localhost"),
                Ok(())
            );
            let refused = server_is_accepted(&given, &shown(&again, &key), "localhost");
            assert!(
                refused
                    .expect_err("not given")
                    .contains("CaUsedAsEndEntity")
            );
            assert_eq!(client_is_accepted(&given, &shown(&given, &key)), Ok(()));
            let refused = client_is_accepted(&given, &shown(&again, &key));
            assert!(
                refused
                    .expect_err("not given")
                    .contains("CaUsedAsEndEntity")
            );
        }
    }

    #[test]
    fn a_given_leaf_is_valid_from_its_first_second_to_its_last() {
        let key = KeyPair::generate().expect("random numbers");
        let mut params = params();
        params.not_before = rcgen::date_time_ymd(2024, 2, 29);
        params.not_after = rcgen::date_time_ymd(2061, 1, 1);
        let leaf = TrustedLeaf::new(certificate(&key, params)).expect("readable");
        let checked = |now_s| {
            let now = UnixTime::since_unix_epoch(Duration::from_secs(now_s));
            leaf.check(SERVER_AUTH, now)
                .map_err(|error| error.to_string())
        };
        assert_eq!(checked(1_709_164_800), Ok(()));
        assert_eq!(checked(2_871_763_200), Ok(()));
        let early = checked(1_709_164_799).expect_err("too early");
        assert!(early.contains("not valid yet"), "{early}");
        let late = checked(2_871_763_201).expect_err("too late");
        assert!(late.contains("expired"), "{late}");
    }

    #[test]
    fn name_validity_purpose_and_key_of_a_given_certificate_are_checked() {
        let key = KeyPair::generate().expect("random numbers");
        let refused = |params: CertificateParams, key_shown: &KeyPair, name: &str| {
            let given = certificate(&key, params);
            let shows = shown(&given, key_shown);
            let as_server = server_is_accepted(&given, &shows, name).expect_err("refused");
            (as_server, client_is_accepted(&given, &shows))
        };
        let (wrong_name, _) = refused(params(), &key, "elsewhere.test");
        assert!(wrong_name.contains("not valid for name"), "{wrong_name}");

        let mut old = params();
        old.not_after = rcgen::date_time_ymd(2020, 1, 1);
        let mut early = params();
        early.not_before = rcgen::date_time_ymd(2090, 1, 1);
        for (outside, words) in [(old, "expired"), (early, "not valid yet")] {
            let (server, client) = refused(outside, &key, "localhost");
            assert!(server.contains(words), "{server}");
            assert!(client.expect_err("refused").contains(words));
        }

        for (purpose, client_too) in [
            (ExtendedKeyUsagePurpose::ClientAuth, true),
            (ExtendedKeyUsagePurpose::CodeSigning, false),
        ] {
            let mut other = params();
            other.extended_key_usages = vec![purpose];
            let (server, client) = refused(other, &key, "localhost");
            assert!(server.contains("InvalidPurpose"), "{server}");
            assert_eq!(client.is_ok(), client_too, "{client:?}");
        }

        let stolen = KeyPair::generate().expect("random numbers");
        let (server, client) = refused(params(), &stolen, "localhost");
        assert!(server.contains("BadSignature"), "{server}");
        assert!(client.expect_err("refused").contains("BadSignature"));
    }
}
