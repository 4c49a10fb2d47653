//! What is said of this process beside its spans.

use client::otlp::ResourceAttribute;
use client::spans::AttributeText;
use rustix::system::uname;

use crate::randomness::random;

/// Returns what was given, and what every process has of which nothing was given: the semantic
/// conventions of OpenTelemetry for a service, a host and a process.
pub fn attributes(given: &[(String, String)]) -> Vec<ResourceAttribute> {
    let text = |text: String| AttributeText::Text(text.into());
    let host = uname().nodename().to_string_lossy().into_owned();
    let of_process = [
        ("service.version", text(env!("CARGO_PKG_VERSION").into())),
        ("service.instance.id", text(instance(random(), random()))),
        ("host.name", text(host)),
        (
            "process.pid",
            AttributeText::Number(std::process::id().into()),
        ),
    ];
    let is_given = |key: &str| given.iter().any(|(one, _)| one == key);
    let of_process = of_process.into_iter().filter(|(key, _)| !is_given(key));
    let given = given
        .iter()
        .map(|(key, value)| (key.clone().into(), text(value.clone())));
    of_process
        .map(|(key, value)| (key.into(), value))
        .chain(given)
        .collect()
}

/// Returns the id of a process, a UUID of version 4 (RFC 9562 section 5.4), of random numbers.
fn instance(high: u64, low: u64) -> String {
    let bits = u128::from(high) << 64 | u128::from(low);
    let version = bits & !(0xf << 76) | 4 << 76;
    let id = version & !(0b11 << 62) | 0b10 << 62;
    let digits = format!("{id:032x}");
    let mut text = String::with_capacity(36);
    for (at, digit) in digits.chars().enumerate() {
        if [8, 12, 16, 20].contains(&at) {
            text.push('-');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instance_is_a_uuid_of_version_4() {
        assert_eq!(instance(0, 0), "00000000-0000-4000-8000-000000000000");
        assert_eq!(
            instance(u64::MAX, u64::MAX),
            "ffffffff-ffff-4fff-bfff-ffffffffffff"
        );
    }

    #[test]
    fn what_is_given_takes_the_place_of_what_every_process_has() {
        let given = |key: &str| (key.to_owned(), "given".to_owned());
        let keys = |given: &[(String, String)]| {
            let all = attributes(given).into_iter();
            all.map(|(key, value)| (key.into_owned(), value))
                .collect::<Vec<_>>()
        };
        let usual = keys(&[]);
        let names: Vec<&str> = usual.iter().map(|(key, _)| key.as_str()).collect();
        let expected = [
            "service.version",
            "service.instance.id",
            "host.name",
            "process.pid",
        ];
        assert_eq!(names, expected);
        let chosen = keys(&[given("host.name"), given("a")]);
        let names: Vec<&str> = chosen.iter().map(|(key, _)| key.as_str()).collect();
        let expected = [
            "service.version",
            "service.instance.id",
            "process.pid",
            "host.name",
            "a",
        ];
        assert_eq!(names, expected);
        assert_eq!(chosen[3].1, AttributeText::Text("given".into()));
    }
}
