//! A method of any service: which of the four kinds it is, and what a JSON request is in bytes, by
//! the service's own descriptors.

mod descriptors;
mod proto_file;
mod reflection;
mod repeatable;

use std::fmt;

use prost_reflect::{DescriptorPool, MessageDescriptor, MethodDescriptor, ServiceDescriptor};

use descriptors::read_descriptors;
pub use proto_file::descriptors_in;
pub use reflection::descriptors_of;

use crate::request::{self, RequestTemplate};

/// A method as written on a command line: `package.Service/Method`, with or without a slash in
/// front, and with the package or, where descriptors say which it is, without.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MethodName {
    service: String,
    method: String,
}

/// The right form of a name that has a dot before its method, as other tools write it; else the
/// form in general.
fn slashed(name: &str) -> String {
    match name.rsplit_once('.') {
        Some((service, method)) if !name.contains('/') && service.contains('.') => {
            format!("{service}/{method}")
        }
        _ => "package.Service/Method".to_owned(),
    }
}

/// Why there is no request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MethodError {
    /// The name has another form.
    #[error("`{0}` is no method; write {right}", right = slashed(.0))]
    BadName(String),
    /// The descriptors cannot be read.
    #[error("the descriptors cannot be read: {0}")]
    BadDescriptors(String),
    /// The service is not among the descriptors.
    #[error("there is no service `{0}`")]
    NoService(String),
    /// The server has no such service; these it has.
    #[error("the server has no service `{name}`; it has {known}")]
    NotServed {
        /// What was asked for.
        name: String,
        /// The services that there are.
        known: String,
    },
    /// Several services have the name, each with another package.
    #[error("`{name}` is the short name of several services; write one of {known}")]
    Ambiguous {
        /// What was asked for.
        name: String,
        /// The services that have it.
        known: String,
    },
    /// The service has no such method; these it has.
    #[error("there is no method `{name}`; the service has {known}")]
    NoMethod {
        /// What was asked for.
        name: String,
        /// The methods that there are.
        known: String,
    },
    /// The `.proto` file cannot be compiled.
    #[error("{file} cannot be compiled: {reason}")]
    BadProto {
        /// The file.
        file: String,
        /// What is wrong with it, or with a file that it imports.
        reason: String,
    },
    /// The request is no JSON of the method's request message.
    #[error("the request is no {message}: {reason}")]
    BadRequest {
        /// The message that it should be.
        message: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The server does not hand out its descriptors.
    #[error(
        "the server does not say what its methods are ({0}); give --proto FILE or \
         --descriptor-set FILE, or the request's bytes with --data-file"
    )]
    NoReflection(String),
}

impl std::str::FromStr for MethodName {
    type Err = MethodError;

    fn from_str(text: &str) -> Result<MethodName, MethodError> {
        let name = text.strip_prefix('/').unwrap_or(text);
        let bad = || MethodError::BadName(text.into());
        let (service, method) = name.split_once('/').ok_or_else(bad)?;
        let is_name = |name: &str| {
            !name.is_empty()
                && name
                    .chars()
                    .all(|c| c.is_ascii_alphanumeric() || "._".contains(c))
        };
        if !is_name(service) || !is_name(method) {
            return Err(bad());
        }
        Ok(MethodName {
            service: service.into(),
            method: method.into(),
        })
    }
}

impl fmt::Display for MethodName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.service, self.method)
    }
}

impl MethodName {
    /// The service, for reflection.
    pub fn service(&self) -> &str {
        &self.service
    }

    /// The path of a call, with its leading slash.
    pub fn path(&self) -> String {
        format!("/{self}")
    }

    /// Returns what a `FileDescriptorSet` says of the method.
    ///
    /// # Errors
    /// If there is no such method.
    pub fn described_in(&self, descriptor_set: &[u8]) -> Result<DescribedMethod, MethodError> {
        let method = self.find(&read_descriptors(descriptor_set)?)?;
        Ok(DescribedMethod {
            name: MethodName {
                service: method.parent_service().full_name().to_owned(),
                method: self.method.clone(),
            },
            kind: match (method.is_client_streaming(), method.is_server_streaming()) {
                (false, false) => MethodKind::Unary,
                (false, true) => MethodKind::ServerStreaming,
                (true, false) => MethodKind::ClientStreaming,
                (true, true) => MethodKind::Bidirectional,
            },
            input: method.input(),
        })
    }

    fn find(&self, pool: &DescriptorPool) -> Result<MethodDescriptor, MethodError> {
        let service = self.find_service(pool)?;
        let mut methods = service.methods();
        let found = methods.find(|method| method.name() == self.method);
        found.ok_or_else(|| {
            let names: Vec<String> = service.methods().map(|it| it.name().to_owned()).collect();
            MethodError::NoMethod {
                name: self.method.clone(),
                known: names.join(", "),
            }
        })
    }

    fn find_service(&self, pool: &DescriptorPool) -> Result<ServiceDescriptor, MethodError> {
        let name = &self.service;
        let names = pool
            .services()
            .map(|service| service.full_name().to_owned());
        let full = full_name(name, &names.collect::<Vec<_>>())?;
        let found = full.and_then(|full| pool.get_service_by_name(&full));
        found.ok_or_else(|| MethodError::NoService(name.clone()))
    }
}

/// Which side of a method sends several messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MethodKind {
    /// None: one request, one response.
    Unary,
    /// The server.
    ServerStreaming,
    /// The client.
    ClientStreaming,
    /// Both.
    Bidirectional,
}

/// A method of which descriptors say what it takes.
#[derive(Clone, Debug)]
pub struct DescribedMethod {
    name: MethodName,
    kind: MethodKind,
    input: MessageDescriptor,
}

impl DescribedMethod {
    /// Its name, with the package of its service.
    pub fn name(&self) -> &MethodName {
        &self.name
    }

    /// Which side sends several messages.
    pub fn kind(&self) -> MethodKind {
        self.kind
    }

    /// Reads a request in JSON (the JSON mapping of Protocol Buffers), which may have placeholders
    /// such as `{{counter}}`.
    ///
    /// # Errors
    /// If it is no request of the method.
    pub fn request(&self, json: &str) -> Result<RequestTemplate, MethodError> {
        request::compile(&self.input, json).map_err(|reason| MethodError::BadRequest {
            message: self.input.full_name().into(),
            reason,
        })
    }
}

/// Returns which of the services that there are has this name, in full or without its package;
/// `None`: none has.
///
/// # Errors
/// If several have it without their packages, and none in full.
fn full_name(name: &str, known: &[String]) -> Result<Option<String>, MethodError> {
    if known.iter().any(|one| one == name) {
        return Ok(Some(name.to_owned()));
    }
    let is_short = |full: &&String| full.rsplit_once('.').is_some_and(|(_, last)| last == name);
    let found: Vec<String> = known.iter().filter(is_short).cloned().collect();
    match found.len() {
        0 | 1 => Ok(found.into_iter().next()),
        _ => Err(MethodError::Ambiguous {
            name: name.to_owned(),
            known: reflection::shown(&found),
        }),
    }
}

#[cfg(test)]
mod tests {
    use prost_reflect::prost::Message as _;

    use super::*;
    use crate::limits;

    /// A service in a file that needs another one, compiled here.
    /// `test`: tests run beside each other, each needs a folder of its own.
    fn descriptor_set(test: &str) -> Vec<u8> {
        let name = format!("pelton-method-{test}-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&folder).expect("the folder is ours");
        let other = "syntax = \"proto3\"; package t; message Inner { bytes raw = 1; }";
        let main = "syntax = \"proto3\"; package t; import \"other.proto\";
            message Question { string text = 1; repeated int32 numbers = 2; Inner inner = 3; }
            service T {
                rpc Ask(Question) returns (Inner);
                rpc Watch(Question) returns (stream Inner);
                rpc Send(stream Question) returns (Inner);
                rpc Talk(stream Question) returns (stream Inner);
            }";
        std::fs::write(folder.join("other.proto"), other).expect("it is written");
        std::fs::write(folder.join("main.proto"), main).expect("it is written");
        let set = protox::compile(["main.proto"], [&folder]).expect("it is well formed");
        std::fs::remove_dir_all(&folder).expect("it was there");
        set.encode_to_vec()
    }

    fn name(text: &str) -> MethodName {
        text.parse().expect(text)
    }

    fn encode(method: &str, set: &[u8], json: &str) -> Result<Vec<u8>, MethodError> {
        let request = name(method).described_in(set)?.request(json)?;
        Ok(request.bytes().expect("it has no placeholder").to_vec())
    }

    fn in_full(method: &str, set: &[u8]) -> Result<MethodName, MethodError> {
        Ok(name(method).described_in(set)?.name().clone())
    }

    #[test]
    fn json_becomes_bytes() {
        let set = descriptor_set("bytes");
        let json = r#"{"text": "hi", "numbers": [1, 300], "inner": {"raw": "AAE="}}"#;
        let bytes = encode("/t.T/Ask", &set, json).expect("it is well formed");
        let expected = b"\x0a\x02hi\x12\x03\x01\xac\x02\x1a\x04\x0a\x02\x00\x01";
        assert_eq!(bytes, expected);
        assert_eq!(encode("t.T/Ask", &set, "{}"), Ok(vec![]));
        assert_eq!(name("t.T/Ask").path(), "/t.T/Ask");
    }

    #[test]
    fn descriptors_say_which_side_sends_several_messages() {
        let set = descriptor_set("kinds");
        for (method, kind) in [
            ("t.T/Ask", MethodKind::Unary),
            ("t.T/Watch", MethodKind::ServerStreaming),
            ("t.T/Send", MethodKind::ClientStreaming),
            ("t.T/Talk", MethodKind::Bidirectional),
        ] {
            let described = name(method).described_in(&set).expect(method);
            assert_eq!(described.kind(), kind, "{method}");
        }
    }

    #[test]
    fn a_service_is_found_without_its_package() {
        let set = descriptor_set("short");
        assert_eq!(in_full("T/Ask", &set), Ok(name("t.T/Ask")));
        assert_eq!(in_full("t.T/Ask", &set), Ok(name("t.T/Ask")));
        assert_eq!(encode("T/Ask", &set, "{}"), Ok(vec![]));
        let none = in_full("U/Ask", &set);
        assert_eq!(none, Err(MethodError::NoService("U".into())));
        let known = ["a.T", "b.c.T", "U", "d.U", "e.V"].map(String::from);
        let full = |name| full_name(name, &known);
        let found = |name: &str| Ok(Some(name.to_owned()));
        assert_eq!((full("V"), full("U")), (found("e.V"), found("U")));
        assert_eq!((full("c.T"), full("W")), (Ok(None), Ok(None)));
        let error = full("T").expect_err("there are two").to_string();
        assert!(error.ends_with("write one of a.T, b.c.T"), "{error}");
    }

    /// A field of this length, with its tag and its length before it, makes the largest request.
    #[test]
    fn the_bytes_of_a_request_are_bounded() {
        let set = descriptor_set("large");
        let most = limits::MAX_REQUEST_BYTES - 5;
        let encode = |bytes: usize| {
            let json = format!("{{\"text\": \"{}\"}}", "x".repeat(bytes));
            encode("t.T/Ask", &set, &json).map(|bytes| bytes.len())
        };
        assert_eq!(encode(most), Ok(limits::MAX_REQUEST_BYTES));
        let error = encode(most + 1).expect_err("it is too large").to_string();
        assert!(error.contains("it has 67108865 bytes, too many"), "{error}");
    }

    #[test]
    fn what_is_wrong_is_said() {
        let set = descriptor_set("wrong");
        for (method, json, part) in [
            ("t.X/Ask", "{}", "no service `t.X`"),
            ("t.T/Answer", "{}", "the service has Ask, Watch, Send, Talk"),
            ("t.T/Ask", "{\"texts\": 1}", "no t.Question"),
            ("t.T/Ask", "{\"text\": 1}", "no t.Question"),
            ("t.T/Ask", "{} {}", "no t.Question"),
            ("t.T/Ask", "hello", "no t.Question"),
        ] {
            let error = encode(method, &set, json).expect_err(part).to_string();
            assert!(error.contains(part), "{error}");
        }
        for bad in ["", "a", "a/", "/b", "a/b/c", "a b/c"] {
            assert!(bad.parse::<MethodName>().is_err(), "{bad:?}");
        }
        let broken = encode("t.T/Ask", &[0xff, 0xff], "{}");
        assert!(matches!(broken, Err(MethodError::BadDescriptors(_))));
    }
}
