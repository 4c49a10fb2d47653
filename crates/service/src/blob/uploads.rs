//! Uploads that are not complete: ListUploads and DiscardUploads.

use store::blob::{BlobNews, UploadPeer, Work, limits};

use super::refuse;
use crate::actions::{BlobAccess, Permissions, ResponseMemory, Responses};
use crate::call::Shared;
use crate::method::Method;
use crate::rights::Right;
use crate::status::Status;
use api::blob::{
    DiscardUploadsRequest, DiscardUploadsResponse, ListUploadsRequest, ListUploadsResponse,
    UploadDescription,
};
use protobuf::writer;

/// Bytes of the largest list: of each upload its name and id, and less than 100 for the rest.
const LIST_BYTES: usize =
    limits::UPLOADS_PER_DATABASE * (limits::NAME_BYTES + limits::UPLOAD_ID_BYTES + 100);

/// Asks for the list; false: the request comes once more, when there is memory for the response.
pub(super) fn begin_list(
    bytes: &[u8],
    shared: &Shared,
    actions: &mut (impl BlobAccess + Permissions + ResponseMemory),
) -> Result<bool, Status> {
    let request = ListUploadsRequest::decode(bytes)
        .map_err(|error| refuse::invalid(Method::BlobListUploads, error))?;
    let place = (request.database, "");
    let (database, _) = refuse::database(Right::Read, place, shared, actions)?;
    let has_room = actions.room_for_answer(LIST_BYTES);
    if has_room {
        actions.blob(Work::ListUploads { database });
    }
    Ok(has_room)
}

pub(super) fn begin_discard(
    bytes: &[u8],
    shared: &Shared,
    actions: &mut (impl BlobAccess + Permissions),
) -> Result<(), Status> {
    let request = DiscardUploadsRequest::decode(bytes)
        .map_err(|error| refuse::invalid(Method::BlobDiscardUploads, error))?;
    let place = (request.database, request.name);
    let (database, _) = refuse::database(Right::Write, place, shared, actions)?;
    refuse::name("name", request.name)?;
    if request.upload_id.len() > limits::UPLOAD_ID_BYTES {
        return Err(Status::invalid_argument(format!(
            "field upload_id has {} bytes, at most {} are allowed",
            request.upload_id.len(),
            limits::UPLOAD_ID_BYTES
        )));
    }
    actions.blob(Work::DiscardUploads {
        database,
        name: request.name.into(),
        upload_id: request.upload_id.into(),
    });
    Ok(())
}

pub(super) fn answer(news: BlobNews, actions: &mut impl Responses) {
    match news {
        BlobNews::Uploads(uploads) => actions.respond(|out| {
            for upload in &uploads {
                let peer = match upload.peer {
                    UploadPeer::Unknown => String::new(),
                    UploadPeer::Local => "unix".to_owned(),
                    UploadPeer::Address(address) => address.to_string(),
                };
                let described = UploadDescription {
                    name: &upload.name,
                    upload_id: &upload.upload_id,
                    stored_bytes: upload.stored_bytes,
                    touched_at_ms: upload.touched_ms,
                    open: upload.has_stream,
                    peer: &peer,
                };
                let number = ListUploadsResponse::NUMBERS.uploads;
                writer::message(out, number, |out| described.encode(out));
            }
        }),
        BlobNews::Discarded(discarded) => {
            actions.respond(|out| DiscardUploadsResponse { discarded }.encode(out));
        }
        _ => debug_assert!(false, "nothing else was asked for"),
    }
}

#[cfg(test)]
mod tests {
    use crate::compat::gupload_tests::bench::Bench;
    use crate::fake::Fake;
    use crate::method::Method;

    #[test]
    fn a_list_is_made_when_there_is_memory_for_it() {
        let shared = Bench::new().shared;
        let mut fake = Fake::new(Method::BlobListUploads, &shared);
        fake.actions.has_room = false;
        for _ in 0..2 {
            fake.message(b"", true, &shared);
            assert!(std::mem::take(&mut fake.actions.puts_back));
            assert!(fake.actions.work.is_none() && fake.actions.asked_bytes > 1 << 20);
        }
        fake.actions.has_room = true;
        fake.message(b"", true, &shared);
        assert!(!fake.actions.puts_back && fake.actions.work.is_some());
    }
}
