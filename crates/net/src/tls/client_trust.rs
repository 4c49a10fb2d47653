//! Whether the certificate that a client has shown is trusted still.

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::ClientCertVerifier;

use super::path;
use super::trusted_leaf::ClientVerifier;

/// The authorities by which the certificates of clients are checked. A handle: clones share what
/// their server replaces.
#[derive(Clone, Debug)]
pub struct ClientAuthorities {
    current: Arc<RwLock<Checked>>,
}

#[derive(Clone, Debug)]
struct Checked {
    /// `None`: clients show no certificate.
    by: Option<Arc<ClientVerifier>>,
    /// How often an authority was taken away.
    version: u64,
}

impl ClientAuthorities {
    pub(super) fn new(verifier: Option<Arc<ClientVerifier>>) -> ClientAuthorities {
        let checked = Checked {
            by: verifier,
            version: 0,
        };
        ClientAuthorities {
            current: Arc::new(RwLock::new(checked)),
        }
    }

    /// Takes others from now on. Returns whether one of those before is not among them.
    pub(super) fn replace(&self, verifier: Option<Arc<ClientVerifier>>) -> bool {
        let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
        let is_less = match (&current.by, &verifier) {
            (None, _) => false,
            (Some(_), None) => true,
            (Some(before), Some(now)) => !now.trusts_all_of(before),
        };
        *current = Checked {
            by: verifier,
            version: current.version + u64::from(is_less),
        };
        is_less
    }

    /// Returns how often one was taken away.
    pub fn version(&self) -> u64 {
        // Nothing under this lock can panic half-way.
        let current = self.current.read();
        current.unwrap_or_else(PoisonError::into_inner).version
    }

    fn checked(&self) -> Checked {
        let current = self.current.read();
        current.unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// What a client has shown, to be checked again when an authority is no longer trusted. It keeps
/// those certificates of its chain that are looked at, some kilobytes.
#[derive(Clone)]
pub struct ClientTrust {
    authorities: ClientAuthorities,
    /// The certificate of the client, followed by those of the authorities between it and a root.
    chain: Arc<[CertificateDer<'static>]>,
    /// That of the authorities by which it was found good last.
    version: u64,
}

impl ClientTrust {
    /// The trust in a chain of certificates in DER, the client's first, that was found good by the
    /// authorities of this version.
    pub fn new<D: AsRef<[u8]>>(
        authorities: ClientAuthorities,
        version: u64,
        chain: &[D],
    ) -> ClientTrust {
        let borrowed = chain.iter().map(|der| CertificateDer::from(der.as_ref()));
        let borrowed: Vec<CertificateDer<'_>> = borrowed.collect();
        let mut kept = Vec::new();
        if let Some((shown, intermediates)) = borrowed.split_first() {
            kept.push(shown.clone().into_owned());
            let on_paths = path::on_paths(shown, intermediates);
            kept.extend(on_paths.into_iter().map(CertificateDer::into_owned));
        }
        ClientTrust {
            authorities,
            chain: kept.into(),
            version,
        }
    }

    /// Returns whether no authority was taken away since the chain was found good.
    pub fn is_current(&self) -> bool {
        self.version == self.authorities.version()
    }

    /// Returns whether the chain is good at this time, in seconds since 1970. The signatures are
    /// checked only if an authority was taken away since they were last.
    pub fn check(&mut self, now_s: u64) -> bool {
        if self.is_current() {
            return true;
        }
        let Checked { by, version } = self.authorities.checked();
        let now = UnixTime::since_unix_epoch(Duration::from_secs(now_s));
        let is_good = match (by, self.chain.split_first()) {
            (Some(verifier), Some((shown, intermediates))) => verifier
                .verify_client_cert(shown, intermediates, now)
                .is_ok(),
            _ => false,
        };
        if is_good {
            self.version = version;
        }
        is_good
    }
}

/// Two are the same if the same chain was found good by authorities of the same version.
impl PartialEq for ClientTrust {
    fn eq(&self, other: &ClientTrust) -> bool {
        self.version == other.version && self.chain == other.chain
    }
}

impl Eq for ClientTrust {}

impl fmt::Debug for ClientTrust {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (length, version) = (self.chain.len(), self.version);
        write!(
            formatter,
            "ClientTrust({length} certificates, version {version})"
        )
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{
        BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, KeyUsagePurpose,
    };

    use super::*;
    use crate::tls::{ServerTls, ServerTlsOptions};

    const NOW_S: u64 = 1_800_000_000;

    type Authority = CertifiedIssuer<'static, KeyPair>;

    fn key() -> KeyPair {
        KeyPair::generate().expect("random numbers")
    }

    fn authority_params(name: &str, usages: &[KeyUsagePurpose]) -> CertificateParams {
        let mut params = CertificateParams::default();
        let names = &mut params.distinguished_name;
        names.push(rcgen::DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = usages.to_vec();
        params
    }

    fn authority(name: &str) -> Authority {
        let params = authority_params(name, &[]);
        CertifiedIssuer::self_signed(params, key()).expect("signed")
    }

    fn signed(by: &Authority) -> Vec<u8> {
        let params = CertificateParams::new(["client.example".into()]).expect("a name");
        let signed = params.signed_by(&key(), by).expect("signed");
        signed.der().to_vec()
    }

    /// The certificate and the key of a server.
    struct Own(String, String);

    impl Own {
        fn new() -> Own {
            let key = key();
            let params = CertificateParams::new(["localhost".into()]).expect("a name");
            let certificate = params.self_signed(&key).expect("signed");
            Own(certificate.pem(), key.serialize_pem())
        }

        fn options<'a>(&'a self, authorities: &'a str) -> ServerTlsOptions<'a> {
            ServerTlsOptions {
                certificate: self.0.as_bytes(),
                key: self.1.as_bytes(),
                client_authorities: Some(authorities.as_bytes()),
                client_certificate_optional: false,
                applications: &[b"h2"],
                now_s: NOW_S,
            }
        }
    }

    #[test]
    fn who_was_trusted_by_an_authority_that_is_gone_is_trusted_no_more() {
        let (own, gone, stays) = (Own::new(), authority("gone"), authority("stays"));
        let both = [gone.pem(), stays.pem()].concat();
        let tls = ServerTls::new(&own.options(&both)).expect("valid");
        for round in 0..2 {
            let version = tls.clients().version();
            assert_eq!(version, 2 * round, "two were taken away in each round");
            let trust = |by| ClientTrust::new(tls.clients().clone(), version, &[signed(by)]);
            let (mut of_gone, mut of_other) = (trust(&gone), trust(&stays));
            let new = authority("new").pem();
            // The same, in another order; and one more.
            let more = [stays.pem(), gone.pem(), new.clone()].concat();
            for same in [&both, &more] {
                assert_eq!(tls.replace_authorities(same.as_bytes()), Ok(false));
                assert!(of_gone.is_current() && of_gone.check(NOW_S));
            }
            let fewer = [stays.pem(), new].concat();
            assert_eq!(tls.replace_authorities(fewer.as_bytes()), Ok(true));
            for _ in 0..2 {
                assert!(!of_gone.check(NOW_S) && !of_gone.is_current());
                assert!(of_other.check(NOW_S) && of_other.is_current());
            }
            // It is good again when its authority is.
            assert_eq!(
                tls.replace_authorities(both.as_bytes()),
                Ok(true),
                "the new one is gone"
            );
            assert!(of_gone.check(NOW_S) && of_gone.is_current());
            assert!(!of_other.is_current() && of_other.check(NOW_S));
        }
    }

    /// Nothing changes when what is taken instead cannot be used.
    #[test]
    fn authorities_that_cannot_be_read_take_nobodys_trust() {
        let (own, authority) = (Own::new(), authority("one"));
        let tls = ServerTls::new(&own.options(&authority.pem())).expect("valid");
        let mut trust = ClientTrust::new(tls.clients().clone(), 0, &[signed(&authority)]);
        assert!(
            tls.replace_authorities("no certificate".as_bytes())
                .is_err()
        );
        assert!(trust.is_current() && trust.check(NOW_S));
        let nobody = ClientTrust::new(tls.clients().clone(), 7, &[] as &[Vec<u8>]).check(NOW_S);
        assert!(!nobody, "an empty chain proves nobody");
    }

    /// A chain that has expired meanwhile is not good either, once it is looked at.
    #[test]
    fn a_chain_is_checked_by_the_present_time() {
        let (own, gone, stays) = (Own::new(), authority("gone"), authority("stays"));
        let both = [gone.pem(), stays.pem()].concat();
        let tls = ServerTls::new(&own.options(&both)).expect("valid");
        let mut trust = ClientTrust::new(tls.clients().clone(), 0, &[signed(&stays)]);
        assert_eq!(tls.replace_authorities(stays.pem().as_bytes()), Ok(true));
        assert!(!trust.check(u64::from(u32::MAX) * 32), "millennia later");
        assert!(trust.check(NOW_S));
    }

    /// webpki takes every certificate with CA:TRUE for an authority.
    #[test]
    fn an_authority_whose_key_may_not_sign_certificates_vouches_for_nobody() {
        let (own, root) = (Own::new(), authority("root"));
        let tls = ServerTls::new(&own.options(&root.pem())).expect("valid");
        // Looked at anew, as in a handshake.
        let is_good =
            |chain: &[Vec<u8>]| ClientTrust::new(tls.clients().clone(), 9, chain).check(NOW_S);
        for (usages, vouches) in [
            (&[][..], true),
            (&[KeyUsagePurpose::KeyCertSign], true),
            (&[KeyUsagePurpose::DigitalSignature], false),
        ] {
            let params = authority_params("between", usages);
            let between = CertifiedIssuer::signed_by(params, key(), &root).expect("signed");
            let chain = [signed(&between), between.der().to_vec()];
            assert_eq!(is_good(&chain), vouches, "{usages:?}");
            assert!(!is_good(&chain[..1]), "nobody has signed it");
            let root = CertifiedIssuer::self_signed(authority_params("own", usages), key());
            let root = root.expect("signed");
            let other = ServerTls::new(&own.options(&root.pem())).expect("valid");
            let mut trust = ClientTrust::new(other.clients().clone(), 9, &[signed(&root)]);
            assert_eq!(trust.check(NOW_S), vouches, "{usages:?}");
        }
    }
}
