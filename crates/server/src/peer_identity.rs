//! Who the peer of a connection is without a token: by its certificate, by the user of its process,
//! or by the listener through which it came.

use std::sync::Arc;

use net::Peer;
use net::tls::{ClientTrust, PeerCertificate, SubjectName};
use service::identities::{Binding, IdentityKey, IdentityTable, NEVER_MS, Unauthenticated};

/// What proves who the peer is, as long as its connection lives.
pub(crate) struct PeerIdentity {
    /// Through which listener it came.
    listener: usize,
    /// `None`: it has shown nothing.
    proofs: Option<Box<PeerProofs>>,
}

/// What a peer has shown, and whom that was found to prove.
pub(crate) struct PeerProofs {
    /// The fingerprint of its certificate, and those of its names that can be bound.
    certificate: Vec<Arc<Binding>>,
    /// When the certificate has expired, in milliseconds since 1970.
    certificate_end_ms: u64,
    /// By which the certificate is checked again; `None`: it needs no check.
    trust: Option<ClientTrust>,
    /// The user of its process.
    user: Option<Arc<Binding>>,
    /// Of the table in which it was looked up last.
    version: Option<u64>,
    found: Result<Proved, Unauthenticated>,
}

/// An identity, and how long it is proved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Proved {
    /// Who it is: the holder of a token or of a binding, or a listener's callers without either.
    pub key: IdentityKey,
    /// When its proof ends although it is in the table, in milliseconds since 1970.
    pub until_ms: u64,
}

impl Proved {
    /// One whose proof ends with what is in the table.
    pub fn by_table(key: IdentityKey) -> Proved {
        Proved {
            key,
            until_ms: NEVER_MS,
        }
    }

    /// Returns whether it proves somebody still.
    pub fn is_good(&self, identities: &IdentityTable, now_ms: u64) -> bool {
        identities.get(self.key).is_some() && self.until_ms > now_ms
    }
}

impl PeerIdentity {
    pub fn new(peer: &Peer) -> PeerIdentity {
        let certificate = peer.tls.as_ref().and_then(|tls| tls.certificate.as_deref());
        let user = peer.user.and_then(|user| Binding::of_user(user).ok());
        let proofs = (certificate.is_some() || user.is_some()).then(|| {
            Box::new(PeerProofs {
                certificate: certificate.map_or_else(Vec::new, bindings),
                certificate_end_ms: certificate.map_or(NEVER_MS, end_ms),
                trust: certificate.and_then(|shown| shown.trust.clone()),
                user: user.map(Arc::new),
                version: None,
                found: Err(Unauthenticated::Missing),
            })
        });
        PeerIdentity {
            listener: peer.listener,
            proofs,
        }
    }

    /// Returns what the peer has shown if an authority was taken away since it was found good.
    #[inline]
    pub fn unchecked(&mut self) -> Option<&mut PeerProofs> {
        let needs_check = |trust: &ClientTrust| !trust.is_current();
        let proofs = self.proofs.as_deref_mut()?;
        proofs
            .trust
            .as_ref()
            .is_some_and(needs_check)
            .then_some(proofs)
    }

    /// Returns what the peer has shown, where that is asked since it proves nobody: its certificate
    /// by the fingerprint, or its user.
    pub fn shown(&self) -> Option<&Binding> {
        let proofs = self.proofs.as_deref()?;
        let certificate = proofs.certificate.first();
        certificate.or(proofs.user.as_ref()).map(|shown| &**shown)
    }

    /// Returns the names of all whom the certificate proves.
    pub fn names<'a>(&self, table: &'a IdentityTable) -> Vec<&'a str> {
        let proofs = self.proofs.as_deref();
        proofs.map_or_else(Vec::new, |proofs| table.names_of(&proofs.certificate))
    }

    /// Returns whose calls those without a token are.
    ///
    /// # Errors
    /// If what the peer has shown proves several, or somebody who has expired, or is no longer
    /// trusted.
    #[inline]
    pub fn find(
        &mut self,
        (table, now_ms): (&IdentityTable, u64),
    ) -> Result<Proved, Unauthenticated> {
        match &mut self.proofs {
            None => Ok(Proved::by_table(table.of_listener(self.listener))),
            Some(proofs) => proofs.find(self.listener, (table, now_ms)),
        }
    }
}

impl PeerProofs {
    fn find(
        &mut self,
        listener: usize,
        (table, now_ms): (&IdentityTable, u64),
    ) -> Result<Proved, Unauthenticated> {
        if self.version != Some(table.version()) {
            self.found = self.look_up(listener, (table, now_ms));
            self.version = Some(table.version());
        }
        match self.found {
            Ok(proved) if proved.until_ms <= now_ms => Err(Unauthenticated::CertificateExpired),
            found => found,
        }
    }

    /// Returns whether the certificate, if there is one, is of an authority that is trusted now.
    pub fn is_trusted(&mut self, now_ms: u64) -> bool {
        let trust = self.trust.as_mut();
        trust.is_none_or(|trust| trust.check(now_ms / 1_000))
    }

    #[cold]
    fn look_up(
        &mut self,
        listener: usize,
        (table, now_ms): (&IdentityTable, u64),
    ) -> Result<Proved, Unauthenticated> {
        if !self.is_trusted(now_ms) {
            return Err(Unauthenticated::CertificateNotTrusted);
        }
        if let Some(key) = table.resolve_bindings(&self.certificate, now_ms)? {
            let until_ms = self.certificate_end_ms;
            return Ok(Proved { key, until_ms });
        }
        let by_user = table.resolve_bindings(self.user.as_slice(), now_ms)?;
        let key = by_user.unwrap_or_else(|| table.of_listener(listener));
        Ok(Proved::by_table(key))
    }
}

/// What a certificate can prove. Names that nobody can be bound to are left out.
fn bindings(certificate: &PeerCertificate) -> Vec<Arc<Binding>> {
    let names = certificate.names.iter().filter_map(|name| {
        let binding = match name {
            SubjectName::Dns(name) => Binding::of_dns(name),
            SubjectName::Uri(uri) => Binding::of_uri(uri),
            SubjectName::Email(address) => Binding::of_email(address),
        };
        binding.ok()
    });
    let fingerprint = Binding::Fingerprint(certificate.fingerprint);
    std::iter::once(fingerprint)
        .chain(names)
        .map(Arc::new)
        .collect()
}

/// The first millisecond in which a certificate is not valid any more.
fn end_ms(certificate: &PeerCertificate) -> u64 {
    (certificate.not_after_s.saturating_add(1)).saturating_mul(1000)
}

#[cfg(test)]
mod tests {
    use net::PeerAddress;
    use net::tls::Agreed;
    use service::identities::{Identities, Identity, TokenKey};
    use service::rights::{Grant, Rights};
    use testkit::Random;

    use super::*;

    fn rights(text: &str) -> Rights {
        Rights::new(vec![text.parse::<Grant>().expect("a right")])
    }

    fn identities(all: &[(&str, &str, u64)]) -> Identities {
        let identities = Identities::new(TokenKey::new(&[1; 32]), vec![rights("read:anonymous")]);
        let one = |&(name, binding, expires_ms): &(&str, &str, u64)| {
            let binding = binding.parse().expect("a binding");
            Identity::bound(name, rights("read"), expires_ms, binding).expect("sound")
        };
        let replaced = identities.replace(all.iter().map(one).collect(), 0);
        replaced.expect("they differ");
        identities
    }

    fn certificate(names: Vec<SubjectName>) -> Option<PeerCertificate> {
        Some(PeerCertificate {
            fingerprint: [7; 32],
            not_after_s: 99,
            names,
            trust: None,
        })
    }

    fn peer(certificate: Option<PeerCertificate>, user: Option<u32>) -> PeerIdentity {
        PeerIdentity::new(&Peer {
            address: PeerAddress::Unix,
            listener: 0,
            outgoing: false,
            over_limit: false,
            place: None,
            handshake: None,
            tls: certificate.map(|certificate| Agreed {
                application: None,
                resumed: false,
                certificate: Some(Arc::new(certificate)),
            }),
            user,
        })
    }

    /// The name of whom a peer is; empty: nobody in particular.
    fn who(
        peer: &mut PeerIdentity,
        identities: &Identities,
        now_ms: u64,
    ) -> Result<String, Unauthenticated> {
        let table = identities.table();
        let proved = peer.find((&table, now_ms))?;
        let identity = table.get(proved.key).expect("it is there");
        Ok(identity.name().to_owned())
    }

    fn dns(name: &str) -> SubjectName {
        SubjectName::Dns(name.into())
    }

    #[test]
    fn a_certificate_comes_before_a_user_and_both_before_the_listener() {
        let all = [
            ("worker", "san:dns:w.example", NEVER_MS),
            ("root", "uid:0", NEVER_MS),
        ];
        let some = identities(&all);
        let bound: Vec<Identity> = some.all().iter().map(|one| Identity::clone(one)).collect();
        for (names, user, found) in [
            (Some(vec![dns("W.Example")]), Some(0), "worker"),
            (Some(vec![dns("W.Example")]), None, "worker"),
            (Some(vec![dns("x.example")]), Some(0), "root"),
            (None, Some(0), "root"),
            (None, Some(1), ""),
            (Some(vec![]), None, ""),
            (None, Some(65_534), ""),
            (None, Some(u32::MAX), ""),
            (None, None, ""),
        ] {
            let mut peer = peer(names.clone().and_then(certificate), user);
            for _ in 0..2 {
                assert_eq!(
                    who(&mut peer, &some, 0),
                    Ok(found.into()),
                    "{names:?} {user:?}"
                );
                some.replace(Vec::new(), 0).expect("none");
                assert_eq!(who(&mut peer, &some, 0), Ok(String::new()));
                some.replace(bound.clone(), 0).expect("they differ");
            }
        }
    }

    #[test]
    fn a_certificate_proves_somebody_until_its_last_second_is_over() {
        let some = identities(&[("worker", "san:dns:w.example", NEVER_MS)]);
        let mut bound = peer(certificate(vec![dns("w.example")]), None);
        // One that is bound to nobody proves nothing that could end.
        let mut unbound = peer(certificate(vec![dns("x.example")]), None);
        for now_ms in [0, 99_999, 100_000, 200_000] {
            let expected = match now_ms < 100_000 {
                true => Ok("worker".to_owned()),
                false => Err(Unauthenticated::CertificateExpired),
            };
            assert_eq!(who(&mut bound, &some, now_ms), expected, "{now_ms}");
            assert_eq!(who(&mut unbound, &some, now_ms), Ok(String::new()));
        }
        let proved = bound.find((&some.table(), 0)).expect("it is good");
        assert_eq!(proved.until_ms, 100_000);
    }

    #[test]
    fn several_names_of_different_identities_prove_nobody() {
        let hash = format!("sha256:{}", "07".repeat(32));
        let some = identities(&[
            ("one", "san:dns:w.example", NEVER_MS),
            ("two", "san:uri:spiffe://x/two", 50),
        ]);
        let both = vec![dns("w.example"), SubjectName::Uri("spiffe://x/two".into())];
        let mut both = peer(certificate(both), Some(0));
        let mut second = peer(
            certificate(vec![SubjectName::Uri("spiffe://x/two".into())]),
            None,
        );
        for now_ms in [0, 49, 50, 51] {
            assert_eq!(
                who(&mut both, &some, now_ms),
                Err(Unauthenticated::Ambiguous)
            );
            some.expire(now_ms);
            let expected = match now_ms < 50 {
                true => Ok("two".to_owned()),
                false => Err(Unauthenticated::BindingExpired),
            };
            assert_eq!(who(&mut second, &some, now_ms), expected, "{now_ms}");
        }
        let some = identities(&[("one", "san:dns:w.example", 9), ("two", &hash, NEVER_MS)]);
        let mut both = peer(certificate(vec![dns("w.example")]), None);
        assert_eq!(who(&mut both, &some, 0), Err(Unauthenticated::Ambiguous));
    }

    /// The listener of these tests gives its anonymous callers a right: a fallback would be seen.
    #[test]
    fn a_binding_that_is_not_good_falls_back_neither_to_the_user_nor_to_the_listener() {
        let some = identities(&[
            ("old-user", "uid:1", 50),
            ("user", "uid:2", NEVER_MS),
            ("one", "san:dns:one.example", NEVER_MS),
            ("two", "san:dns:two.example", NEVER_MS),
            ("expired", "san:dns:expired.example", 50),
        ]);
        let ambiguous = vec![dns("one.example"), dns("two.example")];
        let expired = vec![dns("expired.example")];
        let (ends, several) = (Unauthenticated::BindingExpired, Unauthenticated::Ambiguous);
        let cases = [
            (None, Some(1), Ok("old-user".to_owned()), ends),
            (Some(expired.clone()), None, Ok("expired".to_owned()), ends),
            (Some(expired), Some(2), Ok("expired".to_owned()), ends),
            (Some(ambiguous.clone()), None, Err(several), several),
            (Some(ambiguous), Some(2), Err(several), several),
            // A certificate without a binding leaves the word to the user.
            (Some(vec![]), Some(1), Ok("old-user".to_owned()), ends),
        ];
        for now_ms in [0, 49, 50, 51] {
            some.expire(now_ms);
            for (names, user, before, after) in &cases {
                let expected = match now_ms < 50 {
                    true => before.clone(),
                    false => Err(*after),
                };
                let mut peer = peer(names.clone().and_then(certificate), *user);
                for _ in 0..2 {
                    let found = who(&mut peer, &some, now_ms);
                    assert_eq!(found, expected, "{names:?} {user:?} {now_ms}");
                }
            }
        }
    }

    /// Whatever the names of a certificate are, it proves somebody only by a name that is his.
    #[test]
    fn arbitrary_names_never_prove_somebody_else() {
        let some = identities(&[
            ("a", "san:dns:a.b", NEVER_MS),
            ("b", "san:uri:a:b", NEVER_MS),
            ("c", "san:email:a@b", NEVER_MS),
        ]);
        let mut random = Random::new(5);
        let alphabet = ["a", "A", "b", ".", ":", "@", "*", "\0", " ", "é"];
        let mut found = [0; 5];
        for _ in 0..60_000 {
            let text: String = (0..=random.below(3))
                .map(|_| alphabet[random.below(alphabet.len())])
                .collect();
            let name = match random.below(3) {
                0 => SubjectName::Dns(text.as_str().into()),
                1 => SubjectName::Uri(text.as_str().into()),
                _ => SubjectName::Email(text.as_str().into()),
            };
            let expected = match &name {
                SubjectName::Dns(_) if text.eq_ignore_ascii_case("a.b") => (0, "a"),
                SubjectName::Uri(_) if text == "a:b" => (1, "b"),
                SubjectName::Email(_) if text == "a@b" => (2, "c"),
                _ => (3, ""),
            };
            let mut one = peer(certificate(vec![name]), None);
            assert_eq!(who(&mut one, &some, 0), Ok(expected.1.into()), "{text:?}");
            found[expected.0] += 1;
        }
        assert!(found[..4].iter().all(|&count| count > 3), "{found:?}");
    }
}
