//! `pelton blob uploads`

use std::time::{SystemTime, UNIX_EPOCH};

use api::blob::{
    DiscardUploadsRequest, ListUploadsRequest, ListUploadsResponse, UploadDescription,
};
use api::rpc::blob::{DiscardUploads, ListUploads};

use super::super::{Caller, in_database, say_miss};
use crate::arguments::UploadsArguments;
use crate::encoding::encode_hex;
use crate::exit::{Exit, Failure};
use crate::output::{Output, bytes, counted, object};

/// Lists or discards uploads that are not complete.
pub fn uploads(arguments: &UploadsArguments) -> Result<Exit, Failure> {
    let place = &arguments.place;
    let mut caller = Caller::connect(&place.connection)?;
    let reply = caller.call::<ListUploads>(&ListUploadsRequest {
        database: &place.database,
    })?;
    let wanted = wanted(arguments, &reply.message());
    if arguments.discard.is_some() || arguments.discard_all {
        return discard(arguments, &mut caller, &wanted);
    }
    let mut output = Output::new(place.connection.output);
    for (upload, age_ms) in &wanted {
        print(upload, *age_ms, &mut output)?;
    }
    output.end()?;
    Ok(Exit::Done)
}

/// The uploads of the name and the idle time that the flags say, each with its idle time in
/// milliseconds.
fn wanted<'a>(
    arguments: &UploadsArguments,
    found: &ListUploadsResponse<'a>,
) -> Vec<(UploadDescription<'a>, u64)> {
    let now_ms = now_ms();
    let mut wanted = Vec::new();
    for upload in found.uploads.iter().flatten() {
        let age_ms = now_ms.saturating_sub(upload.touched_at_ms);
        let is_named = arguments
            .discard
            .as_ref()
            .is_none_or(|name| name == upload.name);
        if is_named && arguments.idle.is_none_or(|idle| age_ms >= idle.ms) {
            wanted.push((upload, age_ms));
        }
    }
    wanted
}

/// Discards uploads, and prints how many there still were.
fn discard(
    arguments: &UploadsArguments,
    caller: &mut Caller,
    uploads: &[(UploadDescription<'_>, u64)],
) -> Result<Exit, Failure> {
    let place = &arguments.place;
    let (mut discarded, mut discarded_bytes) = (0, 0);
    for (upload, _) in uploads {
        let reply = caller.call::<DiscardUploads>(&DiscardUploadsRequest {
            database: &place.database,
            name: upload.name,
            upload_id: upload.upload_id,
        })?;
        let count = reply.message().discarded;
        if count > 0 {
            discarded += count;
            discarded_bytes += upload.stored_bytes;
        }
    }
    let line = format!(
        "discarded {} with {}",
        counted(discarded, "upload", "uploads"),
        bytes(discarded_bytes)
    );
    let is_miss = arguments.discard.is_some() && discarded == 0;
    let mut output = Output::new(place.connection.output);
    // Of a miss the line below says it.
    if output.is_json() || !is_miss {
        output.either(&line, || {
            object([
                ("discarded", discarded.into()),
                ("discarded_bytes", discarded_bytes.into()),
            ])
        })?;
    }
    output.end()?;
    match &arguments.discard {
        Some(name) if discarded == 0 => {
            let of = in_database(&place.database);
            let message = format!("there is no unfinished upload of `{name}`{of}");
            say_miss(place.connection.output, &message);
            Ok(Exit::Miss)
        }
        _ => Ok(Exit::Done),
    }
}

fn print(upload: &UploadDescription<'_>, age_ms: u64, output: &mut Output) -> Result<(), Failure> {
    let id = text_of_id(upload.upload_id);
    let peer = match upload.peer {
        "" => "-",
        peer => peer,
    };
    let state = if upload.open { "open" } else { "idle" };
    let line = format!(
        "{}\t{}\t{peer}\t{state}\t{id}\t{}",
        upload.stored_bytes,
        age(age_ms),
        upload.name
    );
    output.either(&line, || {
        object([
            ("name", upload.name.into()),
            ("upload_id", id.clone().into()),
            ("stored_bytes", upload.stored_bytes.into()),
            ("touched_at_ms", upload.touched_at_ms.into()),
            ("age_ms", age_ms.into()),
            ("open", upload.open.into()),
            ("peer", upload.peer.into()),
        ])
    })
}

/// An id as it is shown: plain text as it is, anything else in hexadecimal.
fn text_of_id(id: &[u8]) -> String {
    let is_plain = id.iter().all(u8::is_ascii_graphic) && !id.starts_with(b"0x");
    match std::str::from_utf8(id) {
        Ok("") => "-".to_owned(),
        Ok(text) if is_plain => text.to_owned(),
        _ => format!("0x{}", encode_hex(id)),
    }
}

/// A span of time with its largest unit, as flags take it.
fn age(ms: u64) -> String {
    match ms / 1_000 {
        s @ 0..120 => format!("{s}s"),
        s @ 120..7_200 => format!("{}min", s / 60),
        s @ 7_200..172_800 => format!("{}h", s / 3_600),
        s => format!("{}d", s / 86_400),
    }
}

fn now_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |now| u64::try_from(now.as_millis()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_and_ages_are_short_and_unambiguous() {
        assert_eq!(text_of_id(b"a-1"), "a-1");
        assert_eq!(text_of_id(b""), "-");
        assert_eq!(text_of_id(b"0x12"), "0x30783132");
        assert_eq!(text_of_id(&[0, 255]), "0x00ff");
        assert_eq!(age(999), "0s");
        assert_eq!(age(119_999), "119s");
        assert_eq!(age(120_000), "2min");
        assert_eq!(age(7_200_000), "2h");
        assert_eq!(age(172_800_000), "2d");
    }
}
