//! Certificates and keys, read from PEM.

use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::error::TlsConfigError;

/// The certificates in a PEM text, the own one first.
pub(super) fn certificates(text: &[u8]) -> Result<Vec<CertificateDer<'static>>, TlsConfigError> {
    let bad = |error: pem::Error| TlsConfigError::BadCertificate(error.to_string());
    let found: Vec<_> = CertificateDer::pem_slice_iter(text)
        .collect::<Result<_, _>>()
        .map_err(bad)?;
    match found.is_empty() {
        true => Err(TlsConfigError::NoCertificate),
        false => Ok(found),
    }
}

pub(super) fn key(text: &[u8]) -> Result<PrivateKeyDer<'static>, TlsConfigError> {
    let has = |words: &[u8]| text.windows(words.len()).any(|part| part == words);
    // RFC 1421 section 4.6.1.1 for the old forms, RFC 7468 section 11 for PKCS#8.
    if has(b"Proc-Type: 4,ENCRYPTED") || has(b"BEGIN ENCRYPTED PRIVATE KEY") {
        let why = "it has a password, which nobody could type when the server starts; \
                   `openssl pkey -in KEY -out PLAIN_KEY` writes it without";
        return Err(TlsConfigError::BadKey(why.into()));
    }
    PrivateKeyDer::from_pem_slice(text).map_err(|error| {
        TlsConfigError::BadKey(match error {
            pem::Error::NoItemsFound => {
                "there is no unencrypted PEM key in it (PKCS#8, PKCS#1 or SEC1)".into()
            }
            error => error.to_string(),
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_with_a_password_is_refused_with_the_way_out() {
        for text in [
            "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n",
            "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n\nAAAA\n\
             -----END RSA PRIVATE KEY-----\n",
        ] {
            let Err(TlsConfigError::BadKey(why)) = key(text.as_bytes()) else {
                panic!("accepted: {text}");
            };
            assert!(why.contains("it has a password"), "{why}");
        }
        let Err(TlsConfigError::BadKey(why)) = key(b"nothing") else {
            panic!("there is none");
        };
        assert!(why.starts_with("there is no unencrypted PEM key"), "{why}");
        let plain = rcgen::KeyPair::generate().expect("random numbers");
        assert!(key(plain.serialize_pem().as_bytes()).is_ok());
    }

    #[test]
    fn all_certificates_of_a_text_are_read_in_order() {
        let key = rcgen::KeyPair::generate().expect("random numbers");
        let made: Vec<_> = (0..2)
            .map(|_| {
                let params = rcgen::CertificateParams::new(["localhost".into()]);
                params.expect("a name").self_signed(&key).expect("signed")
            })
            .collect();
        let text = made[0].pem() + &made[1].pem();
        let expected: Vec<_> = made.iter().map(|one| one.der().clone()).collect();
        assert_eq!(certificates(text.as_bytes()), Ok(expected));
        assert_eq!(certificates(b""), Err(TlsConfigError::NoCertificate));
    }
}
