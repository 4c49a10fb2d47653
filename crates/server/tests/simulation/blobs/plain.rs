//! Blobs over plain HTTP/2: what is asked for, and the answers in the form in which those of gRPC
//! are looked at.

use api::blob::{BlobDescription, DownloadResponse, UploadResponse};
use wire::grpc::{Code, Metadata, Status};
use wire::{Head, RequestHead};

use super::calls::Asked;
use super::model::{Content, name};
use super::sending::Sending;

/// A request.
pub struct Request {
    method: &'static str,
    path: String,
    headers: Metadata,
}

impl Request {
    /// `None`: it is asked for over gRPC.
    pub fn of(asked: &Asked) -> Option<Request> {
        match asked {
            Asked::Upload(sending) if sending.is_plain => Some(Request::put(sending)),
            Asked::Download {
                name,
                offset,
                length,
                is_plain: true,
                ..
            } => Some(Request::get(*name, *offset, *length)),
            _ => None,
        }
    }

    fn new(method: &'static str, number: usize) -> Request {
        Request {
            method,
            path: format!("/blob/{}", name(number)),
            headers: Metadata::new(),
        }
    }

    fn add(&mut self, key: &'static str, value: String) {
        self.headers.push_ascii(key, value).expect("it is text");
    }

    fn put(sending: &Sending) -> Request {
        let content = sending.unfinished.content;
        let mut request = Request::new("PUT", sending.unfinished.name);
        request.add("content-type", content.content_type());
        if content.number.is_multiple_of(2) {
            request.add("content-length", content.bytes.to_string());
        }
        match sending.if_version {
            None => {}
            Some(0) => request.add("if-none-match", "*".into()),
            Some(version) => request.add("if-match", format!("\"{version}\"")),
        }
        request
    }

    fn get(number: usize, offset: u64, length: u64) -> Request {
        let mut request = Request::new("GET", number);
        match (offset, length) {
            (0, 0) => {}
            (_, 0) => request.add("range", format!("bytes={offset}-")),
            _ => request.add("range", format!("bytes={offset}-{}", offset + length - 1)),
        }
        request
    }

    pub fn head(&self) -> RequestHead<'_> {
        RequestHead {
            method: self.method,
            metadata: Some(&self.headers),
            ..RequestHead::get("simulation", &self.path)
        }
    }
}

/// The head of an answer.
#[derive(Clone, Debug)]
pub struct Answer {
    status: u16,
    version: Option<u64>,
    content: Option<Content>,
}

impl Answer {
    pub fn new(head: Head<'_>) -> Answer {
        let text = |key: &[u8]| {
            head.get(key)
                .and_then(|value| std::str::from_utf8(value).ok())
        };
        let version = text(b"etag").map(|tag| tag.trim_matches('"').parse().expect("a version"));
        let content_type = text(b"content-type").filter(|text| !text.starts_with("text/"));
        Answer {
            status: head.http_status(),
            version,
            content: content_type.map(Content::of_content_type),
        }
    }

    /// The status that a call over gRPC would have. `is_whole`: an upload, of which everything was
    /// sent.
    pub fn status(&self, is_whole: bool) -> Status {
        let code = match self.status {
            200 | 201 | 206 => Code::Ok,
            412 => Code::Ok,
            404 => Code::NotFound,
            409 => Code::FailedPrecondition,
            416 => Code::OutOfRange,
            503 => Code::Unavailable,
            507 => Code::ResourceExhausted,
            // It may be that nobody knows.
            500 if is_whole => Code::Unknown,
            500 => Code::Internal,
            status => panic!("a plain answer with status {status}"),
        };
        Status::new(code, format!("HTTP {}", self.status))
    }

    /// The message that a call over gRPC would have.
    pub fn message(&self, sent: Option<Content>, body: &[u8]) -> Vec<u8> {
        let is_upload = sent.is_some();
        let content = sent.or(self.content).filter(|_| self.status < 300);
        let content_type = content.map(Content::content_type).unwrap_or_default();
        let blob = content.map(|content| BlobDescription {
            size_bytes: content.bytes as u64,
            content_type: &content_type,
            version: self.version.expect("the answer has the version"),
            ..BlobDescription::default()
        });
        let mut out = Vec::new();
        match is_upload {
            true => UploadResponse {
                applied: self.status == 201,
                blob,
            }
            .encode(&mut out),
            false => {
                let crc32c = Some(crc32c::crc32c(body));
                let head = DownloadResponse {
                    blob,
                    data: body,
                    crc32c,
                };
                head.encode(&mut out);
            }
        }
        out
    }
}
