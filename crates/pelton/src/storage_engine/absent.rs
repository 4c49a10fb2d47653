//! A build without the feature `cassandra`.

use server::Storage;

use super::{EngineAccess, EngineInit};
use crate::exit::Failure;
use crate::settings::Settings;

/// Refuses: this build reaches no engine.
pub fn open(settings: &Settings) -> Result<Storage, Failure> {
    let access = EngineAccess::of_settings(&settings.engine);
    Err(absent(&access))
}

/// The same, if the settings name an engine.
pub fn check(settings: &Settings) -> Result<(), Failure> {
    match settings.engine.store {
        Some(_) => open(settings).map(|_| ()),
        None => Ok(()),
    }
}

/// The same. Would return whether the keyspace is new.
pub fn init(access: &EngineAccess, _: EngineInit) -> Result<bool, Failure> {
    Err(absent(access))
}

fn absent(access: &EngineAccess) -> Failure {
    Failure::Usage(format!(
        "this build of pelton cannot reach {}: it was made without the feature `cassandra`; use \
         one that has it, as releases do",
        access.contacts.join(", ")
    ))
}
