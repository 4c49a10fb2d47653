//! A certificate for a first try: signed by an authority that is made for it, and whose key nobody
//! keeps.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use net::tls::{Validity, fingerprint};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, KeyUsagePurpose,
};
use rustix::system::uname;

use crate::exit::Failure;
use crate::limits::{CERTIFICATE_WARNING_S, SELF_SIGNED_DAYS};

/// The files of a certificate that was made here, in this start or an earlier one.
#[derive(Clone, Debug)]
pub struct SelfSigned {
    pub certificate: PathBuf,
    pub key: PathBuf,
    /// What clients have to trust.
    pub authority: PathBuf,
    /// SHA-256 of the authority's certificate.
    pub fingerprint: String,
}

impl SelfSigned {
    /// What is in the folder, if it is good for a while; else something new. `hosts`: names and
    /// addresses at which the server can be reached, beside those of this machine.
    pub fn in_folder(folder: &Path, hosts: Vec<String>, now_s: u64) -> Result<SelfSigned, Failure> {
        let failed = |what: &dyn std::fmt::Display| {
            Failure::Failed(format!(
                "cannot make a certificate in {}: {what}; --tls-self-signed=DIR says in which \
                 folder",
                folder.display()
            ))
        };
        let (certificate, key) = (folder.join("certificate.pem"), folder.join("key.pem"));
        let authority = folder.join("ca.pem");
        let is_usable = key.exists()
            && authority.exists()
            && fs::read(&certificate)
                .is_ok_and(|text| is_good(&text, now_s + CERTIFICATE_WARNING_S));
        if !is_usable {
            let made = SelfSignedFiles::new(hosts, now_s).map_err(|error| failed(&error))?;
            fs::create_dir_all(folder)
                .and_then(|()| write(&key, &made.key, 0o600))
                .and_then(|()| write(&authority, &made.authority, 0o644))
                .and_then(|()| write(&certificate, &made.certificate, 0o644))
                .map_err(|error| failed(&error))?;
        }
        let text = fs::read(&authority).map_err(|error| failed(&error))?;
        let fingerprint = fingerprint(&text).map_err(|error| failed(&error))?;
        Ok(SelfSigned {
            certificate,
            key,
            authority,
            fingerprint,
        })
    }
}

fn is_good(certificate: &[u8], until_s: u64) -> bool {
    Validity::of_pem(certificate).is_ok_and(|validity| validity.check(until_s).is_ok())
}

/// Three texts in PEM.
struct SelfSignedFiles {
    certificate: String,
    key: String,
    authority: String,
}

impl SelfSignedFiles {
    fn new(hosts: Vec<String>, now_s: u64) -> Result<SelfSignedFiles, rcgen::Error> {
        let (not_before, not_after) = validity(now_s);
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        params
            .distinguished_name
            .push(DnType::CommonName, "pelton --tls-self-signed");
        (params.not_before, params.not_after) = (not_before, not_after);
        let authority = CertifiedIssuer::self_signed(params, KeyPair::generate()?)?;

        let key = KeyPair::generate()?;
        let mut params = CertificateParams::new(names(hosts))?;
        params.distinguished_name.push(DnType::CommonName, "pelton");
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        (params.not_before, params.not_after) = (not_before, not_after);
        let certificate = params.signed_by(&key, &authority)?;
        Ok(SelfSignedFiles {
            certificate: certificate.pem(),
            key: key.serialize_pem(),
            authority: authority.pem(),
        })
    }
}

/// From a day ago, since clocks differ.
fn validity(now_s: u64) -> (time::OffsetDateTime, time::OffsetDateTime) {
    let at = |s: u64| {
        let s = i64::try_from(s).unwrap_or(i64::MAX);
        time::OffsetDateTime::from_unix_timestamp(s).unwrap_or(time::OffsetDateTime::UNIX_EPOCH)
    };
    (
        at(now_s.saturating_sub(86_400)),
        at(now_s + SELF_SIGNED_DAYS * 86_400),
    )
}

/// This machine's names and addresses, and the others, each once.
fn names(hosts: Vec<String>) -> Vec<String> {
    let mut names = vec!["localhost".to_owned(), "127.0.0.1".into(), "::1".into()];
    let own = uname().nodename().to_string_lossy().into_owned();
    for name in hosts.into_iter().chain([own]) {
        let is_name = !name.is_empty() && name.is_ascii();
        let is_any = name == "0.0.0.0" || name == "::";
        if is_name && !is_any && !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

/// Writes under another name first: who looks sees the old text or the new one.
fn write(path: &Path, text: &str, mode: u32) -> io::Result<()> {
    let unfinished = path.with_extension("new");
    let _ = fs::remove_file(&unfinished);
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(mode)
        .open(&unfinished)?;
    // The umask has taken something off.
    file.set_permissions(fs::Permissions::from_mode(mode))?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(&unfinished, path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use server::tls::{Certificates, TlsFiles};

    const NOW_S: u64 = 1_800_000_000;

    #[test]
    fn what_was_made_is_used_again_until_it_is_about_to_run_out() {
        let folder =
            std::env::temp_dir().join(format!("pelton-self-signed-{}", std::process::id()));
        let make = |now_s| SelfSigned::in_folder(&folder, vec!["0.0.0.0".into()], now_s);
        let first = make(NOW_S).expect("made");
        let again = make(NOW_S + 86_400).expect("there");
        assert_eq!(first.fingerprint, again.fingerprint);
        let mode = fs::metadata(&first.key)
            .expect("there")
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o600);
        let files = TlsFiles {
            certificate: first.certificate.clone(),
            key: first.key.clone(),
            client_authorities: None,
            client_certificate_optional: false,
        };
        assert!(Certificates::load(files, NOW_S).is_ok());
        let later = make(NOW_S + (SELF_SIGNED_DAYS - 1) * 86_400).expect("made anew");
        assert_ne!(first.fingerprint, later.fingerprint);
        fs::remove_dir_all(&folder).expect("it is there");
        let nowhere = SelfSigned::in_folder(Path::new("/proc/nowhere"), Vec::new(), NOW_S);
        let message = nowhere.expect_err("not writable").to_string();
        assert!(
            message.contains("/proc/nowhere") && message.contains("--tls-self-signed"),
            "{message}"
        );
    }

    #[test]
    fn names_are_those_of_this_machine_and_of_listeners() {
        let names = names(vec![
            "localhost".into(),
            "0.0.0.0".into(),
            "192.0.2.7".into(),
        ]);
        assert!(names.starts_with(&[
            "localhost".into(),
            "127.0.0.1".into(),
            "::1".into(),
            "192.0.2.7".into()
        ]));
        assert!(!names.contains(&"0.0.0.0".to_owned()));
    }
}
