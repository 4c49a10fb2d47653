//! What a scenario starts.

use std::time::Duration;

use super::measurements::MeasuredRun;
use crate::sweep::order;

/// How much is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScenarioScale {
    /// So little that it shows no more than that everything works.
    Quick,
    /// Everything within three minutes.
    Short,
    /// As long, and as much, as in the publication.
    Full,
}

impl ScenarioScale {
    /// Returns the value for this scale, of those for all three.
    pub(super) fn of<T>(self, [quick, short, full]: [T; 3]) -> T {
        match self {
            ScenarioScale::Quick => quick,
            ScenarioScale::Short => short,
            ScenarioScale::Full => full,
        }
    }
}

/// Servers, and runs of clients against them.
#[derive(Clone, Debug)]
pub struct ScenarioPlan {
    /// The servers; each run has one of its own.
    pub servers: Vec<PlannedServer>,
    /// The runs, in the order of the table. Each round makes all of them, in an order of its own.
    pub runs: Vec<PlannedRun>,
    /// How often each run is made.
    pub rounds: usize,
}

impl ScenarioPlan {
    /// How long it takes, without starts and stops.
    pub fn duration(&self) -> Duration {
        let round: Duration = self.runs.iter().map(|run| run.duration).sum();
        round * u32::try_from(self.rounds).unwrap_or(u32::MAX)
    }

    /// The runs of all rounds in the order in which they are to be made: each round has all of
    /// them, in an order of its own, so that a machine that changes its pace changes that of no
    /// kind of run alone.
    pub fn in_random_order(&self, seed: u64) -> Vec<&PlannedRun> {
        let order = order(self.runs.len(), self.rounds, seed);
        order
            .into_iter()
            .filter_map(|(run, _)| self.runs.get(run))
            .collect()
    }

    /// Finds a server by its name.
    pub fn server(&self, name: &str) -> Option<&PlannedServer> {
        self.servers.iter().find(|server| server.name == name)
    }
}

/// A Pelton server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedServer {
    /// By which runs name it.
    pub name: &'static str,
    /// Arguments of `pelton serve`, but for the address. `{folder}` becomes a folder that is
    /// removed at the end, the same for all runs.
    pub arguments: Vec<String>,
}

/// A client that is run once in each round.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedRun {
    /// By which claims name it; the first column of the table.
    pub name: String,
    /// Against which server.
    pub server: &'static str,
    /// Arguments of `pelton lab tap` between the two, if there is to be one.
    pub relay: Option<Vec<String>>,
    /// Who calls.
    pub client: PlannedClient,
    /// The CPU that the client is bound to, if it is.
    pub client_cpu: Option<usize>,
    /// How long it takes.
    pub duration: Duration,
    /// What the publication has for it, if anything.
    pub published: Option<&'static str>,
    /// What the publication counts.
    pub counted: PublishedCount,
}

/// What a publication counts in a second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PublishedCount {
    /// Calls, as our table does.
    Calls,
    /// The messages of streams.
    Messages,
    /// Records, of which each call carries so many.
    Records(u32),
}

impl PublishedCount {
    /// The same of a run of ours; `None` where the client told none.
    pub fn per_s(self, run: &MeasuredRun) -> Option<f64> {
        match self {
            Self::Calls => run.calls_per_s(),
            Self::Messages => run.figure("messages_received_per_s"),
            Self::Records(records) => run.calls_per_s().map(|calls| calls * f64::from(records)),
        }
    }
}

/// Who calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PlannedClient {
    /// `pelton load`, with these arguments; the address and the format are added. `{folder}`
    /// becomes the folder of the server, `{server_pid}` its process.
    Pelton(Vec<String>),
    /// A client that is built on gRPC's C core, with these arguments (those of the clients in
    /// `peers/`); the address is added.
    Grpc(Vec<String>),
    /// grpcio, with the same arguments, also where another client was named for the others.
    Grpcio(Vec<String>),
    /// `pelton_grpc`, the channel for Python with the client of Pelton, with the same arguments.
    PeltonGrpc(Vec<String>),
}

/// Words of a command line.
pub(super) fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::Scenario;

    #[test]
    fn each_round_makes_every_run_once_in_an_order_of_its_own() {
        let plan = ScenarioPlan {
            rounds: 3,
            ..Scenario::InFlight.plan(ScenarioScale::Short)
        };
        let names = |seed| -> Vec<&str> {
            let order = plan.in_random_order(seed);
            order.into_iter().map(|run| run.name.as_str()).collect()
        };
        let all = names(7);
        assert_eq!(all, names(7), "the same seed draws the same");
        assert_ne!(all, names(8));
        let rounds: Vec<&[&str]> = all.chunks(plan.runs.len()).collect();
        assert_eq!(rounds.len(), 3);
        assert!(rounds[0] != rounds[1] || rounds[1] != rounds[2]);
        for round in rounds {
            for run in &plan.runs {
                assert!(round.contains(&run.name.as_str()), "{}", run.name);
            }
        }
    }

    #[test]
    fn every_run_has_its_server_and_a_name_of_its_own() {
        for scenario in Scenario::ALL {
            for scale in [
                ScenarioScale::Quick,
                ScenarioScale::Short,
                ScenarioScale::Full,
            ] {
                let plan = scenario.plan(scale);
                for run in &plan.runs {
                    assert!(plan.server(run.server).is_some(), "{}", run.server);
                    let same = plan.runs.iter().filter(|other| other.name == run.name);
                    assert_eq!(same.count(), 1, "{}", run.name);
                }
            }
        }
    }
}
