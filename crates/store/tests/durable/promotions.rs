//! Leaders and replicas of which some are promoted at any moment: no commit that was answered is
//! lost, and nobody answers in an epoch that is over.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use store::durable::{CommitLoop, Mailbox, Opened};
use store::{
    Condition, DatabaseId, Decision, EpochPlace, Expiry, FIRST_EPOCH, FollowerSession, Mode,
    Operation, Outcomes, ReplicaId, ReplicaSetChange, ReplicasAcked, Store,
};
use testkit::Random;
use testkit::suite::MachineClock;
use wal::LogConfig;
use wal::disk::SimulatedDisk;

use crate::acked::has;
use crate::backups::config;
use crate::bench::log_config;
use crate::crash::state_of;
use crate::replicas::Replica;

const TIMEOUT_MS: u64 = 100;

/// What the clocks of all machines show at the beginning: somewhat more than ten years.
const BEGIN_MS: u64 = 400_000_000_000;

/// A server that takes writes, if it may.
struct Leader {
    store: Store,
    commit_loop: CommitLoop,
    mailbox: Mailbox,
    clock: MachineClock,
    /// Of the replicas that follow it, by their place among the nodes.
    sessions: BTreeMap<usize, FollowerSession>,
    /// Submitted, in their order, and not answered.
    waiting: VecDeque<[u8; 8]>,
}

/// How a node was promoted: what its folder has noted.
#[derive(Clone, Copy)]
struct PromotionMark {
    epoch: u64,
    end: u64,
}

impl Leader {
    fn open(node: &ServerNode, required: usize) -> Leader {
        let log_config = LogConfig {
            now_ms: node.clock.wall_ms,
            ..log_config()
        };
        let opened = Store::open(config(), Arc::new(node.disk.clone()), &log_config);
        let Opened {
            store, committer, ..
        } = opened.unwrap_or_else(|error| panic!("{error}"));
        let commit_loop = CommitLoop::new(committer);
        let mut leader = Leader {
            mailbox: commit_loop.register(Box::new(|| ())),
            store,
            commit_loop,
            clock: node.clock,
            sessions: BTreeMap::new(),
            waiting: VecDeque::new(),
        };
        let required_before = leader.store.replica_set().required();
        leader.note(node, required);
        let wanted = ReplicasAcked {
            replicas: required,
            timeout_ms: TIMEOUT_MS,
        };
        leader.store.require_replicas(wanted, required_before);
        leader.run();
        leader
    }

    /// What each start notes before it serves.
    fn note(&mut self, node: &ServerNode, required: usize) {
        let mut changes = Vec::new();
        if let Some(PromotionMark { epoch, end }) = node.mark
            && epoch > self.store.epoch()
        {
            changes.push(ReplicaSetChange::Begin { epoch, end });
            changes.push(ReplicaSetChange::Remove(node.id));
        }
        // A lower number is noted when so many as before hold what is there.
        if required > self.store.replica_set().required() {
            changes.push(ReplicaSetChange::Require(required));
        }
        if changes.is_empty() {
            return;
        }
        let mut batch = self.store.write_batch();
        let noted = self.store.change_replica_set(&mut batch, &changes);
        assert_eq!(noted, Ok(()));
        self.mailbox.submit(&mut batch);
        self.run();
        assert_eq!(self.told(), [Decision::Applied]);
    }

    fn run(&mut self) {
        while self.commit_loop.round(&mut self.clock) {}
    }

    fn told(&mut self) -> Vec<Decision> {
        let (mut told, mut outcomes) = (Vec::new(), Outcomes::new());
        while self.mailbox.take(&mut outcomes) {
            told.extend(outcomes.iter().map(|outcome| outcome.decision));
        }
        told
    }

    fn submit(&mut self, key: [u8; 8]) {
        let mut batch = self.store.write_batch();
        let mut commit = batch.begin(1, DatabaseId::DEFAULT, Mode::Atomic);
        // Nobody sweeps here: what has expired is there, with its expiry.
        let put = Operation::Put {
            key: &key,
            value: b"value",
            condition: Condition::None,
            expiry: match key[7] % 3 {
                0 => Expiry::AfterMs(60_000),
                _ => Expiry::None,
            },
            want_previous: false,
        };
        commit.push(&put).expect("it fits");
        commit.submit();
        self.waiting.push_back(key);
        self.mailbox.submit(&mut batch);
        self.run();
    }
}

enum NodeRole {
    Leader(Box<Leader>),
    Replica(Box<Replica>),
    /// Moved out for a moment.
    None,
}

/// A server with its folder.
struct ServerNode {
    id: ReplicaId,
    disk: SimulatedDisk,
    /// Of its machine.
    clock: MachineClock,
    role: NodeRole,
    /// The epoch that it has confirmed: in a file beside the log.
    promise: u64,
    mark: Option<PromotionMark>,
    /// What it has said to a leader, and what is still on its way.
    said: Option<(usize, u64)>,
}

impl ServerNode {
    fn leader(&mut self) -> Option<&mut Leader> {
        match &mut self.role {
            NodeRole::Leader(leader) => Some(leader),
            _ => None,
        }
    }

    fn is_leader(&self) -> bool {
        matches!(self.role, NodeRole::Leader(_))
    }

    fn replica(&mut self) -> Option<&mut Replica> {
        match &mut self.role {
            NodeRole::Replica(replica) => Some(replica),
            _ => None,
        }
    }

    fn store(&self) -> &Store {
        match &self.role {
            NodeRole::Leader(leader) => &leader.store,
            NodeRole::Replica(replica) => &replica.store,
            NodeRole::None => panic!("it has a role"),
        }
    }

    /// Its clock shows another time.
    fn set_clock(&mut self, clock: MachineClock) {
        self.clock = clock;
        match &mut self.role {
            NodeRole::Leader(leader) => leader.clock = clock,
            NodeRole::Replica(replica) => replica.clock = clock,
            NodeRole::None => {}
        }
    }

    /// The time of the groups in its log does not go back, whoever wrote them: those who follow it
    /// by time would miss some.
    fn check_times(&self) {
        if self.place().sequence == 0 {
            return;
        }
        let follower = self.store().follow_log().expect("there is a log");
        let mut reading = follower.read_behind(0).expect("all of it is kept");
        let mut last_ms = 0;
        loop {
            let groups = reading.run(1 << 20, usize::MAX).expect("it can be read");
            let times: Vec<u64> = groups.iter().map(|group| group.wall_ms).collect();
            assert!(times.is_sorted() && times.first().is_none_or(|&first| first >= last_ms));
            last_ms = match times.last() {
                Some(&last) => last,
                None => break,
            };
        }
        let is_known = self.store().clock_ms(0) >= last_ms;
        assert!(is_known, "the time of a store is that of its log or later");
    }

    /// The highest epoch of which it knows.
    fn epoch(&self) -> u64 {
        self.promise.max(self.store().epoch())
    }

    fn place(&self) -> EpochPlace {
        let log = self.store().log_statistics().expect("there is a log");
        EpochPlace {
            epoch: self.store().epoch(),
            sequence: log.durable_sequence,
        }
    }
}

/// Some servers, each of which may end at any moment.
struct World {
    random: Random,
    /// Each start requires so many at most.
    most_required: usize,
    nodes: Vec<ServerNode>,
    disks: u64,
    submitted: u64,
    answered: Vec<[u8; 8]>,
    /// The highest epoch in which somebody leads.
    epoch: u64,
    promoted: usize,
    refused: usize,
    copies: usize,
    returned: usize,
    forgotten: usize,
    /// Answers of leaders in whose place another one leads already.
    late: usize,
    jumps: usize,
}

impl World {
    fn new(seed: u64) -> World {
        let mut random = Random::new(seed);
        let most_required = 1 + random.below(3_usize);
        let replicas = most_required + random.below(3_usize);
        let mut world = World {
            random,
            most_required,
            nodes: Vec::new(),
            disks: 100 * seed,
            submitted: 0,
            answered: Vec::new(),
            epoch: FIRST_EPOCH,
            promoted: 0,
            refused: 0,
            copies: 0,
            returned: 0,
            forgotten: 0,
            late: 0,
            jumps: 0,
        };
        for _ in 0..=replicas {
            world.add_replica();
        }
        let required = world.required();
        let first = &mut world.nodes[0];
        first.role = NodeRole::None;
        first.disk = testkit::simulated_disk(99 + seed);
        first.role = NodeRole::Leader(Box::new(Leader::open(first, required)));
        world
    }

    fn required(&mut self) -> usize {
        1 + self.random.below(self.most_required)
    }

    fn new_disk(&mut self) -> SimulatedDisk {
        self.disks += 1;
        testkit::simulated_disk(self.disks)
    }

    fn add_replica(&mut self) {
        let disk = self.new_disk();
        let clock = MachineClock::new(BEGIN_MS);
        self.nodes.push(ServerNode {
            id: u128::from(self.disks).to_be_bytes(),
            role: NodeRole::Replica(Box::new(Replica::open_at(&disk, clock))),
            disk,
            clock,
            promise: 0,
            mark: None,
            said: None,
        });
    }

    fn any(&mut self) -> usize {
        self.random.below(self.nodes.len())
    }

    fn submit(&mut self) {
        let at = self.any();
        let key = self.submitted.to_be_bytes();
        if let Some(leader) = self.nodes[at].leader() {
            leader.submit(key);
            self.submitted += 1;
        }
        self.hear(at);
    }

    /// Takes what a leader has answered.
    fn hear(&mut self, at: usize) {
        let epoch = self.epoch;
        let Some(leader) = self.nodes[at].leader() else {
            return;
        };
        let (own, mut answered) = (leader.store.epoch(), Vec::new());
        for decision in leader.told() {
            let key = leader.waiting.pop_front().expect("one outcome for each");
            if decision == Decision::Applied {
                assert!(has(&leader.store, &key), "an answer is visible");
                answered.push(key);
            }
        }
        if own < epoch && !answered.is_empty() {
            // What replicas have said before they confirmed may come late: the new leader has it.
            let is_last = |node: &&ServerNode| node.is_leader() && node.store().epoch() == epoch;
            let last = self.nodes.iter().find(is_last).expect("one leads");
            let has_all = answered.iter().all(|key| has(last.store(), key));
            assert!(has_all, "nobody answers more in an epoch that is over");
            self.late += answered.len();
        }
        self.answered.append(&mut answered);
    }

    /// Has a replica take something of a leader.
    fn follow(&mut self, at: usize, from: usize) {
        if self.nodes[from].leader().is_none() || self.nodes[at].replica().is_none() {
            return;
        }
        let (known, place) = (self.nodes[at].epoch(), self.nodes[at].place());
        let leader = self.nodes[from].store().clone();
        if leader.note_epoch(known, "") {
            return self.forget_session(at, from);
        }
        let is_here = place.sequence <= leader.followable_sequence();
        if leader.replica_set().check_place(place).is_err() || !is_here {
            self.forget_session(at, from);
            self.copy(at);
        }
        let bytes = 1 << self.random.below(14);
        let replica = self.nodes[at].replica().expect("it is one");
        let taken = replica.take_from(&leader, bytes);
        let sequence = taken.expect("everything can be followed");
        self.nodes[at].said = Some((from, sequence));
        if self.random.once_in(2) {
            self.deliver(at);
        }
    }

    /// It begins anew, with everything that its leader has.
    fn copy(&mut self, at: usize) {
        let disk = self.new_disk();
        let replica = Replica::open_at(&disk, self.nodes[at].clock);
        self.nodes[at].role = NodeRole::Replica(Box::new(replica));
        self.nodes[at].disk = disk;
        self.nodes[at].said = None;
        self.copies += 1;
    }

    fn forget_session(&mut self, at: usize, from: usize) {
        if let Some(leader) = self.nodes[from].leader() {
            leader.sessions.remove(&at);
        }
    }

    /// What a replica has said comes to its leader, perhaps long after.
    fn deliver(&mut self, at: usize) {
        let Some((to, sequence)) = self.nodes[at].said.take() else {
            return;
        };
        let id = self.nodes[at].id;
        let Some(leader) = self.nodes[to].leader() else {
            return;
        };
        match leader.sessions.get(&at) {
            Some(session) => session.acknowledge(sequence),
            None => {
                let session = leader.store.begin_follower_session(id, sequence);
                leader.sessions.insert(at, session);
            }
        }
        leader.run();
        self.hear(to);
    }

    fn end(&mut self, at: usize) {
        self.hear(at);
        let is_power = self.random.once_in(2);
        let required = self.required();
        let node = &mut self.nodes[at];
        let end = |disk: &SimulatedDisk| match is_power {
            true => disk.lose_power(),
            false => disk.kill(),
        };
        match std::mem::replace(&mut node.role, NodeRole::None) {
            NodeRole::Leader(leader) => {
                end(&node.disk);
                drop(leader);
                node.role = NodeRole::Leader(Box::new(Leader::open(node, required)));
            }
            NodeRole::Replica(replica) => {
                let replica = replica.restart(1 + usize::from(is_power));
                node.role = NodeRole::Replica(Box::new(replica));
            }
            NodeRole::None => panic!("it has a role"),
        }
        for node in &mut self.nodes {
            // Its connections are gone.
            if let Some(leader) = node.leader() {
                leader.sessions.remove(&at);
            }
            node.said = node.said.filter(|(to, _)| *to != at);
        }
    }

    /// Some of the others confirm, and a replica is promoted if these are enough.
    fn promote(&mut self, at: usize) {
        if self.nodes[at].replica().is_none() {
            return;
        }
        let mut asked: Vec<usize> = (0..self.nodes.len()).filter(|&one| one != at).collect();
        asked.retain(|_| !self.random.once_in(3));
        asked.retain(|&one| self.nodes[one].replica().is_some());
        let known = asked.iter().map(|&one| self.nodes[one].epoch()).max();
        let epoch = known.unwrap_or(0).max(self.nodes[at].epoch()) + 1;
        let place = self.nodes[at].place();
        let mut confirmed = BTreeSet::from([self.nodes[at].id]);
        let mut is_highest = true;
        for one in asked {
            let node = &mut self.nodes[one];
            node.promise = epoch;
            confirmed.insert(node.id);
            is_highest &= node.place() <= place;
        }
        let node = &mut self.nodes[at];
        let checked = node
            .store()
            .replica_set()
            .check_quorum(&node.id, &confirmed);
        if checked.is_err() || !is_highest {
            self.refused += 1;
            return;
        }
        node.promise = epoch;
        node.mark = Some(PromotionMark {
            epoch,
            end: place.sequence,
        });
        for key in &self.answered {
            assert!(has(node.store(), key), "{key:?} was answered, and is lost");
        }
        self.begin_to_lead(at);
        self.epoch = epoch;
        self.promoted += 1;
    }

    fn begin_to_lead(&mut self, at: usize) {
        let required = self.required();
        let node = &mut self.nodes[at];
        node.said = None;
        node.role = NodeRole::None;
        node.disk.kill();
        if self.random.once_in(3) {
            let required = 1 + self.random.below(self.most_required);
            drop(Leader::open(node, required));
            node.disk.lose_power();
        }
        node.role = NodeRole::Leader(Box::new(Leader::open(node, required)));
    }

    /// An old leader comes back with its folder, or with an empty one.
    fn come_back(&mut self, at: usize) {
        let epoch = self.epoch;
        let node = &mut self.nodes[at];
        let is_old = |leader: &mut Leader| leader.store.epoch() < epoch;
        if node.leader().is_some_and(is_old) {
            self.hear(at);
            if self.random.once_in(2) {
                self.returned += 1;
                let node = &mut self.nodes[at];
                node.role = NodeRole::None;
                node.disk.kill();
                node.mark = None;
                node.role = NodeRole::Replica(Box::new(Replica::open_at(&node.disk, node.clock)));
                for node in &mut self.nodes {
                    // What was on its way to the leader comes to nobody.
                    node.said = node.said.filter(|(to, _)| *to != at);
                }
                return;
            }
            self.nodes.remove(at);
            for node in &mut self.nodes {
                node.said = None;
                if let Some(leader) = node.leader() {
                    leader.sessions.clear();
                }
            }
            self.add_replica();
        }
    }

    /// An operator takes a replica for lost.
    fn forget(&mut self, at: usize, from: usize) {
        let id = self.nodes[at].id;
        if let Some(leader) = self.nodes[from].leader()
            && leader.store.replica_set().members().any(|one| *one == id)
            && leader.store.forget_replicas(&[id]).is_empty()
        {
            leader.run();
            self.forgotten += 1;
        }
        self.hear(from);
    }

    fn pass(&mut self, at: usize, ms: u64) {
        let mut clock = self.nodes[at].clock;
        clock.pass(ms);
        self.nodes[at].set_clock(clock);
        if let Some(leader) = self.nodes[at].leader() {
            leader.run();
        }
        self.hear(at);
    }

    /// Somebody sets the clock of a machine: nobody waits longer or less for that.
    fn jump(&mut self, at: usize) {
        let mut clock = self.nodes[at].clock;
        clock.jump(&mut self.random);
        self.nodes[at].set_clock(clock);
        if let Some(leader) = self.nodes[at].leader() {
            let was_late = leader.store.acknowledged().is_late;
            leader.run();
            assert!(was_late || !leader.store.acknowledged().is_late);
        }
        self.hear(at);
        self.jumps += 1;
    }

    fn step(&mut self) {
        let (one, other) = (self.any(), self.any());
        match self.random.below(60) {
            0 => self.end(one),
            1 => self.promote(one),
            2 => self.come_back(one),
            3 => self.forget_session(one, other),
            4 => {
                self.pass(one, TIMEOUT_MS);
            }
            5 => self.forget(one, other),
            6 => self.jump(one),
            7..12 => self.deliver(one),
            12..35 => self.follow(one, other),
            _ => self.submit(),
        }
    }

    /// All follow the last leader, and have what it has.
    fn settle(&mut self) {
        // Who has led before follows now.
        for at in (0..self.nodes.len()).rev() {
            self.come_back(at);
        }
        let epoch = self.epoch;
        let is_last = |node: &mut ServerNode| {
            let leader = node.leader();
            leader.is_some_and(|leader| leader.store.epoch() == epoch)
        };
        let last = self.nodes.iter_mut().position(is_last).expect("one leads");
        for _ in 0..12 {
            for at in 0..self.nodes.len() {
                self.follow(at, last);
                self.deliver(at);
            }
        }
        let known = self.nodes.iter().map(ServerNode::epoch).max();
        if known > Some(epoch) {
            // Somebody has confirmed a further epoch, in which nobody leads.
            return;
        }
        let leader = self.nodes[last].store().clone();
        assert!(!leader.awaits_replicas());
        for key in &self.answered {
            assert!(has(&leader, key), "{key:?} was answered, and is lost");
        }
        for node in &mut self.nodes {
            node.check_times();
            if node.replica().is_some() && node.place().sequence == leader.followable_sequence() {
                assert_eq!(state_of(node.store()), state_of(&leader));
            }
        }
    }
}

#[test]
fn no_answered_commit_is_lost_whoever_ends_and_whoever_is_promoted() {
    let (mut answered, mut promoted, mut refused, mut copies) = (0, 0, 0, 0);
    let (mut returned, mut forgotten, mut late, mut jumps) = (0, 0, 0, 0);
    // More of them with PELTON_PROMOTION_WORLDS.
    let worlds = std::env::var("PELTON_PROMOTION_WORLDS").ok();
    for seed in 0..worlds.map_or(200, |worlds| worlds.parse().expect("a number")) {
        let mut world = World::new(seed);
        println!("{:?}", world.random);
        for _ in 0..1_500 {
            world.step();
        }
        world.settle();
        answered += world.answered.len();
        promoted += world.promoted;
        refused += world.refused;
        copies += world.copies;
        returned += world.returned;
        forgotten += world.forgotten;
        late += world.late;
        jumps += world.jumps;
    }
    println!(
        "{answered} answered, {promoted} promoted, {refused} refused, {copies} copies, {returned} \
         returned, {forgotten} forgotten, {late} late, clocks set {jumps} times"
    );
    assert!(answered > 1_000 && promoted > 50 && refused > 50 && copies > 10);
    assert!(returned > 10 && forgotten > 10 && jumps > 1_000);
}
