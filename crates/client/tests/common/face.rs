//! A local face that remembers what it heard.

#![allow(dead_code, reason = "each test file uses its part")]

use client::{
    Address, CallKey, CallStart, ChannelKey, Code, Ending, Happened, Local, LocalOptions,
};

const TIMEOUT_NS: u64 = 20_000_000_000;

/// What was heard, without the borrowed parts.
#[derive(Clone, Debug, PartialEq)]
pub enum Heard {
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

pub fn heard(happened: &Happened<'_>) -> Heard {
    match happened {
        Happened::Connected { channel } => Heard::Connected(*channel),
        Happened::Disconnected { channel, error } => {
            Heard::Disconnected(*channel, error.to_string())
        }
        Happened::Message { tag, bytes } => Heard::Message(*tag, bytes.to_vec()),
        Happened::Writable { tag } => Heard::Writable(*tag),
        Happened::Ended { tag, ending, .. } => match ending {
            Ending::Status { status, messages } if status.is_ok() => Heard::Ok(*tag, *messages),
            Ending::Status { status, .. } => Heard::Failed(*tag, status.code()),
            Ending::DeadlineExceeded => Heard::DeadlineExceeded(*tag),
            Ending::NotBegun => Heard::NotBegun(*tag),
            Ending::ConnectionLost { .. } => Heard::Lost(*tag),
            Ending::BadAnswer { .. } => Heard::BadAnswer(*tag),
        },
    }
}

pub struct Face {
    pub local: Local,
    pub heard: Vec<Heard>,
}

impl Face {
    pub fn new(address: &Address) -> Face {
        Face {
            local: Local::new(address, LocalOptions::default()).expect("the address is known"),
            heard: Vec::new(),
        }
    }

    pub fn now_ns() -> u64 {
        net::monotonic_ns()
    }

    pub fn turn(&mut self) {
        self.local.flush(Face::now_ns());
        let now_ns = Face::now_ns();
        self.local
            .wait(Some(TIMEOUT_NS), now_ns)
            .expect("waiting works");
        let all = &mut self.heard;
        self.local
            .receive(Face::now_ns(), &mut |happened| all.push(heard(&happened)));
    }

    /// Turns until something like this was heard.
    pub fn until(&mut self, mut is_it: impl FnMut(&Heard) -> bool) -> Heard {
        let until_ns = Face::now_ns() + TIMEOUT_NS;
        loop {
            if let Some(found) = self.heard.iter().find(|heard| is_it(heard)) {
                return found.clone();
            }
            assert!(Face::now_ns() < until_ns, "only heard {:?}", self.heard);
            self.turn();
        }
    }

    pub fn connect(&mut self) -> ChannelKey {
        let channel = self.local.open_channel(Face::now_ns()).expect("room");
        assert_eq!(self.local.room(channel), 0, "not before it is connected");
        self.until(|heard| *heard == Heard::Connected(channel));
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
        let now_ns = Face::now_ns();
        self.local
            .begin(channel, tag, &start, now_ns, |out| {
                out.extend_from_slice(request)
            })
            .expect("there is room")
    }

    /// Lets what is under way come to rest: the acknowledgements of SETTINGS.
    pub fn turn_quiet(&mut self) {
        for _ in 0..10 {
            self.local.flush(Face::now_ns());
            let now_ns = Face::now_ns();
            self.local
                .wait(Some(2_000_000), now_ns)
                .expect("waiting works");
            let all = &mut self.heard;
            self.local
                .receive(Face::now_ns(), &mut |happened| all.push(heard(&happened)));
        }
    }
}
