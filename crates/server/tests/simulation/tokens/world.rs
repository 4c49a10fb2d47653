//! What all clients share: what there is to do, and what was heard.

use net::sim::Random;

use super::calls::Asked;
use super::model::{Model, NameState};

/// Names of each client that administrates.
pub const NAMES_OF_EACH: usize = 3;
/// Clients that administrate: the first ones.
pub const ADMINS: usize = 2;
/// Clients that keep Pipes open: the last ones.
pub const PIPERS: usize = 2;
/// All of them.
pub const CLIENTS: usize = 8;

/// How often what happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub lives: u64,
    pub created: u64,
    pub revoked: u64,
    pub rotated: u64,
    pub listed: u64,
    pub good: u64,
    pub refused: u64,
    pub denied: u64,
    pub piped: u64,
    pub pipes_ended: u64,
    pub lost: u64,
    pub trouble: u64,
}

impl Counts {
    fn each(&mut self) -> [&mut u64; 12] {
        [
            &mut self.lives,
            &mut self.created,
            &mut self.revoked,
            &mut self.rotated,
            &mut self.listed,
            &mut self.good,
            &mut self.refused,
            &mut self.denied,
            &mut self.piped,
            &mut self.pipes_ended,
            &mut self.lost,
            &mut self.trouble,
        ]
    }

    pub fn all(mut self) -> [u64; 12] {
        self.each().map(|count| *count)
    }

    pub fn add(&mut self, other: &Counts) {
        for (count, more) in self.each().into_iter().zip(other.all()) {
            *count += more;
        }
    }
}

pub struct World {
    pub random: Random,
    pub model: Model,
    pub counts: Counts,
    /// The life of the server in which the answer to a change of each name was lost the last time,
    /// or was that nobody knows what became of it. The change may still be on its way there and
    /// take effect after others, or with the next start.
    lost_in: Vec<Option<u64>>,
    /// In which life of the server the answer was asked for that has just come.
    pub answer_life: u64,
    /// The right of each name.
    pub rights: Vec<&'static str>,
    /// Calls still to begin.
    pub left: u64,
    pub ended: u64,
    pub open: usize,
    /// The server stops: nothing new begins.
    pub is_holding: bool,
}

impl World {
    pub fn new(seed: u64, calls: u64) -> World {
        let names = ADMINS * NAMES_OF_EACH;
        World {
            random: Random::new(seed),
            model: Model::new(names),
            counts: Counts::default(),
            lost_in: vec![None; names],
            answer_life: 0,
            rights: vec!["write"; names],
            left: calls,
            ended: 0,
            open: 0,
            is_holding: false,
        }
    }

    pub fn is_idle(&self) -> bool {
        self.open == 0 && self.left == 0
    }

    pub fn state(&self, name: usize) -> NameState {
        self.model.names[name].clone()
    }

    /// Whether a change of a name may be on its way whose answer nobody waits for any more.
    pub fn is_loose(&self, name: usize) -> bool {
        self.lost_in[name] >= Some(self.answer_life)
    }

    /// An answer says that a name has these tokens, or is not there.
    pub fn learn(&mut self, name: usize, tokens: Option<Vec<usize>>) {
        let state = match tokens {
            tokens if self.is_loose(name) => NameState::Unsure(tokens.unwrap_or_default()),
            None => NameState::Absent,
            Some(tokens) => NameState::Present(tokens),
        };
        self.model.names[name] = state;
    }

    /// Nobody knows what became of a change of a name.
    pub fn lose(&mut self, name: usize) {
        self.lost_in[name] = Some(self.counts.lives);
        let tokens = self.state(name).tokens().to_vec();
        self.model.names[name] = NameState::Unsure(tokens);
    }

    /// The next call of a client; `None`: there is no token to call with.
    pub fn choose(&mut self, client: usize) -> Option<Asked> {
        match client {
            0..ADMINS => Some(self.administrate(client)),
            _ if client >= CLIENTS - PIPERS => self.pipe(),
            _ => self.call(),
        }
    }

    fn administrate(&mut self, client: usize) -> Asked {
        let names = client * NAMES_OF_EACH..(client + 1) * NAMES_OF_EACH;
        let name = names.start + self.random.below(NAMES_OF_EACH as u64) as usize;
        match (self.state(name), self.random.below(12)) {
            (_, 0) => Asked::List { names },
            (NameState::Absent, 1..) | (_, 1) => {
                let right = ["read", "write", "write"][self.random.below(3) as usize];
                if self.state(name) == NameState::Absent {
                    self.rights[name] = right;
                }
                let expires_after_ms = match self.random.below(3) {
                    0 => 5 + self.random.below(300),
                    _ => 0,
                };
                let right = self.rights[name];
                Asked::Create {
                    name,
                    right,
                    expires_after_ms,
                }
            }
            (_, 2..6) => Asked::Rotate {
                name,
                keep_for_ms: [0, 10, 100][self.random.below(3) as usize],
            },
            _ => Asked::Revoke { name },
        }
    }

    /// One of the last tokens: good ones, and some that are good no longer.
    fn token(&mut self) -> Option<usize> {
        let count = self.model.tokens.len();
        let among = count.min(10);
        (among > 0).then(|| count - 1 - self.random.below(among as u64) as usize)
    }

    fn call(&mut self) -> Option<Asked> {
        let token = self.token()?;
        Some(match self.random.below(3) {
            0 => Asked::Get {
                token,
                span: self.model.begin(),
            },
            _ => Asked::Write {
                token,
                write: self.model.begin_write(token),
            },
        })
    }

    fn pipe(&mut self) -> Option<Asked> {
        let token = self
            .token()
            .filter(|&token| self.model.tokens[token].can_write)?;
        let span = self.model.begin();
        let sent = vec![self.model.begin_write(token)];
        Some(Asked::Pipe {
            token,
            span,
            sent,
            done: 0,
        })
    }
}
