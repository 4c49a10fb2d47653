//! What all clients share: what there is to do, and what was heard.

use net::sim::SplitMix;

use super::bindings;
use super::calls::Asked;
use super::model::{Model, NameState};
use super::roles::{Right, RoleState};

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
    pub roles_set: u64,
    pub roles_dropped: u64,
    pub roles_in_use: u64,
    pub role_written: u64,
    pub role_denied: u64,
    pub bound: u64,
    pub unbound: u64,
    pub bound_written: u64,
    pub bound_denied: u64,
}

impl Counts {
    fn each(&mut self) -> [&mut u64; 21] {
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
            &mut self.roles_set,
            &mut self.roles_dropped,
            &mut self.roles_in_use,
            &mut self.role_written,
            &mut self.role_denied,
            &mut self.bound,
            &mut self.unbound,
            &mut self.bound_written,
            &mut self.bound_denied,
        ]
    }

    pub fn all(mut self) -> [u64; 21] {
        self.each().map(|count| *count)
    }

    pub fn add(&mut self, other: &Counts) {
        for (count, more) in self.each().into_iter().zip(other.all()) {
            *count += more;
        }
    }
}

pub struct World {
    pub random: SplitMix,
    pub model: Model,
    pub counts: Counts,
    /// The life of the server in which the answer to a change of each name was lost the last time,
    /// or was that nobody knows what became of it. The change may still be on its way there and
    /// take effect after others, or with the next start.
    lost_in: Vec<Option<u64>>,
    /// The same of each role.
    roles_lost_in: Vec<Option<u64>>,
    /// In which life of the server the answer was asked for that has just come.
    pub answer_life: u64,
    /// The right of each name.
    pub rights: Vec<Right>,
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
            random: SplitMix::new(seed),
            // Those of roles, and behind them those of bindings.
            model: Model::new(names, 2 * ADMINS),
            counts: Counts::default(),
            lost_in: vec![None; names],
            roles_lost_in: vec![None; 2 * ADMINS],
            answer_life: 0,
            rights: vec![Right::Write; names],
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

    /// Whether a change of a role may be on its way whose answer nobody waits for any more.
    pub fn is_loose_role(&self, role: usize) -> bool {
        self.roles_lost_in[role] >= Some(self.answer_life)
    }

    /// Nobody knows what became of a change of a role.
    pub fn lose_role(&mut self, role: usize) {
        self.roles_lost_in[role] = Some(self.counts.lives);
    }

    /// The next call of a client; `None`: there is no token to call with.
    pub fn choose(&mut self, client: usize) -> Option<Asked> {
        match client {
            0..ADMINS => Some(self.administrate(client)),
            _ if client >= CLIENTS - PIPERS => self.pipe(),
            _ if self.random.below(4) == 0 => self.call_as(client),
            _ => self.call(),
        }
    }

    fn administrate(&mut self, client: usize) -> Asked {
        let names = client * NAMES_OF_EACH..(client + 1) * NAMES_OF_EACH;
        let name = names.start + self.random.below(NAMES_OF_EACH as u64) as usize;
        // Each has a role of its own as well.
        let role = client;
        match (self.state(name), self.random.below(20)) {
            (_, 16..18) => Asked::Bind {
                user: client,
                to: [RoleState::Read, RoleState::Write][self.random.below(2) as usize],
            },
            (_, 18..) => Asked::Bind {
                user: client,
                to: RoleState::Absent,
            },
            (_, 0) => Asked::List { names },
            (_, 12..15) => Asked::SetRole {
                role,
                to: [RoleState::Read, RoleState::Write][self.random.below(2) as usize],
            },
            (_, 15) => Asked::SetRole {
                role,
                to: RoleState::Absent,
            },
            (NameState::Absent, 1..) | (_, 1) => {
                let is_there = self.model.roles[role].is_surely_there();
                if self.state(name) == NameState::Absent {
                    self.rights[name] = match self.random.below(5) {
                        0 => Right::Read,
                        1..3 if is_there => Right::Role(role),
                        _ => Right::Write,
                    };
                } else if self.rights[name] == Right::Role(role) && !is_there {
                    return Asked::Revoke { name };
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

    fn call_as(&mut self, client: usize) -> Option<Asked> {
        let user = bindings::user_of(client)?;
        let span = self.model.begin();
        Some(Asked::WriteAs { user, span })
    }

    fn pipe(&mut self) -> Option<Asked> {
        let token = self
            .token()
            .filter(|&token| self.model.tokens[token].right == Right::Write)?;
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
