//! How the spans of calls are exported: what Pelton is told itself, over the variables of
//! OpenTelemetry, over the defaults.

use std::fmt;
use std::path::PathBuf;

use client::otlp::{OtlpEndpoint, OtlpHeaders};
use client::spans::limits::{SPAN_RESOURCE_ATTRIBUTES, SPAN_RESOURCE_BYTES};

use super::SettingsError;
use super::otel_variables::{OtelSettings, OtelVariables, SERVICE_NAME_ATTRIBUTE};
use crate::arguments::{OtlpHeaderText, OtlpResourceAttribute, ServeArguments};
use crate::otlp_sample::OtlpSample;

/// The name of the service under which spans are exported by default.
const OTLP_SERVICE_NAME: &str = "pelton";

/// What names the authorities by which a collector is believed, unless a variable does.
pub const OWN_CA_NAME: &str = "--otlp-ca";

/// The variable of the flag.
const ENDPOINT_VARIABLE: &str = "PELTON_OTLP_ENDPOINT";

/// How the spans of calls are exported.
#[derive(Clone, Debug)]
pub struct OtlpSettings {
    /// `None`: none are exported.
    pub endpoint: Option<OtlpEndpoint>,
    /// What names the endpoint.
    pub source: EndpointSource,
    /// `None`: the authorities of the system.
    pub ca: Option<PathBuf>,
    /// What names them.
    pub ca_name: &'static str,
    pub headers: OtlpHeaders,
    pub header_file: Option<PathBuf>,
    pub service_name: String,
    /// Without those that every process has.
    pub attributes: Vec<(String, String)>,
    pub sample: OtlpSample,
    /// Settings that variables of OpenTelemetry have said, with these.
    pub by_variables: Vec<(&'static str, &'static str)>,
    /// What to say of these variables.
    warnings: Vec<String>,
    /// Something names a collector, in whatever form.
    pub(super) has_endpoint: bool,
}

/// What names an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndpointSource {
    Flag,
    Variable(&'static str),
    File,
}

impl fmt::Display for EndpointSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EndpointSource::Flag => f.write_str("--otlp-endpoint"),
            EndpointSource::Variable(name) => f.write_str(name),
            EndpointSource::File => f.write_str("otlp-endpoint in the file of --config"),
        }
    }
}

/// What Pelton is told itself: flags and its variables over the file.
struct OwnSettings {
    endpoint: Option<(OtlpEndpoint, EndpointSource)>,
    ca: Option<PathBuf>,
    headers: Option<Vec<OtlpHeaderText>>,
    header_file: Option<PathBuf>,
    service_name: Option<String>,
    attributes: Vec<OtlpResourceAttribute>,
    sample: Option<OtlpSample>,
}

impl OwnSettings {
    fn of(strong: &ServeArguments, given: &ServeArguments) -> OwnSettings {
        macro_rules! pick {
            ($name:ident) => {
                strong.$name.clone().or_else(|| given.$name.clone())
            };
        }
        let in_file = || (given.otlp_endpoint.clone()).map(|url| (url, EndpointSource::File));
        let strong_source = |url: &OtlpEndpoint| {
            let variable = std::env::var(ENDPOINT_VARIABLE).ok();
            match variable.and_then(|value| value.parse().ok()).as_ref() == Some(url) {
                true => EndpointSource::Variable(ENDPOINT_VARIABLE),
                false => EndpointSource::Flag,
            }
        };
        let endpoint = strong.otlp_endpoint.clone();
        let endpoint = endpoint.map(|url| {
            let source = strong_source(&url);
            (url, source)
        });
        OwnSettings {
            endpoint: endpoint.or_else(in_file),
            ca: pick!(otlp_ca),
            headers: pick!(otlp_header),
            header_file: pick!(otlp_header_file),
            service_name: pick!(otlp_service_name),
            attributes: pick!(otlp_resource_attribute).unwrap_or_default(),
            sample: pick!(otlp_sample),
        }
    }

    /// Returns the headers that flags, variables or the file say. Errors show none.
    fn headers(&self) -> Result<OtlpHeaders, SettingsError> {
        let mut headers = OtlpHeaders::default();
        for (index, text) in self.headers.iter().flatten().enumerate() {
            let number = index + 1;
            let wrong = |why: &dyn fmt::Display| {
                SettingsError::Contradiction(format!("otlp-header, number {number}: {why}"))
            };
            let form = "it is no NAME=VALUE: write one such as x-api-key=KEY";
            let (name, value) = text.parts().ok_or_else(|| wrong(&form))?;
            headers.push(name, value).map_err(|error| wrong(&error))?;
        }
        Ok(headers)
    }
}

impl OtlpSettings {
    pub(super) fn resolve(
        strong: &ServeArguments,
        given: &ServeArguments,
        variables: &OtelVariables,
    ) -> Result<OtlpSettings, SettingsError> {
        let own = OwnSettings::of(strong, given);
        let standard = variables.read();
        let mut settings = OtlpSettings {
            endpoint: None,
            source: EndpointSource::Flag,
            ca: own.ca.clone(),
            ca_name: OWN_CA_NAME,
            headers: own.headers()?,
            header_file: own.header_file.clone(),
            service_name: OTLP_SERVICE_NAME.into(),
            attributes: Vec::new(),
            sample: OtlpSample::default(),
            by_variables: Vec::new(),
            warnings: Vec::new(),
            has_endpoint: own.endpoint.is_some() || standard.has_endpoint,
        };
        settings.choose_endpoint(&own, &standard);
        settings.choose_resource(&own, &standard);
        settings.sample = own.sample.unwrap_or_default();
        settings.choose_how(&own, standard);
        Ok(settings)
    }

    /// Chooses where spans go.
    fn choose_endpoint(&mut self, own: &OwnSettings, standard: &OtelSettings) {
        if let Some((url, source)) = &own.endpoint {
            (self.endpoint, self.source) = (Some(url.clone()), *source);
            if let Some(off_by) = &standard.off_by {
                self.warnings.push(format!(
                    "{off_by}, and {source} names a collector for Pelton itself, which is \
                     stronger: spans are exported"
                ));
            }
            return;
        }
        self.warnings.extend_from_slice(&standard.endpoint_warnings);
        if let (None, Some((url, variable))) = (&standard.off_by, &standard.endpoint) {
            self.endpoint = Some(url.clone());
            self.source = EndpointSource::Variable(variable);
            self.note("otlp-endpoint", Some(variable));
        }
    }

    /// Chooses what is said of this process.
    fn choose_resource(&mut self, own: &OwnSettings, standard: &OtelSettings) {
        let own_name = |one: &&OtlpResourceAttribute| one.key == SERVICE_NAME_ATTRIBUTE;
        let attribute = own.attributes.iter().rfind(own_name).map(|one| &one.value);
        if let Some(name) = own.service_name.as_ref().or(attribute) {
            self.service_name.clone_from(name);
        } else if let Some((name, variable)) = &standard.service_name {
            self.service_name.clone_from(name);
            self.note("otlp-service-name", Some(variable));
        }
        let is_there = |key: &str, list: &[(String, String)]| list.iter().any(|one| one.0 == key);
        for one in own.attributes.iter().rev().filter(|one| !own_name(one)) {
            if !is_there(&one.key, &self.attributes) {
                self.attributes
                    .insert(0, (one.key.clone(), one.value.clone()));
            }
        }
        for (key, value) in &standard.attributes {
            if !is_there(key, &self.attributes) {
                self.attributes.push((key.clone(), value.clone()));
            }
        }
        if own.attributes.is_empty() && !standard.attributes.is_empty() {
            self.note("otlp-resource-attribute", Some("OTEL_RESOURCE_ATTRIBUTES"));
        }
    }

    /// Chooses how a collector is spoken to, if there is one.
    fn choose_how(&mut self, own: &OwnSettings, standard: OtelSettings) {
        let Some(endpoint) = &self.endpoint else {
            return;
        };
        // Of a collector without TLS the variable may be there for others.
        if let (None, true, Some((path, variable))) = (&own.ca, endpoint.has_tls(), standard.ca) {
            (self.ca, self.ca_name) = (Some(path), variable);
            self.note("otlp-ca", Some(variable));
        }
        if own.headers.is_none() && own.header_file.is_none() {
            self.headers = standard.headers;
            self.note("otlp-header", standard.headers_by);
        }
        if let (None, Some(sample)) = (own.sample, standard.sample) {
            self.sample = sample;
            self.note("otlp-sample", Some("OTEL_TRACES_SAMPLER"));
        }
        self.warnings.extend(standard.warnings);
    }

    fn note(&mut self, setting: &'static str, variable: Option<&'static str>) {
        self.by_variables
            .extend(variable.map(|variable| (setting, variable)));
    }

    /// Whether what is said of the export of spans is of one that there is.
    pub(super) fn check(&self) -> Result<(), SettingsError> {
        let wrong = |text: &str| Err(SettingsError::Contradiction(text.into()));
        let has_headers = !self.headers.is_empty() || self.header_file.is_some();
        let is_said = self.ca.is_some() || !self.sample.is_none() || has_headers;
        let has_ca = self.ca.is_some();
        match &self.endpoint {
            None if is_said && !self.has_endpoint => wrong(
                "otlp-ca, otlp-header, otlp-header-file and otlp-sample say how spans are \
                 exported, and otlp-endpoint is not given, so that none are: write otlp-endpoint \
                 with a URL such as http://localhost:4317, or leave them out",
            ),
            Some(endpoint) if has_ca && !endpoint.has_tls() => wrong(
                "otlp-ca names authorities, and the collector of otlp-endpoint is reached without \
                 TLS: write https:// in otlp-endpoint, or leave otlp-ca out",
            ),
            _ if self.service_name.trim().is_empty() => {
                wrong("otlp-service-name is empty: write a name, or leave it out")
            }
            _ => self.check_attributes(),
        }
    }

    fn check_attributes(&self) -> Result<(), SettingsError> {
        let lengths = self
            .attributes
            .iter()
            .map(|(key, value)| key.len() + value.len());
        let bytes = lengths.sum::<usize>() + self.service_name.len();
        if self.attributes.len() > SPAN_RESOURCE_ATTRIBUTES || bytes > SPAN_RESOURCE_BYTES {
            return Err(SettingsError::Contradiction(format!(
                "otlp-resource-attribute and the variables of OpenTelemetry name {} attributes \
                 with {bytes} bytes, the name of the service included: at most \
                 {SPAN_RESOURCE_ATTRIBUTES} with {SPAN_RESOURCE_BYTES} bytes are exported; name \
                 fewer or shorter ones",
                self.attributes.len()
            )));
        }
        Ok(())
    }

    /// Returns what to say of what is passed over.
    pub fn warnings(&self) -> Vec<String> {
        let of_variables = self.warnings.iter().cloned();
        of_variables.chain(self.warning_of_name()).collect()
    }

    /// Returns what to say where a name is given for what is not exported.
    fn warning_of_name(&self) -> Option<String> {
        let is_own = |setting| !self.by_variables.iter().any(|(one, _)| *one == setting);
        let has_name = self.service_name != OTLP_SERVICE_NAME && is_own("otlp-service-name");
        let has_attributes = !self.attributes.is_empty() && is_own("otlp-resource-attribute");
        let is_alone = !self.has_endpoint && (has_name || has_attributes);
        is_alone.then(|| {
            "otlp-service-name and otlp-resource-attribute say under which name spans are \
             exported, and no spans are: write otlp-endpoint with a URL such as \
             http://localhost:4317"
                .into()
        })
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use super::super::{Settings, SettingsFile};
    use super::*;

    fn resolved(file: &str, variables: &[(&str, &str)]) -> Result<OtlpSettings, String> {
        let file = SettingsFile::parse(file).map_err(|error| error.to_string())?;
        let find = |name: &str| {
            let mut found = variables.iter().filter(|(one, _)| *one == name);
            found.next().map(|(_, value)| OsString::from(value))
        };
        let variables = OtelVariables::of(find);
        let settings = Settings::resolve_with(&ServeArguments::default(), &file, &variables);
        settings
            .map(|settings| settings.otlp)
            .map_err(|error| error.to_string())
    }

    fn otlp(file: &str, variables: &[(&str, &str)]) -> OtlpSettings {
        resolved(file, variables).expect(file)
    }

    const URL: (&str, &str) = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://standard:4317");
    const OWN: &str = "otlp-endpoint = 'http://own:4317'";

    fn url(settings: &OtlpSettings) -> Option<String> {
        settings.endpoint.as_ref().map(ToString::to_string)
    }

    #[test]
    fn what_pelton_is_told_itself_is_stronger_than_the_variables() {
        let nothing = otlp("", &[]);
        assert_eq!((url(&nothing), nothing.warnings.len()), (None, 0));
        let standard = otlp("", &[URL]);
        assert_eq!(url(&standard).as_deref(), Some(URL.1));
        assert_eq!(standard.source.to_string(), URL.0);
        let own = otlp(OWN, &[URL]);
        assert_eq!(url(&own).as_deref(), Some("http://own:4317"));
        assert_eq!(own.source, EndpointSource::File);
        assert!(own.by_variables.is_empty());
    }

    #[test]
    fn each_setting_comes_from_the_strongest_that_says_it() {
        let variables = [
            URL,
            ("OTEL_SERVICE_NAME", "their-name"),
            ("OTEL_RESOURCE_ATTRIBUTES", "a=their,b=their"),
            ("OTEL_TRACES_SAMPLER", "parentbased_always_on"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "x-key=their"),
            ("OTEL_EXPORTER_OTLP_CERTIFICATE", "/their.pem"),
        ];
        let pairs = |all: &[(&str, &str)]| {
            let owned = all
                .iter()
                .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
            owned.collect::<Vec<_>>()
        };
        let theirs = otlp(OWN, &variables);
        assert_eq!(theirs.service_name, "their-name");
        assert_eq!(theirs.attributes, pairs(&[("a", "their"), ("b", "their")]));
        assert_eq!(theirs.sample.to_string(), "1");
        assert_eq!(theirs.headers.names().collect::<Vec<_>>(), ["x-key"]);
        assert_eq!(theirs.ca, None, "there is no TLS");
        let with_tls = otlp("otlp-endpoint = 'https://own:4317'", &variables);
        assert_eq!(with_tls.ca_name, "OTEL_EXPORTER_OTLP_CERTIFICATE");
        let file = format!(
            "{OWN}\notlp-service-name = 'ours'\notlp-sample = '0.5'\n\
             otlp-resource-attribute = ['a=ours', 'a=last']\notlp-header-file = '/headers'"
        );
        let ours = otlp(&file, &variables);
        assert_eq!(ours.service_name, "ours");
        assert_eq!(ours.attributes, pairs(&[("a", "last"), ("b", "their")]));
        assert_eq!(ours.sample.to_string(), "0.5");
        assert!(ours.headers.is_empty() && ours.by_variables.is_empty());
        let named = format!("{OWN}\notlp-resource-attribute = 'service.name=ours'");
        let named = otlp(&named, &variables);
        assert_eq!(named.service_name, "ours");
    }

    #[test]
    fn a_switch_is_weaker_than_an_endpoint_of_pelton_and_that_is_said() {
        let off = ("OTEL_SDK_DISABLED", "true");
        let standard = otlp("otlp-sample = 1", &[URL, off]);
        assert_eq!((url(&standard), standard.warnings.len()), (None, 0));
        let own = otlp(OWN, &[URL, off]);
        assert!(own.endpoint.is_some());
        assert!(
            own.warnings[0].starts_with("OTEL_SDK_DISABLED is true"),
            "{:?}",
            own.warnings
        );
    }

    #[test]
    fn warnings_are_of_what_is_used() {
        let wrong = [
            ("OTEL_RESOURCE_ATTRIBUTES", "nonsense"),
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "nonsense"),
        ];
        assert_eq!(otlp("", &wrong[..1]).warnings, [""; 0]);
        let unread = otlp("", &wrong);
        assert_eq!(unread.warnings.len(), 1);
        assert!(unread.warnings[0].contains("OTEL_EXPORTER_OTLP_ENDPOINT"));
        let own = otlp(OWN, &wrong);
        assert_eq!(own.warnings.len(), 1);
        assert!(own.warnings[0].contains("OTEL_RESOURCE_ATTRIBUTES"));
    }

    #[test]
    fn a_header_that_cannot_be_is_refused_without_what_stands_there() {
        for (header, expected) in [
            ("'s3cret'", "otlp-header, number 1: it is no NAME=VALUE"),
            (
                "['a=b', 's3cret key=s3cret']",
                "otlp-header, number 2: the name",
            ),
            ("'grpc-x=s3cret'", "set by gRPC"),
        ] {
            let file = format!("{OWN}\notlp-header = {header}");
            let message = resolved(&file, &[]).expect_err(header);
            assert!(message.contains(expected), "{message}");
            assert!(!message.contains("s3cret"), "{message}");
        }
    }

    #[test]
    fn attributes_are_bounded() {
        let long = "v".repeat(SPAN_RESOURCE_BYTES);
        let many: Vec<_> = (0..=SPAN_RESOURCE_ATTRIBUTES)
            .map(|number| format!("'k{number}=v'"))
            .collect();
        for attributes in [format!("'k={long}'"), format!("[{}]", many.join(", "))] {
            let file = format!("{OWN}\notlp-resource-attribute = {attributes}");
            let message = resolved(&file, &[]).expect_err("too much");
            assert!(message.contains("name fewer or shorter ones"), "{message}");
        }
    }

    #[test]
    fn a_name_for_what_is_not_exported_is_warned_of() {
        for (file, is_warned) in [
            ("", false),
            ("otlp-service-name = 'shop'", true),
            ("otlp-service-name = 'pelton'", false),
            ("otlp-resource-attribute = 'a=b'", true),
            (OWN, false),
        ] {
            let warning = otlp(file, &[]).warning_of_name();
            assert_eq!(warning.is_some(), is_warned, "{file}");
        }
        // Set for other programs.
        assert_eq!(
            otlp("", &[("OTEL_SERVICE_NAME", "shop")]).warning_of_name(),
            None
        );
    }
}
