//! The way to an engine elsewhere.

use std::fmt;
use std::sync::Arc;

use super::catalogue::{RemoteCatalogue, RemoteChange};
use super::commit::RemoteCommit;
use super::read::RemoteRead;

/// The way to an engine that keeps databases. Called by event loops: no method waits for the
/// network, for a lock that somebody holds meanwhile, or for a device.
///
/// A request is completed once, by any thread, within its
/// [`timeout`](RemoteCommit::timeout). Whatever is not completed when the backend stops is dropped,
/// which ends it as well.
pub trait RemoteBackend: Send + Sync + fmt::Debug {
    /// Returns what it speaks to, for people: engine, hosts, keyspace.
    fn description(&self) -> String;

    /// Returns the databases as they were last read from the engine. The one with the empty name
    /// and [`DatabaseId::DEFAULT`](crate::DatabaseId::DEFAULT) is always there.
    fn catalogue(&self) -> Arc<RemoteCatalogue>;

    /// Makes or drops a database. When it is completed, [`catalogue`](RemoteBackend::catalogue)
    /// shows it.
    fn change(&self, change: RemoteChange);

    /// Reads.
    fn read(&self, read: RemoteRead);

    /// Carries out a commit, in these steps:
    ///
    /// 1. If some [key](RemoteCommit::keys) is to be read, all those are read as one: with
    ///    `linearizable` by one serial read of their bucket, with `quorum` at a quorum.
    /// 2. [`RemoteCommit::decide`] decides it from what was found.
    /// 3. [`RemoteStep::Nothing`](super::RemoteStep::Nothing): it is complete. Else its
    ///    [effects](RemoteCommit::effects) are written: with `linearizable` as one conditional
    ///    batch, which takes effect only if every key that was read still has the version that was
    ///    found, or still has none; with `quorum` as one unconditional batch.
    /// 4. Where the condition did not hold, it begins anew with step 1, some times, with a pause
    ///    that grows; then it is [`RemoteError::Contended`](super::RemoteError::Contended).
    ///
    /// A write that was sent and not answered is
    /// [`RemoteError::OutcomeUnknown`](super::RemoteError::OutcomeUnknown), whatever the engine
    /// calls it; it is not sent again, unless a serial read of its keys has shown that it did not
    /// and will not take effect.
    fn commit(&self, commit: RemoteCommit);

    /// Returns whether the engine can serve, from what was seen of it last.
    fn health(&self) -> RemoteHealth;

    /// Returns the nodes of the engine that are known, with what they have to do for this server.
    fn nodes(&self) -> Vec<RemoteNode> {
        Vec::new()
    }

    /// Begins nothing any more, and ends its threads within the timeout of what is under way.
    fn stop(&self);
}

/// A node of an engine, as a server sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteNode {
    /// Its address.
    pub address: String,
    /// Whether there is a connection to it.
    pub is_connected: bool,
    /// Requests of this server that it has not answered.
    pub requests: usize,
    /// How many there may be.
    pub limit_requests: usize,
}

/// Whether an engine can serve.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RemoteHealth {
    /// It can.
    Serving,
    /// Too few of its nodes answer, for this reason. It is tried again.
    NoQuorum(Arc<str>),
    /// Its schema is not what this version needs: what differs, and what to do.
    WrongSchema(Arc<str>),
}
