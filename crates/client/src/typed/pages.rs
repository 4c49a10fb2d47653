//! Calls whose responses are pages.

use std::iter::FusedIterator;

use api::rpc::Rpc;
use wire::grpc::Metadata;

use super::reply::Reply;
use super::stream::{AwaitedStream, Replies, ReplySource};
use crate::error::{CallError, bad_answer};

/// A method whose responses are pages, the last of which says that it is.
pub trait PagedMethod: Rpc + Sized {
    /// What a response becomes.
    type Page;

    /// Returns the page that a response is, and whether it is the last one.
    fn page(reply: &Reply<Self>) -> (Self::Page, bool);
}

/// The pages of a call, in order. A server waits while the next one is not asked for. Dropped
/// early: the call is cancelled.
#[derive(Debug)]
pub struct Pages<M, S> {
    replies: Replies<M, S>,
    /// The last page has come.
    is_complete: bool,
    /// The call has ended, well or not.
    is_over: bool,
}

impl<M: PagedMethod, S> Pages<M, S> {
    pub(super) fn new(replies: Replies<M, S>) -> Pages<M, S> {
        Pages {
            replies,
            is_complete: false,
            is_over: false,
        }
    }

    fn take(
        &mut self,
        reply: Result<Option<Reply<M>>, CallError>,
    ) -> Result<Option<M::Page>, CallError> {
        if let Ok(Some(reply)) = &reply {
            let (page, is_last) = M::page(reply);
            self.is_complete |= is_last;
            return Ok(Some(page));
        }
        self.is_over = true;
        match reply? {
            None if !self.is_complete => Err(bad_answer("the last page is missing")),
            _ => Ok(None),
        }
    }
}

impl<M: PagedMethod, S: ReplySource> Pages<M, S> {
    /// Returns the next page; `None` behind the last one.
    ///
    /// # Errors
    /// If the call ends before its last page: once.
    pub fn next_page(&mut self) -> Result<Option<M::Page>, CallError> {
        if self.is_over {
            return Ok(None);
        }
        let reply = self.replies.next_reply();
        self.take(reply)
    }

    /// Waits for the initial metadata, as [`ReplySource::initial_metadata`] returns them.
    ///
    /// # Errors
    /// If the call has failed before; [`Pages::next_page`] returns the same.
    pub fn initial_metadata(&mut self) -> Result<Metadata, CallError> {
        self.replies.initial_metadata()
    }
}

impl<M: PagedMethod> Pages<M, AwaitedStream> {
    /// Resolves to the next page; `None` behind the last one. Dropped before: nothing is lost.
    ///
    /// # Errors
    /// If the call ends before its last page: once.
    pub async fn next_page(&mut self) -> Result<Option<M::Page>, CallError> {
        if self.is_over {
            return Ok(None);
        }
        let reply = self.replies.next_reply().await;
        self.take(reply)
    }

    /// Resolves to the initial metadata, as [`ReplySource::initial_metadata`] returns them.
    ///
    /// # Errors
    /// If the call has failed before; [`Pages::next_page`] returns the same.
    pub async fn initial_metadata(&mut self) -> Result<Metadata, CallError> {
        self.replies.initial_metadata().await
    }
}

/// Ends behind the first error.
impl<M: PagedMethod, S: ReplySource> Iterator for Pages<M, S> {
    type Item = Result<M::Page, CallError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_page().transpose()
    }
}

impl<M: PagedMethod, S: ReplySource> FusedIterator for Pages<M, S> {}
