//! The variables by which programs with OpenTelemetry learn where their spans go: those of its
//! specification ("Environment Variable Specification", "OpenTelemetry Protocol Exporter").
//!
//! Somebody may have set them for other programs. What they say is weaker than what Pelton is told
//! itself, and what cannot be read is passed over with a warning: it keeps no server from its
//! start.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use client::otlp::{OtlpEndpoint, OtlpHeaders};
use client::spans::limits::{SPAN_RESOURCE_ATTRIBUTES, SPAN_RESOURCE_BYTES};

use crate::otlp_sample::OtlpSample;

/// The variables with a collector, as all others here that come in two forms: that for traces
/// alone, which is stronger, and that for everything.
const ENDPOINTS: [&str; 2] = [
    "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
    "OTEL_EXPORTER_OTLP_ENDPOINT",
];
const PROTOCOLS: [&str; 2] = [
    "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL",
    "OTEL_EXPORTER_OTLP_PROTOCOL",
];
const HEADERS: [&str; 2] = [
    "OTEL_EXPORTER_OTLP_TRACES_HEADERS",
    "OTEL_EXPORTER_OTLP_HEADERS",
];
const CERTIFICATES: [&str; 2] = [
    "OTEL_EXPORTER_OTLP_TRACES_CERTIFICATE",
    "OTEL_EXPORTER_OTLP_CERTIFICATE",
];
const CLIENT_CERTIFICATES: [&str; 2] = [
    "OTEL_EXPORTER_OTLP_TRACES_CLIENT_CERTIFICATE",
    "OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE",
];
const SERVICE_NAME: &str = "OTEL_SERVICE_NAME";
const RESOURCE_ATTRIBUTES: &str = "OTEL_RESOURCE_ATTRIBUTES";
const SAMPLER: &str = "OTEL_TRACES_SAMPLER";
const SAMPLER_ARG: &str = "OTEL_TRACES_SAMPLER_ARG";
const EXPORTER: &str = "OTEL_TRACES_EXPORTER";
const DISABLED: &str = "OTEL_SDK_DISABLED";

/// Characters of a value that are shown.
const SHOWN_CHARACTERS: usize = 60;

/// The attribute with the name of a service.
pub const SERVICE_NAME_ATTRIBUTE: &str = "service.name";

/// The values of those variables that are set.
#[derive(Debug, Default)]
pub struct OtelVariables(BTreeMap<&'static str, OsString>);

/// What the variables say.
#[derive(Debug, Default)]
pub struct OtelSettings {
    /// Where spans go, and the variable that says it; `None`: nothing says it, or not in a form
    /// that can be used.
    pub endpoint: Option<(OtlpEndpoint, &'static str)>,
    /// A variable names a collector, in whatever form.
    pub has_endpoint: bool,
    /// What switches the export off, as a sentence without its end.
    pub off_by: Option<String>,
    pub ca: Option<(PathBuf, &'static str)>,
    pub headers: OtlpHeaders,
    pub headers_by: Option<&'static str>,
    pub service_name: Option<(String, &'static str)>,
    /// Without `service.name`.
    pub attributes: Vec<(String, String)>,
    pub sample: Option<OtlpSample>,
    /// What is wrong with them, of any export.
    pub warnings: Vec<String>,
    /// What is wrong with where an export goes.
    pub endpoint_warnings: Vec<String>,
}

impl OtelVariables {
    /// Returns those of this process.
    pub fn of_process() -> OtelVariables {
        OtelVariables::of(|name| std::env::var_os(name))
    }

    /// Returns those that are found so. An empty value counts as none.
    pub fn of(find: impl Fn(&str) -> Option<OsString>) -> OtelVariables {
        let pairs = [
            ENDPOINTS,
            PROTOCOLS,
            HEADERS,
            CERTIFICATES,
            CLIENT_CERTIFICATES,
        ];
        let single = [
            SERVICE_NAME,
            RESOURCE_ATTRIBUTES,
            SAMPLER,
            SAMPLER_ARG,
            EXPORTER,
            DISABLED,
        ];
        let names = pairs.into_iter().flatten().chain(single);
        let found = names.filter_map(|name| Some((name, find(name)?)));
        OtelVariables(found.filter(|(_, value)| !value.is_empty()).collect())
    }

    /// Returns the first that is set, and its name.
    fn first(&self, names: &[&'static str]) -> Option<(&'static str, &OsStr)> {
        let found = names.iter().find_map(|name| self.0.get_key_value(name));
        found.map(|(name, value)| (*name, value.as_os_str()))
    }

    /// Returns what they say.
    pub fn read(&self) -> OtelSettings {
        let mut settings = OtelSettings::default();
        self.read_switches(&mut settings);
        self.read_endpoint(&mut settings);
        self.read_sampler(&mut settings);
        self.read_headers(&mut settings);
        self.read_resource(&mut settings);
        let ca = self.first(&CERTIFICATES);
        settings.ca = ca.map(|(name, path)| (PathBuf::from(path), name));
        if let Some((name, _)) = self.first(&CLIENT_CERTIFICATES) {
            settings.warnings.push(format!(
                "{name} changes nothing: spans are exported without a certificate of the client"
            ));
        }
        settings
    }

    /// Returns the first of these variables as text.
    fn text(
        &self,
        names: &[&'static str],
        warnings: &mut Vec<String>,
    ) -> Option<(&'static str, &str)> {
        let (name, value) = self.first(names)?;
        let Some(text) = value.to_str() else {
            warnings.push(format!("{name} is passed over, since it is not UTF-8 text"));
            return None;
        };
        Some((name, text.trim()))
    }

    fn read_switches(&self, settings: &mut OtelSettings) {
        if let Some((name, value)) = self.text(&[DISABLED], &mut settings.endpoint_warnings) {
            if value.eq_ignore_ascii_case("true") {
                settings.off_by = Some(format!("{name} is true"));
            } else if !value.eq_ignore_ascii_case("false") {
                let value = shown(value);
                settings.endpoint_warnings.push(format!(
                    "{name} is `{value}`, which counts as false: write true or false"
                ));
            }
        }
        let Some((name, value)) = self.text(&[EXPORTER], &mut settings.endpoint_warnings) else {
            return;
        };
        let mut exporters = value.split(',').map(str::trim);
        let has_endpoint = self.first(&ENDPOINTS).is_some();
        let value = shown(value);
        if exporters
            .clone()
            .any(|one| one.eq_ignore_ascii_case("otlp"))
        {
            if !has_endpoint {
                settings.endpoint_warnings.push(format!(
                    "{name} is `{value}`, and nothing names a collector: no spans are exported; \
                     write --otlp-endpoint, or {}, such as http://localhost:4317",
                    ENDPOINTS[1]
                ));
            }
            return;
        }
        settings.off_by = Some(format!("{name} is `{value}`"));
        if has_endpoint && !exporters.all(|one| one.eq_ignore_ascii_case("none")) {
            settings.endpoint_warnings.push(format!(
                "{name} is `{value}`, and spans are exported by otlp alone: none are; write otlp, \
                 or --otlp-endpoint"
            ));
        }
    }

    fn read_endpoint(&self, settings: &mut OtelSettings) {
        let warnings = &mut settings.endpoint_warnings;
        settings.has_endpoint = self.first(&ENDPOINTS).is_some();
        let Some((name, url)) = self.text(&ENDPOINTS, warnings) else {
            return;
        };
        if let Some((name, protocol)) = self.text(&PROTOCOLS, warnings)
            && !protocol.eq_ignore_ascii_case("grpc")
        {
            warnings.push(format!(
                "{name} is `{}`, and spans are exported by grpc alone: none are; write \
                 {}=grpc, and in {} the port of the collector for gRPC, usually 4317; or \
                 --otlp-endpoint",
                shown(protocol),
                PROTOCOLS[0],
                ENDPOINTS[0]
            ));
            return;
        }
        match url.parse() {
            Ok(endpoint) => settings.endpoint = Some((endpoint, name)),
            Err(error) => {
                warnings.push(format!("no spans are exported, because of {name}: {error}"))
            }
        }
    }

    fn read_sampler(&self, settings: &mut OtelSettings) {
        let Some((name, value)) = self.text(&[SAMPLER], &mut settings.warnings) else {
            return;
        };
        let (one, all) = (value.to_ascii_lowercase(), OtlpSample::of_ratio(1.0));
        match one.as_str() {
            "parentbased_always_off" => settings.sample = Some(OtlpSample::default()),
            "parentbased_always_on" | "always_on" => settings.sample = all,
            "parentbased_traceidratio" | "traceidratio" => {
                settings.sample = self.ratio(&mut settings.warnings).or(all);
            }
            "always_off" => settings.off_by = Some(format!("{name} is always_off")),
            _ => settings.warnings.push(format!(
                "{name} is `{}`, which is passed over: write parentbased_traceidratio, \
                 parentbased_always_on or parentbased_always_off",
                shown(value)
            )),
        }
        if matches!(&*one, "always_on" | "traceidratio") {
            settings.warnings.push(format!(
                "{name} is {one}, which is taken for parentbased_{one}: a caller that traces its \
                 call, or says that it does not, is followed"
            ));
        }
    }

    fn ratio(&self, warnings: &mut Vec<String>) -> Option<OtlpSample> {
        let (name, value) = self.text(&[SAMPLER_ARG], warnings)?;
        let ratio = value.parse().ok().and_then(OtlpSample::of_ratio);
        if ratio.is_none() {
            warnings.push(format!(
                "{name} is `{}`, which is passed over, as if it were 1: write a number from 0 to 1 \
                 such as 0.25",
                shown(value)
            ));
        }
        ratio
    }

    /// Nothing of what stands there is shown: it may be a secret.
    fn read_headers(&self, settings: &mut OtelSettings) {
        let Some((name, list)) = self.text(&HEADERS, &mut settings.warnings) else {
            return;
        };
        settings.headers_by = Some(name);
        for (index, entry) in entries(list).enumerate() {
            let pushed = match entry {
                None => Err(
                    "it is no NAME=VALUE, with % and two digits for what is none of \
                             letters, digits and such"
                        .to_owned(),
                ),
                Some((key, value)) => {
                    let pushed = settings.headers.push(&key, &value);
                    pushed.map_err(|error| error.to_string())
                }
            };
            if let Err(error) = pushed {
                let number = index + 1;
                settings.warnings.push(format!(
                    "header {number} of {name} is left out of exports: {error}"
                ));
            }
        }
    }

    fn read_resource(&self, settings: &mut OtelSettings) {
        if let Some((name, list)) = self.text(&[RESOURCE_ATTRIBUTES], &mut settings.warnings) {
            match attributes(list) {
                Ok(found) => settings.attributes = found,
                Err(error) => {
                    let warning = format!("{name} is passed over: {error}");
                    settings.warnings.push(warning);
                }
            }
            let of_list = settings.attributes.iter();
            let mut named = of_list.filter(|(key, _)| key == SERVICE_NAME_ATTRIBUTE);
            let named = named.next_back().map(|(_, value)| value.clone());
            settings.service_name = named.map(|value| (value, name));
            settings
                .attributes
                .retain(|(key, _)| key != SERVICE_NAME_ATTRIBUTE);
        }
        if let Some((name, value)) = self.text(&[SERVICE_NAME], &mut settings.warnings)
            && !value.is_empty()
        {
            settings.service_name = Some((value.to_owned(), name));
        }
    }
}

/// Returns the attributes of a list, of which each key is there once, with its last value.
fn attributes(list: &str) -> Result<Vec<(String, String)>, String> {
    let mut found: Vec<(String, String)> = Vec::new();
    if list.len() > SPAN_RESOURCE_BYTES {
        return Err(format!("it has more than {SPAN_RESOURCE_BYTES} bytes"));
    }
    for (index, entry) in entries(list).enumerate() {
        let Some((key, value)) = entry else {
            return Err(format!(
                "entry {} is no KEY=VALUE, with % and two digits for commas, equal signs and \
                 percent signs",
                index + 1
            ));
        };
        found.retain(|(other, _)| *other != key);
        found.push((key, value));
    }
    match found.len() > SPAN_RESOURCE_ATTRIBUTES {
        true => Err(format!(
            "it has more than {SPAN_RESOURCE_ATTRIBUTES} attributes"
        )),
        false => Ok(found),
    }
}

/// Returns keys and values of a list as W3C Baggage has it, without properties: `key=value`, with
/// commas between, percent-encoded. `None`: this entry is malformed.
fn entries(list: &str) -> impl Iterator<Item = Option<(String, String)>> {
    let entries = list.split(',').map(str::trim);
    entries.filter(|entry| !entry.is_empty()).map(|entry| {
        let (key, value) = entry.split_once('=')?;
        let key = percent_decoded(key.trim())?;
        let value = percent_decoded(value.trim())?;
        (!key.is_empty()).then_some((key, value))
    })
}

/// Decodes percent-encoding (RFC 3986 section 2.1); `None`: it is malformed, or not UTF-8.
fn percent_decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => {
                let mut digit = || char::from(rest.next()?).to_digit(16);
                let (high, low) = (digit()?, digit()?);
                u8::try_from(high << 4 | low).ok()?
            }
            byte => byte,
        });
    }
    String::from_utf8(bytes).ok()
}

/// Returns what may stand in one line of a log.
fn shown(value: &str) -> String {
    let kept = value.chars().take(SHOWN_CHARACTERS);
    kept.flat_map(char::escape_debug).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)]) -> OtelSettings {
        let find = |name: &str| {
            let mut found = variables.iter().filter(|(one, _)| *one == name);
            found.next().map(|(_, value)| OsString::from(value))
        };
        OtelVariables::of(find).read()
    }

    fn endpoint(variables: &[(&str, &str)]) -> Option<(String, &'static str)> {
        let read = read(variables);
        assert_eq!(read.endpoint_warnings, [""; 0]);
        read.endpoint.map(|(url, name)| (url.to_string(), name))
    }

    const GENERAL: (&str, &str) = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://a:1");

    #[test]
    fn the_variable_for_traces_is_stronger_and_an_empty_one_is_none() {
        let url = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT";
        let expected = |url: &str, name| Some((url.to_owned(), name));
        assert_eq!(endpoint(&[]), None);
        assert_eq!(endpoint(&[GENERAL]), expected("http://a:1", GENERAL.0));
        let both = endpoint(&[GENERAL, (url, "https://b")]);
        assert_eq!(both, expected("https://b:4317", url));
        assert_eq!(
            endpoint(&[GENERAL, (url, "")]),
            expected("http://a:1", GENERAL.0)
        );
        let grpc = ("OTEL_EXPORTER_OTLP_PROTOCOL", "gRPC");
        assert_eq!(
            endpoint(&[GENERAL, grpc]),
            expected("http://a:1", GENERAL.0)
        );
    }

    #[test]
    fn a_protocol_or_url_that_cannot_be_used_is_named_and_nothing_is_exported() {
        for (name, value, expected) in [
            (
                "OTEL_EXPORTER_OTLP_PROTOCOL",
                "http/protobuf",
                "usually 4317",
            ),
            (
                "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL",
                "http/json",
                "usually 4317",
            ),
            (
                "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
                "b:4317",
                "write http://",
            ),
            (
                "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
                "http://b:4318/v1/traces",
                "has no path",
            ),
            (
                "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
                "http://u:s3cret@b",
                "header",
            ),
            ("OTEL_TRACES_EXPORTER", "zipkin", "write otlp"),
        ] {
            let found = read(&[GENERAL, (name, value)]);
            let [warning] = &found.endpoint_warnings[..] else {
                panic!("one line: {:?}", found.endpoint_warnings)
            };
            assert!(
                warning.contains(name) && warning.contains(expected),
                "{warning}"
            );
            assert!(!warning.contains("s3cret"), "{warning}");
            assert!(found.endpoint.is_none() || found.off_by.is_some(), "{name}");
            assert!(found.has_endpoint);
        }
    }

    #[test]
    fn the_export_can_be_switched_off() {
        for (name, value, is_off, warnings) in [
            ("OTEL_SDK_DISABLED", "TRUE", true, 0),
            ("OTEL_SDK_DISABLED", "false", false, 0),
            ("OTEL_SDK_DISABLED", "yes", false, 1),
            ("OTEL_TRACES_EXPORTER", "none", true, 0),
            ("OTEL_TRACES_EXPORTER", "otlp", false, 0),
            ("OTEL_TRACES_EXPORTER", "console, otlp", false, 0),
            ("OTEL_TRACES_SAMPLER", "always_off", true, 0),
        ] {
            let found = read(&[GENERAL, (name, value)]);
            assert_eq!(found.off_by.is_some(), is_off, "{name}={value}");
            assert_eq!(found.endpoint_warnings.len(), warnings, "{name}={value}");
        }
        let without = read(&[("OTEL_TRACES_EXPORTER", "otlp")]);
        assert!(without.endpoint_warnings[0].contains("nothing names a collector"));
    }

    #[test]
    fn samplers_are_shares_of_the_calls_that_nobody_traces() {
        for (sampler, argument, expected, warnings) in [
            ("parentbased_always_on", "", Some("1"), 0),
            ("parentbased_always_off", "0.5", Some("0"), 0),
            ("parentbased_traceidratio", "0.25", Some("0.25"), 0),
            ("parentbased_traceidratio", "", Some("1"), 0),
            ("parentbased_traceidratio", "1e-3", Some("0.001"), 0),
            ("parentbased_traceidratio", "2", Some("1"), 1),
            ("parentbased_traceidratio", "NaN", Some("1"), 1),
            ("traceidratio", "0.5", Some("0.5"), 1),
            ("always_on", "", Some("1"), 1),
            ("jaeger_remote", "endpoint=x", None, 1),
            ("nonsense", "", None, 1),
        ] {
            let found = read(&[
                ("OTEL_TRACES_SAMPLER", sampler),
                ("OTEL_TRACES_SAMPLER_ARG", argument),
            ]);
            let sample = found.sample.map(|sample| sample.to_string());
            assert_eq!(sample.as_deref(), expected, "{sampler} {argument}");
            assert_eq!(found.warnings.len(), warnings, "{:?}", found.warnings);
        }
        let alone = read(&[("OTEL_TRACES_SAMPLER_ARG", "0.5")]);
        assert_eq!((alone.sample, alone.warnings.len()), (None, 0));
    }

    #[test]
    fn headers_are_decoded_and_none_of_their_values_is_shown() {
        let general = ("OTEL_EXPORTER_OTLP_HEADERS", "x=general");
        let list = "x-key = s3cret%2C1 ,X-Other=2,s3cret,%zz=s3cret,te=s3cret,y=s3cr%C3%A9t";
        let found = read(&[general, ("OTEL_EXPORTER_OTLP_TRACES_HEADERS", list)]);
        assert_eq!(
            found.headers.names().collect::<Vec<_>>(),
            ["x-key", "x-other"]
        );
        let mut expected = OtlpHeaders::default();
        expected.push("x-key", "s3cret,1").expect("valid");
        expected.push("x-other", "2").expect("valid");
        assert_eq!(found.headers, expected);
        assert_eq!(found.warnings.len(), 4);
        for (warning, number) in found.warnings.iter().zip(3..) {
            let named = format!("header {number} of OTEL_EXPORTER_OTLP_TRACES_HEADERS");
            assert!(warning.starts_with(&named), "{warning}");
            assert!(!warning.contains("s3cr"), "{warning}");
        }
    }

    #[test]
    fn attributes_are_decoded_and_a_list_with_a_mistake_is_none() {
        let name = "OTEL_RESOURCE_ATTRIBUTES";
        let list = "service.name=shop, deployment.environment.name = a%2Cb%3D,k=1,k=2";
        let found = read(&[(name, list)]);
        let expected = [("deployment.environment.name", "a,b="), ("k", "2")];
        let expected = expected.map(|(key, value)| (key.to_owned(), value.to_owned()));
        assert_eq!(found.attributes, expected);
        assert_eq!(found.service_name, Some(("shop".to_owned(), name)));
        let named = read(&[(name, list), ("OTEL_SERVICE_NAME", "db")]);
        assert_eq!(
            named.service_name,
            Some(("db".to_owned(), "OTEL_SERVICE_NAME"))
        );
        let long = format!("k={}", "v".repeat(SPAN_RESOURCE_BYTES));
        let many: Vec<_> = (0..=SPAN_RESOURCE_ATTRIBUTES)
            .map(|at| format!("k{at}=v"))
            .collect();
        for wrong in ["a", "=a", "a=%4", "a=%zz", "a=%ff", &long, &many.join(",")] {
            let found = read(&[(name, wrong)]);
            assert_eq!(
                (found.attributes.len(), found.warnings.len()),
                (0, 1),
                "{wrong}"
            );
            assert!(found.warnings[0].contains(name));
        }
    }
}
