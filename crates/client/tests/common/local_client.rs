//! A [`Local`] that keeps what it reported.

#![allow(dead_code, reason = "each test file uses its part")]

use client::{
    Address, CallKey, CallStart, ChannelKey, Code, Ending, Happened, Local, LocalOptions,
};

const TIMEOUT_NS: u64 = 20_000_000_000;

/// What was reported, without the borrowed parts.
#[derive(Clone, Debug, PartialEq)]
pub enum Reported {
    Connected(ChannelKey),
    Disconnected(ChannelKey, String),
    Message(u64, Vec<u8>),
    Writable(u64),
    Ok(u64, u64),
    Failed(u64, Code),
    DeadlineExceeded(u64),
    NotBegun(u64),
    Lost(u64),
    BadAnswer(u64),
}

pub fn reported(happened: &Happened<'_>) -> Reported {
    match happened {
        Happened::Connected { channel } => Reported::Connected(*channel),
        Happened::Disconnected { channel, error } => {
            Reported::Disconnected(*channel, error.to_string())
        }
        Happened::Message { tag, bytes } => Reported::Message(*tag, bytes.to_vec()),
        Happened::Writable { tag } => Reported::Writable(*tag),
        Happened::Ended { tag, ending, .. } => match ending {
            Ending::Status { status, messages } if status.is_ok() => Reported::Ok(*tag, *messages),
            Ending::Status { status, .. } => Reported::Failed(*tag, status.code()),
            Ending::FramedError { status, .. } => panic!("{status} over HTTP/2"),
            Ending::DeadlineExceeded => Reported::DeadlineExceeded(*tag),
            Ending::NotBegun => Reported::NotBegun(*tag),
            Ending::ConnectionLost { .. } => Reported::Lost(*tag),
            Ending::BadAnswer { .. } => Reported::BadAnswer(*tag),
        },
    }
}

pub struct LocalClient {
    pub local: Local,
    pub reported: Vec<Reported>,
}

impl LocalClient {
    pub fn new(address: &Address) -> LocalClient {
        LocalClient {
            local: Local::new(address, LocalOptions::default()).expect("the address is known"),
            reported: Vec::new(),
        }
    }

    pub fn now_ns() -> u64 {
        net::monotonic_ns()
    }

    pub fn turn(&mut self) {
        self.local.flush(LocalClient::now_ns());
        let now_ns = LocalClient::now_ns();
        self.local
            .wait(Some(TIMEOUT_NS), now_ns)
            .expect("waiting works");
        let all = &mut self.reported;
        self.local.receive(LocalClient::now_ns(), &mut |happened| {
            all.push(reported(&happened))
        });
    }

    /// Turns until something like this was reported.
    pub fn until(&mut self, mut is_it: impl FnMut(&Reported) -> bool) -> Reported {
        let until_ns = LocalClient::now_ns() + TIMEOUT_NS;
        loop {
            if let Some(found) = self.reported.iter().find(|reported| is_it(reported)) {
                return found.clone();
            }
            assert!(
                LocalClient::now_ns() < until_ns,
                "only reported {:?}",
                self.reported
            );
            self.turn();
        }
    }

    pub fn connect(&mut self) -> ChannelKey {
        let channel = self
            .local
            .open_channel(LocalClient::now_ns())
            .expect("room");
        assert_eq!(self.local.room(channel), 0, "not before it is connected");
        self.until(|reported| *reported == Reported::Connected(channel));
        channel
    }

    pub fn begin(&mut self, channel: ChannelKey, tag: u64, path: &str, request: &[u8]) -> CallKey {
        self.begin_within(channel, tag, path, request, None)
    }

    pub fn begin_within(
        &mut self,
        channel: ChannelKey,
        tag: u64,
        path: &str,
        request: &[u8],
        timeout_ns: Option<u64>,
    ) -> CallKey {
        let start = CallStart {
            path,
            timeout_ns,
            metadata: None,
        };
        let now_ns = LocalClient::now_ns();
        self.local
            .begin(channel, tag, &start, now_ns, |out| {
                out.extend_from_slice(request)
            })
            .expect("there is room")
    }

    /// Lets what is under way come to rest: the acknowledgements of SETTINGS.
    pub fn turn_quiet(&mut self) {
        for _ in 0..10 {
            self.local.flush(LocalClient::now_ns());
            let now_ns = LocalClient::now_ns();
            self.local
                .wait(Some(2_000_000), now_ns)
                .expect("waiting works");
            let all = &mut self.reported;
            self.local.receive(LocalClient::now_ns(), &mut |happened| {
                all.push(reported(&happened))
            });
        }
    }
}
