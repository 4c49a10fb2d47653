//! Plain HTTP/2 requests that are more than a question who is there: `/blob/NAME`, by method, and
//! `/upload`, which [`compat::gupload`](crate::compat::gupload) serves.
//!
//! They are calls like others: [`route`] finds their [`Method`], and an error ends them with a
//! [`Status`], which the layer above puts into the words of HTTP.

mod blob;
mod condition;
mod range;
mod target;
#[cfg(test)]
mod tests;

use store::blob::BlobNews;
use store::{CommitOutcome, ReadView};

use crate::actions::{
    BlobAccess, CallClock, DatabaseAccess, Permissions, PlainResponse, RequestFlow, ResponseMemory,
    Responses, SendRoom,
};
use crate::call::{CallHead, CallSteps, PlanReads, Shared};
use crate::method::Method;
use blob::{Delete, Get, Put};

/// What can be done with a blob, the only resource with more than one method, as the header `allow`
/// has it.
pub const ALLOWED_METHODS: &str = "PUT, GET, HEAD, DELETE";

/// The body of the answer to another method than [`ALLOWED_METHODS`].
pub const NOT_ALLOWED: &str = "a blob has the methods of the header allow\n";

/// Returns whether a path is that of a resource, which has [`ALLOWED_METHODS`].
pub fn is_resource(path: &[u8]) -> bool {
    path.starts_with(target::BLOB.as_bytes())
}

/// The method of a plain request, by its `:method` and `:path`.
pub fn route(method: &[u8], path: &[u8]) -> Option<Method> {
    if target::is_upload(path) {
        return Some(Method::HttpGupload);
    }
    if !is_resource(path) {
        return None;
    }
    match method {
        b"PUT" => Some(Method::HttpBlobPut),
        b"GET" => Some(Method::HttpBlobGet),
        b"HEAD" => Some(Method::HttpBlobHead),
        b"DELETE" => Some(Method::HttpBlobDelete),
        _ => None,
    }
}

/// A plain request.
pub struct HttpCall(Box<HttpStep>);

enum HttpStep {
    Put(Put),
    Get(Get),
    Delete(Delete),
    Over,
}

impl HttpCall {
    /// Begins one.
    pub fn started<A>(
        method: Method,
        head: &CallHead<'_>,
        shared: &Shared,
        actions: &mut A,
    ) -> HttpCall
    where
        A: DatabaseAccess + Permissions + BlobAccess + Responses + RequestFlow + CallClock,
    {
        let begun = match method {
            Method::HttpBlobPut => Put::begin(head, shared, actions).map(HttpStep::Put),
            Method::HttpBlobDelete => Delete::begin(head, shared, actions).map(HttpStep::Delete),
            _ => {
                let is_head = method == Method::HttpBlobHead;
                Get::begin(head, is_head, shared, actions).map(HttpStep::Get)
            }
        };
        HttpCall(Box::new(begun.unwrap_or_else(|status| {
            actions.finish(status);
            HttpStep::Over
        })))
    }
}

impl PlanReads for HttpCall {}

impl<A> CallSteps<A> for HttpCall
where
    A: DatabaseAccess
        + BlobAccess
        + Responses
        + PlainResponse
        + SendRoom
        + ResponseMemory
        + RequestFlow
        + CallClock,
{
    fn message(&mut self, bytes: &[u8], last: bool, shared: &Shared, actions: &mut A) {
        if let HttpStep::Put(put) = &mut *self.0 {
            put.add(bytes, actions);
        }
        if last {
            self.half_closed(shared, actions);
        }
    }

    fn half_closed(&mut self, _shared: &Shared, actions: &mut A) {
        match &mut *self.0 {
            HttpStep::Put(put) => put.end(actions),
            HttpStep::Delete(delete) => delete.go(actions),
            HttpStep::Get(_) | HttpStep::Over => {}
        }
    }

    fn read(&mut self, view: &ReadView<'_>, kept: &[u8], shared: &Shared, actions: &mut A) {
        if let HttpStep::Get(get) = &mut *self.0 {
            get.open(view, kept, shared, actions);
        }
    }

    fn blob(&mut self, news: BlobNews, _shared: &Shared, actions: &mut A) {
        match &mut *self.0 {
            HttpStep::Put(put) => put.news(news, actions),
            HttpStep::Get(get) => get.news(news, actions),
            _ => debug_assert!(false, "nothing was to be done"),
        }
    }

    fn committed(&mut self, outcome: &CommitOutcome<'_>, _shared: &Shared, actions: &mut A) {
        match &mut *self.0 {
            HttpStep::Put(put) => put.committed(outcome, actions),
            HttpStep::Delete(delete) => delete.committed(outcome, actions),
            _ => debug_assert!(false, "nothing was submitted"),
        }
    }

    fn writable(&mut self, _shared: &Shared, actions: &mut A) {
        if let HttpStep::Get(get) = &mut *self.0 {
            get.go_on(actions);
        }
    }
}

#[cfg(test)]
#[test]
fn plain_requests_have_their_methods() {
    let methods: [&[u8]; 5] = [b"PUT", b"GET", b"HEAD", b"DELETE", b"POST"];
    let of_blobs = [
        Some(Method::HttpBlobPut),
        Some(Method::HttpBlobGet),
        Some(Method::HttpBlobHead),
        Some(Method::HttpBlobDelete),
        None,
    ];
    for (path, is_of_blob, expected) in [
        (&b"/blob/name"[..], true, of_blobs),
        (b"/blob/", true, of_blobs),
        (b"/blob", false, [None; 5]),
        (b"/other", false, [None; 5]),
        (b"/upload", false, [Some(Method::HttpGupload); 5]),
        (b"/upload?x", false, [Some(Method::HttpGupload); 5]),
        (b"/uploads", false, [None; 5]),
    ] {
        assert_eq!(is_resource(path), is_of_blob);
        let routes = methods.map(|method| route(method, path));
        assert_eq!(routes, expected, "{}", path.escape_ascii());
    }
}
