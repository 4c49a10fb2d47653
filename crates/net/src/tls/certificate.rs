//! What is told of a certificate: how long it is valid, and its fingerprint.

use rustls::crypto::ring::cipher_suite::TLS13_AES_128_GCM_SHA256;
use x509_cert::Certificate;
use x509_cert::certificate::Version;
use x509_cert::der::Decode;

use super::error::TlsConfigError;
use super::pem;

/// From when to when a certificate is valid, in seconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    /// The first second.
    pub not_before_s: u64,
    /// The last second.
    pub not_after_s: u64,
}

impl Validity {
    /// That of the first certificate in a PEM text.
    ///
    /// # Errors
    /// If there is none, or it cannot be read.
    pub fn of_pem(text: &[u8]) -> Result<Validity, TlsConfigError> {
        Validity::of(&pem::certificates(text)?[0])
    }

    pub(super) fn of(der: &[u8]) -> Result<Validity, TlsConfigError> {
        let bad = |error: x509_cert::der::Error| TlsConfigError::BadCertificate(error.to_string());
        let certificate = Certificate::from_der(der).map_err(bad)?;
        if certificate.tbs_certificate().version() != Version::V3 {
            return Err(TlsConfigError::OldCertificate);
        }
        let validity = certificate.tbs_certificate().validity();
        Ok(Validity {
            not_before_s: validity.not_before.to_unix_duration().as_secs(),
            not_after_s: validity.not_after.to_unix_duration().as_secs(),
        })
    }

    /// Whether it holds now.
    ///
    /// # Errors
    /// If it has run out, or has not begun.
    pub fn check(&self, now_s: u64) -> Result<(), TlsConfigError> {
        if now_s > self.not_after_s {
            return Err(TlsConfigError::Expired(now_s - self.not_after_s));
        }
        if now_s < self.not_before_s {
            return Err(TlsConfigError::NotYetValid(self.not_before_s - now_s));
        }
        Ok(())
    }
}

/// Whether a certificate says for which hosts it holds (subjectAltName): clients look nowhere else.
pub(super) fn names_hosts(der: &[u8]) -> bool {
    const SUBJECT_ALT_NAME: &str = "2.5.29.17";
    let Ok(certificate) = Certificate::from_der(der) else {
        return false;
    };
    let extensions = certificate.tbs_certificate().extensions();
    let mut extensions = extensions.into_iter().flatten();
    extensions.any(|one| one.extn_id.to_string() == SUBJECT_ALT_NAME)
}

/// The SHA-256 of the first certificate in a PEM text, in the form in which other programs show it.
///
/// # Errors
/// If there is none.
pub fn fingerprint(text: &[u8]) -> Result<String, TlsConfigError> {
    let certificates = pem::certificates(text)?;
    let digest = sha256(&certificates[0]);
    let bytes: Vec<String> = digest.iter().map(|byte| format!("{byte:02X}")).collect();
    Ok(bytes.join(":"))
}

/// The SHA-256 of a certificate in DER.
pub(super) fn sha256(der: &[u8]) -> [u8; 32] {
    let suite = TLS13_AES_128_GCM_SHA256.tls13();
    let hash = suite.expect("a suite of TLS 1.3").common.hash_provider;
    let digest = hash.hash(der);
    let mut bytes = [0; 32];
    for (byte, of_digest) in bytes.iter_mut().zip(digest.as_ref()) {
        *byte = *of_digest;
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, KeyPair};

    #[test]
    fn whether_a_certificate_names_hosts_is_known() {
        let key = KeyPair::generate().expect("random numbers");
        let names_hosts = |hosts: Vec<String>| {
            let params = CertificateParams::new(hosts).expect("names");
            names_hosts(params.self_signed(&key).expect("signed").der())
        };
        assert!(names_hosts(vec!["localhost".into()]));
        assert!(!names_hosts(Vec::new()));
        assert!(!super::names_hosts(b"no certificate"));
    }

    #[test]
    fn validity_and_fingerprint_are_those_of_the_certificate() {
        let key = rcgen::KeyPair::generate().expect("random numbers");
        let mut params = rcgen::CertificateParams::new(["localhost".into()]).expect("a name");
        params.not_before = rcgen::date_time_ymd(2024, 2, 29);
        // Beyond 2049 it is written in another way.
        params.not_after = rcgen::date_time_ymd(2061, 1, 1);
        let pem = params.self_signed(&key).expect("signed").pem();
        let validity = Validity::of_pem(pem.as_bytes()).expect("readable");
        assert_eq!(
            (validity.not_before_s, validity.not_after_s),
            (1_709_164_800, 2_871_763_200)
        );
        assert_eq!(validity.check(1_709_164_800), Ok(()));
        assert_eq!(validity.check(2_871_763_200), Ok(()));
        assert_eq!(
            validity.check(2_871_763_209),
            Err(TlsConfigError::Expired(9))
        );
        assert_eq!(
            validity.check(1_709_164_791),
            Err(TlsConfigError::NotYetValid(9))
        );
        let fingerprint = fingerprint(pem.as_bytes()).expect("a certificate");
        assert_eq!(fingerprint.len(), 32 * 3 - 1);
        assert_eq!(
            Validity::of_pem(b"nothing"),
            Err(TlsConfigError::NoCertificate)
        );
    }
}
