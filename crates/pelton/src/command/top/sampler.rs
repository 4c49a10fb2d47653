//! Asks the server for its figures on a thread of its own: one that does not answer must not keep
//! the user from ending the command, whose terminal would not be given back then.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use api::admin::StatisticsRequest;
use api::rpc::admin::Statistics;

use super::sample::TopSample;
use crate::command::{Caller, echo};
use crate::exit::Failure;

/// Round trips of a sample, of which the fastest counts: the others say more about this machine's
/// scheduler.
const ROUND_TRIPS: usize = 5;

/// A thread that takes samples. It ends when this goes, or with the program.
pub(super) struct Sampler {
    wanted: Sender<()>,
    samples: Receiver<Result<TopSample, Failure>>,
}

impl Sampler {
    /// Begins the thread.
    pub(super) fn start(mut caller: Caller) -> Result<Sampler, Failure> {
        let (wanted, wants) = channel();
        let (take, samples) = channel();
        let take_samples = move || {
            while wants.recv().is_ok() {
                if take.send(sample(&mut caller)).is_err() {
                    return;
                }
            }
        };
        let thread = thread::Builder::new().name("pelton-top".into());
        let spawned = thread.spawn(take_samples);
        spawned.map_err(|error| Failure::Failed(format!("the system has no thread: {error}")))?;
        Ok(Sampler { wanted, samples })
    }

    /// Takes a sample, however long that takes. `None`: `is_unwanted`, which is called again and
    /// again, returned true before it came.
    pub(super) fn take(
        &self,
        look_every: Duration,
        is_unwanted: &mut dyn FnMut() -> bool,
    ) -> Result<Option<TopSample>, Failure> {
        let gone = || Failure::Failed("internal error: no more samples are taken".into());
        self.wanted.send(()).map_err(|_| gone())?;
        loop {
            match self.samples.recv_timeout(look_every) {
                Ok(sample) => return sample.map(Some),
                Err(RecvTimeoutError::Timeout) if is_unwanted() => return Ok(None),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Err(gone()),
            }
        }
    }
}

/// Asks the server for its figures.
fn sample(caller: &mut Caller) -> Result<TopSample, Failure> {
    let round_trip = (0..ROUND_TRIPS).try_fold(Duration::MAX, |least, _| {
        echo::round_trip(caller, b"").map(|time| least.min(time))
    })?;
    let reply = caller.call::<Statistics>(&StatisticsRequest {})?;
    Ok(TopSample::new(&reply.message(), Instant::now(), round_trip))
}
