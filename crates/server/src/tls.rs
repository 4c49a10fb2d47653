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

/// What stood in the files.
#[derive(Clone, Default, PartialEq, Eq)]
struct Contents {
    certificate: Vec<u8>,
    key: Vec<u8>,
    client_authorities: Option<Vec<u8>>,
}

impl TlsFiles {
    fn read(&self) -> Result<Contents, TlsFilesError> {
        let read = |path: &Path| {
            fs::read(path).map_err(|error| TlsFilesError::Unreadable {
                path: path.into(),
                error,
            })
        };
        let authorities = self.client_authorities.as_deref();
        Ok(Contents {
            certificate: read(&self.certificate)?,
            key: read(&self.key)?,
            client_authorities: authorities.map(read).transpose()?,
        })
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

impl Contents {
    fn options(&self, is_optional: bool, now_s: u64) -> ServerTlsOptions<'_> {
        ServerTlsOptions {
            client_certificate_optional: is_optional,
            certificate: &self.certificate,
            key: &self.key,
            client_authorities: self.client_authorities.as_deref(),
            applications: APPLICATIONS,
            now_s,
        }
    }
}

/// What came of the files when they were looked at again.
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

/// TLS from files, and what they held when they were last looked at. Whoever owns it looks again
/// from time to time.
pub struct Certificates {
    files: TlsFiles,
    tls: ServerTls,
    /// What was tried last, be it good or bad.
    tried: Contents,
}

impl Certificates {
    /// Reads the files. `now_s`: seconds since 1970.
    ///
    /// # Errors
    /// If a file cannot be read, or what is in the files is wrong, does not fit together, or is not
    /// valid now.
    pub fn load(files: TlsFiles, now_s: u64) -> Result<Certificates, TlsFilesError> {
        let contents = files.read()?;
        let options = contents.options(files.client_certificate_optional, now_s);
        let tls = ServerTls::new(&options).map_err(|error| files.wrong(error))?;
        Ok(Certificates {
            files,
            tls,
            tried: contents,
        })
    }

    /// What listeners use. It changes when [`Certificates::look`] finds something new.
    pub fn tls(&self) -> &ServerTls {
        &self.tls
    }

    /// Looks whether the files have changed, and takes what they hold for new connections. What was
    /// tried once is not tried again unless `always`.
    ///
    /// # Errors
    /// As [`Certificates::load`]; what was in use stays in use.
    pub fn look(&mut self, now_s: u64, always: bool) -> Result<Reloaded, TlsFilesError> {
        let contents = self.files.read()?;
        if contents == self.tried && !always {
            return Ok(Reloaded::Same);
        }
        self.tried = contents;
        let is_optional = self.files.client_certificate_optional;
        let replaced = self.tls.replace(&self.tried.options(is_optional, now_s));
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
            certificates.look(NOW_S, false),
            Ok(Reloaded::Same)
        ));
        assert!(matches!(
            certificates.look(NOW_S, true),
            Ok(Reloaded::Replaced)
        ));

        // Half of a renewal: the key is not there yet.
        let (certificate, key) = made(2090);
        folder.write("certificate.pem", &certificate);
        assert!(certificates.look(NOW_S, false).is_err());
        assert!(
            matches!(certificates.look(NOW_S, false), Ok(Reloaded::Same)),
            "said once"
        );
        assert!(
            certificates.look(NOW_S, true).is_err(),
            "said again when asked"
        );
        assert_eq!(certificates.tls().validity(), first);
        folder.write("key.pem", &key);
        assert!(matches!(
            certificates.look(NOW_S, false),
            Ok(Reloaded::Replaced)
        ));
        assert!(certificates.tls().validity().not_after_s > first.not_after_s);

        fs::remove_file(folder.files().key).expect("it was there");
        assert!(certificates.look(NOW_S, false).is_err());
    }
}
