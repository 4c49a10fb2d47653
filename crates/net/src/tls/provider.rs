//! The cryptography of both sides.

use std::sync::Arc;

use rustls::crypto::CryptoProvider;

/// AES-128 comes first: it is about a third cheaper than AES-256 and nobody has broken either. A
/// peer without AES in hardware asks for ChaCha20, which a server of ours then takes, since it
/// follows the client's order.
pub(super) fn provider() -> Arc<CryptoProvider> {
    use rustls::crypto::ring::{cipher_suite, default_provider};
    let mut provider = default_provider();
    let first = cipher_suite::TLS13_AES_128_GCM_SHA256;
    provider.cipher_suites.retain(|&suite| suite != first);
    provider.cipher_suites.insert(0, first);
    Arc::new(provider)
}
