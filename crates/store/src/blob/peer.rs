//! Where an upload comes from, as far as that is known.

use std::net::IpAddr;

/// The peer of an upload, by which uploads are bounded: those of one peer make room for each other
/// first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum UploadPeer {
    /// Not known, as of uploads that an earlier run of the server received: all these count as one
    /// peer.
    #[default]
    Unknown,
    /// A process of this machine, over a UNIX socket.
    Local,
    /// An address; of IPv6 that of the network which counts as one peer, as whoever accepts
    /// connections sees it.
    Address(IpAddr),
}

impl UploadPeer {
    /// Returns the peer with an address, which stands for all addresses of that peer.
    pub fn with_address(address: IpAddr) -> UploadPeer {
        UploadPeer::Address(address)
    }
}
