//! Builds groups of the commits that loops have submitted, and keeps their outcomes.

use std::collections::{BTreeSet, VecDeque};

use wal::GroupBuffer;

use super::followed::{FollowError, FollowedEffects};
use super::group_decider::{Answers, GroupDecider};
use super::group_sizing::GroupSizing;
use super::pending::{PendingGroup, PublishAfter};
use super::trees::TreeWriters;
use crate::batch::WriteBatch;
use crate::database::Durability;
use crate::database_id::DatabaseId;
use crate::log::{FollowedGroup, Record};
use crate::outcome::{Outcomes, Refusal};
use crate::store::Store;

/// What was gathered from the loops, and the group that is made of it.
#[derive(Debug)]
pub(super) struct GroupBuilder {
    gathered: VecDeque<Gathered>,
    sizing: GroupSizing,
    /// No group has more operations than this, but for those of its last commit.
    most_operations: usize,
    decider: GroupDecider,
    /// By loop.
    answers: Vec<Answers>,
    /// The loops with commits in the group.
    answered: Vec<usize>,
}

/// A batch of a loop.
#[derive(Debug)]
struct Gathered {
    from: usize,
    batch: WriteBatch,
    /// How many of its commits are decided.
    next: usize,
}

impl Gathered {
    /// Operations of the commits that are not decided.
    fn operations(&self) -> usize {
        match &self.batch.logged()[self.next..] {
            [] => 0,
            [first, .., last] => last.operations().end - first.operations().start,
            [only] => only.operations().len(),
        }
    }
}

impl GroupBuilder {
    /// Nothing is gathered.
    pub(super) fn new(store: &Store) -> GroupBuilder {
        GroupBuilder {
            gathered: VecDeque::new(),
            sizing: GroupSizing::default(),
            most_operations: usize::MAX,
            decider: GroupDecider::new(store),
            answers: Vec::new(),
            answered: Vec::new(),
        }
    }

    /// Takes over a batch of a loop. Loops are numbered from 0.
    pub(super) fn gather(&mut self, from: usize, batch: WriteBatch) {
        if from >= self.answers.len() {
            self.answers.resize_with(from + 1, Answers::default);
        }
        self.gathered.push_back(Gathered {
            from,
            batch,
            next: 0,
        });
    }

    /// Completes groups with so many operations, at least 1.
    pub(super) fn set_most_operations(&mut self, operations: usize) {
        self.most_operations = operations;
    }

    /// Refuses the commits of a loop that are not decided, and whose callers have left, by their
    /// tags.
    pub(super) fn abandon(&mut self, from: usize, mut tags: Vec<u64>) {
        if tags.is_empty() {
            return;
        }
        tags.sort_unstable();
        for gathered in self.gathered.iter_mut().filter(|one| one.from == from) {
            gathered.batch.abandon(gathered.next, &tags);
        }
    }

    /// Whether there are commits that are not decided.
    pub(super) fn has_gathered(&self) -> bool {
        !self.gathered.is_empty()
    }

    /// Drops commits that are not decided: nobody waits for them any more.
    pub(super) fn drop_gathered(&mut self) {
        self.gathered.clear();
    }

    // --- a group

    /// Begins a group. Nothing is written to the database that is frozen.
    pub(super) fn begin(&mut self, now_ns: u64, frozen: Option<DatabaseId>) {
        debug_assert!(self.decider.group().is_empty());
        let gathered = self.gathered.iter().map(Gathered::operations).sum();
        let most_operations = self.sizing.begin(gathered, now_ns);
        self.decider
            .begin(most_operations.min(self.most_operations), frozen);
    }

    /// Decides commits, in the order gathered, until the group is complete or nothing is left; or
    /// refuses all of them. Batches that are done go to `done`.
    pub(super) fn build(
        &mut self,
        now_ms: u64,
        refusal: Option<Refusal>,
        trees: &TreeWriters,
        done: &mut dyn FnMut(usize, WriteBatch),
    ) {
        self.decide_gathered(now_ms, refusal, trees, done);
        if self.decider.rests_for_nobody() {
            self.decide_gathered(now_ms, refusal, trees, done);
        }
    }

    fn decide_gathered(
        &mut self,
        now_ms: u64,
        refusal: Option<Refusal>,
        trees: &TreeWriters,
        done: &mut dyn FnMut(usize, WriteBatch),
    ) {
        // Those with commits that were passed over come back in front, in their order.
        let mut passed_over = Vec::new();
        while let Some(mut gathered) = self.gathered.pop_front() {
            let Gathered { from, batch, next } = &mut gathered;
            self.answered.push(*from);
            let answers = &mut self.answers[*from];
            let mut is_complete = false;
            if let Some(refusal) = refusal {
                refuse(batch, next, refusal, &mut answers.synced);
            } else {
                is_complete =
                    !(self.decider).decide_batch(*from, batch, next, now_ms, trees, answers);
            }
            self.decider.put_back(batch, next);
            if *next < batch.logged_len() {
                passed_over.push(gathered);
            } else {
                done(gathered.from, gathered.batch);
            }
            if is_complete {
                break;
            }
        }
        for gathered in passed_over.into_iter().rev() {
            self.gathered.push_front(gathered);
        }
    }

    /// Adds the record of a conversion, which completes the group.
    pub(super) fn add_conversion(&mut self, record: &Record<'_>) {
        self.decider.add_conversion(record);
    }

    /// Adds a group of a leader; returns whether another one may be added.
    pub(super) fn follow(
        &mut self,
        group: &FollowedGroup,
        gone: &BTreeSet<u64>,
        trees: &TreeWriters,
        effects: &mut FollowedEffects,
    ) -> Result<bool, FollowError> {
        self.decider.follow(group, gone, trees, effects)
    }

    /// Has the group synced, with a record that raises the last sequence in the log to `sequence`,
    /// if nothing else in it is as high.
    pub(super) fn add_mark(&mut self, sequence: u64, written_sequence: u64) {
        self.decider.add_mark(sequence, written_sequence);
    }

    /// Commits that grow a database are refused from now on; `None`: no more.
    pub(super) fn refuse_growth(&mut self, refusal: Option<Refusal>) {
        self.decider.refuse_growth(refusal);
    }

    /// The commits of the group.
    pub(super) fn group(&self) -> &PendingGroup {
        self.decider.group()
    }

    /// The records of the group.
    pub(super) fn records(&mut self) -> &mut GroupBuffer {
        self.decider.records()
    }

    /// Notes when the group was written, by the clock of the store.
    pub(super) fn set_written_ms(&mut self, now_ms: u64) {
        self.decider.set_written_ms(now_ms);
    }

    /// The databases in which the group has done something.
    pub(super) fn touched(&self) -> impl Iterator<Item = DatabaseId> {
        self.decider.touched_ids()
    }

    /// Within how many milliseconds the group must be synced although nobody waits for it.
    pub(super) fn interval_ms(&self) -> Option<u64> {
        let durabilities = (self.decider.touched()).map(|one| one.database.config.durability);
        let intervals = durabilities.filter_map(|durability| match durability {
            Durability::Interval { ms } => Some(ms),
            _ => None,
        });
        intervals.min()
    }

    /// Whether some of it must be synced before it is published.
    pub(super) fn needs_sync(&self) -> bool {
        self.decider.needs_sync()
    }

    /// It was synced.
    pub(super) fn was_synced(&mut self) {
        self.decider.was_synced();
    }

    /// Commits of the group waited so long for its sync.
    pub(super) fn waited_for_sync(&mut self, took_ns: u64) {
        self.sizing.synced(took_ns);
    }

    /// Refuses what the group has decided under some rules: it is over.
    pub(super) fn refuse(&mut self, applied: Refusal, other: Refusal, rules: &[PublishAfter]) {
        for answers in &mut self.answers {
            for &rule in rules {
                answers.of(rule).refuse_all(applied, other);
            }
        }
        // What was published already is over too.
        self.decider.reset();
    }

    /// Refuses what the group has decided and nobody was told yet. The group goes on.
    pub(super) fn refuse_decided(&mut self, applied: Refusal, other: Refusal) {
        for answers in &mut self.answers {
            answers.of(PublishAfter::Synced).refuse_all(applied, other);
        }
    }

    /// Refuses what is not decided, while a group is under way that does not end. Batches go to
    /// `done`.
    pub(super) fn refuse_gathered(
        &mut self,
        refusal: Refusal,
        done: &mut dyn FnMut(usize, WriteBatch),
    ) {
        while let Some(gathered) = self.gathered.pop_front() {
            let Gathered {
                from,
                batch,
                mut next,
            } = gathered;
            self.answered.push(from);
            refuse(&batch, &mut next, refusal, &mut self.answers[from].synced);
            done(from, batch);
        }
    }

    /// The group is published.
    pub(super) fn end(&mut self, now_ns: u64) {
        self.sizing.end(self.decider.operations(), now_ns);
        self.decider.reset();
    }

    /// Hands out the outcomes of the commits that follow a rule, by loop. `deliver` may exchange
    /// the list for an empty one. Returns whether there were some.
    pub(super) fn deliver(
        &mut self,
        rule: PublishAfter,
        deliver: &mut dyn FnMut(usize, &mut Outcomes),
    ) -> bool {
        let mut has_some = false;
        self.answered.sort_unstable();
        self.answered.dedup();
        for &from in &self.answered {
            let outcomes = self.answers[from].of(rule);
            if !outcomes.is_empty() {
                deliver(from, outcomes);
                outcomes.clear();
                has_some = true;
            }
        }
        if rule == PublishAfter::Synced {
            self.answered.clear();
        }
        has_some
    }
}

/// Refuses what is left of a batch.
fn refuse(batch: &WriteBatch, next: &mut usize, refusal: Refusal, outcomes: &mut Outcomes) {
    for commit in &batch.logged()[*next..] {
        outcomes.refuse(commit, refusal);
    }
    *next = batch.logged().len();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operation::{Condition, Expiry, Mode, Operation};
    use crate::outcome::Decision;
    use crate::store::StoreConfig;

    struct Fixture {
        store: Store,
        trees: TreeWriters,
        builder: GroupBuilder,
    }

    impl Fixture {
        fn new(durability: Durability) -> Fixture {
            let mut config = StoreConfig::new(1);
            config.default_database.durability = durability;
            let store = Store::new(config, true, None).expect("the configuration is well");
            Fixture {
                trees: TreeWriters::new(&store),
                builder: GroupBuilder::new(&store),
                store,
            }
        }

        /// Gathers a batch of a loop with a commit of one Put for each tag.
        fn gather(&mut self, from: usize, tags: impl Iterator<Item = u64>) {
            let mut batch = self.store.write_batch();
            for tag in tags {
                let mut commit = batch.begin(tag, DatabaseId::DEFAULT, Mode::Atomic);
                let put = Operation::Put {
                    key: &tag.to_be_bytes(),
                    value: b"value",
                    condition: Condition::None,
                    expiry: Expiry::None,
                    want_previous: false,
                };
                commit.push(&put).expect("it fits");
                commit.submit();
            }
            self.builder.gather(from, batch);
        }

        /// Decides a group; returns whose batches are done.
        fn decide(&mut self, refusal: Option<Refusal>, frozen: Option<DatabaseId>) -> Vec<usize> {
            let mut done = Vec::new();
            self.builder.begin(1, frozen);
            self.builder
                .build(1, refusal, &self.trees, &mut |from, _| done.push(from));
            done
        }

        /// Ends the group; returns the loop, tag and decision of each outcome under a rule.
        fn end(&mut self, rule: PublishAfter) -> Vec<(usize, u64, Decision)> {
            let mut told = Vec::new();
            self.builder.end(2);
            for each in PublishAfter::ALL {
                self.builder.deliver(each, &mut |from, outcomes| {
                    assert_eq!(each, rule);
                    told.extend(outcomes.iter().map(|one| (from, one.tag, one.decision)));
                });
            }
            told
        }
    }

    #[test]
    fn a_group_has_the_commits_of_all_loops_in_their_order() {
        let mut fixture = Fixture::new(Durability::Synced);
        for _ in 0..2 {
            fixture.gather(1, 10..12);
            fixture.gather(0, 20..21);
            assert_eq!(fixture.decide(None, None), [1, 0]);
            let builder = &mut fixture.builder;
            assert!(!builder.has_gathered() && builder.needs_sync());
            assert_eq!(builder.group().commits().len(), 3);
            assert!(!builder.records().is_empty());
            builder.was_synced();
            let applied = |from, tag| (from, tag, Decision::Applied);
            let expected = [applied(0, 20), applied(1, 10), applied(1, 11)];
            assert_eq!(fixture.end(PublishAfter::Synced), expected);
            assert!(fixture.builder.group().is_empty());
        }
    }

    /// Between a message and the log: once into the batch, and once into the records, which the
    /// index is then filled from.
    #[test]
    fn what_is_put_is_copied_once_behind_the_batch() {
        let mut fixture = Fixture::new(Durability::Synced);
        for _ in 0..2 {
            fixture.gather(0, 0..3);
            fixture.decide(None, None);
            let group = fixture.builder.group();
            let records = group.records().bytes().as_ptr_range();
            for place in 0..3 {
                let entry = group.entry(place).expect("it was put");
                assert_eq!(entry.value.bytes(), b"value");
                let value = entry.value.bytes().as_ptr_range();
                assert!(records.contains(&entry.key.as_ptr()));
                assert!(records.start <= value.start && value.end <= records.end);
            }
            fixture.builder.was_synced();
            fixture.end(PublishAfter::Synced);
            assert!(fixture.builder.records().is_empty());
        }
    }

    #[test]
    fn a_group_is_complete_with_its_operations_and_the_next_one_has_the_rest() {
        let mut fixture = Fixture::new(Durability::Written);
        fixture.builder.set_most_operations(2);
        fixture.gather(0, 0..5);
        for tags in [0..2, 2..4, 4..5] {
            let is_last = tags.end == 5;
            assert_eq!(fixture.decide(None, None).len(), usize::from(is_last));
            assert!(!fixture.builder.needs_sync());
            let told = fixture.end(PublishAfter::Written);
            let told: Vec<u64> = told.into_iter().map(|(_, tag, _)| tag).collect();
            assert_eq!(told, tags.collect::<Vec<_>>());
            assert_eq!(fixture.builder.has_gathered(), !is_last);
        }
    }

    #[test]
    fn commits_are_refused_whole_where_none_can_be_decided() {
        let mut fixture = Fixture::new(Durability::Synced);
        for refusal in [Refusal::LogFailed, Refusal::LogBehind] {
            fixture.gather(0, 0..2);
            assert_eq!(fixture.decide(Some(refusal), None), [0]);
            assert!(fixture.builder.group().is_empty());
            let refused = |tag| (0, tag, Decision::Refused(refusal));
            assert_eq!(fixture.end(PublishAfter::Synced), [refused(0), refused(1)]);
        }
    }

    #[test]
    fn a_group_that_was_not_written_leaves_refusals() {
        let mut fixture = Fixture::new(Durability::Synced);
        for _ in 0..2 {
            fixture.gather(0, 7..8);
            fixture.decide(None, None);
            let (applied, other) = (Refusal::OutcomeUnknown, Refusal::LogFailed);
            fixture.builder.refuse(applied, other, &PublishAfter::ALL);
            assert!(fixture.builder.group().is_empty() && !fixture.builder.needs_sync());
            assert!(fixture.builder.records().is_empty());
            let refused = Decision::Refused(Refusal::OutcomeUnknown);
            assert_eq!(fixture.end(PublishAfter::Synced), [(0, 7, refused)]);
        }
    }

    #[test]
    fn writes_to_a_frozen_database_and_those_of_callers_that_left_are_refused() {
        let mut fixture = Fixture::new(Durability::Synced);
        fixture.gather(0, 1..2);
        fixture.decide(None, Some(DatabaseId::DEFAULT));
        let refused = |tag, refusal| (0, tag, Decision::Refused(refusal));
        assert_eq!(
            fixture.end(PublishAfter::Written),
            [refused(1, Refusal::Converting)]
        );
        fixture.gather(0, 2..3);
        fixture.builder.abandon(1, vec![2]);
        fixture.builder.abandon(0, vec![9, 2]);
        fixture.decide(None, None);
        assert_eq!(
            fixture.end(PublishAfter::Written),
            [refused(2, Refusal::Abandoned)]
        );
    }

    #[test]
    fn the_interval_is_that_of_the_databases_in_the_group() {
        let mut fixture = Fixture::new(Durability::Interval { ms: 30 });
        assert_eq!(fixture.builder.interval_ms(), None);
        fixture.gather(0, 0..1);
        fixture.decide(None, None);
        assert_eq!(fixture.builder.interval_ms(), Some(30));
        assert!(!fixture.builder.needs_sync());
        fixture.end(PublishAfter::Written);
        assert_eq!(fixture.builder.interval_ms(), None);
    }
}
