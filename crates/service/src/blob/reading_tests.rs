//! What a download reads, and when.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use store::blob::{BlobNews, BlobPermit, Description, Owner, UploadError, Work};
use store::{DatabaseId, Direction, Range};
use testkit::Random;

use super::reading::ContentReading;
use crate::compat::gupload_tests::bench::Bench;
use crate::fake::{Fake, Recorder};
use crate::limits::{DOWNLOAD_FIRST_BYTES, DOWNLOAD_LITTLE_BYTES};
use crate::method::Method;

const CHUNK: usize = 1 << 20;

struct Nobody;

impl Owner for Nobody {
    fn lost(&self, _why: UploadError) {}
}

/// A download of a blob.
struct Bed {
    bench: Bench,
    content: Vec<u8>,
    reading: ContentReading,
    actions: Recorder,
    sent: Vec<u8>,
    /// What was read and is claimed.
    claimed_bytes: Arc<AtomicUsize>,
}

impl Bed {
    fn new(bytes: usize) -> Bed {
        let mut bench = Bench::new();
        let content: Vec<u8> = (0..bytes).map(|at| (at / 251 + at) as u8).collect();
        let pieces: Vec<&[u8]> = content.chunks(CHUNK).collect();
        bench.upload(Method::HttpGupload, &pieces);
        let view = bench
            .shared
            .store
            .view(DatabaseId::BLOBS)
            .expect("is there");
        let mut reading = None;
        view.scan(&Range::ALL, Direction::Forward, 0, 10, &mut |entry| {
            let description = Description::decode(entry.value.bytes()).expect("it was encoded");
            let end = description.size_bytes;
            reading = Some(ContentReading::open(
                &description,
                0,
                end,
                CHUNK,
                &bench.shared,
            ));
            ControlFlow::Continue(())
        });
        drop(view);
        let fake = Fake::new(Method::BlobDownload, &bench.shared);
        Bed {
            reading: reading.expect("it was stored"),
            bench,
            content,
            actions: fake.actions,
            sent: Vec::new(),
            claimed_bytes: Arc::default(),
        }
    }

    /// Sends what may be sent, as the calls do. Returns how many bytes.
    fn go_on(&mut self) -> usize {
        let before = self.sent.len();
        while !self.reading.is_done() {
            let Some(part) = self.reading.take(CHUNK, &mut self.actions) else {
                break;
            };
            self.sent.extend_from_slice(part.bytes());
            let bytes = part.bytes().len();
            self.actions.room = self.actions.room.saturating_sub(bytes);
            (self.actions.promised_bytes, self.actions.ready_bytes) = (0, 0);
        }
        self.sent.len() - before
    }

    /// How many bytes are to be read, if any are.
    fn wanted(&self) -> Option<usize> {
        self.actions.work.as_ref()?.read_bytes()
    }

    /// Does what was asked for, and goes on.
    fn read(&mut self) -> usize {
        let work: Work = self.actions.work.take().expect("something is to be read");
        let bytes = work.read_bytes().expect("it is a read");
        let claimed = Arc::clone(&self.claimed_bytes);
        claimed.fetch_add(bytes, Ordering::Relaxed);
        let permit = BlobPermit::new(move || {
            claimed.fetch_sub(bytes, Ordering::Relaxed);
        });
        let blobs = self.bench.shared.store.blobs().expect("there is a log");
        let owner: Arc<dyn Owner> = Arc::new(Nobody);
        let news: BlobNews = work.run_granted(blobs, &owner, Some((bytes, permit)));
        assert!(self.reading.news(news).is_ok());
        self.go_on()
    }

    fn claimed(&self) -> usize {
        self.claimed_bytes.load(Ordering::Relaxed)
    }
}

#[test]
fn nothing_is_read_for_a_peer_whose_windows_are_shut() {
    let mut bed = Bed::new(CHUNK);
    bed.actions.room = 0;
    for _ in 0..3 {
        assert_eq!((bed.go_on(), bed.wanted()), (0, None));
    }
    bed.actions.room = 65_535;
    bed.go_on();
    assert_eq!(bed.wanted(), Some(DOWNLOAD_FIRST_BYTES));
    assert_eq!(bed.actions.promised_bytes, DOWNLOAD_FIRST_BYTES);
    assert_eq!(bed.read(), DOWNLOAD_FIRST_BYTES);
    bed.actions.room = 0;
    assert_eq!((bed.go_on(), bed.wanted()), (0, None));
    // As much as the windows have room for; the rest is let go.
    bed.actions.room = 20_000;
    bed.go_on();
    assert!((1..=20_000 + DOWNLOAD_LITTLE_BYTES).contains(&bed.read()));
    bed.actions.room = 0;
    assert_eq!((bed.go_on(), bed.wanted()), (0, None));
    assert_eq!((bed.claimed(), bed.actions.ready_bytes), (0, 0));
}

#[test]
fn what_cannot_be_sent_after_all_is_let_go_and_read_again() {
    let mut bed = Bed::new(CHUNK);
    for _ in 0..2 {
        bed.actions.room = 100_000;
        bed.go_on();
        // Another call was faster.
        bed.actions.room = 0;
        assert_eq!(bed.read(), 0);
        assert_eq!((bed.claimed(), bed.wanted()), (0, None));
        assert_eq!(bed.actions.promised_bytes, 0);
        bed.actions.room = 100_000;
        bed.go_on();
        (bed.actions.can_send, bed.actions.room) = (false, 0);
        assert_eq!((bed.read(), bed.claimed(), bed.wanted()), (0, 0, None));
        bed.actions.can_send = true;
    }
    bed.actions.room = usize::MAX;
    bed.go_on();
    while bed.wanted().is_some() {
        bed.read();
    }
    assert!(bed.sent == bed.content);
}

#[test]
fn one_piece_is_read_ahead_for_a_peer_that_takes_what_it_is_sent() {
    let mut bed = Bed::new(4 * CHUNK);
    bed.go_on();
    for _ in 0..2 {
        bed.actions.can_send = true;
        bed.actions.has_progress = true;
        while bed.wanted().is_some() && bed.sent.len() < CHUNK {
            bed.read();
        }
        (bed.actions.can_send, bed.actions.room) = (false, 0);
        bed.actions.has_progress = true;
        if bed.wanted().is_none() {
            bed.go_on();
        }
        assert_eq!(bed.read(), 0);
        assert!(bed.actions.ready_bytes > 0, "it is counted, not claimed");
        assert_eq!((bed.claimed(), bed.wanted()), (0, None));
        // Nothing more is read however often it is asked.
        assert_eq!((bed.go_on(), bed.wanted()), (0, None));
        // It goes out without regard to windows, which its peer opens by and by.
        bed.actions.can_send = true;
        bed.actions.room = 0;
        assert!(bed.go_on() > 0);
        assert_eq!(bed.actions.ready_bytes, 0);
        bed.actions.room = usize::MAX;
        bed.go_on();
    }
    // Memory becomes short: what is read ahead is let go.
    (bed.actions.can_send, bed.actions.room) = (false, 0);
    bed.actions.has_progress = true;
    if bed.wanted().is_none() {
        bed.go_on();
    }
    bed.read();
    assert!(bed.actions.ready_bytes > 0);
    bed.actions.message_bytes = 64 << 10;
    bed.actions.has_progress = true;
    assert_eq!((bed.go_on(), bed.wanted()), (0, None));
    assert_eq!(bed.actions.ready_bytes, 0);
    (bed.actions.can_send, bed.actions.room) = (true, usize::MAX);
    bed.go_on();
    assert_eq!(bed.wanted(), Some(64 << 10), "small steps");
}

/// A download begins with one block and reads more each time, in whole blocks that its peer's
/// windows have room for.
#[test]
fn what_is_read_at_a_time_grows() {
    let mut bed = Bed::new(4 * CHUNK);
    bed.go_on();
    for blocks in [1, 4, 16, 16] {
        assert_eq!(bed.wanted(), Some(blocks * DOWNLOAD_FIRST_BYTES));
        bed.read();
    }
    let mut bed = Bed::new(CHUNK);
    bed.go_on();
    bed.actions.room = DOWNLOAD_FIRST_BYTES + 200_000;
    bed.read();
    assert_eq!(bed.wanted(), Some(3 * DOWNLOAD_FIRST_BYTES));
}

/// What a peer has taken is good for one piece beyond what it can take now, and for as many as fit.
#[test]
fn progress_is_good_for_one_piece_too_many() {
    for (can_send, room, goes_on) in [
        (false, 0, false),
        (true, 0, false),
        (false, 1, false),
        (true, 1, true),
    ] {
        let mut bed = Bed::new(4 * CHUNK);
        (bed.actions.can_send, bed.actions.room) = (can_send, room);
        bed.actions.has_progress = true;
        bed.go_on();
        assert!(bed.wanted().is_some());
        bed.read();
        // Its windows are shut, and yet it goes out.
        (bed.actions.can_send, bed.actions.room) = (true, 0);
        bed.go_on();
        assert_eq!(bed.sent.len(), DOWNLOAD_FIRST_BYTES);
        assert_eq!(bed.wanted().is_some(), goes_on, "{can_send} {room}");
    }
}

#[test]
fn content_is_whole_whatever_windows_and_memory_do() {
    for seed in 0..60 {
        println!("seed {seed}");
        let mut random = Random::new(seed);
        let mut bed = Bed::new(1 + random.below(3 * CHUNK));
        for step in 0.. {
            assert!(step < 100_000, "it stands still");
            bed.actions.room = random.pick(&[0, 1, 100, 20_000, 65_535, 1 << 20, usize::MAX]);
            bed.actions.can_send = random.below(4) > 0;
            bed.actions.has_progress |= random.below(3) == 0;
            bed.actions.message_bytes = random.pick(&[64 << 10, usize::MAX]);
            if bed.wanted().is_some() && random.below(2) == 0 {
                bed.read();
            } else {
                bed.go_on();
            }
            let held = bed.claimed().max(bed.actions.ready_bytes);
            assert!(held <= CHUNK, "{held} bytes are held");
            if bed.reading.is_done() {
                break;
            }
        }
        assert!(bed.sent == bed.content, "seed {seed}");
        drop(bed.reading);
        assert_eq!(bed.claimed_bytes.load(Ordering::Relaxed), 0);
    }
}
