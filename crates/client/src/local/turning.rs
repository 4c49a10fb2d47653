//! A turn of the local face: dialing, writing, reading, and what happens by time.

use std::io;

use net::tls::TlsPipe;
use net::{ConnectionId, Read, Written};
use wire::grpc::Code;

use super::Local;
use super::calls::Running;
use super::channel::Stage;
use super::happened::{ChannelKey, Ending, Happened};
use crate::channel::foreign_greeting;
use crate::core::{What, describe};
use crate::error::ConnectError;
use crate::limits;
use crate::line::{closed_in_handshake, tls_error};
use crate::sealed::{End, open, seal};
use crate::socket::connect_error;

impl Local {
    /// Connects to the endpoint that stood last, or else to the others. What fails at once is told
    /// in the next turn.
    pub(super) fn dial_preferred(&mut self, key: ChannelKey) {
        let first = self.preferred;
        if let Some(channel) = self.channel(key) {
            channel.first_endpoint = first;
            self.dial(key, first);
        }
    }

    fn dial(&mut self, key: ChannelKey, endpoint: usize) {
        let dialed = self.sockets.dial(&self.endpoints[endpoint]);
        let Some(channel) = self.channel(key) else {
            return;
        };
        channel.endpoint = endpoint;
        match dialed {
            Ok(id) => {
                channel.socket = Some(id);
                let slot = id.slot as usize;
                if self.by_socket.len() <= slot {
                    self.by_socket.resize(slot + 1, u32::MAX);
                }
                self.by_socket[slot] = key.slot;
            }
            Err(error) => self.dial_next(key, error),
        }
    }

    /// Tries the next endpoint that the address stands for; after the last the connection has
    /// failed.
    fn dial_next(&mut self, key: ChannelKey, error: io::Error) {
        let count = self.endpoints.len();
        let Some(channel) = self.channel(key) else {
            return;
        };
        channel.socket = None;
        let next = (channel.endpoint + 1) % count;
        // Its own first one: what is preferred may have changed, since another channel stands by
        // now.
        if next == channel.first_endpoint {
            let error = connect_error(&self.address, error);
            self.failed.push((key, error));
        } else {
            self.dial(key, next);
        }
    }

    /// The socket of a connection that was dialed reports. Whether it stands.
    pub(super) fn dialed(&mut self, key: ChannelKey, id: ConnectionId) -> bool {
        match self.sockets.finish_dialing(id) {
            Ok(()) => {
                let channel = &mut self.channels[key.slot as usize];
                channel.stage = Stage::Greeting;
                self.preferred = channel.endpoint;
                match self
                    .options
                    .tls
                    .as_ref()
                    .map(|tls| tls.connect(&self.address))
                {
                    None => {}
                    Some(Ok(pipe)) => channel.tls = Some(pipe),
                    Some(Err(failure)) => {
                        self.failed.push((key, tls_error(&self.address, failure)));
                        return false;
                    }
                }
                true
            }
            Err(error) => {
                self.dial_next(key, error);
                false
            }
        }
    }

    pub(super) fn write(&mut self, slot: u32, now_ns: u64) {
        let channel = &mut self.channels[slot as usize];
        let key = channel.key(slot);
        let (Some(core), Some(socket)) = (channel.core.as_mut(), channel.socket) else {
            return;
        };
        if channel.stage == Stage::Dialing || channel.is_blocked {
            return;
        }
        if core.wants_transmit() {
            core.transmit(now_ns);
            // A call can take more, though the server said nothing.
            if core.has_events() {
                self.eventful.push(key);
            }
        }
        let output = core.output();
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
            return;
        }
        let written = self.sockets.write(socket, bytes);
        let is_all = written == Written::Bytes(bytes.len());
        match (written, &mut channel.tls) {
            (Written::Bytes(count), Some(pipe)) => pipe.sent(count),
            (Written::Bytes(count), None) => drop(output.drain(..count)),
            // The read that follows tells why, and what the server said before.
            (Written::Broken, _) => return output.clear(),
        }
        channel.is_blocked = !is_all;
        if is_all {
            output.shrink_to(limits::LOCAL_KEPT_OUTPUT_BYTES);
            // What did not fit under the bound of the output follows in the next turn.
            if core.wants_transmit() {
                self.touch(slot);
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
        let Some(core) = channel.core.as_mut() else {
            return;
        };
        let is_handshaking = channel.tls.as_ref().is_some_and(TlsPipe::is_handshaking);
        let end = match self.sockets.read(socket, &mut self.buffer) {
            Read::Bytes(count) => {
                let bytes = &self.buffer[..count];
                let first = !std::mem::replace(&mut channel.has_received, true);
                match &mut channel.tls {
                    Some(pipe) => open(bytes, pipe, &mut |plain| core.received(plain)).err(),
                    None => match foreign_greeting(bytes).filter(|_| first) {
                        Some(reason) => Some(End::Said(reason)),
                        None => {
                            core.received(bytes);
                            None
                        }
                    },
                }
            }
            Read::Nothing => return,
            Read::End | Read::Broken if is_handshaking => Some(End::Tls(closed_in_handshake())),
            Read::End => Some(End::Said("the server closed it")),
            Read::Broken => Some(End::Said("the server reset it")),
        };
        if end.is_some() {
            core.disconnected();
        }
        if channel
            .tls
            .as_ref()
            .is_some_and(|pipe| !pipe.output().is_empty())
            || is_handshaking
        {
            self.touch(key.slot);
        }
        let reason = end.as_ref().map(End::to_string);
        self.hear(key, reason.as_deref(), now_ns, on);
        if let Some(end) = end {
            let error = match end {
                End::Tls(failure) => tls_error(&self.address, failure),
                End::Said(reason) => connect_error(&self.address, io::Error::other(reason)),
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
        let Some(core) = channel.core.as_mut() else {
            return;
        };
        while let Some(happening) = core.poll(now_ns) {
            match happening.what {
                What::Message => {
                    if let Some(running) = self.calls.get_mut(happening.token) {
                        running.messages += 1;
                        on(Happened::Message {
                            tag: running.tag,
                            bytes: core.message(),
                        });
                    }
                    core.release(happening.call);
                }
                What::Head { .. } => {}
                What::Writable => {
                    if let Some(running) = self.calls.get_mut(happening.token) {
                        on(Happened::Writable { tag: running.tag });
                    }
                }
                ended => {
                    if let Some(running) = self.calls.remove(happening.token) {
                        let ending = ending(&ended, &running, end, now_ns);
                        on(Happened::Ended {
                            tag: running.tag,
                            channel: key,
                            ending,
                        });
                    }
                }
            }
        }
        if channel.stage == Stage::Greeting && core.is_ready() {
            channel.stage = Stage::Open;
            on(Happened::Connected { channel: key });
        }
        let has_output = !core.output().is_empty() || core.wants_transmit();
        if let (Some(reason), None) = (core.close_reason(), end) {
            let error = connect_error(&self.address, io::Error::other(describe(reason)));
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
            if let Some(core) = self.core(channel) {
                core.cancel(running.call.stream);
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
            let address = self.address.clone();
            self.failed.push((key, ConnectError::TimedOut { address }));
            return;
        }
        if let Some(core) = channel.core.as_mut()
            && channel.stage != Stage::Dialing
            && core.next_deadline_ns().is_some_and(|at_ns| at_ns <= now_ns)
        {
            core.deadline_passed(now_ns);
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
            if let Some(core) = self.core(key) {
                core.disconnected();
            }
            self.hear(key, Some(&reason), now_ns, on);
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
        channel.vacate();
        self.free.push(key.slot);
    }
}

/// `end`: why the connection has ended, if the socket says so.
fn ending<'a>(what: &'a What, running: &Running, end: Option<&'a str>, now_ns: u64) -> Ending<'a> {
    match what {
        // A server that keeps the deadline may reset the call at it, and that may be heard before
        // it passes here.
        What::Ended(status)
            if status.code() == Code::Cancelled
                && running.deadline_ns.is_some_and(|at_ns| at_ns <= now_ns) =>
        {
            Ending::DeadlineExceeded
        }
        What::Ended(status) => Ending::Status {
            status,
            messages: running.messages,
        },
        What::NotBegun => Ending::NotBegun,
        What::Lost { reason } => Ending::ConnectionLost {
            reason: end.unwrap_or(reason),
        },
        What::BadAnswer { reason } => Ending::BadAnswer { reason },
        What::Head { .. } | What::Message | What::Writable => {
            unreachable!("only what ends a call is asked about")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::local::LocalOptions;
    use net::{Address, Endpoint};
    use std::net::TcpListener;
    use std::time::{Duration, Instant};

    /// A channel tries all endpoints from its own first one on, also if another channel has found
    /// meanwhile which one stands.
    #[test]
    fn a_channel_tries_every_endpoint_whatever_others_prefer() {
        let listen = || TcpListener::bind("127.0.0.1:0").expect("a free port");
        let at = |listener: &TcpListener| {
            let address = listener.local_addr().expect("it is bound");
            Endpoint::Tcp(address)
        };
        let (gone, stands) = (listen(), listen());
        let endpoints = vec![at(&gone), at(&stands)];
        drop(gone);
        let address: Address = "127.0.0.1:1".parse().expect("an address");
        let mut local = Local::new(&address, LocalOptions::default()).expect("it is resolved");
        local.endpoints = endpoints;
        let key = local.open_channel(0).expect("there is room");
        // Another channel has found it.
        local.preferred = 1;
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
        assert_eq!(local.channels[key.slot as usize].endpoint, 1);
    }
}
