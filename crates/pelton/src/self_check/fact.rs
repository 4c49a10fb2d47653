//! One fact about the machine, and what follows from it.

use serde_json::Value;

/// How good a fact is for a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Judgement {
    /// Nothing to do.
    Ok,
    /// A server runs, and an operator should know this.
    Note,
    /// A server does not start with it, or does not keep what it promises.
    Problem,
}

impl Judgement {
    /// Returns the word that is printed.
    pub fn word(self) -> &'static str {
        match self {
            Judgement::Ok => "ok",
            Judgement::Note => "note",
            Judgement::Problem => "problem",
        }
    }
}

/// What was found out about one part of the machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MachineFact {
    /// Its name, the same for each machine.
    pub name: &'static str,
    /// What the machine gives.
    pub value: String,
    /// Whether that is good.
    pub judgement: Judgement,
    /// What to do; empty: nothing.
    pub advice: String,
    /// The numbers in the value, by their names, for programs; null: not known, or no limit.
    pub numbers: Vec<(&'static str, Value)>,
}

impl MachineFact {
    /// A fact with which all is well.
    pub fn ok(name: &'static str, value: impl Into<String>) -> MachineFact {
        MachineFact {
            name,
            value: value.into(),
            judgement: Judgement::Ok,
            advice: String::new(),
            numbers: Vec::new(),
        }
    }

    /// The same fact, with the numbers that its value has.
    pub fn with_numbers<const COUNT: usize>(
        self,
        numbers: [(&'static str, Value); COUNT],
    ) -> MachineFact {
        MachineFact {
            numbers: numbers.into(),
            ..self
        }
    }

    /// The same fact, which an operator should know.
    pub fn note(self, advice: impl Into<String>) -> MachineFact {
        self.judged(Judgement::Note, advice)
    }

    /// The same fact, with which a server does not do what it should.
    pub fn problem(self, advice: impl Into<String>) -> MachineFact {
        self.judged(Judgement::Problem, advice)
    }

    /// A fact that the system does not tell.
    pub fn unknown(name: &'static str) -> MachineFact {
        MachineFact::ok(name, "unknown").note("the system does not say it; nothing depends on it")
    }

    fn judged(mut self, judgement: Judgement, advice: impl Into<String>) -> MachineFact {
        self.judgement = judgement;
        self.advice = advice.into();
        self
    }
}
