//! One connection of a client, with the tap's own to the server behind it.

use hdrhistogram::Histogram;
use net::{TcpDiagnosis, monotonic_ns};

use super::conditions::SharedLink;
use super::direction::{BothWays, TapDirection};
use super::limits::{TAP_QUEUE_BYTES, TAP_READ_BYTES};
use super::relay_queue::RelayQueue;
use super::relay_socket::{Broken, Came, RelaySocket};
use super::stream_limit::StreamLimitRewriter;
use super::tcp_of_side::TcpOfSide;
use super::totals::{TapTotals, record};
use super::watch::ConnectionWatch;

/// What all connections share while one has its turn.
pub(super) struct RelayTurn<'a> {
    pub(super) totals: &'a mut TapTotals,
    pub(super) links: &'a mut BothWays<SharedLink>,
    /// From when bytes had been read to when they had been written, where they could be at once.
    pub(super) forward_ns: &'a mut Histogram<u64>,
    pub(super) scratch: &'a mut [u8; TAP_READ_BYTES],
    pub(super) diagnosis: &'a mut Option<TcpDiagnosis>,
}

/// A client's connection, and the one to the server.
#[derive(Debug)]
pub(super) struct RelayedConnection {
    client: RelaySocket,
    server: RelaySocket,
    queues: BothWays<RelayQueue>,
    rewriter: Option<StreamLimitRewriter>,
    watch: ConnectionWatch,
    bytes: BothWays<u64>,
    reads: BothWays<u64>,
    /// What the kernel said of the sockets before the first of them ended.
    tcp: BothWays<Option<TcpOfSide>>,
    /// Plaintext of one read, and what is shown of it.
    plain: Vec<u8>,
    /// When the server is to have accepted.
    pub(super) dial_until_ns: u64,
}

impl RelayedConnection {
    pub(super) fn new(
        client: RelaySocket,
        server: RelaySocket,
        stream_limit: Option<u32>,
        watch: ConnectionWatch,
        dial_until_ns: u64,
    ) -> RelayedConnection {
        RelayedConnection {
            client,
            server,
            queues: BothWays::default(),
            rewriter: stream_limit.map(StreamLimitRewriter::new),
            watch,
            bytes: BothWays::default(),
            reads: BothWays::default(),
            tcp: BothWays::default(),
            plain: Vec::new(),
            dial_until_ns,
        }
    }

    /// The socket from which bytes of this direction come.
    pub(super) fn sender(&self, direction: TapDirection) -> &RelaySocket {
        match direction {
            TapDirection::ToServer => &self.client,
            TapDirection::ToClient => &self.server,
        }
    }

    fn receiver(&mut self, direction: TapDirection) -> &mut RelaySocket {
        match direction {
            TapDirection::ToServer => &mut self.server,
            TapDirection::ToClient => &mut self.client,
        }
    }

    pub(super) fn watch(&mut self) -> &mut ConnectionWatch {
        &mut self.watch
    }

    /// Bytes forwarded in each direction, and reads that brought them.
    pub(super) fn traffic(&self) -> (BothWays<u64>, BothWays<u64>) {
        (self.bytes, self.reads)
    }

    /// What the kernel says of each side, by the direction in which that one sends. A side that has
    /// ended is not known to it any more, so that what was said at the first end is kept.
    pub(super) fn tcp(
        &mut self,
        diagnosis: Option<&mut TcpDiagnosis>,
    ) -> BothWays<Option<TcpOfSide>> {
        let Some(diagnosis) = diagnosis.filter(|_| self.tcp.to_server.is_none()) else {
            return self.tcp;
        };
        self.tcp = BothWays {
            to_server: TcpOfSide::of(self.client.descriptor(), diagnosis),
            to_client: TcpOfSide::of(self.server.descriptor(), diagnosis),
        };
        self.tcp
    }

    /// Bytes that wait in both directions.
    pub(super) fn waiting_bytes(&self) -> usize {
        self.queues.to_server.len() + self.queues.to_client.len()
    }

    /// Whether more is to be read of what goes in this direction.
    pub(super) fn wants_read(&self, direction: TapDirection) -> bool {
        let queue = self.queues.get(direction);
        self.sender(direction).is_connected() && !queue.has_end() && queue.len() < TAP_QUEUE_BYTES
    }

    /// Whether the kernel is to say when it takes more of what goes in this direction.
    pub(super) fn wants_write(&self, direction: TapDirection, now_ns: u64) -> bool {
        let receiver = self.sender(direction.opposite());
        let queue = self.queues.get(direction);
        !receiver.is_connected() || receiver.has_unsent() || !queue.due(now_ns).is_empty()
    }

    /// When the next bytes of either direction arrive that are on their way.
    pub(super) fn next_arrival_ns(&self, now_ns: u64) -> Option<u64> {
        let of = |direction| self.queues.get(direction).next_arrival_ns();
        let next = TapDirection::BOTH.into_iter().filter_map(of);
        next.filter(|&arrival_ns| arrival_ns > now_ns).min()
    }

    /// Whether something has arrived, be it only the end of a side.
    pub(super) fn has_arrived(&self, now_ns: u64) -> bool {
        let of = |direction| self.queues.get(direction).next_arrival_ns();
        let mut next = TapDirection::BOTH.into_iter().filter_map(of);
        next.any(|arrival_ns| arrival_ns <= now_ns)
    }

    /// Whether both sides have ended and all is forwarded.
    pub(super) fn is_over(&self, now_ns: u64) -> bool {
        let mut queues = TapDirection::BOTH
            .into_iter()
            .map(|way| self.queues.get(way));
        queues.all(|queue| queue.is_end_due(now_ns))
            && !self.client.has_unsent()
            && !self.server.has_unsent()
    }

    /// The sender of this direction has something. Forwards it, then looks at it.
    pub(super) fn read(
        &mut self,
        direction: TapDirection,
        turn: &mut RelayTurn<'_>,
    ) -> Result<(), Broken> {
        let mut plain = std::mem::take(&mut self.plain);
        plain.clear();
        let sender = match direction {
            TapDirection::ToServer => &mut self.client,
            TapDirection::ToClient => &mut self.server,
        };
        let came = sender.read(turn.scratch, &mut plain);
        let now_ns = monotonic_ns();
        let taken = match came {
            Ok(Came::Nothing) => Ok(()),
            Ok(Came::End) => {
                // Before the other side is told, which may end at once.
                self.tcp(turn.diagnosis.as_mut());
                let end_ns = turn.links.get_mut(direction).arrival_ns(0, now_ns);
                self.queues.get_mut(direction).end(end_ns);
                self.pump(direction, turn, now_ns)
            }
            Ok(Came::Bytes) => self.forward(direction, &mut plain, turn, now_ns),
            Err(broken) => Err(broken),
        };
        self.plain = plain;
        taken
    }

    fn forward(
        &mut self,
        direction: TapDirection,
        plain: &mut Vec<u8>,
        turn: &mut RelayTurn<'_>,
        now_ns: u64,
    ) -> Result<(), Broken> {
        if plain.is_empty() {
            return Ok(());
        }
        *self.bytes.get_mut(direction) += plain.len() as u64;
        *self.reads.get_mut(direction) += 1;
        if direction == TapDirection::ToClient {
            self.rewrite(plain);
        }
        let link = turn.links.get_mut(direction);
        let queue = self.queues.get_mut(direction);
        for piece in plain.chunks(link.piece_bytes().min(plain.len()).max(1)) {
            queue.push(piece, link.arrival_ns(piece.len(), now_ns));
        }
        let is_first = queue.len() == plain.len();
        let forwarded = self.pump(direction, turn, now_ns);
        if is_first && self.queues.get(direction).is_empty() {
            let took_ns = monotonic_ns().saturating_sub(now_ns);
            record(turn.forward_ns, took_ns);
        }
        // Seen as the client sees it: requests when it has sent them.
        if direction == TapDirection::ToServer {
            self.watch.saw(turn.totals, direction, plain, now_ns);
        }
        forwarded
    }

    /// Shows the limit on streams that was asked for.
    fn rewrite(&mut self, plain: &mut Vec<u8>) {
        let Some(rewriter) = self.rewriter.as_mut().filter(|_| self.watch.may_be_http2()) else {
            return;
        };
        let mut shown = Vec::with_capacity(plain.len());
        rewriter.push(plain, &mut shown);
        *plain = shown;
    }

    /// Forwards what has arrived, as far as the receiver takes it.
    pub(super) fn pump(
        &mut self,
        direction: TapDirection,
        turn: &mut RelayTurn<'_>,
        now_ns: u64,
    ) -> Result<(), Broken> {
        let mut queue = std::mem::take(self.queues.get_mut(direction));
        let pumped = self.pump_queue(direction, &mut queue, turn, now_ns);
        let is_unread = !queue.due(now_ns).is_empty() && self.receiver(direction).is_connected();
        self.watch.set_unread(direction, is_unread, now_ns);
        let is_shaped = turn.links.get(direction).has_rate() && !queue.is_empty() && !is_unread;
        self.watch.set_shaped(direction, is_shaped, now_ns);
        *self.queues.get_mut(direction) = queue;
        pumped
    }

    fn pump_queue(
        &mut self,
        direction: TapDirection,
        queue: &mut RelayQueue,
        turn: &mut RelayTurn<'_>,
        now_ns: u64,
    ) -> Result<(), Broken> {
        self.receiver(direction).flush()?;
        loop {
            let due = queue.due(now_ns);
            if due.is_empty() {
                break;
            }
            let count = self.receiver(direction).write(due)?;
            if count == 0 {
                return Ok(());
            }
            // And responses when it can read them.
            if direction == TapDirection::ToClient {
                let written = due.get(..count).unwrap_or(due);
                self.watch.saw(turn.totals, direction, written, now_ns);
            }
            queue.consume(count);
        }
        if queue.is_end_due(now_ns) && self.receiver(direction).is_connected() {
            self.receiver(direction).shut()?;
        }
        Ok(())
    }

    /// The kernel takes more of what goes in this direction.
    pub(super) fn write(
        &mut self,
        direction: TapDirection,
        turn: &mut RelayTurn<'_>,
    ) -> Result<(), Broken> {
        self.receiver(direction).finish_connecting()?;
        self.pump(direction, turn, monotonic_ns())
    }
}
