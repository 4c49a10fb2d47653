//! The identities that the store of a server has.

use service::identities::{Identities, TokenKey};
use store::Store;

use crate::ServerConfig;
use crate::settings::Log;

/// Who may call, as the store knows them.
pub(crate) fn identities(store: &Store, config: &ServerConfig) -> Identities {
    // Without a secret of the folder there can be no tokens.
    let secret = store.secret().copied().unwrap_or(config.secret);
    let key = TokenKey::new(secret.bytes());
    let identities = Identities::new(key, config.anonymous.clone());
    let identities = identities.with_bindings(config.bindings);
    load_identities(
        &identities,
        store,
        store.clock_ms(config.time.wall_ms()),
        &*config.log,
    );
    identities
}

/// Takes over what the store has of identities, and logs what is wrong with them, unless that was
/// so before.
pub(crate) fn load_identities(identities: &Identities, store: &Store, now_ms: u64, log: &dyn Log) {
    match identities.load_news(store, now_ms) {
        None | Some(Ok(0)) => {}
        Some(Ok(unreadable)) => log.storage(&format!(
            "{unreadable} tokens in the data folder make no sense and let nobody in: create them \
             anew"
        )),
        Some(Err(why)) => log.storage(&format!(
            "the tokens in the data folder let nobody in, since {why}: `pelton token revoke` \
             removes one of them"
        )),
    }
}
