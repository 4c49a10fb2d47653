//! Random work of all kinds, the same for a seed each time.

use store::{
    Condition, DatabaseConfig, DatabaseId, Decision, Durability, Expiry, Mode, Operation, Outcomes,
    Store, StoreConfig, TransactList, WriteBatch,
};
use testkit::Random;
use testkit::suite::StandingClock;

/// A commit to come. Owns all it needs, so that it can be submitted in many lives.
#[derive(Clone, Debug)]
pub enum Planned {
    Change {
        database: DatabaseId,
        mode: Mode,
        operations: Vec<(TransactList, Step)>,
    },
    Clear(DatabaseId),
    Create(String, Durability),
    Drop(DatabaseId),
}

/// An operation, with keys and values by their number.
#[derive(Clone, Debug)]
pub struct Step {
    kind: usize,
    key: usize,
    value: usize,
    condition: usize,
    version: u64,
    expiry: Expiry,
    want_previous: bool,
    delta: i64,
}

/// Keys and values that the plans are about.
pub struct Words {
    keys: Vec<Vec<u8>>,
    values: Vec<Vec<u8>>,
}

impl Words {
    pub fn new() -> Words {
        let mut keys: Vec<Vec<u8>> = (0..24).map(|n| format!("key-{n}").into_bytes()).collect();
        keys.extend([vec![], vec![0xff; 3], vec![b'k'; 300]]);
        let mut values: Vec<Vec<u8>> = [0, 1, 7, 8, 9, 40, 400].map(|n| vec![b'v'; n]).into();
        values.extend([0i64, 1, -5, i64::MAX].map(|n| n.to_be_bytes().to_vec()));
        values.push(vec![b'L'; 16 * 1024]);
        Words { keys, values }
    }
}

/// Commits that are submitted together, at a time.
#[derive(Clone, Debug)]
pub struct Turn {
    pub now_ms: u64,
    pub commits: Vec<Planned>,
}

/// Makes plans.
pub struct Planner {
    random: Random,
    words: Words,
    /// Those that there are.
    databases: Vec<DatabaseId>,
    /// Those created in this turn. Nobody knows their ids before it is over.
    fresh: Vec<DatabaseId>,
    created: usize,
    /// The ids that databases get, in the order of their creation.
    ids: Vec<DatabaseId>,
    now_ms: u64,
    pub operations: usize,
}

impl Planner {
    pub fn new(seed: u64) -> Planner {
        Planner {
            random: Random::new(seed),
            words: Words::new(),
            databases: vec![DatabaseId::DEFAULT],
            fresh: Vec::new(),
            created: 0,
            ids: ids(),
            now_ms: 1000,
            operations: 0,
        }
    }

    /// Plans turns until they have so many operations.
    pub fn plan(&mut self, operations: usize) -> Vec<Turn> {
        let mut turns = vec![
            self.creation(Durability::Synced),
            self.creation(Durability::Written),
        ];
        while self.operations < operations {
            turns.push(self.turn());
        }
        turns
    }

    fn creation(&mut self, durability: Durability) -> Turn {
        let commit = self.create(durability);
        self.databases.append(&mut self.fresh);
        Turn {
            now_ms: self.now_ms,
            commits: vec![commit],
        }
    }

    fn create(&mut self, durability: Durability) -> Planned {
        self.created += 1;
        self.fresh.push(self.ids[self.created]);
        Planned::Create(format!("database-{}", self.created), durability)
    }

    fn turn(&mut self) -> Turn {
        self.now_ms += self.random.below(30) as u64;
        let count = 1 + self.random.below(20);
        let commits = (0..count).map(|_| self.commit()).collect();
        self.databases.append(&mut self.fresh);
        Turn {
            now_ms: self.now_ms,
            commits,
        }
    }

    fn commit(&mut self) -> Planned {
        self.operations += 1;
        let database = match self.random.once_in(12) {
            true => DatabaseId::IDENTITIES,
            false => self.databases[self.random.below(self.databases.len())],
        };
        match self.random.below(150) {
            0 => Planned::Clear(database),
            1 if self.databases.len() < 5 => {
                let durability = [
                    Durability::Synced,
                    Durability::Written,
                    Durability::Interval { ms: 40 },
                ];
                let durability = self.random.pick(&durability);
                self.create(durability)
            }
            // Not the first one that was created, whose name stays taken.
            2 if self.databases.len() > 3 => {
                let place = 2 + self.random.below(self.databases.len() - 2);
                Planned::Drop(self.databases.remove(place))
            }
            3 => Planned::Create("database-1".into(), Durability::Synced),
            _ => self.change(database),
        }
    }

    fn change(&mut self, database: DatabaseId) -> Planned {
        let mode = (self.random).pick(&[Mode::Atomic, Mode::Independent, Mode::Transact]);
        let mut operations = Vec::new();
        let mut add = |planner: &mut Planner, list, count: usize| {
            for _ in 0..count {
                let mut step = planner.step();
                if mode == Mode::Transact && list == TransactList::Compares {
                    step.kind = COMPARE;
                }
                operations.push((list, step));
            }
        };
        if mode == Mode::Transact {
            for (list, most) in [
                (TransactList::Compares, 2),
                (TransactList::Then, 4),
                (TransactList::Otherwise, 4),
            ] {
                let count = self.random.below(most);
                add(self, list, count);
            }
        } else {
            let count = if self.random.once_in(12) {
                20
            } else {
                1 + self.random.below(4)
            };
            add(self, TransactList::Compares, count);
        }
        self.operations += operations.len();
        Planned::Change {
            database,
            mode,
            operations,
        }
    }

    fn step(&mut self) -> Step {
        let rare = self.random.once_in(200);
        let values = self.words.values.len() - usize::from(!rare);
        let expiry = match self.random.below(5) {
            0 => Expiry::Keep,
            1 => Expiry::AfterMs(self.random.below(100) as u64),
            _ => Expiry::None,
        };
        Step {
            kind: self.random.below(9),
            key: self.random.below(self.words.keys.len()),
            value: self.random.below(values),
            condition: if self.random.once_in(3) {
                self.random.below(6)
            } else {
                0
            },
            version: self.random.below(300) as u64,
            expiry,
            want_previous: self.random.once_in(3),
            delta: self.random.pick(&[0, 1, -7, i64::MAX]),
        }
    }
}

const COMPARE: usize = 7;

/// The ids that databases get, in the order of their creation; the default one comes first.
fn ids() -> Vec<DatabaseId> {
    let store = Store::in_memory(StoreConfig::new(0)).expect("the configuration is valid");
    let (mut batch, mut outcomes) = (store.write_batch(), Outcomes::new());
    for number in 0..100 {
        let config = DatabaseConfig::default();
        batch.create_database(number, &format!("name-{number}"), &config);
    }
    drop(
        store
            .committer()
            .run(&mut batch, &mut StandingClock { now_ms: 1 }, &mut outcomes),
    );
    let made = outcomes.iter().map(|outcome| {
        assert_eq!(outcome.decision, Decision::Applied);
        outcome.database
    });
    [DatabaseId::DEFAULT].into_iter().chain(made).collect()
}

impl Step {
    fn operation<'w>(&self, words: &'w Words) -> Operation<'w> {
        let (key, value) = (&words.keys[self.key][..], &words.values[self.value][..]);
        let condition = match self.condition {
            1 => Condition::Absent,
            2 => Condition::Present,
            3 => Condition::VersionIs(self.version),
            4 => Condition::VersionIs(0),
            5 => Condition::ValueIs(value),
            _ => Condition::None,
        };
        match self.kind {
            0..3 => Operation::Put {
                key,
                value,
                condition,
                expiry: self.expiry,
                want_previous: self.want_previous,
            },
            3 => Operation::Delete {
                key,
                condition,
                want_previous: self.want_previous,
            },
            4 => Operation::Append {
                key,
                value,
                condition,
            },
            5 => Operation::Increment {
                key,
                delta: self.delta,
                initial: 3,
                condition,
            },
            6 => Operation::Get { key },
            COMPARE => Operation::Compare { key, condition },
            _ => Operation::Expire { key },
        }
    }
}

/// Puts a planned commit into a batch.
pub fn submit(planned: &Planned, tag: u64, words: &Words, batch: &mut WriteBatch) {
    match planned {
        Planned::Create(name, durability) => {
            let config = DatabaseConfig {
                durability: *durability,
                ..DatabaseConfig::default()
            };
            batch.create_database(tag, name, &config);
        }
        Planned::Drop(id) => batch.drop_database(tag, *id),
        Planned::Clear(id) => {
            let mut commit = batch.begin(tag, *id, Mode::Atomic);
            commit.push(&Operation::Clear).expect("it stands alone");
            commit.submit();
        }
        Planned::Change {
            database,
            mode,
            operations,
        } => {
            let mut commit = batch.begin(tag, *database, *mode);
            let mut current = TransactList::Compares;
            for (list, step) in operations {
                if *list != current {
                    current = *list;
                    commit.list(current);
                }
                commit
                    .push(&step.operation(words))
                    .expect("within the limits");
            }
            commit.submit();
        }
    }
}
