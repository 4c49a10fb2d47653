//! The limits of this process.

use std::path::Path;

use serde_json::Value;
use store::descriptors::DescriptorPlan;

use super::fact::MachineFact;
use crate::limits::CHECK_MEMORY_BYTES;
use crate::memory::{self, MemoryBound};
use crate::size::Size;

/// Addresses of a server as it is by default, with metrics.
const LISTENERS: usize = 2;

/// Returns what the process may have open. `limits` is the text of `/proc/self/limits`.
pub(super) fn descriptors(limits: &str, threads: usize, max_connections: usize) -> MachineFact {
    const NAME: &str = "descriptors";
    let Some((soft, hard)) = limit(limits, "Max open files") else {
        return MachineFact::unknown(NAME);
    };
    let least = DescriptorPlan::least(threads, LISTENERS);
    let hard_count = usize::try_from(hard).unwrap_or(usize::MAX);
    let connections = DescriptorPlan::with_limit(hard_count).connections;
    let fact = MachineFact::ok(
        NAME,
        format!(
            "{} soft, {} hard, to which `pelton serve` raises it; it needs {least} at least, with \
             --threads {threads} and {LISTENERS} addresses, that of metrics included",
            shown(soft),
            shown(hard)
        ),
    )
    .with_numbers([
        ("soft_limit", number(soft)),
        ("hard_limit", number(hard)),
        ("needed", least.into()),
        ("connections", connections.min(max_connections).into()),
    ]);
    let raise = "raise the hard limit (`ulimit -Hn`, LimitNOFILE= of systemd)";
    if hard_count < least {
        return fact.problem(raise);
    }
    if connections < max_connections {
        return fact.note(format!(
            "it takes {connections} connections and not {max_connections}; {raise}, or lower \
             --max-connections"
        ));
    }
    fact
}

/// Returns what bounds the memory of this process.
pub(super) fn memory(root: &Path) -> MachineFact {
    let bounds = memory::bounds(root);
    let fact = memory_of(&bounds, memory::allowed_bytes(root));
    match memory::check_resource_limits(root) {
        Ok(()) => fact,
        Err(why) => fact.problem(why),
    }
}

fn memory_of(
    bounds: &[(Option<u64>, MemoryBound)],
    allowed: Option<(u64, MemoryBound)>,
) -> MachineFact {
    const NAME: &str = "memory";
    let Some((allowed, binding)) = allowed else {
        return MachineFact::unknown(NAME)
            .note("the system does not say it; give --memory-limit to `pelton serve`");
    };
    let machine = bounds
        .iter()
        .find(|(_, bound)| *bound == MemoryBound::Machine)
        .and_then(|(bytes, _)| *bytes)
        .unwrap_or(u64::MAX);
    let told = bounds.iter().filter_map(|(bytes, bound)| {
        let name = match bound {
            MemoryBound::Machine => "machine",
            MemoryBound::ControlGroup => "control group",
            MemoryBound::ResourceLimit => "address space and data",
        };
        let shown = match bytes {
            None => "no limit".into(),
            // The first version of control groups says "no limit" by a number.
            Some(bytes) if *bytes > machine => "no limit".into(),
            Some(bytes) => Size::rounded(*bytes),
        };
        // What does not bound need not be known of the machine.
        (*bound != MemoryBound::Machine || bytes.is_some()).then(|| format!("{name} {shown}"))
    });
    let told: Vec<_> = told.collect();
    let of = |wanted: MemoryBound| {
        let found = bounds.iter().find(|(_, bound)| *bound == wanted);
        let bytes = found.and_then(|(bytes, _)| *bytes);
        bytes.filter(|bytes| *bytes <= machine).into()
    };
    let fact = MachineFact::ok(NAME, told.join(", ")).with_numbers([
        ("machine_bytes", of(MemoryBound::Machine)),
        ("control_group_bytes", of(MemoryBound::ControlGroup)),
        ("resource_limit_bytes", of(MemoryBound::ResourceLimit)),
        ("allowed_bytes", allowed.into()),
    ]);
    if allowed < CHECK_MEMORY_BYTES {
        return fact.note(format!(
            "{} leave little room for data: {binding}; set MIMALLOC_PURGE_DELAY=0, or give more",
            Size::rounded(allowed)
        ));
    }
    fact
}

/// Returns how large a file may become that the process writes. `limits` is the text of
/// `/proc/self/limits`.
pub(super) fn file_size(limits: &str, segment_bytes: u64) -> MachineFact {
    const NAME: &str = "file size";
    let Some((soft, _)) = limit(limits, "Max file size") else {
        return MachineFact::unknown(NAME);
    };
    let value = match soft {
        u64::MAX => "no limit".into(),
        bytes => format!("at most {bytes} bytes"),
    };
    let fact = MachineFact::ok(NAME, value).with_numbers([("limit_bytes", number(soft))]);
    let raise = "raise the limit (`ulimit -f`, LimitFSIZE= of systemd)";
    if soft < segment_bytes {
        return fact.problem(format!(
            "a file of the log has {}, so that a server does not start; {raise}, or lower \
             --log-segment",
            Size::rounded(segment_bytes)
        ));
    }
    match soft {
        u64::MAX => fact,
        _ => fact.note(format!(
            "larger blobs, snapshots, backups and tables of databases on disk fail; {raise}"
        )),
    }
}

/// Returns whether a crash writes the memory of the process into a file. `limits` is the text of
/// `/proc/self/limits`, `pattern` that of `/proc/sys/kernel/core_pattern`.
pub(super) fn core_dumps(limits: &str, pattern: &str) -> MachineFact {
    const NAME: &str = "core dumps";
    let Some((soft, _)) = limit(limits, "Max core file size") else {
        return MachineFact::unknown(NAME);
    };
    let pattern: String = pattern.trim().chars().filter(|c| !c.is_control()).collect();
    let is_piped = pattern.starts_with('|');
    let advice = "a crash writes keys and values there; LimitCORE=0 of systemd, or `ulimit -c 0`, \
                  keeps them out";
    match (soft, is_piped) {
        // A program takes them whatever the limit is, but for 0 and 1 (core(5)).
        (0, false) => MachineFact::ok(NAME, "off"),
        (_, true) => MachineFact::ok(NAME, format!("to a program, {pattern}")).note(advice),
        (_, false) => MachineFact::ok(NAME, format!("to a file, {pattern}")).note(advice),
    }
}

fn shown(limit: u64) -> String {
    match limit {
        u64::MAX => "unlimited".into(),
        limit => limit.to_string(),
    }
}

/// Returns a limit for programs; null: there is none.
fn number(limit: u64) -> Value {
    (limit != u64::MAX).then_some(limit).into()
}

/// Returns the soft and the hard limit of a line of `/proc/self/limits`; the largest number:
/// unlimited.
fn limit(limits: &str, name: &str) -> Option<(u64, u64)> {
    let line = limits.lines().find_map(|line| line.strip_prefix(name))?;
    let mut words = line.split_whitespace();
    let mut next = || match words.next()? {
        "unlimited" => Some(u64::MAX),
        number => number.parse().ok(),
    };
    Some((next()?, next()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::self_check::Judgement;

    fn limits(core: &str, files: &str) -> String {
        format!(
            "Limit                     Soft Limit           Hard Limit           Units     \n\
             Max core file size        {core}                    unlimited            bytes     \n\
             Max open files            {files}              files     \n"
        )
    }

    #[test]
    fn descriptors_are_judged_by_the_hard_limit() {
        let judged = |files: &str| descriptors(&limits("0", files), 2, 1_000).judgement;
        assert_eq!(judged("1024 1048576"), Judgement::Ok);
        assert_eq!(judged("1024 unlimited"), Judgement::Ok);
        assert_eq!(judged("1024 1024"), Judgement::Note);
        assert_eq!(judged("42 42"), Judgement::Note);
        assert_eq!(judged("41 41"), Judgement::Problem);
        assert_eq!(judged("many few"), Judgement::Note);
        let fact = descriptors(&limits("0", "256 512"), 2, 1_000);
        assert!(fact.value.starts_with("256 soft, 512 hard"), "{fact:?}");
        let needed = "needs 42 at least, with --threads 2 and 2 addresses";
        assert!(fact.value.contains(needed), "{fact:?}");
        let numbers = fact
            .numbers
            .iter()
            .map(|(name, value)| (*name, value.as_u64()));
        let of = |name| numbers.clone().find(|(one, _)| *one == name);
        assert_eq!(of("soft_limit"), Some(("soft_limit", Some(256))));
        assert_eq!(of("hard_limit"), Some(("hard_limit", Some(512))));
        assert_eq!(of("needed"), Some(("needed", Some(42))));
        assert!(fact.advice.contains("and not 1000; raise"), "{fact:?}");
    }

    #[test]
    fn each_bound_of_memory_is_shown() {
        let told = |group: Option<u64>, space: Option<u64>| {
            let bounds = [
                (Some(4 << 30), MemoryBound::Machine),
                (group, MemoryBound::ControlGroup),
                (space, MemoryBound::ResourceLimit),
            ];
            let known = bounds
                .iter()
                .filter_map(|(bytes, bound)| Some(((*bytes)?, *bound)));
            memory_of(&bounds, known.min_by_key(|(bytes, _)| *bytes))
        };
        let fact = told(None, None);
        let none = "machine 4 GiB, control group no limit, address space and data no limit";
        assert_eq!(fact.value, none);
        assert_eq!(fact.judgement, Judgement::Ok);
        assert_eq!(told(Some(9_223_372_036_854_771_712), None).value, none);
        let fact = told(Some(128 << 20), Some(1 << 30));
        assert_eq!(fact.judgement, Judgement::Note);
        assert!(fact.value.contains("group 128 MiB"), "{fact:?}");
        assert!(fact.value.contains("data 1 GiB"), "{fact:?}");
        assert_eq!(memory_of(&[], None).judgement, Judgement::Note);
    }

    #[test]
    fn a_limit_on_files_is_judged_by_what_a_file_of_the_log_needs() {
        let of = |limit: &str| {
            let limits = format!("Max file size             {limit}   unlimited   bytes\n");
            file_size(&limits, 64 << 20)
        };
        assert_eq!(of("unlimited").judgement, Judgement::Ok);
        assert_eq!(of("unlimited").numbers, [("limit_bytes", Value::Null)]);
        assert_eq!(of("67108864").judgement, Judgement::Note);
        let fact = of("67108863");
        assert_eq!(fact.judgement, Judgement::Problem);
        assert!(fact.advice.contains("LimitFSIZE="), "{fact:?}");
        assert_eq!(fact.numbers, [("limit_bytes", 67_108_863.into())]);
        assert_eq!(of("much").value, "unknown");
    }

    #[test]
    fn core_dumps_are_named_where_they_go() {
        assert_eq!(core_dumps(&limits("0", "1 1"), "core\n").value, "off");
        let fact = core_dumps(&limits("unlimited", "1 1"), "/cores/%e\n");
        assert_eq!(
            (fact.value.as_str(), fact.judgement),
            ("to a file, /cores/%e", Judgement::Note)
        );
        let fact = core_dumps(
            &limits("0", "1 1"),
            "|/usr/lib/systemd/systemd-coredump %P\n",
        );
        assert!(fact.value.starts_with("to a program"), "{fact:?}");
        assert_eq!(core_dumps("", "").value, "unknown");
    }
}
