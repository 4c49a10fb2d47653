//! The decoder against the examples of RFC 7541, appendix C.

use wire::hpack::{Decoder, FieldLimits, Fields, HpackError};

type List = &'static [(&'static str, &'static str)];

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex.bytes().filter(u8::is_ascii_hexdigit).collect();
    let pairs = digits
        .chunks(2)
        .map(|pair| std::str::from_utf8(pair).expect("ASCII"));
    pairs
        .map(|pair| u8::from_str_radix(pair, 16).expect("hexadecimal"))
        .collect()
}

/// Decodes one block after the other with one decoder.
fn check(blocks: &[(&str, List)]) {
    let mut decoder = Decoder::new(4096);
    let mut fields = Fields::new();
    for (block, expected) in blocks {
        decoder
            .decode(&bytes(block), &FieldLimits::default(), &mut fields)
            .expect(block);
        let decoded: Vec<_> = fields.iter().collect();
        let expected: Vec<_> = expected
            .iter()
            .map(|(name, value)| (name.as_bytes(), value.as_bytes()))
            .collect();
        assert_eq!(decoded, expected, "{block}");
        assert!(fields.all_valid());
    }
}

#[test]
fn c2_single_fields() {
    check(&[(
        "400a 6375 7374 6f6d 2d6b 6579 0d63 7573 746f 6d2d 6865 6164 6572",
        &[("custom-key", "custom-header")],
    )]);
    check(&[(
        "040c 2f73 616d 706c 652f 7061 7468",
        &[(":path", "/sample/path")],
    )]);
    check(&[(
        "1008 7061 7373 776f 7264 0673 6563 7265 74",
        &[("password", "secret")],
    )]);
    check(&[("82", &[(":method", "GET")])]);
}

const REQUESTS: [List; 3] = [
    &[
        (":method", "GET"),
        (":scheme", "http"),
        (":path", "/"),
        (":authority", "www.example.com"),
    ],
    &[
        (":method", "GET"),
        (":scheme", "http"),
        (":path", "/"),
        (":authority", "www.example.com"),
        ("cache-control", "no-cache"),
    ],
    &[
        (":method", "GET"),
        (":scheme", "https"),
        (":path", "/index.html"),
        (":authority", "www.example.com"),
        ("custom-key", "custom-value"),
    ],
];

#[test]
fn c3_requests_without_huffman() {
    check(&[
        (
            "8286 8441 0f77 7777 2e65 7861 6d70 6c65 2e63 6f6d",
            REQUESTS[0],
        ),
        ("8286 84be 5808 6e6f 2d63 6163 6865", REQUESTS[1]),
        (
            "8287 85bf 400a 6375 7374 6f6d 2d6b 6579 0c63 7573 746f 6d2d 7661 6c75 65",
            REQUESTS[2],
        ),
    ]);
}

#[test]
fn c4_requests_with_huffman() {
    check(&[
        ("8286 8441 8cf1 e3c2 e5f2 3a6b a0ab 90f4 ff", REQUESTS[0]),
        ("8286 84be 5886 a8eb 1064 9cbf", REQUESTS[1]),
        (
            "8287 85bf 4088 25a8 49e9 5ba9 7d7f 8925 a849 e95b b8e8 b4bf",
            REQUESTS[2],
        ),
    ]);
}

const LOCATION: &str = "https://www.example.com";

const RESPONSES: [List; 3] = [
    &[
        (":status", "302"),
        ("cache-control", "private"),
        ("date", "Mon, 21 Oct 2013 20:13:21 GMT"),
        ("location", LOCATION),
    ],
    &[
        (":status", "307"),
        ("cache-control", "private"),
        ("date", "Mon, 21 Oct 2013 20:13:21 GMT"),
        ("location", LOCATION),
    ],
    &[
        (":status", "200"),
        ("cache-control", "private"),
        ("date", "Mon, 21 Oct 2013 20:13:22 GMT"),
        ("location", LOCATION),
        ("content-encoding", "gzip"),
        (
            "set-cookie",
            "foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1",
        ),
    ],
];

// The examples have a table of 256 bytes: each begins here with the size update that says so.

#[test]
fn c5_responses_without_huffman_and_with_eviction() {
    check(&[
        (
            "3fe1 01 4803 3330 3258 0770 7269 7661 7465 611d 4d6f 6e2c 2032 3120 4f63 7420 3230
             3133 2032 303a 3133 3a32 3120 474d 546e 1768 7474 7073 3a2f 2f77 7777 2e65 7861 6d70
             6c65 2e63 6f6d",
            RESPONSES[0],
        ),
        ("4803 3330 37c1 c0bf", RESPONSES[1]),
        (
            "88c1 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133 2032 303a 3133 3a32 3220 474d 54c0
             5a04 677a 6970 7738 666f 6f3d 4153 444a 4b48 514b 425a 584f 5157 454f 5049 5541 5851
             5745 4f49 553b 206d 6178 2d61 6765 3d33 3630 303b 2076 6572 7369 6f6e 3d31",
            RESPONSES[2],
        ),
    ]);
}

#[test]
fn c6_responses_with_huffman_and_with_eviction() {
    check(&[
        (
            "3fe1 01 4882 6402 5885 aec3 771a 4b61 96d0 7abe 9410 54d4 44a8 2005 9504 0b81 66e0
             82a6 2d1b ff6e 919d 29ad 1718 63c7 8f0b 97c8 e9ae 82ae 43d3",
            RESPONSES[0],
        ),
        ("4883 640e ffc1 c0bf", RESPONSES[1]),
        (
            "88c1 6196 d07a be94 1054 d444 a820 0595 040b 8166 e084 a62d 1bff c05a 839b d9ab 77ad
             94e7 821d d7f2 e6c7 b335 dfdf cd5b 3960 d5af 2708 7f36 72c1 ab27 0fb5 291f 9587 3160
             65c0 03ed 4ee5 b106 3d50 07",
            RESPONSES[2],
        ),
    ]);
}

#[test]
fn every_cut_of_a_block_is_noticed_or_ends_between_two_fields() {
    let block = bytes("8287 85 4088 25a8 49e9 5ba9 7d7f 8925 a849 e95b b8e8 b4bf 84");
    let ends = [0, 1, 2, 3, 23, 24];
    for len in 0..=block.len() {
        let mut fields = Fields::new();
        let result = Decoder::new(4096).decode(&block[..len], &FieldLimits::default(), &mut fields);
        match ends.iter().position(|&end| end == len) {
            Some(count) => assert_eq!((result, fields.len()), (Ok(()), count)),
            None => assert_eq!(result, Err(HpackError::Truncated), "cut to {len}"),
        }
    }
}
