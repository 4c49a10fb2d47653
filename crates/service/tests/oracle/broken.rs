//! Broken messages: no decoder panics, and ours refuses what the oracle refuses.

use protobuf::Reader;
use service::keyvalue::messages::*;

use super::*;

/// Broken messages of each kind.
const BROKEN: u64 = 20_000;

/// Lets every decoder look at `bytes`, as deep as it goes.
fn decode_everything(bytes: &[u8]) {
    let _ = Reader::new(bytes).for_each(|_, value| value.string().map(drop));
    for field in 1..=5 {
        let kind = OperationKind::from_field(field).expect("there are five");
        let _ = Request::decode(kind, bytes);
    }
    let _ = (
        decode_get(bytes),
        decode_operation(bytes),
        OperationResult::decode(bytes),
    );
    if let Ok(request) = BatchRequest::decode(bytes) {
        request.operations().for_each(drop);
    }
    if let Ok(response) = BatchResponse::decode(bytes) {
        response.results().for_each(drop);
    }
    if let Ok(request) = TransactRequest::decode(bytes) {
        request.comparisons().for_each(drop);
        request.when_met().for_each(drop);
        request.when_unmet().for_each(drop);
    }
    if let Ok(response) = PipeResponse::decode(bytes) {
        let indexes = response.result_indexes();
        assert!(indexes.is_ok(), "they were looked at before");
    }
    let _ = (PipeRequest::decode(bytes), TransactResponse::decode(bytes));
    if let Ok(page) = ScanPage::decode(bytes) {
        page.entries().for_each(drop);
    }
    let _ = (
        ScanRequest::decode(bytes),
        CountRequest::decode(bytes),
        CountResponse::decode(bytes),
    );
    let _ = (
        GetResponse::decode(bytes),
        PutResponse::decode(bytes),
        DeleteResponse::decode(bytes),
    );
    let _ = (
        AppendResponse::decode(bytes),
        IncrementResponse::decode(bytes),
    );
}

/// Bytes that look like tags and lengths more often than chance has it.
fn noise(random: &mut Random) -> Vec<u8> {
    let length = random.below(60);
    (0..length)
        .map(|_| match random.below(3) {
            0 => (random.below(16) << 3 | random.below(8)) as u8,
            1 => random.below(12) as u8,
            _ => random.next() as u8,
        })
        .collect()
}

/// Changes a few bytes, cuts, or repeats.
fn damage(random: &mut Random, bytes: &mut Vec<u8>) {
    for _ in 0..1 + random.below(3) {
        let at = random.below(bytes.len() as u64 + 1) as usize;
        match random.below(4) {
            0 => bytes.truncate(at),
            1 => bytes.insert(at, random.next() as u8),
            2 => bytes.extend_from_within(at..),
            _ => {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte = random.next() as u8;
                }
            }
        }
    }
}

fn valid(random: &mut Random) -> Vec<u8> {
    let entry = EntryMessage {
        key: b"key",
        value: b"value",
        version: random.number(),
        expires_at_ms: 7,
    };
    let previous = random.flag().then_some(entry);
    encoded(|out| {
        PutResponse {
            applied: random.flag(),
            version: random.number(),
            previous,
        }
        .encode(out)
    })
}

#[test]
fn no_decoder_panics() {
    for seed in 0..BROKEN {
        let mut random = Random::new(seed);
        decode_everything(&noise(&mut random));
        let material = Material::new(&mut random);
        let operation = material.operation(random.below(5), &mut random);
        let mut batch =
            encoded(|out| BatchRequest::encode(out, "db", Mode::Atomic, 9, [&operation]));
        damage(&mut random, &mut batch);
        decode_everything(&batch);
        let mut response = valid(&mut random);
        damage(&mut random, &mut response);
        decode_everything(&response);
    }
}

fn as_number(message: &DynamicMessage, name: &str) -> u64 {
    message
        .get_field_by_name(name)
        .expect("there is such a field")
        .as_u64()
        .expect("it is a number")
}

/// A message with an embedded one is enough to see every rule of the format at work.
#[test]
fn ours_agrees_with_the_oracle_on_what_is_broken() {
    let descriptor = POOL
        .get_message_by_name("pelton.v1.PutResponse")
        .expect("there is such a message");
    let (mut accepted, mut refused) = (0, 0);
    for seed in 0..BROKEN {
        let mut random = Random::new(seed);
        let mut bytes = if random.flag() {
            noise(&mut random)
        } else {
            valid(&mut random)
        };
        if random.flag() {
            damage(&mut random, &mut bytes);
        }
        let theirs = DynamicMessage::decode(descriptor.clone(), &bytes[..]);
        let ours = PutResponse::decode(&bytes);
        assert_eq!(
            ours.is_ok(),
            theirs.is_ok(),
            "{bytes:02x?}: {ours:?} {theirs:?}"
        );
        let (Ok(ours), Ok(theirs)) = (ours, theirs) else {
            refused += 1;
            continue;
        };
        accepted += 1;
        assert_eq!(ours.version, as_number(&theirs, "version"));
        assert_eq!(
            Some(ours.applied),
            theirs
                .get_field_by_name("applied")
                .and_then(|value| value.as_bool())
        );
        assert_eq!(
            ours.previous.is_some(),
            theirs.has_field_by_name("previous")
        );
        if let Some(previous) = ours.previous {
            let value = theirs
                .get_field_by_name("previous")
                .expect("there is such a field");
            let theirs = value.as_message().expect("it is a message");
            assert_eq!(previous.version, as_number(theirs, "version"));
            assert_eq!(previous.expires_at_ms, as_number(theirs, "expires_at_ms"));
            for (name, ours) in [("key", previous.key), ("value", previous.value)] {
                let theirs = theirs
                    .get_field_by_name(name)
                    .expect("there is such a field");
                assert_eq!(theirs.as_bytes().expect("they are bytes"), ours);
            }
        }
    }
    assert!(
        accepted > BROKEN / 10 && refused > BROKEN / 10,
        "{accepted} accepted, {refused} refused"
    );
}
