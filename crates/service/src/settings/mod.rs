//! What an operator chooses for services: what all calls of a server share, and nobody changes.

pub mod names;
pub mod simulate;
pub mod tkrzw;

use names::NameGenerator;
use simulate::Simulator;
use tkrzw::TkrzwSettings;

/// How the services of a server are to be.
#[derive(Debug, Default)]
pub struct ServiceSettings {
    /// Whether `grpc.testing.TestService` is served.
    pub interop: bool,
    /// How `io.grpc.KeyValueService` is served.
    pub kvstore: KvstoreSettings,
    /// How `messaging.GuploadService` and `/upload` are served.
    pub gupload: GuploadSettings,
    /// How `tkrzw_rpc.DBMService` is served.
    pub tkrzw: TkrzwSettings,
}

/// How `io.grpc.KeyValueService` is to be.
#[derive(Debug, Default)]
pub struct KvstoreSettings {
    /// The database with its keys; empty: the default one.
    pub database: Box<str>,
    /// Delays operations.
    pub simulator: Option<Simulator>,
}

/// How uploads to `messaging.GuploadService` and `/upload` are taken.
#[derive(Debug, Default)]
pub struct GuploadSettings {
    /// They are thrown away.
    pub discard: bool,
    /// Under which names they are kept otherwise.
    pub names: NameGenerator,
}
