//! Where a server listens, whether with TLS, and what callers without a token may do there.

use std::fmt;
use std::str::FromStr;

use net::Address;
use service::rights::{Grant, GrantError, Rights};

/// What stands between an address and what callers without a token may do there.
const MARK: &str = "+anonymous=";

/// What callers without a token may do, where they may do nothing.
const NOTHING: &str = "none";

/// What callers without a token may do at an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Anonymous(Vec<Grant>);

impl Anonymous {
    /// Returns the same as rights.
    pub fn rights(&self) -> Rights {
        Rights::new(self.0.clone())
    }

    /// Returns what it names.
    pub fn grants(&self) -> &[Grant] {
        &self.0
    }
}

impl FromStr for Anonymous {
    type Err = String;

    fn from_str(text: &str) -> Result<Anonymous, String> {
        if text == NOTHING {
            return Ok(Anonymous(Vec::new()));
        }
        let grants = text.split(',').map(|right| {
            Grant::new(right).map_err(|error| {
                let error = match error {
                    GrantError::UnknownRight(right) => format!(
                        "{right:?} is no right: read, write, admin or service:NAME is expected"
                    ),
                    error => error.to_string(),
                };
                format!("`{MARK}{text}`: {error}; or `{NOTHING}` alone")
            })
        });
        let grants: Vec<Grant> = grants.collect::<Result<_, _>>()?;
        if grants.iter().any(|grant| matches!(grant, Grant::Role(_))) {
            return Err(format!(
                "`{MARK}{text}`: only tokens have roles; name the rights themselves"
            ));
        }
        match grants.len() <= service::limits::GRANTS_MAX {
            true => Ok(Anonymous(grants)),
            false => Err(format!(
                "`{MARK}` names {} rights, at most {} are allowed",
                grants.len(),
                service::limits::GRANTS_MAX
            )),
        }
    }
}

impl fmt::Display for Anonymous {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some((first, more)) = self.0.split_first() else {
            return f.write_str(NOTHING);
        };
        write!(f, "{first}")?;
        more.iter().try_for_each(|grant| write!(f, ",{grant}"))
    }
}

/// Splits off what stands behind the mark, if that is there.
fn split_anonymous(text: &str) -> Result<(&str, Option<Anonymous>), String> {
    match text.split_once(MARK) {
        None => match misspelt(text) {
            None => Ok((text, None)),
            Some(mark) => Err(format!(
                "`{text}`: behind an address stands `{MARK}` with what callers without a token may \
                 do, not `{mark}`"
            )),
        },
        Some((before, rights)) => Ok((before, Some(rights.parse()?))),
    }
}

/// Returns what stands in the place of the mark, and is none: `+anon=`. A path may have a plus.
fn misspelt(text: &str) -> Option<&str> {
    let at = text.rfind('+')?;
    let rest = &text[at..];
    match rest.find('=') {
        Some(end) => Some(&rest[..=end]),
        None => (!text.starts_with("unix:")).then_some(rest),
    }
}

/// Writes what [`split_anonymous`] splits off.
fn write_anonymous(anonymous: &Option<Anonymous>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match anonymous {
        None => Ok(()),
        Some(anonymous) => write!(f, "{MARK}{anonymous}"),
    }
}

/// Addresses in one text, separated by commas.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenAddresses(Vec<ListenAddress>);

impl ListenAddresses {
    /// Returns the addresses of several texts.
    pub fn all(texts: Vec<ListenAddresses>) -> Vec<ListenAddress> {
        texts.into_iter().flat_map(|text| text.0).collect()
    }
}

impl FromStr for ListenAddresses {
    type Err = String;

    fn from_str(text: &str) -> Result<ListenAddresses, String> {
        let mut addresses: Vec<String> = Vec::new();
        for piece in text.split(',') {
            // From a variable or a file they come as people write lists.
            let piece = piece.trim();
            match addresses.last_mut() {
                // Rights are separated by commas as well.
                Some(last) if last.contains(MARK) && begins_a_right(piece) => {
                    last.push(',');
                    last.push_str(piece);
                }
                _ => addresses.push(piece.to_owned()),
            }
        }
        let parsed = addresses.iter().map(|one| one.parse());
        parsed.collect::<Result<_, _>>().map(ListenAddresses)
    }
}

/// Returns whether a piece of a list is meant as a right, and not as an address.
fn begins_a_right(piece: &str) -> bool {
    let word = piece.split(':').next().unwrap_or(piece);
    matches!(
        word,
        "read" | "write" | "admin" | "service" | "role" | NOTHING
    )
}

/// An address with what `tls:` or `plain:` in front of it and `+anonymous=` behind it say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenAddress {
    pub address: Address,
    /// `None`: as the server does by default, with TLS if it has a certificate.
    tls: Option<bool>,
    /// `None`: everything on this machine, and nothing from elsewhere.
    anonymous: Option<Anonymous>,
}

impl ListenAddress {
    /// Whether TLS is spoken there, by a server that has a certificate or has none. On UNIX sockets
    /// it never is: who may connect there is decided by the permissions of the file.
    pub fn has_tls(&self, has_certificate: bool) -> bool {
        let is_unix = matches!(self.address, Address::Unix(_));
        self.tls.unwrap_or(has_certificate && !is_unix)
    }

    /// Whether `tls:` stands in front.
    pub fn asks_for_tls(&self) -> bool {
        self.tls == Some(true)
    }

    /// Returns what callers without a token may do there, if that was said.
    pub fn anonymous(&self) -> Option<&Anonymous> {
        self.anonymous.as_ref()
    }
}

impl From<Address> for ListenAddress {
    fn from(address: Address) -> ListenAddress {
        ListenAddress {
            address,
            tls: None,
            anonymous: None,
        }
    }
}

impl FromStr for ListenAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<ListenAddress, String> {
        let (before, anonymous) = split_anonymous(text)?;
        let (tls, rest) = match before.split_once(':') {
            Some(("tls", rest)) => (Some(true), rest),
            Some(("plain", rest)) => (Some(false), rest),
            _ => (None, before),
        };
        let rest = match tls {
            Some(_) => rest.strip_prefix("//").unwrap_or(rest),
            None => rest,
        };
        let address = rest
            .parse()
            .map_err(|error: net::AddressError| error.to_string())?;
        if tls == Some(true) && matches!(address, Address::Unix(_)) {
            return Err(format!(
                "`{text}`: there is no TLS on UNIX sockets, who may connect is up to --unix-mode; \
                 write {address}"
            ));
        }
        Ok(ListenAddress {
            address,
            tls,
            anonymous,
        })
    }
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.tls {
            None => "",
            Some(true) => "tls:",
            Some(false) => "plain:",
        })?;
        self.address.fmt(f)?;
        write_anonymous(&self.anonymous, f)
    }
}

/// The ports that clients of drop-in services know, and whether their original servers can speak
/// TLS there.
const ORIGINAL_PORTS: [(u16, Option<bool>); 2] = [
    // gupload's server speaks TLS if it was given a certificate.
    (1313, None),
    // The YDB project's ping server is plain.
    (2137, Some(false)),
];

/// The host on which a server listens on the original ports of its drop-in services too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OriginalPorts {
    host: String,
    anonymous: Option<Anonymous>,
}

impl OriginalPorts {
    /// The addresses.
    pub fn addresses(&self) -> impl Iterator<Item = ListenAddress> + '_ {
        ORIGINAL_PORTS.iter().map(|&(port, tls)| ListenAddress {
            address: Address::Tcp {
                host: self.host.clone(),
                port,
            },
            tls,
            anonymous: self.anonymous.clone(),
        })
    }
}

impl FromStr for OriginalPorts {
    type Err = String;

    fn from_str(text: &str) -> Result<OriginalPorts, String> {
        let (host, anonymous) = split_anonymous(text)?;
        match format!("{host}:1").parse() {
            Ok(Address::Tcp { host, port: 1 }) => Ok(OriginalPorts { host, anonymous }),
            _ => Err(format!(
                "`{host}` is no host; write a name or an address, such as 127.0.0.1 or [::1], \
                 without a port"
            )),
        }
    }
}

impl fmt::Display for OriginalPorts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "[{}]", self.host),
            false => f.write_str(&self.host),
        }?;
        write_anonymous(&self.anonymous, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn original_ports_are_of_a_host() {
        for (text, expected) in [
            ("127.0.0.1", ["127.0.0.1:1313", "plain:127.0.0.1:2137"]),
            ("[::1]", ["[::1]:1313", "plain:[::1]:2137"]),
            (
                "example.com",
                ["example.com:1313", "plain:example.com:2137"],
            ),
        ] {
            let ports: OriginalPorts = text.parse().expect(text);
            assert_eq!(ports.to_string(), text);
            let addresses: Vec<String> = ports.addresses().map(|one| one.to_string()).collect();
            assert_eq!(addresses, expected);
        }
        let opened: OriginalPorts = "0.0.0.0+anonymous=service:gupload".parse().expect("a host");
        assert_eq!(opened.to_string(), "0.0.0.0+anonymous=service:gupload");
        let rights = opened.addresses().map(|one| one.anonymous().is_some());
        assert_eq!(rights.collect::<Vec<_>>(), [true; 2]);
        for text in ["", "127.0.0.1:5", "unix:/x", "::1"] {
            let error = text.parse::<OriginalPorts>().expect_err(text);
            assert!(error.contains("without a port"), "{error}");
        }
    }

    #[test]
    fn rights_and_addresses_are_told_apart_in_a_list() {
        for (text, expected) in [
            ("127.0.0.1:1", &["127.0.0.1:1"][..]),
            ("127.0.0.1:1,unix:/x", &["127.0.0.1:1", "unix:/x"]),
            (
                "0.0.0.0:1+anonymous=read:a,write:b/c/,service:kvstore,unix:/x+anonymous=none,h:2",
                &[
                    "0.0.0.0:1+anonymous=read:a,write:b/c/,service:kvstore",
                    "unix:/x+anonymous=none",
                    "h:2",
                ],
            ),
            // Without the mark it is a host.
            ("read:1,h:2", &["read:1", "h:2"]),
            (
                "tls:[::1]:1+anonymous=read",
                &["tls:[::1]:1+anonymous=read"],
            ),
        ] {
            let ListenAddresses(all) = text.parse().expect(text);
            let texts: Vec<String> = all.iter().map(ListenAddress::to_string).collect();
            assert_eq!(texts, expected, "{text}");
        }
        for text in [
            "",
            "h:1,",
            ",h:1",
            "h:1+anonymous=read,,h:2",
            "h:1+anon=none",
            "h:1+Anonymous=read",
            "h:1+anonymous",
            "unix:/x+anonymus=none",
            "h:1+anonymous=none,read",
        ] {
            assert!(text.parse::<ListenAddresses>().is_err(), "{text}");
        }
        let of_role = "h:1+anonymous=read:a,role:dev".parse::<ListenAddresses>();
        let error = of_role.expect_err("it is no address either");
        assert!(error.contains("only tokens have roles"), "{error}");
    }

    #[test]
    fn what_callers_without_a_token_may_do_is_read_as_it_is_written() {
        for (text, rights) in [
            ("h:1+anonymous=none", Some(0)),
            ("h:1+anonymous=read", Some(1)),
            ("h:1+anonymous=read:a,write:b/c,service:gupload", Some(3)),
            ("h:1", None),
        ] {
            let listen: ListenAddress = text.parse().expect(text);
            let grants = listen.anonymous().map(|one| one.grants().len());
            assert_eq!(grants, rights, "{text}");
            assert_eq!(listen.to_string(), text);
        }
        for (text, why) in [
            ("h:1+anonymous=", "is no right"),
            (
                "h:1+anonymous=all",
                "is no right: read, write, admin or service:NAME is expected; or `none` alone",
            ),
            ("h:1+anonymous=read,none", "is no right"),
            ("h:1+anonymous=service:redis", "no drop-in service"),
            ("h:1+anonymous=admin:a/b", "of some blobs"),
        ] {
            let error = text.parse::<ListenAddress>().expect_err(text);
            assert!(
                error.contains(why) && error.contains("`none` alone"),
                "{error}"
            );
        }
        let many = vec!["read"; service::limits::GRANTS_MAX + 1].join(",");
        let error = format!("h:1+anonymous={many}").parse::<ListenAddress>();
        assert!(error.expect_err("too many").contains("at most"));
    }

    #[test]
    fn blanks_around_the_addresses_of_a_list_mean_nothing() {
        let list = |text: &str| text.parse::<ListenAddresses>().expect(text).0;
        let tight = list("127.0.0.1:1+anonymous=read,write:a,tls:h:2");
        assert_eq!(tight.len(), 2);
        assert_eq!(
            list(" 127.0.0.1:1+anonymous=read , write:a,\ttls:h:2\n"),
            tight
        );
    }

    #[test]
    fn what_stands_in_front_decides() {
        for (text, without, with) in [
            ("127.0.0.1:1978", false, true),
            ("tls:[::1]:1978", true, true),
            ("plain:localhost:1978", false, false),
            ("unix:/run/x", false, false),
            ("plain:unix:/run/x", false, false),
        ] {
            let listen: ListenAddress = text.parse().expect(text);
            assert_eq!(listen.to_string(), text);
            assert_eq!(
                (listen.has_tls(false), listen.has_tls(true)),
                (without, with),
                "{text}"
            );
        }
        assert_eq!("tls://h:1".parse::<ListenAddress>(), "tls:h:1".parse());
        assert_eq!(
            "tls:5".parse::<ListenAddress>().expect_err("no port"),
            "`5` is a port without a host; write 127.0.0.1:5"
        );
        let error = "tls:unix:/x"
            .parse::<ListenAddress>()
            .expect_err("no TLS there");
        assert!(error.contains("--unix-mode"), "{error}");
    }
}
