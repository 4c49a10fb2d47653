//! An authority that is made for a test, and certificates that it signs.

use std::fs;
use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, KeyUsagePurpose,
};

/// Signs certificates. Its key is kept nowhere.
pub struct Authority(CertifiedIssuer<'static, KeyPair>);

/// A certificate and its key, in PEM.
pub struct Identity {
    pub certificate: String,
    pub key: String,
}

/// Where the files of an [`Identity`] lie.
pub struct IdentityFiles {
    pub certificate: PathBuf,
    pub key: PathBuf,
}

impl Authority {
    pub fn new(name: &str) -> Authority {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().expect("random numbers");
        Authority(CertifiedIssuer::self_signed(params, key).expect("signed"))
    }

    /// The authority's own certificate, in PEM.
    pub fn pem(&self) -> String {
        self.0.pem()
    }

    /// For `localhost`; valid to the end of a year.
    pub fn sign(&self, name: &str, last_year: i32) -> Identity {
        let mut params = CertificateParams::new(["localhost".into()]).expect("a name");
        params.distinguished_name.push(DnType::CommonName, name);
        params.not_before = rcgen::date_time_ymd(2020, 1, 1);
        params.not_after = rcgen::date_time_ymd(last_year, 12, 31);
        let key = KeyPair::generate().expect("random numbers");
        let certificate = params.signed_by(&key, &self.0).expect("signed");
        Identity {
            certificate: certificate.pem(),
            key: key.serialize_pem(),
        }
    }
}

impl Identity {
    /// Writes both into a folder, for the flags of a server.
    pub fn write(&self, folder: &Path) -> IdentityFiles {
        let files = IdentityFiles {
            certificate: folder.join("certificate.pem"),
            key: folder.join("key.pem"),
        };
        fs::write(&files.certificate, &self.certificate).expect("written");
        fs::write(&files.key, &self.key).expect("written");
        files
    }
}
