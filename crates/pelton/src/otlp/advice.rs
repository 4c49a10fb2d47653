//! What to do about exports that fail.

use client::otlp::{ExportFault, OtlpEndpoint};

/// How what concerns exports is called where the process is told of it: by flags of a server, by
/// variables of a command.
pub struct SettingNames {
    pub endpoint: &'static str,
    pub ca: &'static str,
    pub header: &'static str,
    pub header_file: &'static str,
}

/// Those of a server.
pub const OF_SERVER: SettingNames = SettingNames {
    endpoint: "--otlp-endpoint",
    ca: "--otlp-ca",
    header: "--otlp-header NAME=VALUE",
    header_file: "--otlp-header-file",
};

/// Those of a command.
pub const OF_COMMAND: SettingNames = SettingNames {
    endpoint: "PELTON_OTLP_ENDPOINT",
    ca: "PELTON_OTLP_CA",
    header: "PELTON_OTLP_HEADER=NAME=VALUE",
    header_file: "PELTON_OTLP_HEADER_FILE",
};

/// The port of OTLP over HTTP.
const HTTP_PORT: u16 = 4318;

/// What is said of such a port, and of servers that speak HTTP/1.1.
const IS_HTTP: &str = "that is OTLP over HTTP, and spans are exported over gRPC: collectors \
                       usually take that at port 4317";

/// Returns what to do about a fault.
pub fn advice(fault: ExportFault, endpoint: &OtlpEndpoint, names: &SettingNames) -> String {
    let SettingNames {
        endpoint: flag,
        ca,
        header,
        header_file,
    } = names;
    let address = endpoint.address();
    let is_http_port = matches!(address, net::Address::Tcp { port, .. } if *port == HTTP_PORT);
    match fault {
        ExportFault::SpeaksHttp1 => format!("{IS_HTTP} ({flag})"),
        ExportFault::Closed | ExportFault::Other | ExportFault::NoTraceService if is_http_port => {
            format!("port {HTTP_PORT}: {IS_HTTP} ({flag})")
        }
        ExportFault::NobodyListens => format!(
            "start the collector, or correct host and port in {flag}; OTLP over gRPC is usually \
             port 4317"
        ),
        ExportFault::UnknownHost => {
            format!("correct the name of the host in {flag}, or make it known to this machine")
        }
        ExportFault::Silent => format!(
            "see that host and port in {flag} are those of a collector that runs, and that nothing \
             in between drops what is sent there"
        ),
        ExportFault::Certificate => format!(
            "name the certificate of the collector, or of the authority that has signed it, in \
             {ca}, and write a host in {flag} that is in the certificate"
        ),
        ExportFault::SpeaksPlain => {
            format!("where the collector speaks no TLS, use http:// and not https:// in {flag}")
        }
        ExportFault::RefusesTls => format!(
            "the collector has refused the handshake: it may want a certificate of its clients, \
             which spans are not exported with, or another host in {flag}"
        ),
        ExportFault::SpeaksTls => {
            format!("use https:// and not http:// in {flag}, and {ca} if its authority is your own")
        }
        ExportFault::Closed => format!(
            "where the collector speaks TLS, use https:// in {flag}; else see that it takes OTLP \
             over gRPC at this port"
        ),
        ExportFault::Denied => format!(
            "give the key or token that the collector wants by {header}, or in a file \
             ({header_file})"
        ),
        ExportFault::NoTraceService => format!(
            "what listens there takes no traces over gRPC: name a collector whose configuration \
             has the receiver otlp, and a pipeline of traces, in {flag}"
        ),
        ExportFault::Other => {
            format!("see that a collector takes OTLP over gRPC there ({flag})")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(fault: ExportFault, endpoint: &str, names: &SettingNames) -> String {
        advice(fault, &endpoint.parse().expect("a URL"), names)
    }

    #[test]
    fn each_fault_names_what_to_change() {
        let url = "http://collector:4317";
        for (fault, expected) in [
            (ExportFault::NobodyListens, "start the collector"),
            (ExportFault::UnknownHost, "correct the name of the host"),
            (ExportFault::Silent, "a collector that runs"),
            (ExportFault::Certificate, "in --otlp-ca"),
            (ExportFault::SpeaksPlain, "use http:// and not https://"),
            (ExportFault::RefusesTls, "a certificate of its clients"),
            (ExportFault::SpeaksTls, "use https:// and not http://"),
            (ExportFault::SpeaksHttp1, "OTLP over HTTP"),
            (ExportFault::Closed, "use https://"),
            (
                ExportFault::Denied,
                "--otlp-header NAME=VALUE, or in a file (--otlp-header-file)",
            ),
            (ExportFault::NoTraceService, "takes no traces"),
            (ExportFault::Other, "OTLP over gRPC there (--otlp-endpoint)"),
        ] {
            let said = said(fault, url, &OF_SERVER);
            assert!(said.contains(expected), "{fault:?}: {said}");
        }
    }

    #[test]
    fn a_command_is_told_of_its_variables() {
        let told = |fault| said(fault, "http://collector:4317", &OF_COMMAND);
        assert!(told(ExportFault::Certificate).contains("PELTON_OTLP_CA"));
        let denied = told(ExportFault::Denied);
        assert!(denied.contains("PELTON_OTLP_HEADER=NAME=VALUE"), "{denied}");
        assert!(denied.contains("(PELTON_OTLP_HEADER_FILE)"), "{denied}");
    }

    #[test]
    fn the_port_of_otlp_over_http_is_known() {
        for fault in [ExportFault::Closed, ExportFault::Other] {
            let said = said(fault, "http://collector:4318", &OF_SERVER);
            assert!(said.contains("usually take that at port 4317"), "{said}");
        }
    }
}
