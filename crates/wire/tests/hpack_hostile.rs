//! Header blocks that mean harm: the decoder stays within its limits, and every one beyond them is
//! an error.

use testkit::Random;
use wire::hpack::{
    DecodedField, Decoder, Encoder, FieldLimits, Fields, HpackError, Indexing, KnownName,
};
use wire::limits;

const LIMITS: FieldLimits = FieldLimits {
    max_fields: limits::MAX_FIELDS,
    max_list_bytes: limits::MAX_FIELD_LIST_BYTES,
};

/// No list is larger than this in memory: its bytes, the slack, and 64 fields, each at most doubled
/// by growth.
const MAX_FIELDS_MEMORY: usize = 48 << 10;

fn decode(decoder: &mut Decoder, block: &[u8]) -> Result<Fields, HpackError> {
    let mut fields = Fields::new();
    let result = decoder.decode(block, &LIMITS, &mut fields);
    assert!(
        fields.memory_bytes() <= MAX_FIELDS_MEMORY,
        "{} bytes",
        fields.memory_bytes()
    );
    assert!(fields.len() <= LIMITS.max_fields && fields.list_bytes() <= LIMITS.max_list_bytes);
    result.map(|()| fields)
}

fn literal(name: &[u8], value: &[u8]) -> Vec<u8> {
    let mut block = Vec::new();
    Encoder::new().field(name, value, Indexing::Incremental, &mut block);
    block
}

const NEWEST: u8 = 0x80 | 62;

#[test]
fn a_large_entry_referenced_many_times() {
    // CVE-2016-6581: 4 KB in the table, a byte for each copy.
    let mut decoder = Decoder::new(4096);
    decode(&mut decoder, &literal(b"x", &[b'v'; 4000])).expect("one is fine");
    decode(&mut decoder, &[NEWEST; 4]).expect("four fit");
    assert_eq!(
        decode(&mut decoder, &[NEWEST; 5]).unwrap_err(),
        HpackError::ListTooLarge
    );
}

#[test]
fn a_tiny_entry_referenced_many_times() {
    // CVE-2026-49975: the fields themselves are the cost.
    let mut decoder = Decoder::new(4096);
    decode(&mut decoder, &literal(b"a", b"")).expect("one is fine");
    assert_eq!(
        decode(&mut decoder, &[NEWEST; 64]).expect("64 fit").len(),
        64
    );
    assert_eq!(
        decode(&mut decoder, &[NEWEST; 65]).unwrap_err(),
        HpackError::TooManyFields
    );
    assert_eq!(
        decode(&mut decoder, &vec![NEWEST; 30_000]).unwrap_err(),
        HpackError::TooManyFields
    );
    assert_eq!(
        decode(&mut decoder, &vec![0x82; 30_000]).unwrap_err(),
        HpackError::TooManyFields
    );
}

#[test]
fn crumbs_of_a_cookie_count_singly() {
    let mut block = literal(b"cookie", b"a=1");
    block.extend_from_slice(&[NEWEST; 64]);
    assert_eq!(
        decode(&mut Decoder::new(4096), &block).unwrap_err(),
        HpackError::TooManyFields
    );
}

#[test]
fn strings_beyond_the_limit() {
    let most = limits::MAX_FIELD_LIST_BYTES - 32 - 1;
    for byte in [b'v', b'e', 0xfe] {
        for (len, fits) in [(most, true), (most + 1, false), (most * 2, false)] {
            let result = decode(&mut Decoder::new(4096), &literal(b"x", &vec![byte; len]));
            assert_eq!(result.is_ok(), fits, "{len} times {byte}");
            assert!(result.err().is_none_or(HpackError::is_limit));
        }
    }
    // In the name, and in the second field.
    assert!(
        decode(
            &mut Decoder::new(4096),
            &literal(&vec![b'n'; most + 1], b"")
        )
        .is_ok()
    );
    assert!(
        decode(
            &mut Decoder::new(4096),
            &literal(&vec![b'n'; most + 2], b"")
        )
        .is_err()
    );
    let two = [literal(b"x", &[b'v'; 9000]), literal(b"y", &[b'w'; 9000])].concat();
    assert_eq!(
        decode(&mut Decoder::new(4096), &two).unwrap_err(),
        HpackError::ListTooLarge
    );
}

/// Wherever its fields come from: the static table, the dynamic one, or the block, as text or
/// Huffman coded.
#[test]
fn a_list_may_have_as_many_bytes_as_its_bound_and_no_more() {
    let name = [b'n'; 20];
    let entry = literal(&name, &[b'v'; 50]);
    let with_value = |head: &[u8]| [head, &[5], b"value"].concat();
    let huffman = {
        let mut block = Vec::new();
        let text = b"aaaaaaaaaa";
        Encoder::new().field(&name, text, Indexing::Without, &mut block);
        assert!(block.len() < 20 + text.len(), "it is Huffman coded");
        block
    };
    let cases = [
        ("static field", vec![0x82], 7 + 3),
        ("dynamic field", vec![NEWEST], 20 + 50),
        ("static name", with_value(&[0x02]), 7 + 5),
        ("dynamic name", with_value(&[0x0f, 62 - 15]), 20 + 5),
        ("new name", with_value(b"\x00\x04name"), 4 + 5),
        ("static name alone", vec![0x02, 0], 7),
        ("dynamic name alone", vec![0x0f, 62 - 15, 0], 20),
        ("new name alone", b"\x00\x04name\x00".to_vec(), 4),
        ("Huffman", huffman, 20 + 10),
    ];
    for (what, block, bytes) in cases {
        for count in 1..4 {
            let exact = count * (bytes + 32);
            let block = block.repeat(count);
            for (max_list_bytes, expected) in
                [(exact, Ok(())), (exact - 1, Err(HpackError::ListTooLarge))]
            {
                let mut decoder = Decoder::new(4096);
                let mut fields = decode(&mut decoder, &entry).expect("it fits");
                let limits = FieldLimits {
                    max_fields: 64,
                    max_list_bytes,
                };
                let decoded = decoder.decode(&block, &limits, &mut fields);
                assert_eq!(decoded, expected, "{what}, {count} times, {max_list_bytes}");
                if decoded.is_ok() {
                    assert_eq!(
                        (fields.len(), fields.list_bytes()),
                        (count, exact),
                        "{what}"
                    );
                }
            }
        }
    }
}

#[test]
fn what_is_too_long_is_an_error_before_it_enters_the_table() {
    // CVE-2023-33953: neither skipped nor buffered without end, and the table stays as it was.
    let limits = FieldLimits {
        max_fields: 64,
        max_list_bytes: 200,
    };
    let mut decoder = Decoder::new(4096);
    let mut fields = Fields::new();
    for block in [
        literal(b"x", &[b'v'; 3000]),
        literal(&[b'n'; 3000], b"v"),
        literal(b"x", &[0xfe; 300]),
    ] {
        assert_eq!(
            decoder.decode(&block, &limits, &mut fields),
            Err(HpackError::ListTooLarge)
        );
        assert_eq!((decoder.changes(), decoder.memory_bytes()), (0, 0));
    }
}

#[test]
fn size_updates() {
    let cases: [(&[u8], Result<(), HpackError>); 8] = [
        (&[0x20, 0x3f, 0xe1, 0x1f, 0x82], Ok(())),
        (&[0x20], Ok(())),
        (&[0x20, 0x20, 0x20], Err(HpackError::TooManySizeUpdates)),
        (&[0x3f, 0xe2, 0x1f], Err(HpackError::SizeUpdateTooLarge)),
        (
            &[0x3f, 0xff, 0xff, 0xff, 0xff, 0x0f],
            Err(HpackError::IntegerTooLarge),
        ),
        (&[0x82, 0x20], Err(HpackError::SizeUpdateMisplaced)),
        (&[0x20, 0x82, 0x20], Err(HpackError::SizeUpdateMisplaced)),
        (&[0x3f], Err(HpackError::Truncated)),
    ];
    for (block, expected) in cases {
        assert_eq!(
            decode(&mut Decoder::new(4096), block).map(|_| ()),
            expected,
            "{block:x?}"
        );
    }
}

#[test]
fn indexes_beyond_the_tables() {
    for block in [
        &[0x80][..],
        &[NEWEST],
        &[0xff, 0x80, 0x01],
        &[0x7f, 0x00, 0x00],
        &[0x0f, 0x30, 0x00],
    ] {
        assert_eq!(
            decode(&mut Decoder::new(4096), block).unwrap_err(),
            HpackError::BadIndex,
            "{block:x?}"
        );
    }
    // An entry larger than the table empties it (RFC 7541 section 4.4).
    let mut decoder = Decoder::new(4096);
    decode(&mut decoder, &literal(b"a", b"b")).expect("valid");
    decode(&mut decoder, &literal(b"a", &[b'v'; 5000])).expect("not an error");
    assert_eq!(
        decode(&mut decoder, &[NEWEST]).unwrap_err(),
        HpackError::BadIndex
    );
}

#[test]
fn a_name_outlives_the_entry_it_came_from() {
    // RFC 7541 section 4.4: the new entry may push out the one that its name refers to.
    let mut decoder = Decoder::new(4096);
    let name = [b'n'; 2000];
    decode(&mut decoder, &literal(&name, &[b'v'; 2000])).expect("valid");
    // The name of index 62, a raw value of 2000 bytes.
    let mut block = vec![0x40 | 62, 0x7f, 0xd1, 0x0e];
    block.extend_from_slice(&[b'w'; 2000]);
    block.push(NEWEST);
    let fields = decode(&mut decoder, &block).expect("valid");
    let expected = (&name[..], &[b'w'; 2000][..]);
    assert_eq!(fields.iter().collect::<Vec<_>>(), [expected, expected]);
}

#[test]
fn facts_about_fields_are_remembered_with_them() {
    let mut block = Vec::new();
    let mut encoder = Encoder::new();
    for (name, value) in [
        ("grpc-timeout", "1S"),
        ("Upper", "x"),
        ("a", "line\nfeed"),
        ("te", "trailers"),
    ] {
        encoder.field(
            name.as_bytes(),
            value.as_bytes(),
            Indexing::Incremental,
            &mut block,
        );
    }
    let mut decoder = Decoder::new(4096);
    let facts = |fields: &Fields| -> Vec<_> {
        fields
            .fields()
            .map(|field| (field.known, field.is_valid))
            .collect()
    };
    let (other, timeout, te) = (KnownName::Other, KnownName::GrpcTimeout, KnownName::Te);
    let fields = decode(&mut decoder, &block).expect("HPACK does not ask what it carries");
    assert_eq!(
        facts(&fields),
        [(timeout, true), (other, false), (other, false), (te, true)]
    );
    assert!(!fields.all_valid());

    let references = [NEWEST, NEWEST + 1, NEWEST + 2, NEWEST + 3];
    let fields = decode(&mut decoder, &references).expect("valid");
    assert_eq!(
        facts(&fields),
        [(te, true), (other, false), (other, false), (timeout, true)]
    );
    assert!(
        decode(&mut decoder, &[NEWEST, NEWEST + 3, 0x83])
            .expect("valid")
            .all_valid()
    );

    // A new value for the name of an entry with a wrong value, and a wrong name with a good value.
    let literal = |at: u8, value: &[u8]| [&[0x0f, 62 + at - 15, value.len() as u8], value].concat();
    let values = [literal(1, b"x"), literal(2, b"x"), literal(3, b"2S")].concat();
    let fields = decode(&mut decoder, &values).expect("valid");
    assert_eq!(
        facts(&fields),
        [(other, true), (other, false), (timeout, true)]
    );
    let last = fields.field(2).expect("three fields");
    let expected = DecodedField {
        name: b"grpc-timeout",
        value: b"2S",
        known: timeout,
        is_valid: true,
    };
    assert_eq!(last, expected);
}

#[test]
fn any_bytes_are_bounded() {
    let mut random = Random::new(0x5eed_0020);
    for _ in 0..300 {
        let mut decoder = Decoder::new(4096);
        for _ in 0..50 {
            let block = random.bytes(300, |random| match random.below(4) {
                0 => 0x40 | random.below(64) as u8,
                1 => 0x80 | random.below(72) as u8,
                2 => random.below(12) as u8,
                _ => random.number() as u8,
            });
            let _ = decode(&mut decoder, &block);
            assert!(
                decoder.memory_bytes() <= 24 << 10,
                "{} {random:?}",
                decoder.memory_bytes()
            );
        }
    }
}

#[test]
fn churning_the_table_allocates_nothing_in_the_long_run() {
    let mut random = Random::new(0x5eed_0021);
    let (mut encoder, mut decoder, mut fields) =
        (Encoder::new(), Decoder::new(4096), Fields::new());
    let mut memory = Vec::new();
    for round in 0..4000 {
        let mut block = Vec::new();
        for _ in 0..8 {
            let value = format!("{}u", random.below(100_000_000));
            encoder.field(
                b"grpc-timeout",
                value.as_bytes(),
                Indexing::Incremental,
                &mut block,
            );
        }
        decoder.decode(&block, &LIMITS, &mut fields).expect("valid");
        if round == 1000 || round == 3999 {
            memory.push((
                decoder.memory_bytes(),
                encoder.memory_bytes(),
                fields.memory_bytes(),
            ));
        }
    }
    assert_eq!(memory[0], memory[1]);
    assert!(memory[0].0 <= 12 << 10, "{memory:?}");
}
