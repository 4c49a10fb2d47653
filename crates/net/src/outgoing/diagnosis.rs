//! What the kernel knows of a TCP connection, asked through a netlink socket.
//!
//! `getsockopt(TCP_INFO)` needs `unsafe` code or a library with it. The same structure is handed
//! out by the kernel's `NETLINK_SOCK_DIAG` (`linux/inet_diag.h`), which is plain reading and
//! writing of bytes, and which `ss --info` uses.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use rustix::fd::OwnedFd;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink, recv, send, socket_with,
};

/// Counts of one TCP connection since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcpFigures {
    /// Segments sent, those repeated and bare acknowledgements included.
    pub segments_out: u64,
    /// Segments received.
    pub segments_in: u64,
    /// Segments sent again.
    pub retransmits: u64,
}

/// What the kernel says of one TCP connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpInfo {
    /// Counts.
    pub figures: TcpFigures,
    /// The time from a segment to its acknowledgement, smoothed; in microseconds.
    pub round_trip_us: u64,
}

/// `SOCK_DIAG_BY_FAMILY`, `NLM_F_REQUEST`, `INET_DIAG_INFO`, IPPROTO_TCP and INET_DIAG_NOCOOKIE of
/// the kernel's headers.
pub(super) const BY_FAMILY: u16 = 20;
const REQUEST: u16 = 1;
const INFO: u16 = 2;
pub(super) const TCP: u8 = 6;
pub(super) const NO_COOKIE: [u8; 8] = [0xff; 8];

/// `struct nlmsghdr`; `struct inet_diag_req_v2`; `struct inet_diag_msg`.
pub(super) const HEADER_BYTES: usize = 16;
pub(super) const REQUEST_BYTES: usize = 56;
pub(super) const ANSWER_BYTES: usize = 72;

/// `tcpi_rtt`, `tcpi_total_retrans`, `tcpi_segs_out` and `tcpi_segs_in` in `struct tcp_info`, which
/// only ever grows at its end.
const ROUND_TRIP_AT: usize = 68;
const RETRANSMITS_AT: usize = 100;
const SEGMENTS_OUT_AT: usize = 136;
const SEGMENTS_IN_AT: usize = 140;

/// More than any answer about one connection.
const BUFFER_BYTES: usize = 4096;

/// The kernel answers within the call that asks; if it ever does not, nobody is to wait.
const ANSWER_TIME: Duration = Duration::from_millis(100);

/// A socket to the kernel's diagnosis.
pub struct TcpDiagnosis {
    socket: OwnedFd,
    buffer: Box<[u8; BUFFER_BYTES]>,
}

impl TcpDiagnosis {
    /// Opens one.
    ///
    /// # Errors
    /// If the kernel has none, or the process may have no more descriptors.
    pub fn open() -> io::Result<TcpDiagnosis> {
        Ok(TcpDiagnosis {
            socket: open_socket()?,
            buffer: Box::new([0; BUFFER_BYTES]),
        })
    }

    /// What it knows of the connection between these two addresses of this machine's network;
    /// `None` if it knows none.
    pub fn info(&mut self, local: SocketAddr, peer: SocketAddr) -> Option<TcpInfo> {
        send(&self.socket, &request(local, peer), SendFlags::empty()).ok()?;
        let (count, _) = recv(&self.socket, &mut self.buffer[..], RecvFlags::empty()).ok()?;
        parse(&self.buffer[..count])
    }
}

/// Opens a socket to the kernel's diagnosis.
pub(super) fn open_socket() -> io::Result<OwnedFd> {
    let socket = socket_with(
        AddressFamily::NETLINK,
        SocketType::DGRAM,
        SocketFlags::CLOEXEC,
        Some(netlink::SOCK_DIAG),
    )?;
    set_socket_timeout(&socket, Timeout::Recv, Some(ANSWER_TIME))?;
    Ok(socket)
}

fn request(local: SocketAddr, peer: SocketAddr) -> Vec<u8> {
    const LENGTH: usize = HEADER_BYTES + REQUEST_BYTES;
    let family = if local.is_ipv4() {
        AddressFamily::INET
    } else {
        AddressFamily::INET6
    };
    let mut out = Vec::with_capacity(LENGTH);
    out.extend_from_slice(&(LENGTH as u32).to_ne_bytes());
    out.extend_from_slice(&BY_FAMILY.to_ne_bytes());
    out.extend_from_slice(&REQUEST.to_ne_bytes());
    out.extend_from_slice(&[0; 8]);
    out.extend_from_slice(&[family.as_raw() as u8, TCP, 1 << (INFO - 1), 0]);
    out.extend_from_slice(&u32::MAX.to_ne_bytes());
    out.extend_from_slice(&local.port().to_be_bytes());
    out.extend_from_slice(&peer.port().to_be_bytes());
    for address in [local.ip(), peer.ip()] {
        let mut field = [0; 16];
        match address {
            IpAddr::V4(address) => field[..4].copy_from_slice(&address.octets()),
            IpAddr::V6(address) => field.copy_from_slice(&address.octets()),
        }
        out.extend_from_slice(&field);
    }
    // The interface: any.
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(&NO_COOKIE);
    debug_assert_eq!(out.len(), LENGTH);
    out
}

/// Finds the `tcp_info` among the attributes of an answer.
fn parse(answer: &[u8]) -> Option<TcpInfo> {
    let kind = u16::from_ne_bytes(answer.get(4..6)?.try_into().ok()?);
    if kind != BY_FAMILY {
        return None;
    }
    let mut rest = answer.get(HEADER_BYTES + ANSWER_BYTES..)?;
    loop {
        let length = usize::from(u16::from_ne_bytes(rest.get(..2)?.try_into().ok()?));
        let kind = u16::from_ne_bytes(rest.get(2..4)?.try_into().ok()?);
        let value = rest.get(4..length)?;
        if kind == INFO {
            let number = |at: usize| {
                let bytes = value.get(at..at + 4)?.try_into().ok()?;
                Some(u64::from(u32::from_ne_bytes(bytes)))
            };
            let figures = TcpFigures {
                segments_out: number(SEGMENTS_OUT_AT)?,
                segments_in: number(SEGMENTS_IN_AT)?,
                retransmits: number(RETRANSMITS_AT)?,
            };
            return Some(TcpInfo {
                figures,
                round_trip_us: number(ROUND_TRIP_AT)?,
            });
        }
        rest = rest.get(length.next_multiple_of(4)..)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn segments_are_counted() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let address = listener.local_addr().expect("it is bound");
        let mut client = TcpStream::connect(address).expect("somebody listens");
        let (mut server, _) = listener.accept().expect("somebody connects");
        let local = client.local_addr().expect("connected");
        // A system without this kind of socket counts nothing, which is allowed.
        let Ok(mut diagnosis) = TcpDiagnosis::open() else {
            return;
        };
        let before = diagnosis.info(local, address).expect("it is connected");
        for _ in 0..10 {
            client.write_all(b"ping").expect("connected");
            let mut buffer = [0; 4];
            server.read_exact(&mut buffer).expect("connected");
        }
        let after = diagnosis.info(local, address).expect("it is connected");
        assert!((1..1_000_000).contains(&after.round_trip_us), "{after:?}");
        let (before, after) = (before.figures, after.figures);
        assert!(
            after.segments_out >= before.segments_out + 10,
            "{before:?} {after:?}"
        );
        assert_eq!(after.retransmits, 0);
        let nobody = "127.0.0.1:1".parse().expect("an address");
        assert_eq!(diagnosis.info(local, nobody), None);
    }

    #[test]
    fn damaged_answers_are_refused() {
        let mut answer = vec![0; HEADER_BYTES + ANSWER_BYTES];
        answer[4..6].copy_from_slice(&BY_FAMILY.to_ne_bytes());
        assert_eq!(parse(&answer), None, "no attribute");
        for length in [0_u16, 3, 4, 100] {
            let mut bad = answer.clone();
            bad.extend_from_slice(&length.to_ne_bytes());
            bad.extend_from_slice(&INFO.to_ne_bytes());
            assert_eq!(parse(&bad), None, "an attribute of {length} bytes");
        }
        let mut good = answer.clone();
        good.extend_from_slice(&148_u16.to_ne_bytes());
        good.extend_from_slice(&INFO.to_ne_bytes());
        good.extend((0..144).map(|at| u8::from(at % 4 == 0) * at));
        let TcpInfo {
            figures,
            round_trip_us,
        } = parse(&good).expect("it is whole");
        assert_eq!(round_trip_us, 68);
        assert_eq!(
            (
                figures.retransmits,
                figures.segments_out,
                figures.segments_in
            ),
            (100, 136, 140)
        );
    }
}
