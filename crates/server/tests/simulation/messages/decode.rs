//! Answers as what they say.

use api::admin::{
    CreateDatabaseResponse, DatabaseStatistics, DropDatabaseResponse, ListDatabasesResponse,
};
use api::keyvalue::{
    AppendResponse, BatchResponse, Change, ChangeKind, CountResponse, DeleteResponse, Entry,
    GetResponse, IncrementRefusal, IncrementResponse, PipeResponse, PutResponse, ResultBody,
    ScanPage, TransactResponse, WatchResponse,
};
use protobuf::Reader;

use crate::databases;
use crate::history::{Answer, Asked, Page, Seen, ToldCommit};
use crate::keys::{self, Key};

/// The longest content of each log of a database that anybody saw in one life. Every other must be
/// a beginning of it.
pub type Logs = Vec<Vec<u64>>;

/// What the messages of a call say that ended well.
pub fn decode(asked: &Asked, by: u64, messages: &[Vec<u8>], logs: &mut Logs) -> Answer {
    if let Asked::Scan { keys_only, .. } = asked {
        let pages = messages
            .iter()
            .map(|message| page(message, *keys_only, logs));
        return Answer::Pages(pages.collect());
    }
    if let Asked::Changes { .. } = asked {
        return changes(messages, logs);
    }
    if let Asked::EchoStream {
        messages: sent,
        bytes,
        ..
    } = asked
    {
        assert_eq!(
            messages.len(),
            *sent as usize,
            "one answer for each message"
        );
        messages
            .iter()
            .for_each(|message| check_echo(message, by, *bytes));
        return Answer::Other;
    }
    assert_eq!(messages.len(), 1, "{asked:?}: a unary call has one answer");
    let message = &messages[0][..];
    match asked {
        Asked::Get(key) => get(
            *key,
            &GetResponse::decode(message).expect("a GetResponse"),
            logs,
        ),
        Asked::Put { key, .. } => put_answer(
            *key,
            &PutResponse::decode(message).expect("a PutResponse"),
            logs,
        ),
        Asked::Delete { key, .. } => {
            let response = DeleteResponse::decode(message).expect("a DeleteResponse");
            Answer::Delete {
                deleted: response.deleted,
                version: response.version,
                previous: response.previous.map(|entry| seen(*key, &entry, logs)),
                sequence: response.sequence,
            }
        }
        Asked::Append(_) => {
            let response = AppendResponse::decode(message).expect("an AppendResponse");
            assert!(response.applied, "it had no condition");
            Answer::Append {
                version: response.version,
                length: response.length,
            }
        }
        Asked::Increment(_) => {
            let response = IncrementResponse::decode(message).expect("an IncrementResponse");
            let unrefused = IncrementRefusal::Unspecified.number();
            assert!(
                response.applied && response.refusal == unrefused,
                "{response:?}"
            );
            Answer::Increment {
                version: response.version,
                value: response.value,
            }
        }
        Asked::WriteGroup { .. } | Asked::WriteMany(_) | Asked::ReadMany(_) => {
            let response = BatchResponse::decode(message).expect("a BatchResponse");
            batch(asked, &response, logs)
        }
        Asked::Transact { .. } => transact(asked, message, logs),
        Asked::Create => {
            let response = CreateDatabaseResponse::decode(message);
            Answer::Created(response.expect("a CreateDatabaseResponse").created)
        }
        Asked::Drop => {
            let response = DropDatabaseResponse::decode(message);
            Answer::Dropped(response.expect("a DropDatabaseResponse").dropped)
        }
        Asked::List => {
            let name = |database: Result<DatabaseStatistics<'_>, _>| {
                let described = database.expect("a database").database;
                databases::of_name(described.expect("it has a name").name)
            };
            let response = ListDatabasesResponse::decode(message).expect("a list");
            Answer::Databases(response.databases.iter().map(name).collect())
        }
        Asked::Count(_) => {
            let response = CountResponse::decode(message).expect("a CountResponse");
            assert!(response.exact);
            Answer::Count {
                count: response.count,
                views: response.views,
                sequence: response.sequence,
            }
        }
        Asked::Echo { bytes, .. } => {
            check_echo(message, by, *bytes);
            Answer::Other
        }
        Asked::Check => {
            assert_eq!(message, [8, 1], "SERVING while it serves");
            Answer::Other
        }
        _ => unreachable!("{asked:?} has no answer that is one message"),
    }
}

fn check_echo(message: &[u8], by: u64, bytes: usize) {
    let field = Reader::new(message)
        .next_field()
        .expect("a message")
        .expect("a field");
    let payload = field.1.bytes().expect("bytes");
    assert_eq!((field.0, payload.len()), (1, bytes.max(8)));
    assert_eq!(
        keys::writer_of(0, payload),
        by,
        "the answer of another call"
    );
}

fn get(key: Key, response: &GetResponse<'_>, logs: &mut Logs) -> Answer {
    let entry = Entry {
        value: response.value,
        version: response.version,
        expires_at_ms: response.expires_at_ms,
        ..Entry::default()
    };
    Answer::Get(response.found.then(|| seen(key, &entry, logs)))
}

fn put_answer(key: Key, response: &PutResponse<'_>, logs: &mut Logs) -> Answer {
    Answer::Put {
        applied: response.applied,
        version: response.version,
        previous: response.previous.map(|entry| seen(key, &entry, logs)),
    }
}

fn batch(asked: &Asked, response: &BatchResponse<'_>, logs: &mut Logs) -> Answer {
    if !response.applied {
        assert_eq!(
            response.failed_operation, 0,
            "only the first has a condition"
        );
        return match response.failed_result.and_then(|failed| failed.result) {
            Some(ResultBody::Put(put)) if !put.applied => Answer::Failed { found: put.version },
            other => panic!("{asked:?}: {other:?}"),
        };
    }
    let keys = match asked {
        Asked::ReadMany(keys) => keys.clone(),
        other => other.writes(),
    };
    Answer::Batch {
        sequence: response.sequence,
        results: results(asked, &keys, response, logs),
    }
}

fn results(
    asked: &Asked,
    keys: &[Key],
    response: &BatchResponse<'_>,
    logs: &mut Logs,
) -> Vec<Answer> {
    let results: Vec<_> = response
        .results
        .iter()
        .map(|result| result.expect("a result").result.expect("known"))
        .collect();
    assert_eq!(results.len(), keys.len(), "a result for each operation");
    let result = |(key, result): (&Key, &ResultBody<'_>)| match result {
        ResultBody::Get(response) => get(*key, response, logs),
        ResultBody::Put(response) => put_answer(*key, response, logs),
        other => panic!("{asked:?}: {other:?}"),
    };
    keys.iter().zip(&results).map(result).collect()
}

fn transact(asked: &Asked, message: &[u8], logs: &mut Logs) -> Answer {
    let response = TransactResponse::decode(message).expect("a TransactResponse");
    let chosen = response.batch.expect("what became of the chosen list");
    assert!(chosen.applied, "its operations have no conditions");
    if response.met {
        return batch(asked, &chosen, logs);
    }
    assert!(response.unmet_comparison < 2, "it has two");
    Answer::Unmet {
        sequence: chosen.sequence,
        results: results(asked, &asked.writes(), &chosen, logs),
    }
}

/// What an answer of a Pipe says.
pub struct Piped<'a> {
    /// So many batches are done.
    pub done: u64,
    /// What became of the last of these, if it says so: it was answered, or refused with a code.
    pub last: Option<Result<BatchResponse<'a>, u32>>,
}

/// Decodes an answer of a Pipe.
pub fn piped(message: &[u8]) -> Piped<'_> {
    let response = PipeResponse::decode(message).expect("a PipeResponse");
    let last = match (response.batch, response.failure) {
        (Some(batch), None) => Some(Ok(batch)),
        (None, Some(failure)) => Some(Err(failure.code)),
        (None, None) => None,
        both => panic!("{both:?}"),
    };
    let about = if last.is_some() { response.done } else { 0 };
    assert_eq!(response.batch_number, about, "it is about the last one");
    Piped {
        done: response.done,
        last,
    }
}

/// What a batch of a Pipe was answered.
pub fn decode_piped(asked: &Asked, response: &BatchResponse<'_>, logs: &mut Logs) -> Answer {
    batch(asked, response, logs)
}

fn page(message: &[u8], keys_only: bool, logs: &mut Logs) -> Page {
    let page = ScanPage::decode(message).expect("a ScanPage");
    let entry = |entry: Entry<'_>| {
        let key = keys::key_of(entry.key);
        if keys_only {
            assert!(entry.value.is_empty(), "only keys were asked for");
            return (
                key,
                Seen {
                    version: entry.version,
                    content: None,
                    expires_ms: Some(entry.expires_at_ms),
                },
            );
        }
        (key, seen(key, &entry, logs))
    };
    Page {
        sequence: page.sequence,
        last: page.last,
        entries: page
            .entries
            .iter()
            .map(|found| found.expect("an entry"))
            .map(entry)
            .collect(),
    }
}

/// What a watcher was told, message by message, before it ended or was lost.
pub fn changes(messages: &[Vec<u8>], logs: &mut Logs) -> Answer {
    let mut told: Option<(u64, u64)> = None;
    let mut commits = Vec::new();
    for message in messages {
        let response = WatchResponse::decode(message).expect("a WatchResponse");
        let through = response.resume.expect("it says where it is").sequence;
        let from = told.map_or(through, |(from, _)| from);
        assert!(
            told.is_some() || response.commits.is_empty(),
            "the first says only where it begins"
        );
        for commit in response.commits.iter() {
            let commit = commit.expect("a commit");
            assert!(!commit.continued, "all of them are small");
            let changes = commit.changes.iter();
            let changes = changes.map(|change| told_change(change.expect("a change"), logs));
            commits.push(ToldCommit {
                sequence: commit.sequence,
                changes: changes.collect(),
            });
        }
        let last = commits.last().map_or(from, |commit| commit.sequence);
        assert!(last <= through, "what was told lies before where it is");
        told = Some((from, through));
    }
    let (from, through) = told.expect("there was a message");
    Answer::Changes {
        from,
        through,
        commits,
    }
}

fn told_change(change: Change<'_>, logs: &mut Logs) -> (Key, Option<Seen>) {
    let entry = change.entry.expect("each is about a key");
    let key = keys::key_of(entry.key);
    let is_set = change.kind == ChangeKind::Set as i32;
    assert!(!change.value_left_out, "all of them are small");
    (key, is_set.then(|| seen(key, &entry, logs)))
}

fn seen(key: Key, entry: &Entry<'_>, logs: &mut Logs) -> Seen {
    Seen {
        version: entry.version,
        content: Some(content(key, entry.value, logs)),
        expires_ms: Some(entry.expires_at_ms),
    }
}

/// What a value says: who wrote it, or which number it is.
pub fn content(key: Key, value: &[u8], logs: &mut Logs) -> u64 {
    if keys::COUNTERS.contains(&key) {
        let number = value.try_into().expect("a number has eight bytes");
        u64::from_be_bytes(number)
    } else if keys::LOGS.contains(&key) {
        last_of_log(value, &mut logs[usize::from(key - keys::LOGS.start)])
    } else {
        keys::writer_of(key, value)
    }
}

/// The last entry of a log, which must agree with all that was seen of it before.
fn last_of_log(value: &[u8], known: &mut Vec<u64>) -> u64 {
    let (entries, rest) = value.as_chunks::<8>();
    assert!(
        rest.is_empty() && !entries.is_empty(),
        "a log has whole entries"
    );
    for (at, entry) in entries.iter().enumerate() {
        let entry = u64::from_be_bytes(*entry);
        match known.get(at) {
            Some(before) => assert_eq!(*before, entry, "entry {at} of a log has changed"),
            None => known.push(entry),
        }
    }
    known[entries.len() - 1]
}
