//! The machine as it is: what a result depends on beside the program that was measured.

mod control_group;
mod cpu_time;
mod files;
mod quota;
mod way;

pub use control_group::{CpuQuota, GroupVersion, cpu_quota, group_folders};
pub use cpu_time::{CpuShares, CpuTimes};
pub use files::{KernelFiles, RecordedFiles, SystemFiles};
pub use way::{NetworkWay, TargetPlace};

use serde_json::{Map, Value, json};

/// A machine on which a load is made.
#[derive(Clone, Debug, PartialEq)]
pub struct LoadMachine {
    /// The name of its processor.
    pub processor: Option<String>,
    /// Whose guest it is; `None`: nothing says that it is one.
    pub hypervisor: Option<String>,
    /// The version of its kernel.
    pub kernel: Option<String>,
    /// CPUs that are there.
    pub cpus: Option<usize>,
    /// CPUs that this process may use.
    pub cpus_allowed: Option<usize>,
    /// CPUs' time that its control group allows; `None`: no quota.
    pub quota_cpus: Option<f64>,
    /// Nodes of memory that is not equally near to all CPUs.
    pub numa_nodes: Option<usize>,
    /// The way to the server.
    pub way: NetworkWay,
    /// Least, usual and largest receive buffer of a connection.
    pub receive_buffer: Option<String>,
    /// The same of the send buffer.
    pub send_buffer: Option<String>,
    /// Threads that wanted a CPU during the last minute, on average.
    pub load_average: Option<f64>,
    /// What others did before the load began.
    pub others: Option<CpuShares>,
}

/// A report of what was measured on one machine.
pub trait OnMachine: Sized {
    /// Keeps the machine for the report.
    fn set_machine(&mut self, machine: LoadMachine);

    /// The same report with the machine, as it was before anything was measured.
    #[must_use]
    fn on_machine(mut self, machine: LoadMachine) -> Self {
        self.set_machine(machine);
        self
    }
}

impl LoadMachine {
    /// Reads what the kernel says. `others`: what CPUs did before the load began.
    pub fn read(
        files: &dyn SystemFiles,
        place: &TargetPlace,
        others: Option<CpuShares>,
    ) -> LoadMachine {
        let line = |path: &str| {
            let text = files.read(path)?;
            Some(text.split_whitespace().collect::<Vec<_>>().join(" "))
        };
        let cpu_info = files.read("/proc/cpuinfo").unwrap_or_default();
        let status = files.read("/proc/self/status").unwrap_or_default();
        let list = |path: &str| count_of_list(&files.read(path)?);
        LoadMachine {
            processor: field(&cpu_info, "model name"),
            hypervisor: hypervisor(files, &cpu_info),
            kernel: line("/proc/sys/kernel/osrelease"),
            cpus: list("/sys/devices/system/cpu/online"),
            cpus_allowed: field(&status, "Cpus_allowed_list").and_then(|cpus| count_of_list(&cpus)),
            quota_cpus: quota::quota_cpus(files),
            numa_nodes: list("/sys/devices/system/node/online"),
            way: NetworkWay::find(files, place),
            receive_buffer: line("/proc/sys/net/ipv4/tcp_rmem"),
            send_buffer: line("/proc/sys/net/ipv4/tcp_wmem"),
            load_average: line("/proc/loadavg")
                .and_then(|text| text.split(' ').next()?.parse().ok()),
            others,
        }
    }

    /// The machine in lines of text.
    pub fn lines(&self) -> Vec<String> {
        let or_unknown = |text: &Option<String>| text.clone().unwrap_or_else(|| "not known".into());
        let count = |count: Option<usize>| count.map_or("?".into(), |count| count.to_string());
        let guest = match &self.hypervisor {
            Some(name) => format!("virtual ({name})"),
            None => "no hypervisor seen".into(),
        };
        let quota = match self.quota_cpus {
            Some(cpus) => format!("a quota of {cpus:.2} CPUs"),
            None => "no quota".into(),
        };
        let others = match self.others {
            Some(shares) => format!(
                "{:.0} % of the CPUs were busy before the load, {:.1} % stolen by the host",
                shares.busy_percent, shares.steal_percent
            ),
            None => "not known".into(),
        };
        let average = self
            .load_average
            .map_or_else(String::new, |load| format!("; load average {load:.2}"));
        vec![
            format!(
                "machine: {}, {guest}, Linux {}; {} of {} CPUs allowed, {quota}, NUMA nodes: {}",
                or_unknown(&self.processor),
                or_unknown(&self.kernel),
                count(self.cpus_allowed),
                count(self.cpus),
                count(self.numa_nodes)
            ),
            format!(
                "way: {}; TCP buffers (least, usual, largest): receive {}, send {}",
                self.way.text(),
                or_unknown(&self.receive_buffer),
                or_unknown(&self.send_buffer)
            ),
            format!("others: {others}{average}"),
        ]
    }

    /// The machine for programs; what is not known is null.
    pub fn fields(&self) -> Map<String, Value> {
        let rounded = |value: f64| (value * 100.0).round() / 100.0;
        let fields = json!({
            "processor": self.processor,
            "hypervisor": self.hypervisor,
            "kernel": self.kernel,
            "cpus": self.cpus,
            "cpus_allowed": self.cpus_allowed,
            "quota_cpus": self.quota_cpus.map(rounded),
            "numa_nodes": self.numa_nodes,
            "way": self.way.text(),
            "receive_buffer": self.receive_buffer,
            "send_buffer": self.send_buffer,
            "load_average": self.load_average,
            "busy_before_percent": self.others.map(|shares| rounded(shares.busy_percent)),
            "steal_before_percent": self.others.map(|shares| rounded(shares.steal_percent)),
        });
        match fields {
            Value::Object(fields) => fields,
            _ => Map::new(),
        }
    }
}

/// The value behind the first `name:`, as `/proc` writes it.
fn field(text: &str, name: &str) -> Option<String> {
    let value = |line: &str| {
        let (before, value) = line.split_once(':')?;
        (before.trim() == name).then(|| value.trim().to_owned())
    };
    text.lines()
        .find_map(value)
        .filter(|value| !value.is_empty())
}

/// Returns how many numbers a list of the kernel such as `0-3,8` has; `None`: it is none.
pub fn count_of_list(list: &str) -> Option<usize> {
    let mut count: usize = 0;
    for part in list.trim().split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        let of_part = last.checked_sub(first)?.checked_add(1)?;
        count = count.checked_add(of_part)?;
    }
    Some(count)
}

/// Who says that this machine is a guest: Xen, the firmware that the host gives it, or the bit that
/// each hypervisor sets.
fn hypervisor(files: &dyn SystemFiles, cpu_info: &str) -> Option<String> {
    let line = |path: &str| {
        let text = files.read(path)?.trim().to_owned();
        Some(text).filter(|text| !text.is_empty())
    };
    let is_guest = field(cpu_info, "flags")
        .is_some_and(|flags| flags.split(' ').any(|flag| flag == "hypervisor"));
    if let Some(name) = line("/sys/hypervisor/type") {
        return Some(name);
    }
    if !is_guest {
        return None;
    }
    let names = ["sys_vendor", "product_name"];
    let names = names.map(|name| line(&format!("/sys/class/dmi/id/{name}")));
    let names: Vec<String> = names.into_iter().flatten().collect();
    match names.is_empty() {
        true => Some("it does not say by what".into()),
        false => Some(names.join(" ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GUEST: [(&str, &str); 13] = [
        (
            "/proc/cpuinfo",
            "processor\t: 0\nmodel name\t: Some CPU\nflags\t\t: fpu hypervisor avx\n",
        ),
        ("/sys/class/dmi/id/sys_vendor", "QEMU\n"),
        ("/sys/class/dmi/id/product_name", "Standard PC\n"),
        ("/proc/sys/kernel/osrelease", "6.1.0\n"),
        ("/sys/devices/system/cpu/online", "0-7\n"),
        ("/proc/self/status", "Name:\tx\nCpus_allowed_list:\t0-1,4\n"),
        ("/proc/self/cgroup", "0::/\n"),
        ("/sys/fs/cgroup/cpu.max", "150000 100000\n"),
        ("/sys/devices/system/node/online", "0-1\n"),
        ("/proc/sys/net/ipv4/tcp_rmem", "4096\t131072\t6291456\n"),
        ("/proc/sys/net/ipv4/tcp_wmem", "4096\t16384\t4194304\n"),
        ("/proc/loadavg", "1.25 0.5 0.3 1/99 7\n"),
        ("/proc/stat", "cpu 1 2 3 4 5 6 7 8\n"),
    ];

    #[test]
    fn a_guest_is_described_by_its_files() {
        let files = RecordedFiles::new(GUEST);
        let place = TargetPlace::Ip("127.0.0.1".parse().expect("an address"));
        let others = CpuShares {
            busy_percent: 12.4,
            steal_percent: 0.52,
        };
        let machine = LoadMachine::read(&files, &place, Some(others));
        assert_eq!(
            machine.lines(),
            [
                "machine: Some CPU, virtual (QEMU Standard PC), Linux 6.1.0; 3 of 8 CPUs allowed, \
                 a quota of 1.50 CPUs, NUMA nodes: 2",
                "way: loopback: server and generator share this machine; TCP buffers (least, \
                 usual, largest): receive 4096 131072 6291456, send 4096 16384 4194304",
                "others: 12 % of the CPUs were busy before the load, 0.5 % stolen by the host; \
                 load average 1.25",
            ]
        );
        let fields = machine.fields();
        assert_eq!(fields["cpus_allowed"], 3);
        assert_eq!(fields["quota_cpus"], 1.5);
        assert_eq!(fields["busy_before_percent"], 12.4);
    }

    #[test]
    fn what_the_kernel_does_not_say_is_not_known() {
        let files = RecordedFiles::default();
        let machine = LoadMachine::read(&files, &TargetPlace::Unknown, None);
        assert_eq!(
            machine.lines(),
            [
                "machine: not known, no hypervisor seen, Linux not known; ? of ? CPUs allowed, no \
                 quota, NUMA nodes: ?",
                "way: not known; TCP buffers (least, usual, largest): receive not known, send not \
                 known",
                "others: not known",
            ]
        );
        assert!(machine.fields()["processor"].is_null());
    }

    #[test]
    fn a_guest_of_xen_and_one_without_a_name_are_told() {
        let name = |files: &[(&str, &str)]| {
            let files = RecordedFiles::new(files.iter().copied());
            LoadMachine::read(&files, &TargetPlace::Unix, None).hypervisor
        };
        assert_eq!(
            name(&[("/sys/hypervisor/type", "xen\n")]),
            Some("xen".into())
        );
        let bit = ("/proc/cpuinfo", "flags : hypervisor\n");
        assert_eq!(name(&[bit]), Some("it does not say by what".into()));
        assert_eq!(name(&[("/sys/class/dmi/id/sys_vendor", "Dell\n")]), None);
    }

    #[test]
    fn lists_of_cpus_are_counted() {
        for (list, count) in [
            ("0", Some(1)),
            ("0-3,8\n", Some(5)),
            ("\t7", Some(1)),
            ("", None),
            ("-", None),
            ("3-1", None),
            ("0-18446744073709551615", None),
            ("a", None),
            ("0,,1", None),
            ("0-1-2", None),
        ] {
            assert_eq!(count_of_list(list), count, "{list:?}");
        }
    }

    /// Whatever this machine is.
    #[test]
    fn the_kernel_of_this_machine_is_read() {
        let machine = LoadMachine::read(&KernelFiles, &TargetPlace::Unix, None);
        assert!(
            machine.cpus_allowed.is_some_and(|cpus| cpus > 0),
            "{machine:?}"
        );
        assert!(CpuTimes::read(&KernelFiles).is_some());
    }
}
