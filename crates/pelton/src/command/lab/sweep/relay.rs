//! A relay that makes the conditions of a cell.

use lab::sweep::SweepParameter;
use net::Address;

use super::super::process;
use super::super::started::Started;
use crate::exit::Failure;

/// A relay that runs. It ends when this goes.
pub(super) struct SweepRelay {
    started: Option<Started>,
    address: Address,
}

impl SweepRelay {
    /// Starts one that leads to the target.
    pub(super) fn start(
        target: &Address,
        conditions: &[(SweepParameter, String)],
    ) -> Result<SweepRelay, Failure> {
        let failed = |why: &str| {
            Failure::Failed(format!("the relay that --over needs did not start: {why}"))
        };
        let program = std::env::current_exe().map_err(|error| failed(&error.to_string()))?;
        let mut command = process::relay(program, &target.to_string());
        for (parameter, value) in conditions {
            command.args([&format!("--{}", parameter.name()), value]);
        }
        let (started, address) = Started::listening(command).map_err(|why| failed(&why))?;
        let address = address.parse();
        let address = address.map_err(|_| failed("it does not say where it listens"))?;
        Ok(SweepRelay {
            started: Some(started),
            address,
        })
    }

    /// Where it listens.
    pub(super) fn address(&self) -> &Address {
        &self.address
    }
}

impl Drop for SweepRelay {
    fn drop(&mut self) {
        // Its report is of no use, and would take time from the next run.
        self.started.take().into_iter().for_each(Started::kill);
    }
}
