//! What the kernel is set up for.

use std::time::Instant;

use lab::machine::count_of_list;
use net::limits::LISTEN_BACKLOG;

use super::fact::MachineFact;
use crate::limits::{CHECK_CLOCK_READINGS, CHECK_CPU_PERCENT, CHECK_KERNEL};

/// Returns whether memory may come in pages of 2 MiB, by the text of
/// `/sys/kernel/mm/transparent_hugepage/enabled`: `always [madvise] never`.
pub(super) fn huge_pages(text: &str) -> MachineFact {
    const NAME: &str = "huge pages";
    let chosen = text
        .split_once('[')
        .and_then(|(_, rest)| rest.split_once(']'));
    match chosen.map(|(chosen, _)| chosen) {
        Some(chosen @ ("always" | "madvise")) => MachineFact::ok(NAME, chosen),
        Some("never") => MachineFact::ok(NAME, "never").note(
            "a large store is read with more misses of the address cache; write `madvise` to \
             /sys/kernel/mm/transparent_hugepage/enabled",
        ),
        _ => MachineFact::unknown(NAME),
    }
}

/// Returns how much CPU the process may use: of the CPUs of the machine
/// (`/sys/devices/system/cpu/online`) those of `Cpus_allowed_list` in `/proc/self/status`, and the
/// quota of its control groups in hundredths of a CPU.
pub(super) fn cpus(online: &str, status: &str, quota: Option<u64>) -> MachineFact {
    const NAME: &str = "cpu";
    let list = status
        .lines()
        .find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    let Some(usable) = list.and_then(count_of_list) else {
        return MachineFact::unknown(NAME);
    };
    let of = match count_of_list(online) {
        Some(online) => format!("{usable} of {online} CPUs"),
        None => format!("{usable} CPUs"),
    };
    let numbers = [
        ("usable_cpus", usable.into()),
        ("online_cpus", count_of_list(online).into()),
        ("quota_cpus", quota.map(|quota| quota as f64 / 100.0).into()),
    ];
    let Some(quota) = quota else {
        return MachineFact::ok(NAME, format!("{of}, no quota")).with_numbers(numbers);
    };
    let (whole, hundredths) = (quota / 100, quota % 100);
    let fact = MachineFact::ok(NAME, format!("{of}, a quota of {whole}.{hundredths:02}"))
        .with_numbers(numbers);
    if quota < CHECK_CPU_PERCENT {
        return fact.note(
            "whoever has used it up stands still for the rest of the period, which calls see as \
             waits; give one CPU at least (CPUQuota= of systemd, --cpus of a container)",
        );
    }
    fact
}

/// Returns where the time comes from, by the text of `current_clocksource`.
pub(super) fn clock(source: &str, is_monotonic: bool) -> MachineFact {
    const NAME: &str = "clock";
    let source: String = source.trim().chars().filter(|c| !c.is_control()).collect();
    let shown = if source.is_empty() {
        "unknown"
    } else {
        &source
    };
    if !is_monotonic {
        return MachineFact::ok(NAME, format!("{shown}, goes back"))
            .problem("the monotonic clock of the kernel is at fault; choose another clock source");
    }
    let fact = MachineFact::ok(NAME, format!("{shown}, monotonic"));
    match shown {
        // These need a system call, or a slow device, for each reading.
        "hpet" | "acpi_pm" | "pit" | "jiffies" | "refined-jiffies" | "xen" => fact.note(
            "each reading of the clock is slow; choose tsc or the clock of the hypervisor, if it \
             is among those of available_clocksource",
        ),
        _ => fact,
    }
}

/// Returns whether none of some readings of the monotonic clock is before the one ahead of it.
pub(super) fn is_clock_monotonic() -> bool {
    let mut last = Instant::now();
    (0..CHECK_CLOCK_READINGS).all(|_| {
        let now = Instant::now();
        let is_later = now >= last;
        last = now;
        is_later
    })
}

/// Returns how many connections may wait to be accepted, by the text of
/// `/proc/sys/net/core/somaxconn`.
pub(super) fn backlog(somaxconn: &str) -> MachineFact {
    const NAME: &str = "backlog";
    let Ok(most) = somaxconn.trim().parse::<i64>() else {
        return MachineFact::unknown(NAME);
    };
    let wanted = i64::from(LISTEN_BACKLOG);
    let fact = MachineFact::ok(NAME, format!("{most}, of {wanted} that are asked for"))
        .with_numbers([("limit", most.into()), ("wanted", wanted.into())]);
    match most < wanted {
        true => fact.note(format!(
            "when many clients connect at once, some are let in a second later; `sysctl \
             net.core.somaxconn={wanted}`"
        )),
        false => fact,
    }
}

/// Returns the version of the kernel, by `uname -r`.
pub(super) fn version(release: &str) -> MachineFact {
    const NAME: &str = "kernel";
    let release: String = release.trim().chars().filter(|c| !c.is_control()).collect();
    let mut numbers = release
        .split(|c: char| !c.is_ascii_digit())
        .map(|number| number.parse::<u32>().ok());
    let (Some(Some(major)), Some(Some(minor))) = (numbers.next(), numbers.next()) else {
        return MachineFact::unknown(NAME);
    };
    let fact = MachineFact::ok(NAME, release);
    match (major, minor) < CHECK_KERNEL {
        true => fact.note("older than any that Pelton is tried on; renew the system"),
        false => fact,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::self_check::Judgement;

    fn judged(fact: MachineFact) -> (String, Judgement) {
        (fact.value, fact.judgement)
    }

    #[test]
    fn the_chosen_kind_of_huge_pages_is_in_brackets() {
        let of = |text| judged(huge_pages(text));
        assert_eq!(
            of("[always] madvise never\n"),
            ("always".into(), Judgement::Ok)
        );
        assert_eq!(
            of("always [madvise] never\n"),
            ("madvise".into(), Judgement::Ok)
        );
        assert_eq!(
            of("always madvise [never]\n"),
            ("never".into(), Judgement::Note)
        );
        for text in ["", "always", "[", "]", "][", "[]", "[sometimes]"] {
            assert_eq!(of(text).0, "unknown", "{text}");
        }
    }

    #[test]
    fn affinity_and_quota_are_shown() {
        let status = "Name:\tpelton\nCpus_allowed_list:\t0-1\n";
        let of = |quota| judged(cpus("0-7\n", status, quota));
        assert_eq!(of(None), ("2 of 8 CPUs, no quota".into(), Judgement::Ok));
        let half = ("2 of 8 CPUs, a quota of 0.50".into(), Judgement::Note);
        assert_eq!(of(Some(50)), half);
        let more = ("2 of 8 CPUs, a quota of 1.05".into(), Judgement::Ok);
        assert_eq!(of(Some(105)), more);
        assert_eq!(cpus("", status, None).value, "2 CPUs, no quota");
        assert_eq!(cpus("0-7", "", None).value, "unknown");
    }

    #[test]
    fn a_slow_clock_is_a_note_and_one_that_goes_back_a_problem() {
        for fast in [
            "tsc",
            "kvm-clock",
            "arch_sys_counter",
            "hyperv_clocksource_tsc_page",
        ] {
            assert_eq!(clock(fast, true).judgement, Judgement::Ok, "{fast}");
        }
        assert_eq!(clock("hpet\n", true).judgement, Judgement::Note);
        assert_eq!(clock("tsc\n", false).judgement, Judgement::Problem);
        assert_eq!(clock("", true).value, "unknown, monotonic");
        assert!(is_clock_monotonic());
    }

    #[test]
    fn a_backlog_below_that_of_the_listeners_is_a_note() {
        assert_eq!(backlog("4096\n").judgement, Judgement::Ok);
        assert_eq!(backlog("128\n").judgement, Judgement::Note);
        assert_eq!(backlog("many").value, "unknown");
    }

    #[test]
    fn kernels_are_compared_by_their_first_two_numbers() {
        for (release, judgement) in [
            ("6.1.0-18-amd64", Judgement::Ok),
            ("5.4.0", Judgement::Ok),
            ("5.15.133.1-microsoft-standard-WSL2", Judgement::Ok),
            ("10.0", Judgement::Ok),
            ("5.3.18", Judgement::Note),
            ("4.18.0-553.el8_10.x86_64", Judgement::Note),
            ("3.10.0-1160.el7.x86_64", Judgement::Note),
        ] {
            assert_eq!(judged(version(release)), (release.into(), judgement));
        }
        for release in ["", "six", "6", "99999999999.1", ".."] {
            assert_eq!(version(release).value, "unknown", "{release}");
        }
    }
}
