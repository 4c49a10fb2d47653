//! Requests to the engine: which node, how often, for how long.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use scylla::client::session::Session;
use scylla::cluster::Node;
use scylla::errors::ExecutionError;
use scylla::frame::types::{Consistency, SerialConsistency};
use scylla::policies::load_balancing::LoadBalancingPolicy;
use scylla::response::query_result::QueryResult;
use scylla::serialize::row::SerializeRow;
use scylla::statement::batch::{Batch, BatchType};
use scylla::statement::bound::BoundStatement;
use scylla::statement::prepared::PreparedStatement;
use store::remote::RemoteNode;
use tokio::time::{Instant, timeout_at};

use crate::clock::VersionClock;
pub(crate) use crate::failure::Repeatable;
use crate::failure::{EngineFailure, FailureCause, classify};
use crate::limits;
use crate::message_log::MessageLog;
use crate::nodes::{ClusterNodes, NodePermits, acquire};
use crate::partition::BucketPartition;
use crate::queues::PartitionQueues;
use crate::statements::{StatementName, Statements, all_names};

/// Returns the microseconds since 1970.
pub type WallClock = Arc<dyn Fn() -> u64 + Send + Sync>;

/// The way to the nodes. Shared by all requests.
pub(crate) struct Engine {
    session: Session,
    keyspace: String,
    statements: Statements,
    nodes: ClusterNodes,
    clock: VersionClock,
    now_us: WallClock,
    /// For pauses.
    random: AtomicU64,
    queues: PartitionQueues,
    log: MessageLog,
}

/// What is sent.
enum EngineRequest<'a, R> {
    One(BoundStatement),
    Batch(Batch, &'a [R]),
}

impl Engine {
    pub(crate) fn new(
        session: Session,
        keyspace: &str,
        datacenter: Option<String>,
        (now_us, seed, log): (WallClock, u64, MessageLog),
    ) -> Engine {
        Engine {
            session,
            keyspace: keyspace.to_owned(),
            statements: Statements::new(keyspace),
            nodes: ClusterNodes::new(datacenter),
            clock: VersionClock::new(seed),
            now_us,
            random: AtomicU64::new(seed),
            queues: PartitionQueues::new(limits::PARTITION_QUEUES),
            log,
        }
    }

    pub(crate) fn keyspace(&self) -> &str {
        &self.keyspace
    }

    pub(crate) fn log(&self) -> &MessageLog {
        &self.log
    }

    pub(crate) fn now_us(&self) -> u64 {
        (self.now_us)()
    }

    pub(crate) fn now_ms(&self) -> u64 {
        self.now_us() / 1000
    }

    /// Returns a new version, larger than all of `found`.
    pub(crate) fn version(&self, found: impl Iterator<Item = u64>) -> u64 {
        let now_us = self.now_us();
        match found.max() {
            Some(largest) => self.clock.next_after(now_us, largest),
            None => self.clock.next(now_us),
        }
    }

    /// Returns the queues of commits: those of this gateway do not contend with each other.
    pub(crate) fn queues(&self) -> &PartitionQueues {
        &self.queues
    }

    /// Returns a random part of a pause that grows with `round`.
    pub(crate) fn pause(&self, round: u32) -> Duration {
        let longest = Duration::from_millis(1 << round.min(10)).min(limits::ROUND_PAUSE);
        let drawn = self
            .random
            .fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
        let mixed = (drawn ^ (drawn >> 31)).wrapping_mul(0x94d0_49bb_1331_11eb) >> 32;
        let part = u32::try_from(mixed & 0xffff).unwrap_or(0);
        longest * part / 0x1_0000
    }

    /// Returns all nodes of the cluster.
    pub(crate) fn nodes(&self) -> Vec<RemoteNode> {
        self.nodes.all(&self.session.get_cluster_state())
    }

    /// Prepares all statements.
    pub(crate) async fn prepare_all(&self, deadline: Instant) -> Result<(), EngineFailure> {
        for name in all_names() {
            self.statement(name, deadline).await?;
        }
        Ok(())
    }

    /// Carries out one statement. `partition`: whose replicas are asked first.
    pub(crate) async fn execute(
        &self,
        name: StatementName,
        values: &(impl SerializeRow + Sync),
        (partition, repeatable): (Option<BucketPartition>, Repeatable),
        deadline: Instant,
    ) -> Result<QueryResult, EngineFailure> {
        let bound = self.bind(name, values, deadline).await?;
        let request = EngineRequest::<()>::One(bound);
        self.send(request, (partition, repeatable), deadline).await
    }

    /// Carries out statements of one partition as one, each with its row of values.
    pub(crate) async fn execute_batch<R: SerializeRow + Sync>(
        &self,
        (names, rows): (&[StatementName], &[R]),
        (partition, repeatable): (Option<BucketPartition>, Repeatable),
        deadline: Instant,
    ) -> Result<QueryResult, EngineFailure> {
        if let ([name], [row]) = (names, rows) {
            return self
                .execute(*name, row, (partition, repeatable), deadline)
                .await;
        }
        let mut batch = Batch::new(BatchType::Unlogged);
        batch.set_consistency(Consistency::Quorum);
        batch.set_serial_consistency(Some(SerialConsistency::Serial));
        for &name in names {
            let statement = self.statement(name, deadline).await?;
            batch.append_statement(statement);
        }
        let request = EngineRequest::Batch(batch, rows);
        self.send(request, (partition, repeatable), deadline).await
    }

    async fn bind(
        &self,
        name: StatementName,
        values: &impl SerializeRow,
        deadline: Instant,
    ) -> Result<BoundStatement, EngineFailure> {
        let statement = self.statement(name, deadline).await?;
        let bound = statement.bind(values);
        bound.map_err(|error| EngineFailure::unsent(FailureCause::Refused, error.to_string()))
    }

    async fn statement(
        &self,
        name: StatementName,
        deadline: Instant,
    ) -> Result<PreparedStatement, EngineFailure> {
        let prepared = timeout_at(deadline, self.statements.get(&self.session, name)).await;
        prepared.unwrap_or_else(|_| {
            let message = "a statement could not be prepared in time";
            Err(EngineFailure::unsent(FailureCause::TimedOut, message))
        })
    }

    /// Reads a partition of the catalogue at QUORUM by way of a node, for health: without a permit,
    /// as a gateway that has much to do serves all the same.
    pub(crate) async fn probe(&self, node: &NodePermits, turn: u32) -> Result<(), EngineFailure> {
        let deadline = Instant::now() + limits::PROBE_TIMEOUT;
        let partition = turn % limits::PROBE_PARTITIONS + 1;
        let values = (partition.cast_signed(),);
        let mut bound = self.bind(StatementName::Probe, &values, deadline).await?;
        bound.set_load_balancing_policy(Some(node.policy()));
        let probe = self.session.execute_bound_unpaged(&bound).await;
        probe
            .map(drop)
            .map_err(|error| classify(&error, Repeatable::Yes))
    }

    /// Returns all nodes, the best first.
    pub(crate) fn candidates(&self) -> Vec<Arc<NodePermits>> {
        let state = self.session.get_cluster_state();
        self.nodes.candidates(&state, &[])
    }

    /// Sends a request to one node after the other, as long as that is safe.
    async fn send<R: SerializeRow + Sync>(
        &self,
        mut request: EngineRequest<'_, R>,
        (partition, repeatable): (Option<BucketPartition>, Repeatable),
        deadline: Instant,
    ) -> Result<QueryResult, EngineFailure> {
        let state = self.session.get_cluster_state();
        let candidates = self.nodes.candidates(&state, &self.replicas(partition));
        drop(state);
        let mut may_have_happened = false;
        let mut attempt = 0;
        loop {
            let (failure, was_sent) = match acquire(&candidates, attempt, deadline).await {
                Err(failure) => (failure, false),
                Ok(permit) => {
                    request.set_policy(permit.policy());
                    let until = match repeatable {
                        Repeatable::Yes => deadline.min(Instant::now() + limits::ATTEMPT_TIMEOUT),
                        Repeatable::No => deadline,
                    };
                    match timeout_at(until, request.attempt(&self.session)).await {
                        Ok(Ok(result)) => return Ok(result),
                        Ok(Err(error)) => (classify(&error, repeatable), true),
                        Err(_) => (EngineFailure::timed_out(), true),
                    }
                }
            };
            may_have_happened |= failure.may_have_happened;
            attempt += 1;
            let may_repeat = repeatable == Repeatable::Yes || !may_have_happened;
            let is_over = attempt >= limits::ATTEMPTS || Instant::now() >= deadline;
            // What has waited for a permit of any node would only wait as long again.
            let is_worth_it = was_sent && failure.is_worth_another_node();
            if !may_repeat || is_over || !is_worth_it {
                self.log.note_failure(&failure);
                return Err(EngineFailure {
                    may_have_happened,
                    ..failure
                });
            }
        }
    }

    /// Returns the nodes that hold a partition, in the order of the ring. Empty if that is not
    /// known: then any node will do.
    fn replicas(&self, partition: Option<BucketPartition>) -> Vec<Arc<Node>> {
        let Some(partition) = partition else {
            return Vec::new();
        };
        let state = self.session.get_cluster_state();
        let table = partition.table.name();
        let endpoints = state.get_endpoints(&self.keyspace, table, &partition.key());
        let endpoints = endpoints.unwrap_or_default().into_iter();
        endpoints.map(|(node, _)| node).collect()
    }
}

impl<R: SerializeRow + Sync> EngineRequest<'_, R> {
    fn set_policy(&mut self, policy: Arc<dyn LoadBalancingPolicy>) {
        match self {
            EngineRequest::One(bound) => bound.set_load_balancing_policy(Some(policy)),
            EngineRequest::Batch(batch, _) => batch.set_load_balancing_policy(Some(policy)),
        }
    }

    async fn attempt(&self, session: &Session) -> Result<QueryResult, ExecutionError> {
        match self {
            EngineRequest::One(bound) => session.execute_bound_unpaged(bound).await,
            EngineRequest::Batch(batch, rows) => session.batch(batch, *rows).await,
        }
    }
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Engine")
            .field("keyspace", &self.keyspace)
            .finish_non_exhaustive()
    }
}
