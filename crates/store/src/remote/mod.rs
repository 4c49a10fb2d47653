//! Databases on an engine elsewhere: the contract for a store behind a network.
//!
//! The engine keeps the entries; this process keeps nothing but what is under way. A
//! [`RemoteBackend`] is the way to an engine. Whoever writes one implements that trait and nothing
//! else; what a commit means is decided here, from what the backend has read, by the same code that
//! decides the commits of every other database.
//!
//! # By completion
//!
//! A request is handed over and the call returns at once: [`RemoteRead`], [`RemoteCommit`] and
//! [`RemoteChange`] own all their bytes, know where their answer goes, and are ended once, by
//! `complete`. One that is dropped without that is ended as well, as one of which nothing is known.
//! Answers go to a [`RemoteSink`], which is that of an event loop: it gathers what has come and
//! wakes its loop once for all of it.
//!
//! # What is under way is bounded
//!
//! Each request has its share of a [`RemoteRoom`] before it is handed over, and gives it back when
//! its answer is dropped, so that an engine that does not answer costs a bounded amount of memory.
//! A backend has bounds of its own per node, and refuses early
//! ([`Busy`](RemoteError::Busy)) what would only wait.

mod backend;
mod catalogue;
mod commit;
mod databases;
mod found;
mod gather;
mod life;
mod parts;
mod read;
mod room;
mod sink;
mod store;

pub use backend::{RemoteBackend, RemoteHealth, RemoteNode};
pub use catalogue::{
    RemoteCatalogue, RemoteChange, RemoteChangeError, RemoteDatabase, WhatChanges,
};
pub use commit::{RemoteAfter, RemoteCommit, RemoteEffect, RemoteStep};
pub use parts::RemoteKey;
pub use read::{RemoteAnswer, RemotePageEnd, RemoteRead, RemoteReadRequest, RemoteRow};
pub use room::{RemoteRoom, RoomShare};
pub use sink::{RemoteDone, RemoteFetched, RemoteSink};
pub use store::{RemoteLoop, RemoteOpenError, RemoteStore};

pub use crate::remote_kind::{
    Lack, RemoteEntry, RemoteError, RemoteOrder, RemotePromise, RemoteShape, ShapeError, limits,
};
