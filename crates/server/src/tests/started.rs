//! A server with its threads: what it does before it serves, and for threads that are no loops.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use net::LoopConfig;
use service::following::Following;
use service::identities::{FIRST_ADMIN, Identity, IssuedToken, NEVER_MS, Token, UsableBindings};
use service::limits::IDENTITIES_MAX;
use store::durable::{FollowedGroups, open_folder};
use store::{
    DatabaseConfig, DatabaseId, Durability, FolderSecret, KeepLog, Mode, Refusal, ReplicaSetChange,
    Store, WriteBatch,
};
use testkit::suite::{put, put_if};
use wal::disk::Disk;
use wal::{LogConfig, LogId};

use super::identities::rights;
use crate::first_admin;
use crate::pair::Keep;
use crate::readers::tests::TempFolder;
use crate::{FirstAdmin, FirstAdminError, Server, ServerConfig, StartError, Storage, TimeSource};

struct MachineTime(Instant);

impl TimeSource for MachineTime {
    fn monotonic_ns(&self) -> u64 {
        self.0.elapsed().as_nanos() as u64
    }

    fn wall_ms(&self) -> u64 {
        1_000_000 + self.monotonic_ns() / 1_000_000
    }
}

/// A data folder, and what its servers log.
struct Folder {
    disk: Arc<dyn Disk>,
    log: Arc<Keep>,
    accepts_loss: bool,
}

impl Folder {
    fn new() -> Folder {
        Folder::on(Arc::new(testkit::simulated_disk(1)))
    }

    fn on(disk: Arc<dyn Disk>) -> Folder {
        Folder {
            disk,
            log: Arc::default(),
            accepts_loss: false,
        }
    }

    fn start(&self, change: impl FnOnce(&mut ServerConfig)) -> Result<Server, StartError> {
        let id = LogId {
            history: 7,
            secret: 8,
        };
        let mut config = config(&self.log);
        config.storage = Storage::Folder {
            disk: Arc::clone(&self.disk),
            log: LogConfig {
                segment_bytes: 1 << 20,
                accept_loss: self.accepts_loss,
                ..LogConfig::new(id, 1)
            },
            trees: None,
            durability: Durability::Synced,
            kind: None,
            keep_log: KeepLog::NONE,
        };
        change(&mut config);
        crate::start(config)
    }

    /// What came into the audit trail since it was asked last.
    fn audited(&self) -> Vec<String> {
        std::mem::take(&mut *self.log.audited.lock().expect("nobody panics"))
    }
}

/// A server that keeps nothing.
fn config(log: &Arc<Keep>) -> ServerConfig {
    let time = Arc::new(MachineTime(Instant::now()));
    ServerConfig {
        loops: LoopConfig {
            listen: vec!["127.0.0.1:0".parse().expect("an address")],
            threads: 1,
            handle_signals: false,
            ..LoopConfig::default()
        },
        ..crate::pair::config(Arc::clone(log) as _, time)
    }
}

/// Servers of both kinds.
fn servers() -> [Server; 2] {
    let folder = Folder::new();
    let volatile = crate::start(config(&folder.log));
    [volatile, folder.start(|_| ())].map(|server| server.expect("nothing is in its way"))
}

fn stop(server: Server) {
    server.stop_handle().stop();
    server.run().expect("it ends well");
}

fn token(byte: u8) -> Token {
    Token::new([byte; 32])
}

#[test]
fn an_administrator_is_made_once_and_only_if_one_is_wanted() {
    let folder = Folder::new();
    for _ in 0..2 {
        let server = folder.start(|_| ()).expect("nothing is in its way");
        assert_eq!(server.first_admin(), &FirstAdmin::NotWanted);
        stop(server);
        let refused = folder.start(|config| {
            config.first_admin = Some(Box::new(|| Err("no numbers".into())));
        });
        let refused = refused.err().expect("there is no token");
        let StartError::FirstAdmin(FirstAdminError::NoToken(why)) = refused else {
            panic!("{refused}");
        };
        assert_eq!(why, "no numbers");
    }
    assert_eq!(folder.audited(), [""; 0]);
    let made = folder.start(|config| {
        config.first_admin = Some(Box::new(|| Ok(token(9))));
    });
    let made = made.expect("nothing is in its way");
    assert_eq!(made.first_admin(), &FirstAdmin::Made);
    let identities = &made.shared().identities;
    assert!(identities.has_admin(UsableBindings::ALL, 1_000_000));
    assert_eq!(identities.name_of(&token(9)).as_deref(), Some(FIRST_ADMIN));
    let audited = folder.audited();
    assert!(audited.len() == 1 && audited[0].starts_with("token|serve|admin|admin|"));
    stop(made);
    for _ in 0..2 {
        let server = folder.start(|config| {
            config.first_admin = Some(Box::new(|| panic!("there is one")));
        });
        let server = server.expect("nothing is in its way");
        assert_eq!(server.first_admin(), &FirstAdmin::Exists);
        stop(server);
    }
    assert_eq!(folder.audited(), [""; 0]);
}

#[test]
fn an_administrator_of_a_server_that_keeps_nothing_is_made_at_each_start() {
    let log = Arc::default();
    for byte in [1, 2] {
        let mut config = config(&log);
        config.first_admin = Some(Box::new(move || Ok(token(byte))));
        let server = crate::start(config).expect("nothing is in its way");
        assert_eq!(server.first_admin(), &FirstAdmin::Made);
        let identities = &server.shared().identities;
        assert_eq!(
            identities.name_of(&token(byte)).as_deref(),
            Some(FIRST_ADMIN)
        );
        assert_eq!(identities.name_of(&token(byte + 1)), None);
        stop(server);
    }
}

/// Somebody with a right, whose token is that of this number.
fn identity(name: &str, right: &str, server: &Server, number: u32) -> Identity {
    let mut bytes = [0; 32];
    bytes[..4].copy_from_slice(&number.to_le_bytes());
    let key = server.shared().identities.key();
    let issued = IssuedToken {
        hash: key.hash(&Token::new(bytes)),
        expires_ms: NEVER_MS,
    };
    let made = Identity::new(name, rights(right), NEVER_MS, vec![issued]);
    made.expect("a sound identity")
}

#[test]
fn an_administrator_is_not_made_where_others_are_in_the_way() {
    for server in servers() {
        let parts = &server.parts;
        let make = |others: Vec<Identity>| {
            let replaced = parts.shared.identities.replace(others, 1_000_000);
            replaced.expect("they differ");
            let ask = || {
                let mut bytes = [0; 32];
                bytes[0] = 7;
                Ok(Token::new(bytes))
            };
            let behind = (parts.durable.as_deref(), UsableBindings::ALL);
            let (shared, time) = (&parts.shared, &parts.time);
            first_admin::make(
                Some(Box::new(ask)),
                shared,
                behind,
                time,
                &*parts.settings.log,
            )
        };
        let one = |name, right, number| vec![identity(name, right, &server, number)];
        for _ in 0..2 {
            assert_eq!(make(one("other", "admin", 1)), Ok(FirstAdmin::Exists));
            let taken = make(one(FIRST_ADMIN, "read", 1));
            assert_eq!(taken, Err(FirstAdminError::NameTaken));
            let taken = make(one("other", "read", 7));
            assert_eq!(taken, Err(FirstAdminError::Taken("other".into())));
        }
        let many = |count: usize| {
            let name = |number: usize| format!("n{number}");
            let all = 0..count;
            all.map(|number| identity(&name(number), "read", &server, 10 + number as u32))
                .collect()
        };
        assert_eq!(make(many(IDENTITIES_MAX)), Err(FirstAdminError::NoRoom));
        assert_eq!(make(many(IDENTITIES_MAX - 1)), Ok(FirstAdmin::Made));
        stop(server);
    }
}

/// The lock of a folder goes with the last thread that holds it.
fn start_when_free(folder: &Folder) -> Result<Server, StartError> {
    let until = Instant::now() + Duration::from_secs(60);
    loop {
        match folder.start(|_| ()) {
            Err(StartError::Open(why)) if Instant::now() < until => {
                assert!(why.to_string().contains("lock"), "{why}");
                std::thread::sleep(Duration::from_millis(5));
            }
            started => return started,
        }
    }
}

#[test]
fn tokens_of_another_secret_are_refused_or_become_invalid() {
    let (own, other) = (TempFolder::new(), TempFolder::new());
    let disk = |path: &TempFolder| open_folder(&path.0).expect("it is empty, or ours");
    let made = Folder::on(disk(&own)).start(|config| {
        config.first_admin = Some(Box::new(|| Ok(token(9))));
    });
    stop(made.expect("nothing is in its way"));
    let made = Folder::on(disk(&other)).start(|config| {
        config.secret = FolderSecret::new([2; 32]);
    });
    stop(made.expect("nothing is in its way"));
    let file = "pelton-data";
    std::fs::copy(other.0.join(file), own.0.join(file)).expect("there is room");
    let mut folder = Folder::on(disk(&own));
    for _ in 0..2 {
        let refused = start_when_free(&folder).err().expect("no token is good");
        assert!(matches!(refused, StartError::OtherSecret(1)), "{refused}");
    }
    folder.accepts_loss = true;
    let server = start_when_free(&folder).expect("the loss is accepted");
    let said = folder.log.said.lock().expect("nobody panics").concat();
    assert!(said.contains("1 tokens have become invalid"), "{said}");
    assert!(
        !server
            .shared()
            .identities
            .has_usable(UsableBindings::ALL, 1_000_000)
    );
    stop(server);
    folder.accepts_loss = false;
    stop(start_when_free(&folder).expect("it was said"));
}

#[test]
fn a_database_that_is_wanted_is_made_once() {
    for server in servers() {
        let store = &server.shared().store;
        for max_bytes in [7, 8] {
            let mut config = DatabaseConfig {
                durability: Durability::Volatile,
                ..DatabaseConfig::default()
            };
            config.limits.value_bytes = max_bytes;
            assert_eq!(server.ensure_database("wanted", &config), Ok(()));
            let made = store.database("wanted").expect("it was made");
            let config = store.config(made).expect("it is there");
            assert_eq!(config.limits.value_bytes, 7);
        }
        let long = "n".repeat(10_000);
        let refused = server.ensure_database(&long, &DatabaseConfig::default());
        assert!(refused.is_err(), "no name is so long");
        stop(server);
    }
}

/// So many commits, each of a key of its own.
fn puts(store: &Store, database: DatabaseId, keys: std::ops::Range<u32>) -> WriteBatch {
    let mut batch = store.write_batch();
    for key in keys {
        let mut commit = batch.begin(u64::from(key), database, Mode::Atomic);
        commit
            .push(&put(&key.to_be_bytes(), b"value"))
            .expect("it fits");
        commit.submit();
    }
    batch
}

fn entries(store: &Store) -> u64 {
    let view = store.view(DatabaseId::DEFAULT).expect("it is in memory");
    view.statistics().entries
}

#[test]
fn commits_of_an_applier_are_visible_when_it_returns() {
    for server in servers() {
        let applier = server.applier();
        let store = applier.store().clone();
        for (from, to) in [(0, 1), (1, 1), (1, 100)] {
            let mut batch = puts(&store, DatabaseId::DEFAULT, from..to);
            assert_eq!(applier.apply(&mut batch), Ok(()));
            assert!(batch.is_empty());
            assert_eq!(entries(&store), u64::from(to));
            assert!(applier.sync());
        }
        // One of three is refused, the others are carried out.
        for round in 1..3 {
            let mut batch = puts(&store, DatabaseId::DEFAULT, 100 * round..100 * round + 1);
            let mut commit = batch.begin(7, DatabaseId::DEFAULT, Mode::Atomic);
            let absent = put_if(b"\0\0\0\0", b"x", store::Condition::Absent);
            commit.push(&absent).expect("it fits");
            commit.submit();
            let mut commit = batch.begin(8, DatabaseId::DEFAULT, Mode::Atomic);
            commit
                .push(&put(&[b'k'; 9][round as usize..], b"x"))
                .expect("it fits");
            commit.submit();
            let applied = applier.apply(&mut batch);
            assert_eq!(applied, Err(Refusal::OutcomeUnknown));
            assert_eq!(entries(&store), 100 + u64::from(2 * round));
        }
        assert!(!applier.is_stopping());
        server.shared().health.stop();
        assert!(applier.is_stopping());
        drop((applier, store));
        stop(server);
    }
}

#[test]
fn a_replica_says_how_far_its_log_goes() {
    let folder = Folder::new();
    let alone = folder.start(|_| ()).expect("nothing is in its way");
    assert!(alone.replica().is_none(), "it follows nobody");
    stop(alone);
    let following = Arc::new(Following::new("leader:1978", [1; 16], 0));
    let server = folder.start(|config| config.following = Some(following));
    let server = server.expect("nothing is in its way");
    let replica = server.replica().expect("it follows somebody");
    for round in 1..3 {
        let applier = server.applier();
        let mut batch = puts(replica.store(), DatabaseId::DEFAULT, 0..round);
        assert_eq!(applier.apply(&mut batch), Ok(()));
        assert!(applier.sync());
        let until = Instant::now() + Duration::from_secs(60);
        while replica.durable_sequence() < replica.sequence() {
            assert!(Instant::now() < until, "it is synced");
        }
        let log = replica.store().log_statistics().expect("it has a log");
        assert_eq!(replica.sequence(), log.written_sequence);
        assert!(log.written_sequence > u64::from(round));
        assert!(!replica.has_failed_log() && !replica.is_stopping());
    }
    server.shared().health.stop();
    assert!(replica.is_stopping());
    drop(replica);
    stop(server);
}

/// A server that takes over the log of another one.
fn start_replica(folder: &Folder) -> Server {
    let server = folder.start(|config| {
        config.following = Some(Arc::new(Following::new("leader:1978", [1; 16], 0)));
        if let Storage::Folder { log, .. } = &mut config.storage {
            log.follows = true;
        }
    });
    server.expect("nothing is in its way")
}

#[test]
fn identities_that_come_over_with_a_log_are_good_when_they_are_visible() {
    let (folder, own) = (Folder::new(), Folder::new());
    let leader = folder.start(|config| {
        config.first_admin = Some(Box::new(|| Ok(token(9))));
    });
    let leader = leader.expect("nothing is in its way");
    let server = start_replica(&own);
    let replica = server.replica().expect("it follows somebody");
    let follower = leader.shared().store.follow_log();
    let follower = follower.expect("it has a log");
    let reading = follower.read_behind(0);
    let mut reading = reading.expect("it is all there");
    let until = Instant::now() + Duration::from_secs(60);
    let name = || server.shared().identities.name_of(&token(9));
    assert_eq!(name(), None);
    while name().is_none() {
        assert!(Instant::now() < until, "{:?}", replica.sequence());
        let groups = reading.run(1 << 20, usize::MAX).expect("it can be read");
        let gone = BTreeSet::new();
        let followed = replica.follow(FollowedGroups { groups, gone });
        assert_eq!(followed, Ok(reading.position()));
    }
    assert_eq!(name().as_deref(), Some(FIRST_ADMIN));
    drop((replica, reading, follower));
    stop(server);
    stop(leader);
}

#[test]
fn what_a_server_that_follows_cannot_change_of_the_set_is_an_error() {
    let folder = Folder::new();
    let server = start_replica(&folder);
    let before = server.shared().store.replica_set();
    for change in [ReplicaSetChange::Add([7; 16]), ReplicaSetChange::Settle] {
        let changed = server.change_replica_set(&[change]);
        assert_eq!(changed, Err(Refusal::Replica));
    }
    assert_eq!(server.shared().store.replica_set(), before);
    stop(server);
}

#[test]
fn what_a_replica_has_written_is_durable_when_it_is_synced() {
    let folder = Folder::new();
    let server = folder.start(|config| {
        config.following = Some(Arc::new(Following::new("leader:1978", [1; 16], 0)));
        if let Storage::Folder { durability, .. } = &mut config.storage {
            *durability = Durability::Written;
        }
    });
    let server = server.expect("nothing is in its way");
    let replica = server.replica().expect("it follows somebody");
    let applier = server.applier();
    for round in 1..3 {
        assert!(applier.sync());
        let before = replica.durable_sequence();
        let mut batch = puts(replica.store(), DatabaseId::DEFAULT, 0..round);
        assert_eq!(applier.apply(&mut batch), Ok(()));
        let durable = replica.durable_sequence();
        assert!(before <= durable && durable < replica.sequence());
        assert!(applier.sync());
        assert_eq!(replica.durable_sequence(), replica.sequence());
    }
    drop((replica, applier));
    stop(server);
}
