//! Whether clients need a certificate.

use std::fmt;

use clap::ValueEnum;
use serde::Deserialize;

/// Whether clients need a certificate, where a server asks them for one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum ClientAuth {
    /// each client needs one
    Required,
    /// clients may have one
    Optional,
}

impl fmt::Display for ClientAuth {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            ClientAuth::Required => "required",
            ClientAuth::Optional => "optional",
        })
    }
}
