//! Which certificates of a chain can be on a path from the first one to an authority.
//!
//! Whoever opens a connection chooses what is in the chain. webpki tries each order of certificates
//! with the same name, and checks up to a hundred signatures: some ten certificates that anybody
//! can make then cost more than a hundred handshakes. What it is given is therefore bounded before.

use rustls::pki_types::CertificateDer;
use x509_cert::der::{self, Decode, Header, Reader, SliceReader, Tag};

use crate::limits::{INTERMEDIATES_MAX, INTERMEDIATES_PER_NAME_MAX};

/// The names in a certificate, as they are encoded: they are compared byte by byte.
struct CertificateNames<'a> {
    issuer: &'a [u8],
    subject: &'a [u8],
}

impl<'a> CertificateNames<'a> {
    /// RFC 5280 section 4.1. What follows the names is not looked at.
    fn of(der: &'a [u8]) -> der::Result<CertificateNames<'a>> {
        let mut reader = SliceReader::new(der)?;
        let _certificate = Header::decode(&mut reader)?;
        let _content = Header::decode(&mut reader)?;
        // The version is left out where it is the first one.
        if Tag::peek(&reader)?.is_context_specific() {
            reader.tlv_bytes()?;
        }
        let _serial_number = reader.tlv_bytes()?;
        let _algorithm = reader.tlv_bytes()?;
        let issuer = reader.tlv_bytes()?;
        let _validity = reader.tlv_bytes()?;
        let subject = reader.tlv_bytes()?;
        Ok(CertificateNames { issuer, subject })
    }
}

/// Returns those of `intermediates` that can be on a path from `shown` to an authority: their
/// subject is the issuer of `shown`, or of one of them. At most [`INTERMEDIATES_MAX`], of which
/// [`INTERMEDIATES_PER_NAME_MAX`] have the same name: those that are nearest to `shown`, and of one
/// name those that come first. What cannot be read is left out.
pub(super) fn on_paths<'a>(
    shown: &CertificateDer<'_>,
    intermediates: &[CertificateDer<'a>],
) -> Vec<CertificateDer<'a>> {
    let Ok(first) = CertificateNames::of(shown) else {
        return Vec::new();
    };
    let readable = intermediates.iter().filter_map(|one| {
        let names = CertificateNames::of(one).ok()?;
        Some((names, one))
    });
    let candidates: Vec<(CertificateNames<'_>, &CertificateDer<'a>)> = readable.collect();
    let mut issuers = vec![first.issuer];
    let mut kept: Vec<CertificateDer<'a>> = Vec::new();
    let mut next = 0;
    while let Some(&issuer) = issuers.get(next) {
        next += 1;
        let mut of_name = 0;
        for (names, one) in &candidates {
            if names.subject != issuer || kept.contains(one) {
                continue;
            }
            if kept.len() == INTERMEDIATES_MAX {
                return kept;
            }
            kept.push((*one).clone());
            if !issuers.contains(&names.issuer) {
                issuers.push(names.issuer);
            }
            of_name += 1;
            if of_name == INTERMEDIATES_PER_NAME_MAX {
                break;
            }
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::sync::Arc;
    use std::time::Duration;

    use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
    use rustls::client::danger::ServerCertVerifier;
    use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms};
    use rustls::pki_types::{
        AlgorithmIdentifier, InvalidSignature, ServerName, SignatureVerificationAlgorithm, UnixTime,
    };
    use rustls::server::danger::ClientCertVerifier;

    use super::*;
    use crate::sim::SplitMix;
    use crate::tls::provider::provider;
    use crate::tls::trusted_leaf::{ClientVerifier, ServerVerifier, TrustedCertificates};

    /// Signatures that one look at a chain may check, however it was made.
    const SIGNATURES_MAX: usize = 16;

    thread_local! {
        static SIGNATURES: Cell<usize> = const { Cell::new(0) };
    }

    /// Counts the signatures that are checked.
    #[derive(Debug)]
    struct Counted(&'static dyn SignatureVerificationAlgorithm);

    impl SignatureVerificationAlgorithm for Counted {
        fn verify_signature(
            &self,
            public_key: &[u8],
            message: &[u8],
            signature: &[u8],
        ) -> Result<(), InvalidSignature> {
            SIGNATURES.set(SIGNATURES.get() + 1);
            self.0.verify_signature(public_key, message, signature)
        }

        fn public_key_alg_id(&self) -> AlgorithmIdentifier {
            self.0.public_key_alg_id()
        }

        fn signature_alg_id(&self) -> AlgorithmIdentifier {
            self.0.signature_alg_id()
        }
    }

    fn counted_provider() -> Arc<CryptoProvider> {
        let mut provider = CryptoProvider::clone(&provider());
        let algorithms = provider.signature_verification_algorithms;
        let counted = algorithms.all.iter().map(|&algorithm| {
            let counted: &'static Counted = Box::leak(Box::new(Counted(algorithm)));
            counted as &dyn SignatureVerificationAlgorithm
        });
        provider.signature_verification_algorithms = WebPkiSupportedAlgorithms {
            all: Vec::leak(counted.collect()),
            mapping: algorithms.mapping,
        };
        Arc::new(provider)
    }

    /// Checks chains as both sides do, by one authority.
    struct Checks {
        of_clients: ClientVerifier,
        of_servers: ServerVerifier,
    }

    impl Checks {
        fn by(authority: &str) -> Checks {
            let authority = authority.as_bytes();
            let of_clients = TrustedCertificates::of_clients(authority).expect("readable");
            let of_servers = TrustedCertificates::of_pem(authority).expect("readable");
            let provider = counted_provider();
            let of_clients = ClientVerifier::new(of_clients, true, Arc::clone(&provider));
            let of_servers = ServerVerifier::new(of_servers, provider);
            Checks {
                of_clients: of_clients.expect("valid"),
                of_servers: of_servers.expect("valid"),
            }
        }

        /// Returns whether each side takes the chain, and how many signatures both have checked.
        fn check(
            &self,
            shown: &CertificateDer<'_>,
            chain: &[CertificateDer<'_>],
        ) -> ([bool; 2], usize) {
            let now = UnixTime::since_unix_epoch(Duration::from_secs(1_800_000_000));
            let name = ServerName::try_from("localhost").expect("a name");
            let of_servers = &self.of_servers;
            SIGNATURES.set(0);
            let as_client = self.of_clients.verify_client_cert(shown, chain, now);
            let as_server = of_servers.verify_server_cert(shown, chain, &name, &[], now);
            ([as_client.is_ok(), as_server.is_ok()], SIGNATURES.get())
        }
    }

    fn key() -> KeyPair {
        KeyPair::generate().expect("random numbers")
    }

    fn authority_params(name: &str) -> CertificateParams {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params
    }

    /// Returns what signs as an authority of this name.
    fn issuer<'a>(name: &str, key: &'a KeyPair) -> Issuer<'a, &'a KeyPair> {
        Issuer::new(authority_params(name), key)
    }

    /// A certificate of an authority, with a new key, that another one has signed.
    fn between(name: &str, by: &Issuer<'_, &KeyPair>) -> CertificateDer<'static> {
        let signed = authority_params(name).signed_by(&key(), by);
        signed.expect("signed").der().clone()
    }

    fn leaf(by: &Issuer<'_, &KeyPair>) -> CertificateDer<'static> {
        let params = CertificateParams::new(["localhost".into()]).expect("a name");
        let signed = params.signed_by(&key(), by).expect("signed");
        signed.der().clone()
    }

    /// Returns the certificate of an authority in PEM.
    fn root(key: &KeyPair) -> String {
        let signed = authority_params("root").self_signed(key);
        signed.expect("signed").pem()
    }

    #[test]
    fn a_chain_of_authorities_is_taken_in_any_order_with_others_in_between() {
        let keys: Vec<KeyPair> = (0..=INTERMEDIATES_MAX).map(|_| key()).collect();
        let names = ["root", "a", "b", "c", "d"];
        let checks = Checks::by(&root(&keys[0]));
        let mut chain = Vec::new();
        for depth in 1..=INTERMEDIATES_MAX {
            let by = issuer(names[depth - 1], &keys[depth - 1]);
            let signed = authority_params(names[depth]).signed_by(&keys[depth], &by);
            chain.push(signed.expect("signed").der().clone());
        }
        let shown = leaf(&issuer(names[INTERMEDIATES_MAX], &keys[INTERMEDIATES_MAX]));
        let stranger = between("elsewhere", &issuer("nobody", &key()));
        let seed = 7;
        let mut random = SplitMix::new(seed);
        for _ in 0..20 {
            let mut sent: Vec<_> = chain.iter().chain(&chain).cloned().collect();
            sent.extend([stranger.clone(), CertificateDer::from(vec![0x30, 0x80])]);
            for place in (1..sent.len()).rev() {
                let other = random.below(place as u64 + 1) as usize;
                sent.swap(place, other);
            }
            assert_eq!(on_paths(&shown, &sent).len(), INTERMEDIATES_MAX);
            assert_eq!(checks.check(&shown, &sent).0, [true; 2], "seed {seed}");
        }
        assert_eq!(
            checks.check(&shown, &chain[1..]).0,
            [false; 2],
            "one is missing"
        );
    }

    /// An authority that has changed its key has signed the new one with the old one; and one that
    /// two have signed has a certificate of each.
    #[test]
    fn two_certificates_of_one_name_are_both_tried() {
        let (old, new) = (key(), key());
        let checks = Checks::by(&root(&old));
        let shown = leaf(&issuer("root", &new));
        let signed = |by: &KeyPair, name: &str| {
            let signed = authority_params("root").signed_by(&new, &issuer(name, by));
            signed.expect("signed").der().clone()
        };
        let (wrong, right) = (signed(&key(), "another"), signed(&old, "root"));
        let chain = [wrong, right];
        assert_eq!(checks.check(&shown, &chain).0, [true; 2]);
    }

    #[test]
    fn a_chain_of_many_certificates_with_one_name_costs_a_few_signatures() {
        let (trusted, own) = (key(), key());
        let checks = Checks::by(&root(&trusted));
        let honest = leaf(&issuer("root", &trusted));
        assert_eq!(checks.check(&honest, &[]), ([true; 2], 2));
        let shown = leaf(&issuer("root", &own));
        for count in [8, 12, 60] {
            let alike = (0..count).map(|_| between("root", &issuer("root", &own)));
            let (taken, signatures) = checks.check(&shown, &alike.collect::<Vec<_>>());
            assert_eq!(taken, [false; 2]);
            assert!(signatures <= 2 * SIGNATURES_MAX, "{signatures} of {count}");
        }
    }

    /// Names that lead to one another in each way that there is.
    #[test]
    fn no_chain_costs_more_than_a_few_signatures() {
        let (trusted, own) = (key(), key());
        let checks = Checks::by(&root(&trusted));
        let names = ["root", "a", "b"];
        let shown: Vec<_> = names.map(|name| leaf(&issuer(name, &own))).to_vec();
        // Some of them are signed by the authority: they are no secret.
        let signed = names.map(|name| between(name, &issuer("root", &trusted)));
        let mut made: Vec<_> = signed.to_vec();
        for by in names {
            for name in names {
                made.extend([(); 3].map(|()| between(name, &issuer(by, &own))));
            }
        }
        let seed = 7;
        let mut random = SplitMix::new(seed);
        let mut most = 0;
        for _ in 0..300 {
            let mut pick = |from: &[CertificateDer<'static>]| {
                from[random.below(from.len() as u64) as usize].clone()
            };
            let shown = pick(&shown);
            let chain: Vec<_> = (0..10).map(|_| pick(&made)).collect();
            assert!(on_paths(&shown, &chain).len() <= INTERMEDIATES_MAX);
            let (taken, signatures) = checks.check(&shown, &chain);
            assert_eq!(taken, [false; 2], "seed {seed}");
            most = most.max(signatures);
        }
        assert!(most <= 2 * SIGNATURES_MAX, "{most}, seed {seed}");
    }

    #[test]
    fn what_cannot_be_read_is_on_no_path() {
        let shown = leaf(&issuer("root", &key()));
        let one = between("root", &issuer("root", &key()));
        for length in 0..one.len() {
            let part = CertificateDer::from(one.as_ref().get(..length).expect("a part").to_vec());
            let _ = CertificateNames::of(&part);
            assert!(on_paths(&part, std::slice::from_ref(&one)).len() <= 1);
            let _ = on_paths(&shown, &[part]);
        }
        assert_eq!(on_paths(&shown, std::slice::from_ref(&one)), [one]);
    }
}
