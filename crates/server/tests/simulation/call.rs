//! One call of a client: what comes for it, and how it ends.

use wire::StreamKey;
use wire::grpc::{Code, Status};

use super::history::{Answer, Asked, Outcome};
use super::messages::{self, Piped};
use super::world::{Begun, World};

/// One call under way.
pub struct Call {
    pub stream: StreamKey,
    begun: Begun,
    answers: Vec<Vec<u8>>,
    /// Batches of a Pipe that are done.
    done: usize,
    /// Of the last batch of a Pipe that was answered.
    sequence: u64,
    /// How many messages came.
    pub received: usize,
    /// It is to be cancelled after so many.
    pub leave_after: usize,
    /// No answer can come before: its deadline is shorter than the delay that it asks for.
    pub must_expire: bool,
}

impl Call {
    pub fn new(stream: StreamKey, begun: Begun) -> Call {
        Call {
            stream,
            begun,
            answers: Vec::new(),
            done: 0,
            sequence: 0,
            received: 0,
            leave_after: usize::MAX,
            must_expire: false,
        }
    }

    /// What was asked; of a Pipe, first.
    pub fn asked<'w>(&self, world: &'w World) -> &'w Asked {
        let by = match &self.begun {
            Begun::One(by) => *by,
            Begun::Pipe { batches, .. } => batches[0],
        };
        &world.history[by as usize].asked
    }

    /// Whether it may change something.
    pub fn is_commit(&self, world: &World) -> bool {
        matches!(self.begun, Begun::Pipe { .. }) || self.asked(world).is_commit()
    }

    /// A message came.
    pub fn receive(&mut self, world: &mut World, message: Vec<u8>) {
        self.received += 1;
        match self.begun {
            Begun::One(_) => self.answers.push(message),
            Begun::Pipe { .. } => self.receive_piped(world, &messages::piped(&message)),
        }
    }

    fn receive_piped(&mut self, world: &mut World, answer: &Piped<'_>) {
        let Begun::Pipe { batches, quiet } = &self.begun else {
            unreachable!("only Pipes have such answers");
        };
        let upto = answer.done as usize;
        let acknowledged = upto - usize::from(answer.last.is_some());
        assert!(
            (self.done..=batches.len()).contains(&acknowledged) && upto <= batches.len(),
            "{upto} of {} batches are done, and {} were before",
            batches.len(),
            self.done
        );
        for by in &batches[self.done..acknowledged] {
            assert!(*quiet, "each is answered, and batch {by} was not");
            world.end(*by, Outcome::Acknowledged);
        }
        if let Some(last) = answer.last {
            let by = batches[acknowledged];
            let outcome = match last {
                Ok(response) => {
                    let record = &world.history[by as usize];
                    let (asked, life, db) = (record.asked.clone(), record.life, record.database);
                    let logs = world.logs_of(life, db);
                    let answer = messages::decode_piped(&asked, &response, logs);
                    let is_failure = matches!(answer, Answer::Failed { .. });
                    assert!(!quiet || is_failure, "only failures are to be told");
                    if let Answer::Batch { sequence, .. } = answer {
                        assert!(sequence > self.sequence, "batches take effect as sent");
                        self.sequence = sequence;
                    }
                    Outcome::Answered(answer)
                }
                Err(code) => refusal(world, by, code, true),
            };
            world.end(by, outcome);
        }
        self.done = upto;
    }

    /// The call has ended with a status.
    pub fn finish(self, world: &mut World, status: &Status) {
        let code = status.code();
        let by = match &self.begun {
            Begun::One(by) => *by,
            Begun::Pipe { batches, .. } => {
                assert!(
                    code != Code::Ok || self.done == batches.len(),
                    "a Pipe ended well, and {} of {} batches were done",
                    self.done,
                    batches.len()
                );
                let Some(by) = batches.get(self.done) else {
                    return;
                };
                *by
            }
        };
        if self.has_been_told(world) {
            // It never ends by itself.
            return self.end(world, &Outcome::Unknown);
        }
        if code != Code::Ok {
            let is_piped = matches!(self.begun, Begun::Pipe { .. });
            let mut outcome = refusal(world, by, code as u32, is_piped);
            // Its database was dropped, or all that runs was ended: what it had asked for may be
            // done.
            if self.received > 0 && is_piped {
                outcome = Outcome::Unknown;
            }
            if is_piped && matches!(outcome, Outcome::NoDatabase) {
                outcome = Outcome::Unknown;
            }
            return self.end(world, &outcome);
        }
        let record = &world.history[by as usize];
        let (asked, life, db) = (record.asked.clone(), record.life, record.database);
        assert!(
            !self.must_expire,
            "{asked:?} was answered after its deadline"
        );
        if matches!(asked, Asked::Check) && (world.is_holding || life < world.life) {
            // While it stops, the server says so.
            return world.end(by, Outcome::Answered(Answer::Other));
        }
        let logs = world.logs_of(life, db);
        let answer = messages::decode(&asked, by, &self.answers, logs);
        world.end(by, Outcome::Answered(answer));
    }

    /// Whether it watches, and a message has come.
    fn has_been_told(&self, world: &World) -> bool {
        matches!(self.asked(world), Asked::Changes { .. }) && !self.answers.is_empty()
    }

    /// All of it that has not ended, ends so. What a watcher was told before counts, however it
    /// ends.
    pub fn end(self, world: &mut World, outcome: &Outcome) {
        if let (Begun::One(by), true) = (&self.begun, self.has_been_told(world)) {
            let record = &world.history[*by as usize];
            let logs = world.logs_of(record.life, record.database);
            let answer = messages::changes(&self.answers, logs);
            return world.end(*by, Outcome::Answered(answer));
        }
        match &self.begun {
            Begun::One(by) => world.end(*by, outcome.clone()),
            Begun::Pipe { batches, .. } => {
                for by in &batches[self.done..] {
                    world.end(*by, outcome.clone());
                }
            }
        }
    }
}

/// What a status says of a call; it must be one that the call can have.
fn refusal(world: &mut World, by: u64, code: u32, is_piped: bool) -> Outcome {
    let record = &world.history[by as usize];
    let asked = &record.asked;
    let is_commit = asked.is_commit() || is_piped;
    let has_failed = world.trouble.failed.contains(&record.life);
    let is = |wanted: Code| code == wanted as u32;
    if is(Code::Unavailable) || is(Code::Unimplemented) && matches!(asked, Asked::Nowhere) {
        return Outcome::Refused;
    }
    if is(Code::DeadlineExceeded) {
        world.counts.deadlines += 1;
        return Outcome::Unknown;
    }
    if is(Code::NotFound) && asked.is_about_keys() {
        return Outcome::NoDatabase;
    }
    if matches!(asked, Asked::Changes { behind: Some(_) }) && is(Code::OutOfRange) {
        world.counts.refused_points += 1;
        return Outcome::Refused;
    }
    if is(Code::ResourceExhausted) && is_commit && world.may_be_full(record) {
        world.counts.refused_full += 1;
        return Outcome::Refused;
    }
    if is(Code::FailedPrecondition) && is_commit && has_failed {
        world.counts.refused_failed += 1;
        return Outcome::Refused;
    }
    if is(Code::Unknown) && is_commit && has_failed {
        return Outcome::Unknown;
    }
    panic!("{record:?} ended with status {code}; {:?}", world.trouble);
}
