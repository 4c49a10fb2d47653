//! Bytes of any kind as a message of any type: the fuzz target `messages`.

#[allow(dead_code, reason = "the oracle uses all of it")]
#[path = "oracle/cases.rs"]
mod cases;

use cases::CASES;

/// Decodes a message, whose type the first byte names, and encodes it again: what comes out is a
/// message that comes out unchanged.
pub fn fuzz_messages(data: &[u8]) {
    let Some((&number, message)) = data.split_first() else {
        return;
    };
    let case = &CASES[usize::from(number) % CASES.len()];
    if let Ok(encoded) = (case.recode)(message) {
        let again = (case.recode)(&encoded).expect("what was encoded is valid");
        assert_eq!(again, encoded, "{}", case.name);
    }
}

#[test]
fn the_corpus_of_messages_passes() {
    testkit::replay_corpus("messages", fuzz_messages);
}
