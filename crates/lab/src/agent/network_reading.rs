//! What the kernel says of the network of the machine.

use std::fs::{self, File};
use std::io::Read;

use api::agent::NetworkActivity;
use net::port_buffers;

use super::limits::{AGENT_SOCKET_TABLE_BYTES, AGENT_SOCKETS_COUNTED};
use super::socket_look::BufferedBytes;
use crate::diagnose::SystemFolders;

/// Counts since the machine began; `None`: the kernel does not say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct NetworkReading {
    /// Segments of TCP received, sent, and sent again.
    tcp: Option<[u64; 3]>,
    /// Packets received and sent, and bytes received and sent, by all interfaces but loopback.
    interfaces: Option<[u64; 4]>,
}

impl NetworkReading {
    /// Reads the counts.
    pub(super) fn read(folders: &SystemFolders) -> NetworkReading {
        let read = |name: &str| fs::read_to_string(folders.proc.join("net").join(name)).ok();
        NetworkReading {
            tcp: read("snmp").and_then(|text| tcp_segments(&text)),
            interfaces: read("dev").map(|text| interfaces(&text)),
        }
    }

    /// Returns what happened since an earlier reading, and what lies in the buffers of the server's
    /// connections.
    pub(super) fn since(
        &self,
        before: &NetworkReading,
        buffers: Option<BufferedBytes>,
    ) -> NetworkActivity {
        let [tcp_received, tcp_sent, tcp_again] = differences(self.tcp, before.tcp);
        let [packets_received, packets_sent, bytes_received, bytes_sent] =
            differences(self.interfaces, before.interfaces);
        NetworkActivity {
            tcp_segments_received: tcp_received,
            tcp_segments_sent: tcp_sent,
            tcp_segments_retransmitted: tcp_again,
            packets_received,
            packets_sent,
            bytes_received,
            bytes_sent,
            tcp_unread_bytes: buffers.map(|bytes| bytes.unread),
            tcp_unsent_bytes: buffers.map(|bytes| bytes.unsent),
            tcp_bytes_age_ns: buffers.map(|bytes| bytes.age_ns),
        }
    }
}

fn differences<const N: usize>(
    after: Option<[u64; N]>,
    before: Option<[u64; N]>,
) -> [Option<u64>; N] {
    let Some((after, before)) = after.zip(before) else {
        return [None; N];
    };
    let mut before = before.into_iter();
    after.map(|count| Some(count.saturating_sub(before.next()?)))
}

/// `InSegs`, `OutSegs` and `RetransSegs` of `/proc/net/snmp`, which has a line of names and one of
/// figures.
fn tcp_segments(text: &str) -> Option<[u64; 3]> {
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("Tcp:"));
    let (names, figures) = (lines.next()?, lines.next()?);
    let figure = |wanted: &str| -> Option<u64> {
        let mut both = names.split_whitespace().zip(figures.split_whitespace());
        let (_, figure) = both.find(|(name, _)| *name == wanted)?;
        figure.parse().ok()
    };
    Some([
        figure("InSegs")?,
        figure("OutSegs")?,
        figure("RetransSegs")?,
    ])
}

/// Packets and bytes of `/proc/net/dev`.
fn interfaces(text: &str) -> [u64; 4] {
    /// Columns of packets received and sent, and of bytes received and sent.
    const COLUMNS: [usize; 4] = [1, 9, 0, 8];
    let mut sums = [0_u64; 4];
    for line in text.lines() {
        let Some((name, figures)) = line.split_once(':') else {
            continue;
        };
        if name.trim() == "lo" {
            continue;
        }
        let figures: Vec<u64> = figures
            .split_whitespace()
            .map_while(|word| word.parse().ok())
            .collect();
        for (sum, column) in sums.iter_mut().zip(COLUMNS) {
            *sum = sum.saturating_add(figures.get(column).copied().unwrap_or(0));
        }
    }
    sums
}

/// Bytes that connections to a port have not read, and that were not acknowledged to them.
pub(super) fn buffered_bytes(folders: &SystemFolders, port: u16) -> Option<[u64; 2]> {
    if folders.are_of_kernel()
        && let Ok(seen) = port_buffers(port, AGENT_SOCKETS_COUNTED)
    {
        return seen.map(|seen| [seen.unread_bytes, seen.unsent_bytes]);
    }
    bytes_of_tables(folders, port)
}

/// The same by the tables of all sockets, where the kernel does not choose those of a port.
fn bytes_of_tables(folders: &SystemFolders, port: u16) -> Option<[u64; 2]> {
    let mut sums: Option<[u64; 2]> = None;
    for name in ["net/tcp", "net/tcp6"] {
        let Ok(file) = File::open(folders.proc.join(name)) else {
            continue;
        };
        let mut text = String::new();
        let mut limited = file.take(AGENT_SOCKET_TABLE_BYTES + 1);
        limited.read_to_string(&mut text).ok()?;
        if text.len() as u64 > AGENT_SOCKET_TABLE_BYTES {
            return None;
        }
        let [unread, unsent] = sums.get_or_insert_default();
        for [read, sent] in text.lines().filter_map(|line| buffers_of(line, port)) {
            *unread = unread.saturating_add(read);
            *unsent = unsent.saturating_add(sent);
        }
    }
    sums
}

/// The same of one line, if it is an open connection to that port.
fn buffers_of(line: &str, port: u16) -> Option<[u64; 2]> {
    const ESTABLISHED: &str = "01";
    let mut words = line.split_whitespace().skip(1);
    let (local, _, state, queues) = (words.next()?, words.next()?, words.next()?, words.next()?);
    let is_of_port = local.rsplit(':').next()? == format!("{port:04X}");
    let (unsent, unread) = queues.split_once(':')?;
    let bytes = |text: &str| u64::from_str_radix(text, 16).ok();
    (state == ESTABLISHED && is_of_port).then_some([bytes(unread)?, bytes(unsent)?])
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn segments_packets_and_bytes_are_those_of_the_kernel() {
        let snmp = "Ip: Forwarding\nIp: 1\nTcp: RtoAlgorithm InSegs OutSegs RetransSegs InErrs\n\
                    Tcp: 1 100 90 7 0\nUdp: InDatagrams\nUdp: 5\n";
        assert_eq!(tcp_segments(snmp), Some([100, 90, 7]));
        assert_eq!(tcp_segments("Tcp: InSegs\n"), None);
        assert_eq!(tcp_segments(""), None);
        let dev = "Inter-|   Receive  |  Transmit\n face |bytes packets|bytes packets\n\
                   \x20   lo: 9 9 0 0 0 0 0 0 9 9 0 0 0 0 0 0\n\
                   \x20 eth0: 500 5 0 0 0 0 0 0 300 3 0 0 0 0 0 0\n\
                   \x20 eth1: 1 1 0 0 0 0 0 0 2 2 0 0 0 0 0 0\n";
        assert_eq!(interfaces(dev), [6, 5, 501, 302]);
        assert_eq!(differences(Some([6, 5]), Some([1, 9])), [Some(5), Some(0)]);
        assert_eq!(differences(None, Some([1])), [None]);
    }

    #[test]
    fn buffers_are_those_of_open_connections_to_the_port() {
        let line = |local: &str, state: &str| {
            format!("3: 0100007F:{local} 0100007F:9999 {state} 00000010:00000003 00:0 0 0 0 1")
        };
        assert_eq!(buffers_of(&line("07BA", "01"), 1_978), Some([3, 16]));
        assert_eq!(buffers_of(&line("07BA", "0A"), 1_978), None, "it listens");
        assert_eq!(buffers_of(&line("07BB", "01"), 1_978), None);
        assert_eq!(buffers_of("sl local rem st tx_queue", 1_978), None);
        assert_eq!(buffers_of("", 1_978), None);
    }

    #[test]
    fn this_machine_has_a_network() {
        let folders = SystemFolders::default();
        let reading = NetworkReading::read(&folders);
        let buffers = BufferedBytes {
            unread: 3,
            unsent: 4,
            age_ns: 5,
        };
        let activity = reading.since(&reading, Some(buffers));
        assert_eq!(activity.tcp_segments_received, Some(0));
        assert_eq!(activity.tcp_unread_bytes, Some(3));
        assert_eq!(activity.tcp_unsent_bytes, Some(4));
        assert_eq!(activity.tcp_bytes_age_ns, Some(5));
        assert_eq!(
            buffered_bytes(&folders, 1),
            Some([0, 0]),
            "nobody has port 1"
        );
        let unknown = SystemFolders {
            proc: "/nowhere".into(),
            cgroup: "/nowhere".into(),
        };
        let reading = NetworkReading::read(&unknown);
        assert_eq!(reading.since(&reading, None), NetworkActivity::default());
        assert_eq!(buffered_bytes(&unknown, 1), None);
    }

    /// The kernel's choice and its tables have the same bytes.
    #[test]
    fn bytes_in_buffers_are_those_of_the_port() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let address = listener.local_addr().expect("it is bound");
        let mut client = TcpStream::connect(address).expect("somebody listens");
        let _server = listener.accept().expect("somebody connects");
        client.write_all(b"seven b").expect("connected");
        let folders = SystemFolders::default();
        assert_eq!(buffered_bytes(&folders, address.port()), Some([7, 0]));
        // Of a machine with many sockets the tables are not read.
        let by_tables = bytes_of_tables(&folders, address.port());
        assert!(
            by_tables.is_none_or(|bytes| bytes == [7, 0]),
            "{by_tables:?}"
        );
    }
}
