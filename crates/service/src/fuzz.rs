//! Random steps of calls that never touch the store: valid requests, damaged ones, in any order
//! that the layer above may bring. [`Fake`] watches that a call ends once and says nothing
//! afterwards; here is watched that it ends at all.

use testkit::Random;

use crate::call::Shared;
use crate::fake::{Fake, shared};
use crate::method::Method;
use protobuf::writer;

const CALLS: u64 = 20_000;
const STEPS_MAX: u64 = 12;

/// A message with the low field numbers and small values that all requests here have, nested at
/// times; damaged at times.
fn request(random: &mut Random) -> Vec<u8> {
    let mut out = Vec::new();
    fields(random, &mut out, 2);
    if random.once_in(4) && !out.is_empty() {
        let at = random.below(out.len() as u64) as usize;
        match random.below(3) {
            0 => out.truncate(at),
            1 => out[at] = random.number() as u8,
            _ => out.insert(at, random.number() as u8),
        }
    }
    out
}

fn fields(random: &mut Random, out: &mut Vec<u8>, depth: u32) {
    const TEXTS: [&str; 5] = [
        "",
        "pelton.v1.Echo",
        "grpc.health.v1.Health.Check",
        "pelton/v1/kv.proto",
        "\u{1f608}",
    ];
    for _ in 0..random.below(4) {
        let field = 1 + random.below(8) as u32;
        match random.below(3) {
            0 => writer::uint64(out, field, random.below(300)),
            1 if depth > 0 => writer::message(out, field, |out| fields(random, out, depth - 1)),
            _ => {
                let text = TEXTS[random.below(TEXTS.len() as u64) as usize];
                writer::bytes_always(out, field, text.as_bytes());
            }
        }
    }
}

/// One call through random steps, then to its end.
fn call(method: Method, random: &mut Random, shared: &Shared) {
    let mut fake = Fake::new(method, shared);
    let mut is_half_closed = false;
    for _ in 0..random.below(STEPS_MAX) {
        if fake.actions.is_over {
            return;
        }
        match random.below(6) {
            0..=2 if !is_half_closed && !fake.actions.is_held => {
                is_half_closed = random.once_in(3);
                fake.actions.message_was_compressed = random.once_in(2);
                fake.message(&request(random), is_half_closed, shared);
            }
            3 if !is_half_closed => {
                is_half_closed = true;
                fake.half_closed(shared);
            }
            4 => {
                fake.actions.can_send = !fake.actions.can_send;
                if fake.actions.can_send {
                    fake.writable(shared);
                }
            }
            _ => {
                fake.actions.now_ns += random.below(1_000_000);
                shared.health.set("pelton.v1.Echo", random.once_in(2));
                fake.woken(shared);
            }
        }
    }
    end(&mut fake, is_half_closed, shared);
}

/// The caller ends its side and reads everything, and time goes on: every call ends, or watches.
fn end(fake: &mut Fake, is_half_closed: bool, shared: &Shared) {
    if !fake.actions.is_over && !is_half_closed {
        fake.half_closed(shared);
    }
    if !fake.actions.is_over && !fake.actions.can_send {
        fake.actions.can_send = true;
        fake.writable(shared);
    }
    while !fake.actions.is_over && fake.actions.wake_at_ns.is_some() {
        fake.actions.now_ns = fake
            .actions
            .wake_at_ns
            .take()
            .unwrap_or(0)
            .max(fake.actions.now_ns);
        fake.woken(shared);
    }
    assert!(
        fake.actions.is_over || fake.actions.subscribed.is_some() || fake.actions.watched.is_some(),
        "the call neither ends nor watches"
    );
}

fn uses_the_store(path: &str) -> bool {
    let is_key_value = path.starts_with("io.grpc.KeyValueService/");
    let has_echo = path.starts_with("pelton.v1.") || path.starts_with("tkrzw");
    is_key_value || (has_echo && !path.contains("Echo"))
}

#[test]
fn every_call_ends_once() {
    let mut shared = shared();
    // Uploads that are kept are tested with a store.
    shared.settings.gupload.discard = true;
    let methods: Vec<Method> = Method::ALL
        .iter()
        .copied()
        .filter(|method| !uses_the_store(method.path()))
        .collect();
    for seed in 0..CALLS {
        let mut random = Random::new(seed);
        let method = methods[random.below(methods.len() as u64) as usize];
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            call(method, &mut random, &shared);
        }));
        assert!(outcome.is_ok(), "{method:?} with seed {seed}");
        assert_eq!(
            shared.waiting.count(),
            0,
            "{method:?} with seed {seed} keeps its place"
        );
    }
}
