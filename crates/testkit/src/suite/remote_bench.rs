//! One client of an engine behind a network.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use store::remote::{
    RemoteBackend, RemoteDone, RemoteFetched, RemoteLoop, RemoteSink, RemoteStore,
};
use store::tree::ReadPlan;
use store::{
    DatabaseConfig, DatabaseId, Decision, Mode, Operation, Outcomes, Refusal, Store, StoreConfig,
    TransactList, WriteBatch,
};

/// An engine that is tested. Its databases are empty.
pub struct RemoteTarget {
    /// The way to it.
    pub backend: Arc<dyn RemoteBackend>,
    /// Carries out what was handed over, or waits a little while the engine does.
    pub drive: Box<dyn Fn()>,
    /// Sets the time of the engine, in milliseconds since 1970. `None`: it has its own, and nothing
    /// expires in the tests.
    pub set_now_ms: Option<Box<dyn Fn(u64)>>,
}

/// Answers that have come.
#[derive(Default)]
pub struct GatheredAnswers(Mutex<Vec<RemoteDone>>);

impl RemoteSink for GatheredAnswers {
    fn put(&self, done: RemoteDone) {
        self.0
            .lock()
            .expect("no test goes on after a panic here")
            .push(done);
    }
}

impl GatheredAnswers {
    /// Takes what has come.
    pub fn take(&self) -> Vec<RemoteDone> {
        std::mem::take(&mut *self.0.lock().expect("no test goes on after a panic here"))
    }
}

/// One client of an engine.
pub struct RemoteBench {
    /// The store.
    pub remote: Arc<RemoteStore>,
    /// Its requests.
    pub requests: RemoteLoop,
    /// Where the answers are.
    pub answers: Arc<GatheredAnswers>,
    /// The commits to come.
    pub batch: WriteBatch,
    pub(super) target: RemoteTarget,
}

impl RemoteBench {
    /// A client of an engine, whose requests have ten seconds.
    pub fn new(target: RemoteTarget) -> RemoteBench {
        RemoteBench::with_timeout(target, Duration::from_secs(10))
    }

    /// A client of an engine, whose requests have so much time.
    pub fn with_timeout(target: RemoteTarget, timeout: Duration) -> RemoteBench {
        let config = StoreConfig::new(1);
        let opened = RemoteStore::open(config, Arc::clone(&target.backend), timeout);
        let remote = opened.expect("it has a default database");
        let answers = Arc::<GatheredAnswers>::default();
        let requests = RemoteLoop::new(
            Arc::clone(&remote),
            Arc::clone(&answers) as Arc<dyn RemoteSink>,
        );
        RemoteBench {
            batch: remote.store().write_batch(),
            remote,
            requests,
            answers,
            target,
        }
    }

    /// The store.
    pub fn store(&self) -> &Store {
        self.remote.store()
    }

    /// Adds a commit to the batch.
    pub fn add(
        &mut self,
        tag: u64,
        database: DatabaseId,
        mode: Mode,
        operations: &[(TransactList, Operation<'_>)],
    ) {
        let mut commit = self.batch.begin(tag, database, mode);
        let mut list = TransactList::Compares;
        for (its_list, operation) in operations {
            if *its_list != list {
                list = *its_list;
                commit.list(list);
            }
            commit.push(operation).expect("within the limits");
        }
        commit.submit();
    }

    /// Carries out the batch, and returns the outcomes in the order in which they came.
    pub fn run(&mut self) -> Vec<Outcomes> {
        self.requests.submit(&mut self.batch);
        assert!(self.batch.is_empty());
        let mut all = Vec::new();
        while !self.requests.is_idle() {
            (self.target.drive)();
            for done in self.answers.take() {
                let RemoteDone::Commit(outcomes) = done else {
                    panic!("nothing was read: {done:?}");
                };
                self.requests.arrived(&outcomes);
                all.push(outcomes);
            }
        }
        assert_eq!(self.remote.room().requests(), 0);
        assert_eq!(
            (self.remote.room().held_bytes(), self.requests.bytes()),
            (0, 0)
        );
        all
    }

    /// Carries out one commit.
    pub fn commit(
        &mut self,
        database: DatabaseId,
        mode: Mode,
        operations: &[(TransactList, Operation<'_>)],
    ) -> Outcomes {
        self.add(1, database, mode, operations);
        let mut outcomes = self.run();
        assert_eq!(outcomes.len(), 1);
        outcomes.remove(0)
    }

    /// Makes a database.
    pub fn create(&mut self, name: &str, config: &DatabaseConfig) -> Result<DatabaseId, Refusal> {
        self.batch.create_database(1, name, config);
        let outcomes = self.run();
        let outcome = outcomes[0].get(0);
        match outcome.decision {
            Decision::Refused(refusal) => Err(refusal),
            _ => Ok(outcome.database),
        }
    }

    /// Reads what a plan of one call says.
    pub fn read(
        &mut self,
        database: DatabaseId,
        plan: impl FnOnce(&mut ReadPlan),
    ) -> RemoteFetched {
        let config = self.store().config(database).expect("the database exists");
        let shape = config.kind.remote().expect("all are elsewhere");
        let mut reads = ReadPlan::default();
        reads.begin(7, b"");
        plan(&mut reads);
        self.requests.fetch(database, shape, &mut reads);
        loop {
            if let Some(done) = self.answers.take().pop() {
                let RemoteDone::Read(fetched) = done else {
                    panic!("nothing was written: {done:?}");
                };
                self.requests.read_arrived(&fetched);
                return fetched;
            }
            (self.target.drive)();
        }
    }
}
