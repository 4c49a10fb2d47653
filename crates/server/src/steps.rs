//! The steps of a call, and what follows from them.

use bytes::Bytes;
use net::{Io, PeerAddress};
use service::services::{database_gone, not_read};
use service::{Actions, Call, Code, Shared, State, Status};
use store::tree::FetchedCall;
use store::{CommitOutcome, ReadView};
use wire::StreamKey;

use crate::actions::{Effects, Step};
use crate::calls::{CallId, Running};
use crate::connection::{ConnectionState, Protocol};
use crate::loop_state::LoopState;
use crate::settings::Detail;
use crate::tasks::News;
use crate::timers::Timer;

impl LoopState {
    /// The running call of a stream.
    pub(crate) fn call_of(&self, channel: &ConnectionState, stream: StreamKey) -> Option<CallId> {
        let Protocol::Http2(connection) = &channel.protocol else {
            return None;
        };
        self.calls.current(connection.token(stream).checked_sub(1)?)
    }

    pub(crate) fn step_of(
        &mut self,
        channel: &mut ConnectionState,
        io: &mut Io,
        stream: StreamKey,
        step: impl FnOnce(&mut Call, &Shared, &mut Step<'_>),
    ) {
        if let Some(id) = self.call_of(channel, stream) {
            self.step(channel, &mut io.output, id, step);
        }
    }

    /// Takes one step of a call and does what it asked for.
    #[inline]
    pub(crate) fn step(
        &mut self,
        channel: &mut ConnectionState,
        output: &mut Vec<u8>,
        id: CallId,
        step: impl FnOnce(&mut Call, &Shared, &mut Step<'_>),
    ) {
        self.step_with(channel, output, id, None, step);
    }

    /// The same for a step that a message brings, of which the call may keep large parts if they
    /// are shared.
    #[inline]
    pub(crate) fn step_with(
        &mut self,
        channel: &mut ConnectionState,
        output: &mut Vec<u8>,
        id: CallId,
        message: Option<&Bytes>,
        step: impl FnOnce(&mut Call, &Shared, &mut Step<'_>),
    ) {
        let Protocol::Http2(connection) = &mut channel.protocol else {
            return;
        };
        let Some(running) = self.calls.get_mut(id) else {
            return;
        };
        let stream = running.stream;
        let mut actions = Step {
            id,
            channel: channel.id,
            caller: &channel.caller,
            stream,
            message,
            connection: &mut *connection,
            account: &self.admission.account,
            output,
            batch: &mut self.batch,
            clock: &self.clock,
            tasks: &self.tasks,
            blobs: &mut self.blobs,
            task: &mut running.task,
            is_plain: running.method.is_plain(),
            has_plain_head: &mut running.has_plain_head,
            method: running.method,
            peer: &channel.address,
            settings: &self.settings,
            effects: Effects::default(),
        };
        step(&mut running.call, &self.shared, &mut actions);
        let mut effects = actions.effects;
        if let Some((commits, bytes)) = effects.written_from {
            effects.commits = (self.batch.commits() - commits) as u32;
            // What waits for the committer is held for the call until that answers; nothing does if
            // it gave up.
            connection.reserve_more(stream, self.batch.write_bytes() - bytes);
        }
        self.puts_back = effects.puts_back;
        self.wants_whole = effects.wants_whole;
        self.claimed_bytes += effects.claimed_bytes;
        if effects.claim_failed {
            self.claim_failed = true;
        }
        self.read_waits = effects.read_waits;
        if let Some(code) = effects.over {
            self.over(channel, id, code);
        } else if effects != Effects::default() {
            self.follow(channel, id, effects);
        }
    }

    /// Counts a call that has ended.
    #[inline]
    pub(crate) fn ended(&mut self, running: &Running, code: Code, peer: &PeerAddress) {
        self.figures.ended(running.method, code);
        if let Some(calls) = &mut self.ended_calls {
            calls.add(running.method, running.begin_ns, &self.clock, &self.figures);
        }
        if self.settings.log.detail() >= Detail::Calls {
            let took_ns = self.clock.read_ns().saturating_sub(running.begin_ns);
            (self.settings.log).call_ended(running.method, code, took_ns, peer);
        }
    }

    /// The call answered: it is no more.
    fn over(&mut self, channel: &mut ConnectionState, id: CallId, code: Code) {
        if let Some(running) = self.calls.remove(id) {
            if running.commits > 0 && code == Code::DeadlineExceeded {
                self.abandoned.push(id.tag());
            }
            self.ended(&running, code, &channel.address);
            channel.running -= 1;
            if let Protocol::Http2(connection) = &mut channel.protocol {
                connection.set_token(running.stream, 0);
            }
            if self.drain.is_some() {
                // It may have been the last one, so that the connection can be closed.
                self.revisit.push(channel.id);
            }
        }
    }

    fn follow(&mut self, channel: &ConnectionState, id: CallId, effects: Effects) {
        let Some(running) = self.calls.get_mut(id) else {
            return;
        };
        running.subscribed |= effects.subscribed;
        running.commits += effects.commits;
        if let Some(at_ns) = effects.wake_at_ns {
            running.wake_at_ns = at_ns;
            self.timers.set(at_ns, Timer::Wake(id));
        }
        if effects.resumed {
            self.revisit.push(channel.id);
        }
    }

    /// Shows a call its database; `None`: that was dropped meanwhile.
    #[inline]
    pub(crate) fn read(
        &mut self,
        channel: &mut ConnectionState,
        io: &mut Io,
        id: CallId,
        shown: Option<&ReadView<'_>>,
        kept: &[u8],
    ) {
        self.read_waits = false;
        self.step(
            channel,
            &mut io.output,
            id,
            |call, shared, step| match shown {
                Some(shown) => call.read(shown, kept, shared, step),
                None => step.finish(database_gone()),
            },
        );
    }

    /// Shows a call what was fetched for it.
    pub(crate) fn show_fetched(
        &mut self,
        channel: &mut ConnectionState,
        io: &mut Io,
        id: CallId,
        fetched: &FetchedCall<'_>,
    ) {
        let reads_from = self.calls.get(id).and_then(|running| running.reads_from);
        if let Some(database) = reads_from
            && !channel.has_capacity()
        {
            // Read again when the peer has taken what waits for it: what was fetched is not kept
            // for so long.
            return self.defer_read(channel, (database, id), fetched.kept());
        }
        match ReadView::fetched(fetched) {
            Ok(shown) => {
                self.read(channel, io, id, Some(&shown), fetched.kept());
                if let (true, Some(database)) = (self.read_waits, reads_from) {
                    self.defer_read(channel, (database, id), fetched.kept());
                }
            }
            Err(why) => {
                self.tell_damage(why);
                self.end(channel, io, id, not_read(why));
            }
        }
    }

    pub(crate) fn committed(
        &mut self,
        channel: &mut ConnectionState,
        io: &mut Io,
        id: CallId,
        outcome: &CommitOutcome<'_>,
    ) {
        if let Some(running) = self.calls.get_mut(id) {
            running.commits = running.commits.saturating_sub(1);
        }
        self.step(channel, &mut io.output, id, |call, shared, step| {
            call.committed(outcome, shared, step)
        });
    }

    /// Tells a call about its task.
    pub(crate) fn task_news(
        &mut self,
        channel: &mut ConnectionState,
        io: &mut Io,
        id: CallId,
        news: &News,
    ) {
        self.step(channel, &mut io.output, id, |call, shared, step| {
            news.with(|news| call.task(news, shared, step))
        });
    }

    pub(crate) fn wake(&mut self, channel: &mut ConnectionState, io: &mut Io, id: CallId) {
        self.step(channel, &mut io.output, id, |call, shared, step| {
            call.woken(shared, step)
        });
    }

    /// Ends a call from outside of it.
    pub(crate) fn end(
        &mut self,
        channel: &mut ConnectionState,
        io: &mut Io,
        id: CallId,
        status: Status,
    ) {
        self.step(channel, &mut io.output, id, |call, shared, step| {
            call.cancelled(shared);
            step.finish(status);
        });
    }
}
