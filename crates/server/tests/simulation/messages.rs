//! Requests as bytes, and answers as what they say.

use service::keyvalue::messages::{
    AppendResponse, BatchRequest, BatchResponse, CountRequest, CountResponse, DeleteResponse,
    EntryMessage, GetResponse, IncrementResponse, Keys, OperationResult, PutResponse, Request,
    ScanPage, ScanRequest,
};
use service::protobuf::{Reader, writer};
use store::{Condition, Direction, Expiry, Mode, Operation};

use super::history::{Answer, Asked, If, Page, Seen};
use super::keys::{self, Key};

/// The path of the method.
pub fn path(asked: &Asked) -> &'static str {
    match asked {
        Asked::Get(_) | Asked::Silent => "/pelton.v1.KeyValue/Get",
        Asked::Put { .. } => "/pelton.v1.KeyValue/Put",
        Asked::Delete { .. } => "/pelton.v1.KeyValue/Delete",
        Asked::Append(_) => "/pelton.v1.KeyValue/Append",
        Asked::Increment(_) => "/pelton.v1.KeyValue/Increment",
        Asked::WriteGroup { .. } | Asked::WriteMany(_) | Asked::ReadMany(_) => {
            "/pelton.v1.KeyValue/Batch"
        }
        Asked::Scan { .. } => "/pelton.v1.KeyValue/Scan",
        Asked::Count(_) => "/pelton.v1.KeyValue/Count",
        Asked::Echo { .. } => "/pelton.v1.Echo/Unary",
        Asked::EchoStream { .. } => "/pelton.v1.Echo/Stream",
        Asked::Check => "/grpc.health.v1.Health/Check",
        Asked::Watch => "/grpc.health.v1.Health/Watch",
        Asked::Nowhere => "/pelton.v1.KeyValue/NoSuchMethod",
    }
}

fn condition(condition: If) -> Condition<'static> {
    match condition {
        If::Always => Condition::None,
        If::Absent => Condition::Absent,
        If::Present => Condition::Present,
        If::Version(version) => Condition::VersionIs(version),
    }
}

fn put<'a>(key: &'a [u8], value: &'a [u8], when: If, want_previous: bool) -> Operation<'a> {
    Operation::Put {
        key,
        value,
        condition: condition(when),
        expiry: Expiry::None,
        want_previous,
    }
}

/// Appends the message with which call number `by` asks.
pub fn encode(asked: &Asked, by: u64, out: &mut Vec<u8>) {
    let single = |operation: Operation<'_>, out: &mut Vec<u8>| {
        Request {
            database: "",
            operation,
        }
        .encode(out);
    };
    match asked {
        Asked::Get(key) => single(
            Operation::Get {
                key: &keys::bytes_of(*key),
            },
            out,
        ),
        Asked::Put {
            key,
            bytes,
            condition: when,
            previous,
        } => {
            single(
                put(
                    &keys::bytes_of(*key),
                    &keys::value(by, *bytes),
                    *when,
                    *previous,
                ),
                out,
            );
        }
        Asked::Delete {
            key,
            condition: when,
            previous,
        } => {
            let (key, condition) = (&keys::bytes_of(*key)[..], condition(*when));
            single(
                Operation::Delete {
                    key,
                    condition,
                    want_previous: *previous,
                },
                out,
            );
        }
        Asked::Append(key) => {
            let (key, value) = (&keys::bytes_of(*key)[..], &by.to_be_bytes()[..]);
            single(
                Operation::Append {
                    key,
                    value,
                    condition: Condition::None,
                },
                out,
            );
        }
        Asked::Increment(key) => {
            let (delta, condition) = (keys::step(*key), Condition::None);
            let key = &keys::bytes_of(*key);
            single(
                Operation::Increment {
                    key,
                    delta,
                    initial: 0,
                    condition,
                },
                out,
            );
        }
        Asked::WriteGroup { first, if_version } => {
            let when = |key: Key| match *if_version {
                Some(version) if key == *first => If::Version(version),
                _ => If::Always,
            };
            let keys: Vec<Key> = (*first..first + keys::GROUP_KEYS).collect();
            batch_of_puts(&keys, by, Mode::Atomic, when, out);
        }
        Asked::WriteMany(keys) => batch_of_puts(keys, by, Mode::Independent, |_| If::Always, out),
        Asked::ReadMany(keys) => {
            let keys: Vec<_> = keys.iter().map(|key| keys::bytes_of(*key)).collect();
            let gets: Vec<_> = keys.iter().map(|key| Operation::Get { key }).collect();
            BatchRequest::encode(out, "", Mode::Atomic, 0, &gets);
        }
        Asked::Scan {
            keys: range,
            by_prefix,
            backward,
            keys_only,
            limit,
        } => {
            let (bounds, prefix) = bounds(range);
            ScanRequest {
                database: "",
                keys: if *by_prefix {
                    Keys::Prefix(&prefix)
                } else {
                    Keys::Range {
                        start: &bounds.0,
                        end: &bounds.1,
                    }
                },
                direction: if *backward {
                    Direction::Backward
                } else {
                    Direction::Forward
                },
                keys_only: *keys_only,
                limit: *limit,
                start_after: None,
            }
            .encode(out);
        }
        Asked::Count(range) => {
            let (bounds, _) = bounds(range);
            let keys = Keys::Range {
                start: &bounds.0,
                end: &bounds.1,
            };
            CountRequest {
                database: "",
                keys,
                estimate: false,
            }
            .encode(out);
        }
        Asked::Echo { bytes, delay_ms } => {
            writer::bytes(out, 1, &keys::value(by, *bytes));
            writer::uint64(out, 3, u64::from(*delay_ms));
        }
        Asked::EchoStream { bytes, .. } => writer::bytes(out, 1, &keys::value(by, *bytes)),
        Asked::Check | Asked::Watch => writer::bytes(out, 1, b"pelton.v1.KeyValue"),
        Asked::Nowhere | Asked::Silent => {}
    }
}

type KeyBytes = [u8; 6];

fn bounds(range: &std::ops::Range<Key>) -> ((KeyBytes, KeyBytes), [u8; 2]) {
    (
        (keys::bytes_of(range.start), keys::bytes_of(range.end)),
        keys::prefix(range),
    )
}

fn batch_of_puts(keys: &[Key], by: u64, mode: Mode, when: impl Fn(Key) -> If, out: &mut Vec<u8>) {
    let value = keys::value(by, 24);
    let bytes: Vec<_> = keys
        .iter()
        .map(|key| (keys::bytes_of(*key), when(*key)))
        .collect();
    let puts: Vec<_> = bytes
        .iter()
        .map(|(key, when)| put(key, &value, *when, false))
        .collect();
    BatchRequest::encode(out, "", mode, 0, &puts);
}

/// The longest content of each log that anybody saw. Every other must be a beginning of it.
pub type Logs = Vec<Vec<u64>>;

/// What the messages of a call say that ended well.
pub fn decode(asked: &Asked, by: u64, messages: &[Vec<u8>], logs: &mut Logs) -> Answer {
    if let Asked::Scan { keys_only, .. } = asked {
        let pages = messages
            .iter()
            .map(|message| page(message, *keys_only, logs));
        return Answer::Pages(pages.collect());
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
            assert!(
                response.applied && response.refusal.is_none(),
                "{response:?}"
            );
            Answer::Increment {
                version: response.version,
                value: response.value,
            }
        }
        Asked::WriteGroup { .. } | Asked::WriteMany(_) | Asked::ReadMany(_) => {
            batch(asked, message, logs)
        }
        Asked::Count(_) => {
            let response = CountResponse::decode(message).expect("a CountResponse");
            assert!(response.exact);
            Answer::Count {
                count: response.count,
                views: response.views,
                sequence: response.point.sequence,
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
    assert_eq!(keys::writer_of(payload), by, "the answer of another call");
}

fn get(key: Key, response: &GetResponse<'_>, logs: &mut Logs) -> Answer {
    let entry = EntryMessage {
        value: response.value,
        version: response.version,
        ..EntryMessage::default()
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

fn batch(asked: &Asked, message: &[u8], logs: &mut Logs) -> Answer {
    let response = BatchResponse::decode(message).expect("a BatchResponse");
    if !response.applied {
        assert_eq!(
            response.failed_operation, 0,
            "only the first has a condition"
        );
        return match response.failed_result {
            Some(OperationResult::Put(put)) if !put.applied => {
                Answer::Failed { found: put.version }
            }
            other => panic!("{asked:?}: {other:?}"),
        };
    }
    let keys = match asked {
        Asked::ReadMany(keys) => keys.clone(),
        other => other.writes(),
    };
    let results: Vec<_> = response
        .results()
        .map(|result| result.expect("a result").expect("known"))
        .collect();
    assert_eq!(results.len(), keys.len(), "a result for each operation");
    let result = |(key, result): (Key, &OperationResult<'_>)| match result {
        OperationResult::Get(response) => get(key, response, logs),
        OperationResult::Put(response) => put_answer(key, response, logs),
        other => panic!("{asked:?}: {other:?}"),
    };
    let results = keys.into_iter().zip(&results).map(result).collect();
    Answer::Batch {
        sequence: response.point.sequence,
        results,
    }
}

fn page(message: &[u8], keys_only: bool, logs: &mut Logs) -> Page {
    let page = ScanPage::decode(message).expect("a ScanPage");
    let entry = |entry: EntryMessage<'_>| {
        let key = keys::key_of(entry.key);
        if keys_only {
            assert!(entry.value.is_empty(), "only keys were asked for");
            return (
                key,
                Seen {
                    version: entry.version,
                    content: None,
                },
            );
        }
        (key, seen(key, &entry, logs))
    };
    Page {
        sequence: page.point.sequence,
        last: page.last,
        entries: page
            .entries()
            .map(|found| found.expect("an entry"))
            .map(entry)
            .collect(),
    }
}

fn seen(key: Key, entry: &EntryMessage<'_>, logs: &mut Logs) -> Seen {
    let content = if keys::COUNTERS.contains(&key) {
        let number = entry.value.try_into().expect("a number has eight bytes");
        u64::from_be_bytes(number)
    } else if keys::LOGS.contains(&key) {
        last_of_log(entry.value, &mut logs[usize::from(key - keys::LOGS.start)])
    } else {
        keys::writer_of(entry.value)
    };
    Seen {
        version: entry.version,
        content: Some(content),
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
