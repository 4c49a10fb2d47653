//! The polled interface: many connections to one server, turned by the thread that uses them.
//!
//! Nothing is shared and nothing runs by itself. A turn is: begin calls ([`Local::begin`]), write
//! each connection that has output once ([`Local::flush`]), wait ([`Local::wait`]), read each
//! connection that has input once and take what happened ([`Local::receive`]). So a system call is
//! shared by all calls that begin or end in a turn. Time is passed in.

mod calls;
mod carrier;
mod channel;
mod framed;
mod happened;
mod turning;

use std::fmt;
use std::io;

use net::{Address, Outgoing, TcpFigures};
use wire::{SharedBytes, StreamKey};

use crate::core::CallRequest;
use crate::dialing::{DialTarget, SocketOwners};
use crate::error::{CallError, ConnectError, NotBegun};
use crate::limits;
use crate::pool::ConnectionTraffic;
use crate::socket::connect_error;
use calls::{LocalCall, LocalCalls};
use carrier::Carrier;
use channel::{LocalChannel, Stage};
pub use happened::{CallKey, CallStart, ChannelKey, Ending, Happened, LocalCounters, LocalOptions};

/// Many connections to one server, for one thread.
pub struct Local {
    target: DialTarget,
    authority: String,
    accepts_gzip: bool,
    options: LocalOptions,
    sockets: Outgoing,
    channels: Vec<LocalChannel>,
    free: Vec<u32>,
    owners: SocketOwners,
    calls: LocalCalls,
    /// Channels with output, each once.
    dirty: Vec<u32>,
    /// Channels on which writing has brought something about that is to be reported.
    eventful: Vec<ChannelKey>,
    /// Channels that are to be closed without a word from the socket, each with its reason.
    failed: Vec<(ChannelKey, ConnectError)>,
    /// Calls whose deadline has passed and that are being ended; kept, so that nothing is allocated
    /// anew.
    expired: Vec<LocalCall>,
    buffer: Box<[u8]>,
    /// The head of a message whose body is shared, while it is put together.
    head: Vec<u8>,
    next_timers_ns: u64,
    begun: u64,
    /// How long connections waited that are gone.
    past_waits: ConnectionTraffic,
}

impl Local {
    /// Looks up where the server is. Waits for the resolver; connects to nothing yet.
    ///
    /// # Errors
    /// If the host is not known, or the system gives no epoll set.
    pub fn new(address: &Address, options: LocalOptions) -> Result<Local, ConnectError> {
        let target = DialTarget::resolve(address)?;
        let sockets = Outgoing::new().map_err(|error| connect_error(address, error))?;
        Ok(Local {
            target,
            accepts_gzip: options.accepts_gzip,
            authority: options
                .authority
                .clone()
                .unwrap_or_else(|| crate::channel::authority(address)),
            options,
            sockets,
            channels: Vec::new(),
            free: Vec::new(),
            owners: SocketOwners::default(),
            calls: LocalCalls::default(),
            dirty: Vec::new(),
            eventful: Vec::new(),
            failed: Vec::new(),
            expired: Vec::new(),
            buffer: vec![0; limits::LOCAL_READ_BYTES].into_boxed_slice(),
            head: Vec::new(),
            next_timers_ns: 0,
            begun: 0,
            past_waits: ConnectionTraffic::default(),
        })
    }

    /// Begins to connect. [`Happened::Connected`] or [`Happened::Disconnected`] follows.
    ///
    /// # Errors
    /// If there are as many connections as there may be.
    pub fn open_channel(&mut self, now_ns: u64) -> Result<ChannelKey, ConnectError> {
        if self.channels.len() - self.free.len() >= self.options.max_channels {
            let full = format!(
                "there are {} connections already",
                self.options.max_channels
            );
            return Err(connect_error(&self.target.address, io::Error::other(full)));
        }
        let slot = self.free.pop().unwrap_or_else(|| {
            self.channels.push(LocalChannel::vacant());
            u32::try_from(self.channels.len() - 1).expect("bounded by the descriptors of a process")
        });
        let channel = &mut self.channels[slot as usize];
        let config = wire::Config {
            max_message_bytes: self.options.max_message_bytes,
            max_gathered_bytes: usize::MAX,
            max_unsent_bytes: usize::MAX,
            max_streams: u32::try_from(self.options.max_calls_per_channel).unwrap_or(u32::MAX),
            ..wire::Config::client()
        };
        let carrier = Carrier::new(self.options.framed, &config, now_ns);
        channel.occupy(carrier, now_ns + self.options.connect_timeout_ns);
        let key = channel.key(slot);
        self.dial(key);
        Ok(key)
    }

    /// Closes a connection. Its calls end without a further word, and nothing more is heard of it.
    pub fn close_channel(&mut self, key: ChannelKey) {
        if self.channel(key).is_some() {
            self.calls.forget_channel(key);
            self.vacate(key);
        }
    }

    /// How many calls may begin on a connection now: 0 while it is not connected.
    pub fn room(&self, key: ChannelKey) -> usize {
        match self.channels.get(key.slot as usize) {
            Some(channel) if channel.is(key) && channel.stage == Stage::Open => {
                (channel.carrier.as_ref()).map_or(0, Carrier::calls_left)
            }
            _ => 0,
        }
    }

    /// Begins a unary call, or over HTTP/2 one with one request and many answers. `encode` appends
    /// the request.
    ///
    /// # Errors
    /// If it cannot begin now; nothing has been sent then.
    pub fn begin(
        &mut self,
        channel: ChannelKey,
        tag: u64,
        start: &CallStart<'_>,
        now_ns: u64,
        encode: impl FnOnce(&mut Vec<u8>),
    ) -> Result<CallKey, CallError> {
        self.open_call(channel, tag, start, now_ns, |carrier, request| {
            carrier.begin(request, encode)
        })
    }

    /// The same for a request of which others hold a part: `encode` appends its head, and returns
    /// what follows, which over HTTP/2 is copied only as it goes out; `None`: nothing does.
    ///
    /// # Errors
    /// As [`Local::begin`].
    pub fn begin_shared(
        &mut self,
        channel: ChannelKey,
        tag: u64,
        start: &CallStart<'_>,
        now_ns: u64,
        encode: impl FnOnce(&mut Vec<u8>) -> Option<SharedBytes>,
    ) -> Result<CallKey, CallError> {
        let mut head = std::mem::take(&mut self.head);
        head.clear();
        let body = encode(&mut head);
        let begun = self.open_call(channel, tag, start, now_ns, |carrier, request| {
            carrier.begin_shared(request, &head, body)
        });
        self.keep_head(head);
        begun
    }

    /// Begins a call to which messages go by [`Local::send`].
    ///
    /// # Errors
    /// As [`Local::begin`].
    pub fn begin_streaming(
        &mut self,
        channel: ChannelKey,
        tag: u64,
        start: &CallStart<'_>,
        now_ns: u64,
    ) -> Result<CallKey, CallError> {
        self.open_call(channel, tag, start, now_ns, Carrier::open)
    }

    fn open_call(
        &mut self,
        channel: ChannelKey,
        tag: u64,
        start: &CallStart<'_>,
        now_ns: u64,
        open: impl FnOnce(&mut Carrier, &CallRequest<'_>) -> Result<StreamKey, CallError>,
    ) -> Result<CallKey, CallError> {
        let closing = || {
            CallError::NotBegun(NotBegun::Closing {
                reason: "there is no connection".into(),
            })
        };
        let found = self.channels.get_mut(channel.slot as usize);
        let found = found.filter(|found| found.is(channel) && found.stage == Stage::Open);
        let Some(carrier) = found.and_then(|found| found.carrier.as_mut()) else {
            return Err(closing());
        };
        let request = CallRequest {
            path: start.path,
            authority: &self.authority,
            timeout_ns: start.timeout_ns,
            metadata: start.metadata,
            gzip: false,
            accepts_gzip: self.accepts_gzip,
        };
        let stream = open(carrier, &request)?;
        let call = CallKey { channel, stream };
        let deadline_ns = start
            .timeout_ns
            .map(|timeout_ns| now_ns.saturating_add(timeout_ns));
        let token = self.calls.insert(LocalCall {
            tag,
            call,
            deadline_ns,
            messages: 0,
        });
        carrier.set_token(stream, token);
        self.begun += 1;
        self.touch(channel.slot);
        Ok(call)
    }

    /// Sends a message of a call begun with [`Local::begin_streaming`]. `last`: none follows.
    pub fn send(&mut self, call: CallKey, last: bool, encode: impl FnOnce(&mut Vec<u8>)) {
        if let Some(core) = self.core(call.channel) {
            core.send_with(call.stream, last, encode);
            self.touch(call.channel.slot);
        }
    }

    /// The same for a message of which others hold a part, as in [`Local::begin_shared`].
    pub fn send_shared(
        &mut self,
        call: CallKey,
        last: bool,
        encode: impl FnOnce(&mut Vec<u8>) -> Option<SharedBytes>,
    ) {
        let mut head = std::mem::take(&mut self.head);
        head.clear();
        let body = encode(&mut head);
        if let Some(core) = self.core(call.channel) {
            carrier::send_shared(core, call.stream, last, &head, body);
            self.touch(call.channel.slot);
        }
        self.keep_head(head);
    }

    /// Keeps an empty buffer for the next message of which others hold a part.
    fn keep_head(&mut self, mut head: Vec<u8>) {
        head.shrink_to(limits::LOCAL_KEPT_OUTPUT_BYTES);
        self.head = head;
    }

    /// Ends the caller's side without a further message.
    pub fn close_send(&mut self, call: CallKey) {
        if let Some(core) = self.core(call.channel) {
            core.close_send(call.stream);
            self.touch(call.channel.slot);
        }
    }

    /// Whether a further message would be sent soon. If not, [`Happened::Writable`] follows.
    pub fn can_send(&mut self, call: CallKey) -> bool {
        self.core(call.channel)
            .is_some_and(|core| core.can_send(call.stream))
    }

    /// Gives a call up: nothing more is heard of it. The server is told over HTTP/2; baidu_std and
    /// SRPC have no word for it.
    pub fn cancel(&mut self, call: CallKey) {
        let Some(channel) = self.channels.get_mut(call.channel.slot as usize) else {
            return;
        };
        if channel.is(call.channel)
            && let Some(carrier) = channel.carrier.as_mut()
            && self.calls.remove_call(carrier.token(call.stream), call)
        {
            carrier.cancel(call.stream);
            self.touch(call.channel.slot);
        }
    }

    /// Writes each connection that has output once.
    pub fn flush(&mut self, now_ns: u64) {
        let mut dirty = std::mem::take(&mut self.dirty);
        for &slot in &dirty {
            self.channels[slot as usize].is_dirty = false;
            self.write(slot, now_ns);
        }
        // What was put down anew meanwhile has more to send than goes out in one turn.
        dirty.clear();
        dirty.append(&mut self.dirty);
        self.dirty = dirty;
    }

    /// Waits until there is something to receive, but not beyond `timeout_ns` (`None`: for ever),
    /// nor beyond what is due here by time.
    ///
    /// # Errors
    /// If the system refuses, which it has no reason to.
    pub fn wait(&mut self, timeout_ns: Option<u64>, now_ns: u64) -> io::Result<()> {
        let due_ns = self
            .next_deadline_ns()
            .map(|at_ns| at_ns.saturating_sub(now_ns));
        let timeout_ns = [timeout_ns, due_ns].into_iter().flatten().min();
        let has_work =
            !self.failed.is_empty() || !self.dirty.is_empty() || !self.eventful.is_empty();
        self.sockets
            .wait(if has_work { Some(0) } else { timeout_ns })
    }

    /// After [`Local::wait`]: reads each connection that is ready once, and tells what happened on
    /// it.
    pub fn receive(&mut self, now_ns: u64, on: &mut impl FnMut(Happened<'_>)) {
        while let Some(ready) = self.sockets.next_ready() {
            let slot = self.owners.get(ready.id);
            let found = self.channels.get_mut(slot as usize);
            let Some(channel) = found.filter(|channel| channel.socket == Some(ready.id)) else {
                continue;
            };
            if ready.writable {
                channel.is_blocked = false;
                channel.waits.set_blocked(false, now_ns);
            }
            let key = channel.key(slot);
            if channel.stage == Stage::Dialing && !self.dialed(key, ready.id) {
                continue;
            }
            if ready.writable {
                self.touch(slot);
            }
            if ready.readable {
                self.read(key, ready.id, now_ns, on);
            }
        }
        self.hear_eventful(now_ns, on);
        self.pass_deadlines(now_ns, on);
        self.end_failed(now_ns, on);
    }

    /// When [`Local::receive`] has something to do by time alone.
    pub fn next_deadline_ns(&self) -> Option<u64> {
        let timers = (self.channels.len() > self.free.len()).then_some(self.next_timers_ns);
        [timers, self.calls.next_deadline_ns()]
            .into_iter()
            .flatten()
            .min()
    }

    /// What has been done so far. Waits that are not over count up to now.
    pub fn counters(&self, now_ns: u64) -> LocalCounters {
        let sockets = self.sockets.counters();
        let mut waits = self.past_waits;
        for channel in &self.channels {
            waits.add(&channel.waits.until(now_ns));
        }
        LocalCounters {
            begun: self.begun,
            ended: self.begun - self.calls.len() as u64,
            reads: sockets.reads,
            writes: sockets.writes,
            waits: sockets.waits,
            bytes_in: sockets.bytes_in,
            bytes_out: sockets.bytes_out,
            dials: sockets.dials,
            socket_wait_ns: waits.socket_wait_ns,
            window_wait_ns: waits.window_wait_ns,
        }
    }

    /// What the kernel has counted for a connection, if it is one of TCP and the kernel says so.
    pub fn tcp_figures(&mut self, key: ChannelKey) -> Option<TcpFigures> {
        let socket = self.channel(key)?.socket?;
        self.sockets.tcp_figures(socket)
    }

    fn channel(&mut self, key: ChannelKey) -> Option<&mut LocalChannel> {
        let channel = self.channels.get_mut(key.slot as usize)?;
        channel.is(key).then_some(channel)
    }

    fn carrier(&mut self, key: ChannelKey) -> Option<&mut Carrier> {
        self.channel(key)?.carrier.as_mut()
    }

    /// Returns what has calls of several messages.
    fn core(&mut self, key: ChannelKey) -> Option<&mut crate::Core> {
        self.carrier(key)?.http2()
    }

    fn touch(&mut self, slot: u32) {
        let channel = &mut self.channels[slot as usize];
        if !channel.is_dirty {
            channel.is_dirty = true;
            self.dirty.push(slot);
        }
    }
}

impl fmt::Debug for Local {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Local")
            .field("address", &self.target.address)
            .field("channels", &(self.channels.len() - self.free.len()))
            .field("calls", &self.calls.len())
            .finish_non_exhaustive()
    }
}
