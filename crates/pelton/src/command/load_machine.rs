//! The machine on which a load is made, for the reports of the lab.

use std::net::ToSocketAddrs;
use std::thread;
use std::time::Duration;

use lab::machine::{CpuShares, CpuTimes, KernelFiles, LoadMachine, TargetPlace};
use net::Address;

/// How long it is looked at what others do on this machine, before a load begins: long enough for
/// a percentage.
const LOOK_BEFORE: Duration = Duration::from_millis(250);

/// Returns this machine, with the way to `target`, and with what others do on it now.
pub fn load_machine(target: &Address) -> LoadMachine {
    let before = CpuTimes::read(&KernelFiles);
    thread::sleep(LOOK_BEFORE);
    LoadMachine::read(&KernelFiles, &place_of(target), shares_since(before))
}

/// What all CPUs have done since then.
pub fn shares_since(before: Option<CpuTimes>) -> Option<CpuShares> {
    CpuTimes::read(&KernelFiles)?.since(&before?)
}

fn place_of(target: &Address) -> TargetPlace {
    match target {
        Address::Unix(_) => TargetPlace::Unix,
        Address::Tcp { host, port } => {
            let found = (host.as_str(), *port).to_socket_addrs();
            let first = found.ok().and_then(|mut found| found.next());
            first.map_or(TargetPlace::Unknown, |found| TargetPlace::Ip(found.ip()))
        }
    }
}
