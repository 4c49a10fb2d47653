//! The certificate of a server: read from files, and anew when they change.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use net::tls::{ConfigPart, ServerTls, ServerTlsOptions, TlsConfigError};

/// What this server speaks over TLS, by its names in ALPN, the preferred one first. A client that
/// speaks HTTP/1.1 only is told what this port is.
pub const APPLICATIONS: &[&[u8]] = &[HTTP2, b"http/1.1"];

pub(crate) const HTTP2: &[u8] = b"h2";

/// Where the parts of TLS are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// The certificate, followed by those of the authorities between it and a root.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
    /// Certificates of the authorities that sign those of clients; `None`: clients need none.
    pub client_authorities: Option<PathBuf>,
    /// Clients may have none all the same.
    pub client_certificate_optional: bool,
}

/// Why files cannot be used. Names the file.
#[derive(Debug, thiserror::Error)]
pub enum TlsFilesError {
    /// A file cannot be read.
    #[error("cannot read {}: {error}", path.display())]
    Unreadable {
        /// Which.
        path: PathBuf,
        /// What the system says.
        error: io::Error,
    },
    /// What is in a file cannot be used.
    #[error("{}{error}", named(path.as_deref()))]
    Wrong {
        /// Which; `None`: no single one.
        path: Option<PathBuf>,
        /// Why.
        error: TlsConfigError,
    },
}

/// Returns what an error in this file begins with.
fn named(path: Option<&Path>) -> String {
    path.map_or(String::new(), |path| format!("{}: ", path.display()))
}

/// A certificate and its key, as they stood in the files.
#[derive(Clone, Default, PartialEq, Eq)]
struct CertificateText {
    certificate: Vec<u8>,
    key: Vec<u8>,
}

impl TlsFiles {
    fn read_certificate(&self) -> Result<CertificateText, TlsFilesError> {
        Ok(CertificateText {
            certificate: read(&self.certificate)?,
            key: read(&self.key)?,
        })
    }

    fn read_authorities(&self) -> Result<Option<Vec<u8>>, TlsFilesError> {
        self.client_authorities.as_deref().map(read).transpose()
    }

    fn wrong(&self, error: TlsConfigError) -> TlsFilesError {
        let path = match error.part() {
            ConfigPart::Certificate => Some(self.certificate.clone()),
            ConfigPart::Key => Some(self.key.clone()),
            ConfigPart::Authorities => self.client_authorities.clone(),
            ConfigPart::Other => None,
        };
        TlsFilesError::Wrong { path, error }
    }
}

fn read(path: &Path) -> Result<Vec<u8>, TlsFilesError> {
    fs::read(path).map_err(|error| TlsFilesError::Unreadable {
        path: path.into(),
        error,
    })
}

/// What came of a part of the files when they were looked at again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reloaded {
    /// Nothing is new.
    Same,
    /// What they hold is used for new connections.
    Replaced,
    /// The same, and an authority of clients is not there any more: who was trusted by it is to be
    /// looked for, by [`Identities::check_certificates`].
    ///
    /// [`Identities::check_certificates`]: service::identities::Identities::check_certificates
    AuthorityGone,
}

/// What came of the files when they were looked at again. Each part stands by itself: an authority
/// that was taken away must not stay since a key is broken, nor the other way round. Where a part
/// cannot be used, what was in use of it stays in use.
#[derive(Debug)]
pub struct ReloadedParts {
    /// Of the certificate and its key.
    pub certificate: Result<Reloaded, TlsFilesError>,
    /// Of the authorities of clients.
    pub authorities: Result<Reloaded, TlsFilesError>,
}

/// TLS from files, and what they held when they were last looked at. Whoever owns it looks again
/// from time to time.
pub struct Certificates {
    files: TlsFiles,
    tls: ServerTls,
    /// What was tried last, be it good or bad.
    tried_certificate: CertificateText,
    /// The same of the authorities of clients.
    tried_authorities: Option<Vec<u8>>,
}

impl Certificates {
    /// Reads the files. `now_s`: seconds since 1970.
    ///
    /// # Errors
    /// If a file cannot be read, or what is in the files is wrong, does not fit together, or is not
    /// valid now.
    pub fn load(files: TlsFiles, now_s: u64) -> Result<Certificates, TlsFilesError> {
        let text = files.read_certificate()?;
        let authorities = files.read_authorities()?;
        let options = ServerTlsOptions {
            client_certificate_optional: files.client_certificate_optional,
            certificate: &text.certificate,
            key: &text.key,
            client_authorities: authorities.as_deref(),
            applications: APPLICATIONS,
            now_s,
        };
        let tls = ServerTls::new(&options).map_err(|error| files.wrong(error))?;
        Ok(Certificates {
            files,
            tls,
            tried_certificate: text,
            tried_authorities: authorities,
        })
    }

    /// What listeners use. It changes when [`Certificates::look`] finds something new.
    pub fn tls(&self) -> &ServerTls {
        &self.tls
    }

    /// Looks whether the files have changed, and takes what they hold for new connections. What was
    /// tried once is not tried again unless `always`. Returns what came of it.
    pub fn look(&mut self, now_s: u64, always: bool) -> ReloadedParts {
        ReloadedParts {
            certificate: self.look_at_certificate(now_s, always),
            authorities: self.look_at_authorities(always),
        }
    }

    fn look_at_certificate(&mut self, now_s: u64, always: bool) -> Result<Reloaded, TlsFilesError> {
        let text = self.files.read_certificate()?;
        if text == self.tried_certificate && !always {
            return Ok(Reloaded::Same);
        }
        self.tried_certificate = text;
        let CertificateText { certificate, key } = &self.tried_certificate;
        let replaced = self.tls.replace_certificate(certificate, key, now_s);
        replaced.map_err(|error| self.files.wrong(error))?;
        Ok(Reloaded::Replaced)
    }

    fn look_at_authorities(&mut self, always: bool) -> Result<Reloaded, TlsFilesError> {
        let authorities = self.files.read_authorities()?;
        if authorities == self.tried_authorities && !always {
            return Ok(Reloaded::Same);
        }
        self.tried_authorities = authorities;
        let Some(text) = &self.tried_authorities else {
            return Ok(Reloaded::Same);
        };
        let replaced = self.tls.replace_authorities(text);
        match replaced.map_err(|error| self.files.wrong(error))? {
            true => Ok(Reloaded::AuthorityGone),
            false => Ok(Reloaded::Replaced),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, KeyPair};

    const NOW_S: u64 = 1_800_000_000;

    /// A folder of this test's own with a certificate and a key, removed when it ends.
    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Folder {
            let path = std::env::temp_dir().join(format!("server-{name}-{}", std::process::id()));
            fs::create_dir_all(&path).expect("a writable folder for temporary files");
            Folder(path)
        }

        fn files(&self) -> TlsFiles {
            TlsFiles {
                certificate: self.0.join("certificate.pem"),
                key: self.0.join("key.pem"),
                client_authorities: None,
                client_certificate_optional: false,
            }
        }

        /// Puts a certificate and its key there that are valid until this year.
        fn renew(&self, year: i32) {
            let (certificate, key) = made(year);
            self.write("certificate.pem", &certificate);
            self.write("key.pem", &key);
        }

        fn write(&self, name: &str, text: &str) {
            fs::write(self.0.join(name), text).expect("it is writable");
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn made(year: i32) -> (String, String) {
        let key = KeyPair::generate().expect("random numbers");
        let mut params = CertificateParams::new(["localhost".into()]).expect("a name");
        params.not_after = rcgen::date_time_ymd(year, 1, 1);
        let certificate = params.self_signed(&key).expect("signed");
        (certificate.pem(), key.serialize_pem())
    }

    #[test]
    fn a_start_is_refused_with_the_name_of_the_file() {
        let folder = Folder::new("tls-start");
        let refused = |files: TlsFiles| {
            let loaded = Certificates::load(files, NOW_S);
            loaded.err().expect("it is refused").to_string()
        };
        assert!(refused(folder.files()).contains("cannot read"));
        folder.renew(2020);
        assert!(refused(folder.files()).contains("certificate.pem: the certificate ran out"));
        folder.renew(2080);
        let (_, other_key) = made(2080);
        folder.write("key.pem", &other_key);
        assert!(refused(folder.files()).contains("key.pem: the private key does not belong"));
        folder.renew(2080);
        let files = TlsFiles {
            client_authorities: Some(folder.0.join("key.pem")),
            ..folder.files()
        };
        assert!(refused(files).contains("key.pem: there is no usable certificate"));
        assert!(Certificates::load(folder.files(), NOW_S).is_ok());
    }

    #[test]
    fn new_files_are_taken_and_wrong_ones_are_not() {
        let folder = Folder::new("tls-reload");
        folder.renew(2080);
        let mut certificates = Certificates::load(folder.files(), NOW_S).expect("valid");
        let first = certificates.tls().validity();
        assert!(matches!(
            certificates.look(NOW_S, false).certificate,
            Ok(Reloaded::Same)
        ));
        assert!(matches!(
            certificates.look(NOW_S, true).certificate,
            Ok(Reloaded::Replaced)
        ));

        // Half of a renewal: the key is not there yet.
        let (certificate, key) = made(2090);
        folder.write("certificate.pem", &certificate);
        assert!(certificates.look(NOW_S, false).certificate.is_err());
        assert!(
            matches!(
                certificates.look(NOW_S, false).certificate,
                Ok(Reloaded::Same)
            ),
            "said once"
        );
        assert!(
            certificates.look(NOW_S, true).certificate.is_err(),
            "said again when asked"
        );
        assert_eq!(certificates.tls().validity(), first);
        folder.write("key.pem", &key);
        assert!(matches!(
            certificates.look(NOW_S, false).certificate,
            Ok(Reloaded::Replaced)
        ));
        assert!(certificates.tls().validity().not_after_s > first.not_after_s);

        fs::remove_file(folder.files().key).expect("it was there");
        assert!(certificates.look(NOW_S, false).certificate.is_err());
    }

    /// Returns the certificate of an authority in PEM.
    fn authority(name: &str) -> String {
        let mut params = CertificateParams::default();
        params
            .distinguished_name
            .push(rcgen::DnType::CommonName, name);
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("random numbers");
        params.self_signed(&key).expect("signed").pem()
    }

    /// Who was trusted must not stay so since something else is broken.
    #[test]
    fn authorities_and_certificate_are_taken_without_each_other() {
        let folder = Folder::new("tls-parts");
        folder.renew(2080);
        let (one, two) = (authority("one"), authority("two"));
        folder.write("authorities.pem", &[&*one, &two].concat());
        let files = TlsFiles {
            client_authorities: Some(folder.0.join("authorities.pem")),
            ..folder.files()
        };
        let mut certificates = Certificates::load(files, NOW_S).expect("valid");
        for round in 0..2 {
            let first = certificates.tls().validity();
            let same = certificates.look(NOW_S, false);
            assert!(matches!(same.certificate, Ok(Reloaded::Same)));
            assert!(matches!(same.authorities, Ok(Reloaded::Same)));
            // The key is broken or not there, and an authority gone.
            match round {
                0 => folder.write("key.pem", "no key"),
                _ => fs::remove_file(folder.files().key).expect("it was there"),
            }
            folder.write("authorities.pem", &one);
            let looked = certificates.look(NOW_S, round == 1);
            assert!(looked.certificate.is_err());
            assert!(matches!(looked.authorities, Ok(Reloaded::AuthorityGone)));
            assert_eq!(certificates.tls().validity(), first);
            // The other way round.
            folder.renew(2090 + round);
            folder.write("authorities.pem", "nobody");
            let looked = certificates.look(NOW_S, false);
            assert!(matches!(looked.certificate, Ok(Reloaded::Replaced)));
            assert!(looked.authorities.is_err());
            assert!(certificates.tls().validity().not_after_s > first.not_after_s);
            folder.write("authorities.pem", &[&*one, &two].concat());
            let looked = certificates.look(NOW_S, false);
            assert!(matches!(looked.authorities, Ok(Reloaded::Replaced)));
        }
    }
}
