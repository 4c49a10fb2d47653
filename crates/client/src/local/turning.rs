//! A turn of a `Local`: dialing, writing, reading, and what happens by time.

use std::io;

use net::tls::TlsPipe;
use net::{ConnectionId, SocketReadResult, SocketWriteResult};
use wire::framed::FramedCallEnd;
use wire::grpc::Code;

use super::Local;
use super::calls::{LocalCall, LocalCalls};
use super::carrier::{Carrier, OK};
use super::channel::Stage;
use super::framed::{FramedCore, FramedEnd};
use super::happened::{ChannelKey, Ending, Happened};
use crate::core::{CallEvent, CallEventKind, Core};
use crate::error::ConnectError;
use crate::limits;
use crate::line::{closed_in_handshake, tls_error};
use crate::sealed::{SocketEnd, seal};
use crate::socket::connect_error;

impl Local {
    /// Connects to the endpoint that accepted last, or else to the others. What fails at once is
    /// reported in the next turn.
    pub(super) fn dial(&mut self, key: ChannelKey) {
        let attempt = self.target.attempt();
        if let Some(channel) = self.channel(key) {
            channel.attempt = attempt;
            self.dial_next(key, None);
        }
    }

    /// Tries the endpoints that are left; after the last the connection has failed.
    fn dial_next(&mut self, key: ChannelKey, failure: Option<io::Error>) {
        let channel = &mut self.channels[key.slot as usize];
        channel.socket = None;
        match (self.target).dial(&mut channel.attempt, &mut self.sockets, failure) {
            Ok(id) => {
                channel.socket = Some(id);
                self.owners.set(id, key.slot);
            }
            Err(error) => {
                let error = connect_error(&self.target.address, error);
                self.failed.push((key, error));
            }
        }
    }

    /// The socket of a connection that was dialed reports. Whether it stands.
    pub(super) fn dialed(&mut self, key: ChannelKey, id: ConnectionId) -> bool {
        match self.sockets.finish_dialing(id) {
            Ok(()) => {
                let channel = &mut self.channels[key.slot as usize];
                channel.stage = Stage::Greeting;
                self.target.accepted(&mut channel.attempt);
                match self
                    .options
                    .tls
                    .as_ref()
                    .map(|tls| tls.connect(&self.target.address))
                {
                    None => {
                        // There is nothing to wait for if the server greets nobody.
                        if channel.carrier.as_ref().is_some_and(Carrier::is_ready) {
                            self.eventful.push(key);
                        }
                    }
                    Some(Ok(pipe)) => channel.tls = Some(pipe),
                    Some(Err(failure)) => {
                        self.failed
                            .push((key, tls_error(&self.target.address, failure)));
                        return false;
                    }
                }
                true
            }
            Err(error) => {
                self.dial_next(key, Some(error));
                false
            }
        }
    }

    pub(super) fn write(&mut self, slot: u32, now_ns: u64) {
        let channel = &mut self.channels[slot as usize];
        let key = channel.key(slot);
        let (Some(carrier), Some(socket)) = (channel.carrier.as_mut(), channel.socket) else {
            return;
        };
        if channel.stage == Stage::Dialing || channel.is_blocked {
            return;
        }
        if carrier.wants_transmit() {
            carrier.transmit(now_ns);
            // A call can take more, though the server said nothing.
            if carrier.has_events() {
                self.eventful.push(key);
            }
        }
        let output = carrier.output();
        if let Some(pipe) = &mut channel.tls
            && seal(output, pipe)
        {
            output.clear();
        }
        let bytes = match &channel.tls {
            Some(pipe) => pipe.output(),
            None => output,
        };
        if bytes.is_empty() {
            return channel.waits.set_shut(carrier.has_unsent(), now_ns);
        }
        channel.waits.set_shut(false, now_ns);
        let written = self.sockets.write(socket, bytes);
        let is_all = written == SocketWriteResult::Bytes(bytes.len());
        match (written, &mut channel.tls) {
            (SocketWriteResult::Bytes(count), Some(pipe)) => pipe.sent(count),
            (SocketWriteResult::Bytes(count), None) => drop(output.drain(..count)),
            // The read that follows tells why, and what the server said before.
            (SocketWriteResult::Broken, _) => return output.clear(),
        }
        channel.is_blocked = !is_all;
        channel.waits.set_blocked(!is_all, now_ns);
        if is_all {
            output.shrink_to(limits::LOCAL_KEPT_OUTPUT_BYTES);
            // What did not fit under the bound of the output follows in the next turn.
            if carrier.wants_transmit() {
                self.touch(slot);
            } else {
                channel.waits.set_shut(carrier.has_unsent(), now_ns);
            }
        }
    }

    pub(super) fn read(
        &mut self,
        key: ChannelKey,
        socket: ConnectionId,
        now_ns: u64,
        on: &mut impl FnMut(Happened<'_>),
    ) {
        let channel = &mut self.channels[key.slot as usize];
        let Some(carrier) = channel.carrier.as_mut() else {
            return;
        };
        let is_handshaking = channel.tls.as_ref().is_some_and(TlsPipe::is_handshaking);
        let mut is_foreign = false;
        let end = match self.sockets.read(socket, &mut self.buffer) {
            SocketReadResult::Bytes(count) => {
                let bytes = &self.buffer[..count];
                let first = !std::mem::replace(&mut channel.has_received, true);
                match &mut channel.tls {
                    Some(pipe) => carrier.open_sealed(bytes, pipe).err(),
                    None => match carrier.foreign_greeting(bytes).filter(|_| first) {
                        Some(reason) => {
                            is_foreign = true;
                            Some(SocketEnd::Said(reason))
                        }
                        None => {
                            carrier.received(bytes);
                            None
                        }
                    },
                }
            }
            SocketReadResult::Nothing => return,
            SocketReadResult::End | SocketReadResult::Broken if is_handshaking => {
                Some(SocketEnd::Tls(closed_in_handshake()))
            }
            SocketReadResult::End => Some(SocketEnd::Said("the server closed it")),
            SocketReadResult::Broken => Some(SocketEnd::Said("the server reset it")),
        };
        let mut told = None;
        if end.is_some() {
            carrier.disconnected();
            told = carrier.server_reason();
        }
        if channel
            .tls
            .as_ref()
            .is_some_and(|pipe| !pipe.output().is_empty())
            || is_handshaking
        {
            self.touch(key.slot);
        }
        let reason = end
            .as_ref()
            .map(|end| told.clone().unwrap_or_else(|| end.to_string()));
        self.hear(key, reason.as_deref(), now_ns, on);
        if let Some(end) = end {
            let error = match end {
                SocketEnd::Tls(failure) => tls_error(&self.target.address, failure),
                SocketEnd::Said(reason) if is_foreign => {
                    let address = self.target.address.clone();
                    ConnectError::OtherProtocol { address, reason }
                }
                SocketEnd::Said(reason) => {
                    let reason = told.unwrap_or_else(|| reason.to_owned());
                    connect_error(&self.target.address, io::Error::other(reason))
                }
            };
            self.failed.push((key, error));
        }
    }

    /// Reports what writing has brought about.
    pub(super) fn hear_eventful(&mut self, now_ns: u64, on: &mut impl FnMut(Happened<'_>)) {
        while let Some(key) = self.eventful.pop() {
            if self.channel(key).is_some() {
                self.hear(key, None, now_ns, on);
            }
        }
    }

    /// Tells all that has happened on a connection. `end`: why it has ended, if the socket says so.
    fn hear(
        &mut self,
        key: ChannelKey,
        end: Option<&str>,
        now_ns: u64,
        on: &mut impl FnMut(Happened<'_>),
    ) {
        let channel = &mut self.channels[key.slot as usize];
        let Some(carrier) = channel.carrier.as_mut() else {
            return;
        };
        let at = (key, end, now_ns);
        // Asked once, and not for each event: events are large, and go no further than this.
        match carrier {
            Carrier::Http2(core) => {
                while let Some(event) = core.poll(now_ns) {
                    report(core, &mut self.calls, &event, at, on);
                }
            }
            Carrier::Framed(framed) => {
                while let Some(ended) = framed.poll() {
                    report_framed(framed, &mut self.calls, &ended, at, on);
                }
            }
        }
        let is_handshaking = channel.tls.as_ref().is_some_and(TlsPipe::is_handshaking);
        if channel.stage == Stage::Greeting && carrier.is_ready() && !is_handshaking {
            channel.stage = Stage::Open;
            on(Happened::Connected { channel: key });
        }
        let has_output = !carrier.output().is_empty() || carrier.wants_transmit();
        if let (Some(reason), None) = (carrier.close_reason(), end) {
            let error = connect_error(&self.target.address, io::Error::other(reason));
            self.failed.push((key, error));
        }
        if has_output {
            self.touch(key.slot);
        }
    }

    /// What is due by now: calls whose time has passed, and now and then a look at each connection.
    pub(super) fn pass_deadlines(&mut self, now_ns: u64, on: &mut impl FnMut(Happened<'_>)) {
        let mut expired = std::mem::take(&mut self.expired);
        self.calls.take_expired(now_ns, &mut expired);
        for running in expired.drain(..) {
            let channel = running.call.channel;
            if let Some(carrier) = self.carrier(channel) {
                carrier.cancel(running.call.stream);
                self.touch(channel.slot);
            }
            on(Happened::Ended {
                tag: running.tag,
                channel,
                ending: Ending::DeadlineExceeded,
            });
        }
        self.expired = expired;
        if now_ns < self.next_timers_ns {
            return;
        }
        self.next_timers_ns = now_ns + limits::LOCAL_TIMER_GRAIN.as_nanos() as u64;
        for slot in 0..self.channels.len() as u32 {
            self.pass_channel_deadlines(slot, now_ns, on);
        }
    }

    fn pass_channel_deadlines(
        &mut self,
        slot: u32,
        now_ns: u64,
        on: &mut impl FnMut(Happened<'_>),
    ) {
        let channel = &mut self.channels[slot as usize];
        let key = channel.key(slot);
        let is_connecting = matches!(channel.stage, Stage::Dialing | Stage::Greeting);
        if is_connecting && channel.give_up_ns <= now_ns {
            let address = self.target.address.clone();
            self.failed.push((key, ConnectError::TimedOut { address }));
            return;
        }
        if let Some(carrier) = channel.carrier.as_mut()
            && channel.stage != Stage::Dialing
            && carrier
                .next_deadline_ns()
                .is_some_and(|at_ns| at_ns <= now_ns)
        {
            carrier.deadline_passed(now_ns);
            self.hear(key, None, now_ns, on);
        }
    }

    /// Tells of the connections that have come to an end, and frees their places.
    pub(super) fn end_failed(&mut self, now_ns: u64, on: &mut impl FnMut(Happened<'_>)) {
        while let Some((key, error)) = self.failed.pop() {
            if self.channel(key).is_none() {
                continue;
            }
            // The protocol's last word may say why to the server too.
            self.write(key.slot, now_ns);
            let reason = error.to_string();
            if let Some(carrier) = self.carrier(key) {
                carrier.disconnected();
            }
            self.hear(key, Some(&reason), now_ns, on);
            let channel = &mut self.channels[key.slot as usize];
            channel.waits.set_blocked(false, now_ns);
            channel.waits.set_shut(false, now_ns);
            if matches!(channel.stage, Stage::Dialing | Stage::Greeting) {
                self.target.failed(channel.attempt);
            }
            self.vacate(key);
            on(Happened::Disconnected {
                channel: key,
                error: &error,
            });
        }
    }

    pub(super) fn vacate(&mut self, key: ChannelKey) {
        let channel = &mut self.channels[key.slot as usize];
        if let Some(socket) = channel.socket {
            self.sockets.close(socket);
        }
        self.past_waits.add(&channel.waits);
        channel.vacate();
        self.free.push(key.slot);
    }
}

/// Reports what happened to a call.
#[inline]
fn report(
    core: &mut Core,
    calls: &mut LocalCalls,
    event: &CallEvent,
    (key, end, now_ns): (ChannelKey, Option<&str>, u64),
    on: &mut impl FnMut(Happened<'_>),
) {
    match &event.kind {
        CallEventKind::Message => {
            if let Some(running) = calls.get_mut(event.token) {
                running.messages += 1;
                on(Happened::Message {
                    tag: running.tag,
                    bytes: core.message(),
                });
            }
            core.release(event.call);
        }
        CallEventKind::Head { .. } => {}
        CallEventKind::Writable => {
            if let Some(running) = calls.get_mut(event.token) {
                on(Happened::Writable { tag: running.tag });
            }
        }
        ended => {
            if let Some(running) = calls.remove(event.token) {
                on(Happened::Ended {
                    tag: running.tag,
                    channel: key,
                    ending: ending(ended, &running, end, now_ns),
                });
            }
        }
    }
}

/// The same of a call over baidu_std or SRPC, which has ended with its response.
#[inline]
fn report_framed(
    framed: &mut FramedCore,
    calls: &mut LocalCalls,
    ended: &FramedEnd,
    (key, end, _): (ChannelKey, Option<&str>, u64),
    on: &mut impl FnMut(Happened<'_>),
) {
    let Some(running) = calls.remove(ended.token) else {
        return;
    };
    let tag = running.tag;
    let closed = match &ended.end {
        FramedCallEnd::Lost => framed.close_reason(),
        _ => None,
    };
    let ending = match &ended.end {
        FramedCallEnd::Response => {
            let bytes = framed.message();
            on(Happened::Message { tag, bytes });
            Ending::Status {
                status: &OK,
                messages: 1,
            }
        }
        ended => framed_ending(ended, end.or(closed.as_deref())),
    };
    on(Happened::Ended {
        tag,
        channel: key,
        ending,
    });
}

/// `end`: why the connection has ended, if the socket says so.
fn ending<'a>(
    kind: &'a CallEventKind,
    running: &LocalCall,
    end: Option<&'a str>,
    now_ns: u64,
) -> Ending<'a> {
    match kind {
        // A server that keeps the deadline may reset the call at it, and that may be heard before
        // it passes here.
        CallEventKind::Ended(status)
            if status.code() == Code::Cancelled
                && running.deadline_ns.is_some_and(|at_ns| at_ns <= now_ns) =>
        {
            Ending::DeadlineExceeded
        }
        CallEventKind::Ended(status) => Ending::Status {
            status,
            messages: running.messages,
        },
        CallEventKind::NotBegun => Ending::NotBegun,
        CallEventKind::Lost { reason } => Ending::ConnectionLost {
            reason: end.unwrap_or(reason),
        },
        CallEventKind::AnswerTooLarge => Ending::BadAnswer {
            reason: "a message is larger than this client accepts",
        },
        CallEventKind::BadAnswer { reason } => Ending::BadAnswer { reason },
        CallEventKind::Head { .. } | CallEventKind::Message | CallEventKind::Writable => {
            unreachable!("only what ends a call is asked about")
        }
    }
}

/// The same of a call over baidu_std or SRPC.
fn framed_ending<'a>(ended: &'a FramedCallEnd, end: Option<&'a str>) -> Ending<'a> {
    match ended {
        FramedCallEnd::Error { status, text } => Ending::FramedError {
            status: *status,
            text,
        },
        FramedCallEnd::BadResponse(reason) => Ending::BadAnswer { reason },
        // A response comes as a message.
        FramedCallEnd::Lost | FramedCallEnd::Response => Ending::ConnectionLost {
            reason: end.unwrap_or("it was closed"),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::local::LocalOptions;
    use net::{Address, OutgoingEndpoint};
    use std::net::TcpListener;
    use std::time::{Duration, Instant};

    /// A channel tries all endpoints from its own first one on, also if another channel has found
    /// meanwhile which one stands.
    #[test]
    fn a_channel_tries_every_endpoint_whatever_others_prefer() {
        let listen = || TcpListener::bind("127.0.0.1:0").expect("a free port");
        let at = |listener: &TcpListener| {
            let address = listener.local_addr().expect("it is bound");
            OutgoingEndpoint::Tcp(address)
        };
        let (gone, stands) = (listen(), listen());
        let endpoints = vec![at(&gone), at(&stands)];
        drop(gone);
        let address: Address = "127.0.0.1:1".parse().expect("an address");
        let mut local = Local::new(&address, LocalOptions::default()).expect("it is resolved");
        local.target.endpoints = endpoints;
        let key = local.open_channel(0).expect("there is room");
        // Another channel has found it.
        local.target.preferred = 1;
        let begin = Instant::now();
        while local.channels[key.slot as usize].stage == Stage::Dialing {
            assert!(begin.elapsed() < Duration::from_secs(10), "it takes long");
            local.wait(Some(10_000_000), 0).expect("it waits");
            local.receive(0, &mut |happened| {
                if let Happened::Disconnected { error, .. } = happened {
                    panic!("it has not tried the one that stands: {error}");
                }
            });
        }
        assert_eq!(local.channels[key.slot as usize].attempt.endpoint, 1);
    }

    /// The kernel accepts for a process that hangs.
    #[test]
    fn a_channel_begins_behind_an_endpoint_that_said_nothing() {
        let mute = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let endpoint = OutgoingEndpoint::Tcp(mute.local_addr().expect("it is bound"));
        let address: Address = "127.0.0.1:1".parse().expect("an address");
        let mut local = Local::new(&address, LocalOptions::default()).expect("it is resolved");
        local.target.endpoints = vec![endpoint.clone(), endpoint];
        for preferred in [1, 0, 1] {
            let key = local.open_channel(0).expect("there is room");
            while local.channels[key.slot as usize].stage == Stage::Dialing {
                local.wait(None, 0).expect("it waits");
                local.receive(0, &mut |_| {});
            }
            let give_up_ns = local.channels[key.slot as usize].give_up_ns;
            local.receive(give_up_ns, &mut |_| {});
            assert!(local.channel(key).is_none(), "it says nothing");
            assert_eq!(local.target.preferred, preferred);
            local.next_timers_ns = 0;
        }
    }
}
