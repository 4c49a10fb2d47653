//! What the system knows of this process, under the names that all Prometheus clients use.

use std::fs;

use rustix::param::page_size;
use rustix::process::{Resource, getrlimit};
use rustix::time::{ClockId, clock_gettime};

use super::exposition::{FamilyKind, MetricsPage, seconds};

/// Writes what can be found out; what cannot is left out.
pub fn write(page: &mut MetricsPage, start_s: u64) {
    let cpu = clock_gettime(ClockId::ProcessCPUTime);
    let cpu_ns = cpu.tv_sec.unsigned_abs() * 1_000_000_000 + cpu.tv_nsec.unsigned_abs();
    page.single(
        "process_cpu_seconds_total",
        FamilyKind::Counter,
        "Processor time of this process, user and system.",
        seconds(cpu_ns),
    );
    page.single(
        "process_start_time_seconds",
        FamilyKind::Gauge,
        "When this process began, in seconds since 1970.",
        start_s,
    );
    if let Some([virtual_bytes, resident_bytes, _]) = memory_bytes() {
        page.single(
            "process_virtual_memory_bytes",
            FamilyKind::Gauge,
            "Address space of this process.",
            virtual_bytes,
        );
        page.single(
            "process_resident_memory_bytes",
            FamilyKind::Gauge,
            "Memory of this process that is in the machine's memory.",
            resident_bytes,
        );
    }
    if let Ok(open) = fs::read_dir("/proc/self/fd") {
        page.single(
            "process_open_fds",
            FamilyKind::Gauge,
            "Open file descriptors.",
            open.count().saturating_sub(1), // without that of this listing
        );
    }
    if let Some(limit) = getrlimit(Resource::Nofile).current {
        page.single(
            "process_max_fds",
            FamilyKind::Gauge,
            "File descriptors that may be open.",
            limit,
        );
    }
}

/// Returns what this process takes of the machine's memory for itself, without what of files is in
/// memory; `None` where the system does not tell.
pub fn anonymous_bytes() -> Option<u64> {
    let [_, resident_bytes, file_bytes] = memory_bytes()?;
    Some(resident_bytes.saturating_sub(file_bytes))
}

/// Virtual, resident, and what of the latter is of files: from `/proc/self/statm`, which counts
/// pages.
fn memory_bytes() -> Option<[u64; 3]> {
    let text = fs::read_to_string("/proc/self/statm").ok()?;
    let pages = text.split(' ').map(|number| number.parse::<u64>().ok());
    let mut bytes = pages.map(|pages| Some(pages? * page_size() as u64));
    Some([bytes.next()??, bytes.next()??, bytes.next()??])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_process_is_described() {
        let mut page = MetricsPage::default();
        write(&mut page, 1_700_000_000);
        let text = page.finish();
        let value = |name: &str| {
            let line = text.lines().find(|line| line.starts_with(name));
            let value = line.and_then(|line| line.rsplit(' ').next());
            value.expect(name).parse::<f64>().expect("a number")
        };
        let resident = value("process_resident_memory_bytes");
        assert!(resident > 1e6 && resident < value("process_virtual_memory_bytes"));
        let anonymous = anonymous_bytes().expect("Linux");
        assert!(anonymous > 1_000_000 && (anonymous as f64) < resident * 1.5);
        assert!(value("process_cpu_seconds_total") > 0.0);
        assert!(value("process_open_fds") >= 3.0);
        assert!(value("process_max_fds") >= value("process_open_fds"));
    }
}
