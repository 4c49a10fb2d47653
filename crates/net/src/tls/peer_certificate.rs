//! What the certificate of a client says about who the client is.

use rustls::pki_types::CertificateDer;
use x509_cert::Certificate;
use x509_cert::der::Decode;
use x509_cert::ext::pkix::SubjectAltName;
use x509_cert::ext::pkix::name::GeneralName;

use super::certificate::sha256;
use super::client_trust::ClientTrust;
use crate::limits::CERTIFICATE_NAMES_MAX;

/// A certificate that a client has shown, whose key it has, and that this side trusts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerCertificate {
    /// SHA-256 of its DER form.
    pub fingerprint: [u8; 32],
    /// The last second in which it is valid, since 1970; 0 if that cannot be read.
    pub not_after_s: u64,
    /// Its subject alternative names, as they stand there; none if there are more than
    /// [`CERTIFICATE_NAMES_MAX`], or if one of them cannot be read.
    pub names: Vec<SubjectName>,
    /// By which it can be checked again; `None`: it is good as long as the connection lives.
    pub trust: Option<ClientTrust>,
}

/// A subject alternative name (RFC 5280 section 4.2.1.6) of a kind that can say who a client is.
/// ASCII, and otherwise unchecked: it may be empty, or contain control characters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SubjectName {
    /// The name of a host, perhaps with a wildcard.
    Dns(Box<str>),
    /// An absolute URI.
    Uri(Box<str>),
    /// An e-mail address.
    Email(Box<str>),
}

impl PeerCertificate {
    /// Returns what a certificate in DER says.
    pub(super) fn of(der: &CertificateDer<'_>) -> PeerCertificate {
        let fingerprint = sha256(der);
        let Ok(certificate) = Certificate::from_der(der) else {
            return PeerCertificate {
                fingerprint,
                not_after_s: 0,
                names: Vec::new(),
                trust: None,
            };
        };
        let content = certificate.tbs_certificate();
        let names = content.get_extension::<SubjectAltName>().ok().flatten();
        PeerCertificate {
            fingerprint,
            not_after_s: content.validity().not_after.to_unix_duration().as_secs(),
            names: names.map_or_else(Vec::new, |(_, names)| of_kinds(&names.0)),
            trust: None,
        }
    }
}

fn of_kinds(names: &[GeneralName]) -> Vec<SubjectName> {
    if names.len() > CERTIFICATE_NAMES_MAX {
        return Vec::new();
    }
    let name = |name: &GeneralName| match name {
        GeneralName::DnsName(name) => Some(SubjectName::Dns(name.as_str().into())),
        GeneralName::UniformResourceIdentifier(uri) => Some(SubjectName::Uri(uri.as_str().into())),
        GeneralName::Rfc822Name(address) => Some(SubjectName::Email(address.as_str().into())),
        _ => None,
    };
    names.iter().filter_map(name).collect()
}

#[cfg(test)]
mod tests {
    use rcgen::string::Ia5String;
    use rcgen::{CertificateParams, KeyPair, SanType};

    use super::*;

    fn ia5(text: &str) -> Ia5String {
        Ia5String::try_from(text).expect("ASCII")
    }

    fn made(names: Vec<SanType>) -> CertificateDer<'static> {
        let mut params = CertificateParams::default();
        params.not_after = rcgen::date_time_ymd(2061, 1, 1);
        params.subject_alt_names = names;
        let key = KeyPair::generate().expect("random numbers");
        params.self_signed(&key).expect("signed").der().clone()
    }

    #[test]
    fn names_of_the_three_kinds_are_read_in_order_and_others_left_out() {
        let der = made(vec![
            SanType::URI(ia5("spiffe://example/worker")),
            SanType::IpAddress([10, 0, 0, 1].into()),
            SanType::DnsName(ia5("Worker.Example")),
            SanType::Rfc822Name(ia5("Ops@Example.com")),
            SanType::DnsName(ia5("*.example")),
            SanType::DnsName(ia5("a.example\0.evil.test")),
        ]);
        let certificate = PeerCertificate::of(&der);
        let expected = [
            SubjectName::Uri("spiffe://example/worker".into()),
            SubjectName::Dns("Worker.Example".into()),
            SubjectName::Email("Ops@Example.com".into()),
            SubjectName::Dns("*.example".into()),
            SubjectName::Dns("a.example\0.evil.test".into()),
        ];
        assert_eq!(certificate.names, expected);
        assert_eq!(certificate.not_after_s, 2_871_763_200);
        assert_eq!(certificate.fingerprint, sha256(&der));
        assert_eq!(PeerCertificate::of(&made(Vec::new())).names, []);
    }

    #[test]
    fn more_names_than_the_limit_are_none() {
        for (count, read) in [
            (CERTIFICATE_NAMES_MAX, CERTIFICATE_NAMES_MAX),
            (CERTIFICATE_NAMES_MAX + 1, 0),
            (1500, 0),
        ] {
            let name = |at| SanType::DnsName(ia5(&format!("w{at}.example")));
            let certificate = PeerCertificate::of(&made((0..count).map(name).collect()));
            assert_eq!(certificate.names.len(), read, "{count}");
            assert!(certificate.not_after_s > 0);
        }
    }

    /// Whatever stands there: nothing panics, and a name that is read stands there.
    #[test]
    fn arbitrary_bytes_have_no_names_that_do_not_stand_in_them() {
        let mut random = crate::sim::SplitMix::new(7);
        let der = made(vec![
            SanType::DnsName(ia5("worker.example")),
            SanType::URI(ia5("spiffe://example/worker")),
            SanType::Rfc822Name(ia5("ops@example.com")),
        ]);
        let mut readable = 0;
        for round in 0..20_000 {
            let mut bytes = der.to_vec();
            match round % 4 {
                0 => bytes = (0..random.below(400)).map(|_| random.any() as u8).collect(),
                1 => bytes.truncate(random.below(bytes.len() as u64) as usize),
                _ => {
                    for _ in 0..=random.below(3) {
                        let at = random.below(bytes.len() as u64) as usize;
                        bytes[at] = random.any() as u8;
                    }
                }
            }
            let certificate = PeerCertificate::of(&bytes.as_slice().into());
            readable += usize::from(!certificate.names.is_empty());
            for name in &certificate.names {
                let (SubjectName::Dns(text) | SubjectName::Uri(text) | SubjectName::Email(text)) =
                    name;
                assert!(text.is_ascii());
                let text = text.as_bytes();
                assert!(text.is_empty() || bytes.windows(text.len()).any(|part| part == text));
            }
        }
        assert!(readable > 1000, "{readable}");
    }
}
