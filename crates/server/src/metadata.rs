//! The metadata of a request, for the few methods that look at it.

use service::{Metadata, Method};
use wire::grpc::metadata::AUTHORIZATION;

use crate::rpc_connection::RpcConnection;

/// Name and value.
type CopiedField = (Box<[u8]>, Box<[u8]>);

/// A copy of the metadata of one request, without secrets; empty, and free, for methods that do not
/// ask.
pub(crate) struct CapturedMetadata(Vec<CopiedField>);

impl CapturedMetadata {
    pub fn of(connection: &RpcConnection, method: Method) -> CapturedMetadata {
        let copy = |(name, value): (&[u8], &[u8])| (name.into(), value.into());
        let is_secret = |name: &[u8]| name == AUTHORIZATION.as_bytes();
        let may_be_copied = |(name, _): &(&[u8], &[u8])| !is_secret(name);
        if method.is_plain() {
            let head = connection.head();
            CapturedMetadata(head.fields().filter(may_be_copied).map(copy).collect())
        } else if method.reads_metadata() {
            let head = connection.head();
            CapturedMetadata(head.metadata().filter(may_be_copied).map(copy).collect())
        } else {
            CapturedMetadata(Vec::new())
        }
    }
}

impl Metadata for CapturedMetadata {
    fn first(&self, name: &[u8]) -> Option<&[u8]> {
        self.0
            .iter()
            .find(|(other, _)| **other == *name)
            .map(|(_, value)| &**value)
    }
}
