//! Which CPUs this process may use.

use rustix::thread::CpuSet;

use crate::arguments::CpuList;

/// A CPU that this process may not use.
#[derive(Debug, thiserror::Error)]
#[error("CPU {cpu}, which is not possible: this process may use {usable}")]
pub struct NotUsable {
    cpu: usize,
    usable: CpuList,
}

/// Checks that this process may use all of these CPUs. Where the system does not say, the threads
/// will.
///
/// # Errors
/// If it may not use one of them.
pub fn check(wanted: &CpuList) -> Result<(), NotUsable> {
    let Ok(usable) = rustix::thread::sched_getaffinity(None) else {
        return Ok(());
    };
    let is_usable = |cpu: usize| cpu < CpuSet::MAX_CPU && usable.is_set(cpu);
    let Some(cpu) = wanted.0.iter().copied().find(|&cpu| !is_usable(cpu)) else {
        return Ok(());
    };
    let usable = CpuList((0..CpuSet::MAX_CPU).filter(|&cpu| is_usable(cpu)).collect());
    Err(NotUsable { cpu, usable })
}

/// Returns the last of the CPUs that this process may use, which has the least of the machine's own
/// work; `None`: the system does not say.
pub fn last_usable() -> Option<usize> {
    let usable = rustix::thread::sched_getaffinity(None).ok()?;
    (0..CpuSet::MAX_CPU).rev().find(|&cpu| usable.is_set(cpu))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cpu_that_is_not_there_is_named_with_those_that_are() {
        let wrong = check(&CpuList(vec![CpuSet::MAX_CPU + 1])).expect_err("no machine has it");
        let message = wrong.to_string();
        assert!(message.contains("this process may use "), "{message}");
        assert!(!wrong.usable.0.is_empty());
        assert_eq!(last_usable(), wrong.usable.0.last().copied());
        for _ in 0..2 {
            check(&wrong.usable).expect("they may be used");
        }
    }
}
