//! What lies in the buffers of all connections to a port, asked through a netlink socket.
//!
//! `/proc/net/tcp` has the same figures, in a line for each socket of the machine. Here the kernel
//! chooses by port and state, so that only those connections are written and read.

use std::io;

use rustix::net::{AddressFamily, RecvFlags, SendFlags, recv, send};

use super::diagnosis::{
    ANSWER_BYTES, BY_FAMILY, HEADER_BYTES, NO_COOKIE, REQUEST_BYTES, TCP, open_socket,
};

/// `NLM_F_REQUEST | NLM_F_DUMP`, `NLMSG_ERROR`, `NLMSG_DONE` and the bit of `TCP_ESTABLISHED` of
/// the kernel's headers.
const DUMP: u16 = 0x301;
const ERROR: u16 = 2;
const DONE: u16 = 3;
const ESTABLISHED: u32 = 1 << 1;

/// `idiag_rqueue` and `idiag_wqueue` in `struct inet_diag_msg`.
const UNREAD_AT: usize = 56;
const UNSENT_AT: usize = 60;

/// More than the kernel writes at a time.
const BUFFER_BYTES: usize = 64 << 10;

/// Bytes in the buffers of connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortBuffers {
    /// Connections.
    pub connections: usize,
    /// Bytes that were received, and not read.
    pub unread_bytes: u64,
    /// Bytes that were written, and not acknowledged.
    pub unsent_bytes: u64,
}

/// Returns what lies in the buffers of the established connections whose port on this machine is
/// `port`; `None`: there are more than `most` of them.
///
/// # Errors
/// If the kernel does not say.
pub fn port_buffers(port: u16, most: usize) -> io::Result<Option<PortBuffers>> {
    let mut sums = PortBuffers::default();
    let mut buffer = vec![0; BUFFER_BYTES];
    for family in [AddressFamily::INET, AddressFamily::INET6] {
        // One for each, as nothing is left in it that was not read.
        let socket = open_socket()?;
        send(&socket, &request(family, port), SendFlags::empty())?;
        loop {
            let (count, _) = recv(&socket, &mut buffer[..], RecvFlags::empty())?;
            let is_done = add(&buffer[..count], &mut sums)?;
            if sums.connections > most {
                return Ok(None);
            }
            if is_done {
                break;
            }
        }
    }
    Ok(Some(sums))
}

fn request(family: AddressFamily, port: u16) -> Vec<u8> {
    const LENGTH: usize = HEADER_BYTES + REQUEST_BYTES;
    let mut out = Vec::with_capacity(LENGTH);
    out.extend_from_slice(&(LENGTH as u32).to_ne_bytes());
    out.extend_from_slice(&BY_FAMILY.to_ne_bytes());
    out.extend_from_slice(&DUMP.to_ne_bytes());
    out.extend_from_slice(&[0; 8]);
    out.extend_from_slice(&[family.as_raw() as u8, TCP, 0, 0]);
    out.extend_from_slice(&ESTABLISHED.to_ne_bytes());
    out.extend_from_slice(&port.to_be_bytes());
    // Any port of the peer, any addresses, any interface.
    out.resize(LENGTH - NO_COOKIE.len(), 0);
    out.extend_from_slice(&NO_COOKIE);
    out
}

/// Adds the connections of an answer. Returns whether it is the last one.
fn add(answer: &[u8], sums: &mut PortBuffers) -> io::Result<bool> {
    let malformed = || io::Error::from(io::ErrorKind::InvalidData);
    let mut rest = answer;
    if rest.is_empty() {
        return Err(malformed());
    }
    while !rest.is_empty() {
        let length = number(rest, 0).ok_or_else(malformed)? as usize;
        let kind = rest.get(4..6).and_then(|bytes| bytes.try_into().ok());
        let kind = u16::from_ne_bytes(kind.ok_or_else(malformed)?);
        let message = rest.get(HEADER_BYTES..length).ok_or_else(malformed)?;
        match kind {
            DONE => return Ok(true),
            ERROR => {
                let code = number(message, 0).ok_or_else(malformed)? as i32;
                return Err(io::Error::from_raw_os_error(code.saturating_neg()));
            }
            BY_FAMILY if message.len() >= ANSWER_BYTES => {
                let bytes = |at| number(message, at).map(u64::from).ok_or_else(malformed);
                sums.connections += 1;
                sums.unread_bytes = sums.unread_bytes.saturating_add(bytes(UNREAD_AT)?);
                sums.unsent_bytes = sums.unsent_bytes.saturating_add(bytes(UNSENT_AT)?);
            }
            _ => return Err(malformed()),
        }
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    Ok(false)
}

fn number(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..at.checked_add(4)?)?;
    bytes.try_into().ok().map(u32::from_ne_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn bytes_that_nobody_has_read_are_counted_for_their_port() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(listener) = TcpListener::bind(address) else {
                continue; // There is no IPv6 here.
            };
            let address = listener.local_addr().expect("it is bound");
            let mut client = TcpStream::connect(address).expect("somebody listens");
            let (_server, _) = listener.accept().expect("somebody connects");
            let _other = TcpStream::connect(address).expect("somebody listens");
            let (_second, _) = listener.accept().expect("somebody connects");
            client.write_all(b"ten bytes!").expect("connected");
            // A system without this kind of socket counts nothing, which is allowed.
            let Ok(seen) = port_buffers(address.port(), 2) else {
                return;
            };
            let expected = PortBuffers {
                connections: 2,
                unread_bytes: 10,
                unsent_bytes: 0,
            };
            assert_eq!(seen, Some(expected));
            let above = port_buffers(address.port(), 1);
            assert_eq!(above.expect("it did before"), None);
            let nobody = port_buffers(1, 0).expect("it did before");
            assert_eq!(nobody, Some(PortBuffers::default()));
        }
    }

    fn message(kind: u16, body: &[u8]) -> Vec<u8> {
        let mut out = ((HEADER_BYTES + body.len()) as u32).to_ne_bytes().to_vec();
        out.extend_from_slice(&kind.to_ne_bytes());
        out.resize(HEADER_BYTES, 0);
        out.extend_from_slice(body);
        out
    }

    #[test]
    fn damaged_answers_are_refused() {
        let mut connection = [0; ANSWER_BYTES];
        connection[UNREAD_AT] = 3;
        connection[UNSENT_AT] = 4;
        let two = message(BY_FAMILY, &connection).repeat(2);
        let mut sums = PortBuffers::default();
        assert!(!add(&two, &mut sums).expect("it is whole"));
        assert_eq!((sums.unread_bytes, sums.unsent_bytes), (6, 8));
        let last = [two.clone(), message(DONE, &[0; 4])].concat();
        assert!(add(&last, &mut sums).expect("it is whole"));
        for cut in 0..two.len() {
            // Behind the first one nothing is missing.
            let is_whole = add(&two[..cut], &mut sums).is_ok();
            assert_eq!(is_whole, cut == two.len() / 2, "{cut}");
        }
        let refused = message(ERROR, &(-13_i32).to_ne_bytes());
        let error = add(&refused, &mut sums).expect_err("it is an error");
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
        for bad in [
            message(ERROR, &i32::MIN.to_ne_bytes()),
            message(ERROR, &[]),
            message(BY_FAMILY, &[0; ANSWER_BYTES - 1]),
            message(77, &connection),
            vec![0; 40],
            vec![0xff; 40],
        ] {
            assert!(add(&bad, &mut sums).is_err(), "{bad:?}");
        }
    }
}
