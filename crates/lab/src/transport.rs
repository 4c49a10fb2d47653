//! What carries calls: connections of a client in earnest, a fake in tests.

use client::{CallError, CallKey, CallStart, ChannelKey, ConnectError, Local, SharedBytes};

/// Connections to one server.
pub trait Transport {
    /// A call to which more messages go.
    type Stream: Copy;

    /// Begins to connect.
    ///
    /// # Errors
    /// If there can be no further connection.
    fn open_channel(&mut self, now_ns: u64) -> Result<ChannelKey, ConnectError>;

    /// Closes a connection: its calls end without a word.
    fn close_channel(&mut self, channel: ChannelKey);

    /// How many calls may begin on a connection now.
    fn room(&self, channel: ChannelKey) -> usize;

    /// Begins a unary call.
    ///
    /// # Errors
    /// If it cannot begin now.
    fn begin(
        &mut self,
        channel: ChannelKey,
        tag: u64,
        start: &CallStart<'_>,
        now_ns: u64,
        encode: impl FnOnce(&mut Vec<u8>),
    ) -> Result<(), CallError>;

    /// Begins a unary call whose request has a part that is shared: `encode` appends what stands
    /// before it, and returns it.
    ///
    /// # Errors
    /// If it cannot begin now.
    fn begin_shared(
        &mut self,
        channel: ChannelKey,
        tag: u64,
        start: &CallStart<'_>,
        now_ns: u64,
        encode: impl FnOnce(&mut Vec<u8>) -> Option<SharedBytes>,
    ) -> Result<(), CallError> {
        self.begin(channel, tag, start, now_ns, |out| joined(encode, out))
    }

    /// Begins a call of many messages.
    ///
    /// # Errors
    /// If it cannot begin now.
    fn begin_stream(
        &mut self,
        channel: ChannelKey,
        tag: u64,
        start: &CallStart<'_>,
        now_ns: u64,
    ) -> Result<Self::Stream, CallError>;

    /// Sends a message of such a call.
    fn send(&mut self, stream: Self::Stream, encode: impl FnOnce(&mut Vec<u8>));

    /// Sends the last message of such a call.
    fn send_last(&mut self, stream: Self::Stream, encode: impl FnOnce(&mut Vec<u8>));

    /// Whether a further message of such a call would go out soon. If not, [`Happened::Writable`]
    /// follows.
    ///
    /// [`Happened::Writable`]: client::Happened::Writable
    fn can_send(&mut self, stream: Self::Stream) -> bool;

    /// Gives such a call up: nothing more is heard of it.
    fn cancel(&mut self, stream: Self::Stream);

    /// Sends a message of such a call that has a part that is shared.
    fn send_shared(
        &mut self,
        stream: Self::Stream,
        encode: impl FnOnce(&mut Vec<u8>) -> Option<SharedBytes>,
    ) {
        self.send(stream, |out| joined(encode, out));
    }
}

/// Both parts of a message one behind the other.
fn joined(encode: impl FnOnce(&mut Vec<u8>) -> Option<SharedBytes>, out: &mut Vec<u8>) {
    if let Some(body) = encode(out) {
        out.extend_from_slice(&body);
    }
}

impl Transport for Local {
    type Stream = CallKey;

    fn open_channel(&mut self, now_ns: u64) -> Result<ChannelKey, ConnectError> {
        Local::open_channel(self, now_ns)
    }

    fn close_channel(&mut self, channel: ChannelKey) {
        Local::close_channel(self, channel);
    }

    #[inline]
    fn room(&self, channel: ChannelKey) -> usize {
        Local::room(self, channel)
    }

    #[inline]
    fn begin(
        &mut self,
        channel: ChannelKey,
        tag: u64,
        start: &CallStart<'_>,
        now_ns: u64,
        encode: impl FnOnce(&mut Vec<u8>),
    ) -> Result<(), CallError> {
        Local::begin(self, channel, tag, start, now_ns, encode).map(drop)
    }

    fn begin_shared(
        &mut self,
        channel: ChannelKey,
        tag: u64,
        start: &CallStart<'_>,
        now_ns: u64,
        encode: impl FnOnce(&mut Vec<u8>) -> Option<SharedBytes>,
    ) -> Result<(), CallError> {
        Local::begin_shared(self, channel, tag, start, now_ns, encode).map(drop)
    }

    fn begin_stream(
        &mut self,
        channel: ChannelKey,
        tag: u64,
        start: &CallStart<'_>,
        now_ns: u64,
    ) -> Result<CallKey, CallError> {
        self.begin_streaming(channel, tag, start, now_ns)
    }

    fn send(&mut self, stream: CallKey, encode: impl FnOnce(&mut Vec<u8>)) {
        Local::send(self, stream, false, encode);
    }

    fn send_last(&mut self, stream: CallKey, encode: impl FnOnce(&mut Vec<u8>)) {
        Local::send(self, stream, true, encode);
    }

    fn can_send(&mut self, stream: CallKey) -> bool {
        Local::can_send(self, stream)
    }

    fn cancel(&mut self, stream: CallKey) {
        Local::cancel(self, stream);
    }

    fn send_shared(
        &mut self,
        stream: CallKey,
        encode: impl FnOnce(&mut Vec<u8>) -> Option<SharedBytes>,
    ) {
        Local::send_shared(self, stream, false, encode);
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use client::LocalOptions;

    use super::*;

    /// A connection that was closed leaves its place to another one.
    #[test]
    fn a_closed_connection_is_none_any_more() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let address = listener.local_addr().expect("it is bound").to_string();
        let options = LocalOptions {
            max_channels: 1,
            ..LocalOptions::default()
        };
        let address = address.parse().expect("an address of the system is valid");
        let mut local = Local::new(&address, options).expect("the address is known");
        let first = Transport::open_channel(&mut local, 0).expect("there is room for one");
        let refused = Transport::open_channel(&mut local, 0);
        assert!(refused.is_err(), "and for no more");
        Transport::close_channel(&mut local, first);
        let second = Transport::open_channel(&mut local, 0).expect("there is room again");
        assert_ne!(first, second);
        assert_eq!(Transport::room(&local, second), 0, "it is not open yet");
    }
}
