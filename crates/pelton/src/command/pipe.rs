//! A Pipe from the client's side: groups of operations go out while their answers come in, and
//! nothing grows.

use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use api::keyvalue::{self, BatchMode, BatchResponse, Operation, PipeRequest, PipeResponse};
use api::rpc::Rpc;
use api::rpc::keyvalue::Pipe as PipeMethod;
use client::typed::Exchange;
use client::{CallOptions, StreamStep};

use super::{Caller, call_failure, unreadable};
use crate::exit::Failure;
use crate::interrupt::Interrupt;
use crate::json::OwnedOperation;

/// Operations sent as one group: enough to make the cost of a group small for each.
pub const GROUP_OPERATIONS: usize = 1_000;

/// Bytes of operations in one group, unless a single one is larger.
pub const GROUP_BYTES: usize = 256 << 10;

/// Groups under way: what the server takes before it holds the caller, see its `PIPE_BATCHES`.
const GROUPS_UNDER_WAY: usize = service::limits::PIPE_BATCHES;

/// Groups that are read ahead of the network.
const GROUPS_READ_AHEAD: usize = 2;

/// How long to wait for more input, or for the network, before the other and the user are looked
/// at.
const LOOK: Duration = Duration::from_millis(20);

/// Some operations that are sent together.
pub struct PipeGroup<Place> {
    /// The operations.
    pub operations: Vec<OwnedOperation>,
    /// Where each of them comes from.
    pub places: Vec<Place>,
}

/// What became of a group.
pub enum GroupOutcome<'a> {
    /// All is well, and nothing was to be told.
    Done,
    /// The answer, and which operations its results belong to if these are not all.
    Answered(BatchResponse<'a>, Option<Vec<u32>>),
    /// It was refused as a whole.
    Refused(keyvalue::Failure<'a>),
}

/// Takes what became of a group.
pub type Handle<'a, Place> = dyn FnMut(&[Place], GroupOutcome<'_>) -> Result<(), Failure> + 'a;

/// Reads groups in a thread of its own, so that a slow input keeps nobody from listening to the
/// server.
pub fn read_ahead<Place: Send + 'static>(
    mut next: impl FnMut() -> Result<Option<PipeGroup<Place>>, Failure> + Send + 'static,
) -> Result<Receiver<Result<PipeGroup<Place>, Failure>>, Failure> {
    send_ahead(move |sender| {
        while let Some(group) = next().transpose() {
            let is_last = group.is_err();
            if sender.send(group).is_err() || is_last {
                return;
            }
        }
    })
}

/// The same of an input that sends its groups itself.
pub fn send_ahead<Place: Send + 'static>(
    read: impl FnOnce(SyncSender<Result<PipeGroup<Place>, Failure>>) + Send + 'static,
) -> Result<Receiver<Result<PipeGroup<Place>, Failure>>, Failure> {
    let (sender, receiver) = sync_channel(GROUPS_READ_AHEAD);
    let thread = thread::Builder::new().name("pelton-input".into());
    let spawned = thread.spawn(move || read(sender));
    spawned.map_err(|error| {
        let limits = net::THREAD_LIMITS;
        let message = format!("cannot start a thread: {error}; what limits threads: {limits}");
        Failure::Failed(message)
    })?;
    Ok(receiver)
}

/// Sends all groups, each operation for itself, and hands over what became of each group, in their
/// order. `request` is what all groups have in common.
///
/// What ends the input early (an error in it, Ctrl-C) is the result only when all that was sent
/// before is answered.
pub fn run<'a, Place>(
    caller: &'a mut Caller,
    request: PipeRequest<'a>,
    groups: &Receiver<Result<PipeGroup<Place>, Failure>>,
    interrupt: &Interrupt,
    handle: &mut Handle<'_, Place>,
) -> Result<(), Failure> {
    let Caller {
        channel,
        address,
        timeout,
    } = caller;
    let failed = |error| call_failure(address, PipeMethod::METHOD.path, &error);
    let exchange = channel.call_streaming(&CallOptions::default());
    let mut pipe = PipeRun {
        exchange: exchange.map_err(failed)?,
        request: PipeRequest {
            mode: BatchMode::Independent.number(),
            ..request
        },
        under_way: VecDeque::new(),
        done: 0,
        is_closed: false,
        ended_by: None,
        last_progress: Instant::now(),
    };
    loop {
        if interrupt.is_set() && !pipe.is_closed {
            pipe.close(Some(Failure::Interrupted("interrupted".into())));
        }
        let mut wait = pipe.send_next(groups);
        loop {
            match pipe.exchange.poll(wait).map_err(failed)? {
                StreamStep::Message(reply) => pipe.answered(&reply.message(), handle)?,
                StreamStep::Nothing => break,
                StreamStep::Ended => return pipe.end(),
            }
            wait = Duration::ZERO;
        }
        if pipe.last_progress.elapsed() >= *timeout
            && (pipe.is_closed || !pipe.under_way.is_empty())
        {
            return Err(Failure::Failed(format!(
                "{} on {address}: no answer for {:.1?}; --timeout says how long to wait",
                PipeMethod::METHOD.path,
                timeout
            )));
        }
    }
}

struct PipeRun<'a, Place> {
    exchange: Exchange<'a, PipeMethod>,
    request: PipeRequest<'a>,
    /// What was sent and is not answered.
    under_way: VecDeque<Vec<Place>>,
    done: u64,
    is_closed: bool,
    ended_by: Option<Failure>,
    last_progress: Instant,
}

impl<Place> PipeRun<'_, Place> {
    /// Sends the next group if there is one and room for it; returns how long the network may be
    /// waited for.
    fn send_next(&mut self, groups: &Receiver<Result<PipeGroup<Place>, Failure>>) -> Duration {
        let has_room = self.exchange.can_send() && self.under_way.len() < GROUPS_UNDER_WAY;
        if self.is_closed || !has_room {
            return LOOK;
        }
        match groups.recv_timeout(LOOK) {
            Ok(Ok(group)) => {
                if self.under_way.is_empty() {
                    self.last_progress = Instant::now();
                }
                let operations = group.operations.iter().map(OwnedOperation::borrow);
                let operations: Vec<Operation<'_>> = operations.collect();
                self.exchange.send_with_others(&PipeRequest {
                    operations: operations[..].into(),
                    ..self.request
                });
                self.under_way.push_back(group.places);
            }
            Ok(Err(failure)) => self.close(Some(failure)),
            Err(RecvTimeoutError::Disconnected) => self.close(None),
            Err(RecvTimeoutError::Timeout) => {}
        }
        Duration::ZERO
    }

    fn close(&mut self, ended_by: Option<Failure>) {
        self.is_closed = true;
        self.ended_by = ended_by;
        self.last_progress = Instant::now();
        self.exchange.close_send();
    }

    fn answered(
        &mut self,
        answer: &PipeResponse<'_>,
        handle: &mut Handle<'_, Place>,
    ) -> Result<(), Failure> {
        self.last_progress = Instant::now();
        while self.done < answer.done {
            let places = self
                .under_way
                .pop_front()
                .ok_or_else(|| unreadable("more is done than was sent"))?;
            self.done += 1;
            let outcome = match (answer.batch, answer.failure) {
                _ if self.done != answer.batch_number => GroupOutcome::Done,
                (_, Some(failure)) => GroupOutcome::Refused(failure),
                (Some(batch), None) => {
                    let indexes: Vec<u32> = answer.result_indexes.iter().flatten().collect();
                    GroupOutcome::Answered(batch, (!indexes.is_empty()).then_some(indexes))
                }
                (None, None) => GroupOutcome::Done,
            };
            handle(&places, outcome)?;
        }
        Ok(())
    }

    fn end(self) -> Result<(), Failure> {
        match self.ended_by {
            Some(failure) => Err(failure),
            None if self.is_closed && self.under_way.is_empty() => Ok(()),
            None => Err(unreadable("the Pipe has ended before all was answered")),
        }
    }
}
