//! A unary method of any service: what a JSON request is in bytes, by the service's own
//! descriptors.

mod reflection;
mod repeatable;

use std::fmt;

use prost_reflect::prost::Message as _;
use prost_reflect::{DescriptorPool, DynamicMessage, MethodDescriptor, ServiceDescriptor};
use serde_json::de::Deserializer;

pub use reflection::descriptors_of;

use crate::limits;

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
    /// The method is not unary.
    #[error("`{0}` is a streaming method; only unary ones can be called")]
    Streaming(String),
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
        "the server does not say what its methods are ({0}); give --descriptor-set FILE, or the \
         request's bytes with --data-file"
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

    /// Returns the same method with the package of its service, by a `FileDescriptorSet`.
    ///
    /// # Errors
    /// If there is no such unary method.
    pub fn in_full(&self, descriptor_set: &[u8]) -> Result<MethodName, MethodError> {
        let method = self.find(&pool(descriptor_set)?)?;
        Ok(MethodName {
            service: method.parent_service().full_name().to_owned(),
            method: self.method.clone(),
        })
    }

    /// The bytes of a request in JSON (the JSON mapping of Protocol Buffers), by a
    /// `FileDescriptorSet`.
    ///
    /// # Errors
    /// If there is no such unary method, or the JSON is no request of it.
    pub fn encode(&self, descriptor_set: &[u8], json: &str) -> Result<Vec<u8>, MethodError> {
        let method = self.find(&pool(descriptor_set)?)?;
        let message = method.input();
        let bad = |reason: String| MethodError::BadRequest {
            message: message.full_name().into(),
            reason,
        };
        let mut deserializer = Deserializer::from_str(json);
        let request = DynamicMessage::deserialize(message.clone(), &mut deserializer)
            .map_err(|error| bad(error.to_string()))?;
        deserializer.end().map_err(|error| bad(error.to_string()))?;
        let bytes = request.encode_to_vec();
        if bytes.len() > limits::MAX_REQUEST_BYTES {
            return Err(bad(format!("it has {} bytes, too many", bytes.len())));
        }
        Ok(bytes)
    }

    fn find(&self, pool: &DescriptorPool) -> Result<MethodDescriptor, MethodError> {
        let service = self.find_service(pool)?;
        let Some(method) = service
            .methods()
            .find(|method| method.name() == self.method)
        else {
            let names: Vec<String> = service.methods().map(|it| it.name().to_owned()).collect();
            return Err(MethodError::NoMethod {
                name: self.method.clone(),
                known: names.join(", "),
            });
        };
        if method.is_client_streaming() || method.is_server_streaming() {
            return Err(MethodError::Streaming(self.to_string()));
        }
        Ok(method)
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

fn pool(descriptor_set: &[u8]) -> Result<DescriptorPool, MethodError> {
    DescriptorPool::decode(descriptor_set)
        .map_err(|error| MethodError::BadDescriptors(error.to_string()))
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
    use super::*;

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

    #[test]
    fn json_becomes_bytes() {
        let set = descriptor_set("bytes");
        let json = r#"{"text": "hi", "numbers": [1, 300], "inner": {"raw": "AAE="}}"#;
        let bytes = name("/t.T/Ask")
            .encode(&set, json)
            .expect("it is well formed");
        let expected = b"\x0a\x02hi\x12\x03\x01\xac\x02\x1a\x04\x0a\x02\x00\x01";
        assert_eq!(bytes, expected);
        assert_eq!(name("t.T/Ask").encode(&set, "{}"), Ok(vec![]));
        assert_eq!(name("t.T/Ask").path(), "/t.T/Ask");
    }

    #[test]
    fn a_service_is_found_without_its_package() {
        let set = descriptor_set("short");
        let short = name("T/Ask");
        assert_eq!(short.in_full(&set), Ok(name("t.T/Ask")));
        assert_eq!(name("t.T/Ask").in_full(&set), Ok(name("t.T/Ask")));
        assert_eq!(short.encode(&set, "{}"), Ok(vec![]));
        let streaming = name("T/Watch").in_full(&set);
        assert!(matches!(streaming, Err(MethodError::Streaming(_))));
        let none = name("U/Ask").in_full(&set);
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
            name("t.T/Ask").encode(&set, &json).map(|bytes| bytes.len())
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
            ("t.T/Answer", "{}", "the service has Ask, Watch"),
            ("t.T/Watch", "{}", "streaming"),
            ("t.T/Ask", "{\"texts\": 1}", "no t.Question"),
            ("t.T/Ask", "{\"text\": 1}", "no t.Question"),
            ("t.T/Ask", "{} {}", "no t.Question"),
            ("t.T/Ask", "hello", "no t.Question"),
        ] {
            let error = name(method).encode(&set, json).expect_err(part).to_string();
            assert!(error.contains(part), "{error}");
        }
        for bad in ["", "a", "a/", "/b", "a/b/c", "a b/c"] {
            assert!(bad.parse::<MethodName>().is_err(), "{bad:?}");
        }
        let broken = name("t.T/Ask").encode(&[0xff, 0xff], "{}");
        assert!(matches!(broken, Err(MethodError::BadDescriptors(_))));
    }
}
