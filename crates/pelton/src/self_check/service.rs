//! What the machine gives a service of systemd: the same check, in a transient unit with the user,
//! the limits and the view of the file system of that service.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use crate::arguments::OutputFormat;
use crate::settings::DEFAULT_FOLDER;

/// The program that says what a unit has.
const SHOW: &str = "systemctl";

/// The program that starts a transient unit.
const RUN: &str = "systemd-run";

/// Limits of a process; each has a soft one too, with this at the end of its name.
const LIMITS: [&str; 6] = [
    "LimitNOFILE",
    "LimitFSIZE",
    "LimitAS",
    "LimitDATA",
    "LimitCORE",
    "LimitNPROC",
];
const SOFT: &str = "Soft";

/// What is given to the transient unit as it is.
const SAME: [&str; 15] = [
    "User",
    "Group",
    "SupplementaryGroups",
    "UMask",
    "MemoryMax",
    "MemoryHigh",
    "MemorySwapMax",
    "TasksMax",
    "AllowedCPUs",
    "CPUAffinity",
    "ProtectSystem",
    "ProtectHome",
    "PrivateTmp",
    "ReadOnlyPaths",
    "InaccessiblePaths",
];

/// What is looked at beside these.
const OTHERS: [&str; 8] = [
    "LoadState",
    "ExecStart",
    "Environment",
    "WorkingDirectory",
    "Slice",
    "StateDirectory",
    "ReadWritePaths",
    "CPUQuotaPerSecUSec",
];

/// Why a service cannot be looked at.
#[derive(Debug, thiserror::Error)]
pub enum ServiceError {
    #[error(
        "`{program}` cannot be started: {source}; --service is for systemd. Elsewhere look as the \
         user of the server: `runuser -u USER -- pelton self-check --data DIR`, or within its \
         container"
    )]
    NoProgram {
        program: &'static str,
        source: io::Error,
    },
    #[error(
        "`{program}` has failed{}; --service needs a systemd that runs, and root",
        after(said)
    )]
    Failed { program: &'static str, said: String },
    #[error(
        "systemd has no unit {unit} ({state}); `systemctl list-unit-files --type=service` names \
         those that there are, and --service NAME one of them"
    )]
    NoUnit { unit: String, state: String },
    #[error("{path}, which the unit names, cannot be read: {source}; --data says which folder")]
    File { path: String, source: io::Error },
    #[error("{path}, which the unit names, makes no sense: {source}")]
    Format {
        path: String,
        source: Box<toml::de::Error>,
    },
    #[error(
        "`systemd-run` ended with {code}, and the check printed nothing{}",
        match code {
            203 => "; 203 is that the user of the service may not run this program: copy it to \
                    /usr/local/bin",
            217 => "; 217 is that there is no such user",
            _ => "",
        }
    )]
    NotRun { code: i32 },
}

fn after(said: &str) -> String {
    match said.trim() {
        "" => String::new(),
        said => format!(": {said}"),
    }
}

/// What systemd says of a unit.
pub struct ServiceUnit {
    name: String,
    properties: BTreeMap<String, String>,
}

impl ServiceUnit {
    /// Asks systemd.
    pub fn read(name: &str) -> Result<ServiceUnit, ServiceError> {
        let names = LIMITS.map(|limit| format!("{limit},{limit}{SOFT}"));
        let names = [names.join(","), SAME.join(","), OTHERS.join(",")].join(",");
        let words = ["show", &format!("--property={names}"), "--", name];
        let shown = run(Command::new(SHOW).args(words).stderr(Stdio::piped()), SHOW)?;
        if !shown.status.success() {
            return Err(ServiceError::Failed {
                program: SHOW,
                said: String::from_utf8_lossy(&shown.stderr).into_owned(),
            });
        }
        ServiceUnit::parse(name, &String::from_utf8_lossy(&shown.stdout))
    }

    fn parse(name: &str, text: &str) -> Result<ServiceUnit, ServiceError> {
        let properties = text.lines().filter_map(|line| line.split_once('='));
        let properties = properties.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let unit = ServiceUnit {
            name: name.to_owned(),
            properties: properties.collect(),
        };
        match unit.property("LoadState") {
            "loaded" => Ok(unit),
            state => Err(ServiceError::NoUnit {
                unit: unit.name.clone(),
                state: state.to_owned(),
            }),
        }
    }

    /// Returns a property; empty: it has none, or it is not set.
    fn property(&self, name: &str) -> &str {
        match self.properties.get(name).map(String::as_str) {
            // That of systemd for "no number".
            None | Some("[not set]" | "18446744073709551615") => "",
            Some(value) => value,
        }
    }

    /// Returns the data folder of the service: that of its command line, of its environment, or of
    /// its file, in the order in which a server takes them.
    pub fn data(&self) -> Result<PathBuf, ServiceError> {
        let found = match self.setting("data") {
            Some(data) => Some(data),
            None => match self.setting("config") {
                Some(file) => data_of_file(&self.in_folder(&file))?,
                None => None,
            },
        };
        Ok(self.in_folder(found.as_deref().unwrap_or(DEFAULT_FOLDER)))
    }

    /// Returns a path as the service sees it.
    fn in_folder(&self, path: &str) -> PathBuf {
        let folder = self.property("WorkingDirectory").trim_start_matches('!');
        Path::new(if folder.is_empty() { "/" } else { folder }).join(path)
    }

    /// Returns a flag of the command line, or its variable.
    fn setting(&self, name: &str) -> Option<String> {
        let command = self.property("ExecStart");
        let command = command.split_once("argv[]=").map_or("", |(_, rest)| rest);
        let command = command.split_once(" ; ").map_or("", |(words, _)| words);
        let flag = format!("--{name}");
        let mut words = command.split_whitespace();
        while let Some(word) = words.next() {
            if word == flag {
                return words.next().map(str::to_owned);
            }
            let value = word
                .strip_prefix(&flag)
                .and_then(|rest| rest.strip_prefix('='));
            if let Some(value) = value {
                return Some(value.to_owned());
            }
        }
        let variable = format!("PELTON_{}=", name.to_uppercase());
        let mut variables = self.property("Environment").split_whitespace();
        variables.find_map(|word| Some(word.strip_prefix(&variable)?.to_owned()))
    }

    /// Checks in a transient unit, and returns what it printed and its exit code.
    pub fn check(&self, data: &Path, output: OutputFormat) -> Result<(String, i32), ServiceError> {
        let program = std::env::current_exe().map_err(|source| ServiceError::NoProgram {
            program: "pelton",
            source,
        })?;
        let done = run(
            Command::new(RUN).args(self.words(&program, data, output)),
            RUN,
        )?;
        let printed = String::from_utf8_lossy(&done.stdout).into_owned();
        match done.status.code() {
            Some(code) if !printed.is_empty() => Ok((printed, code)),
            Some(code) => Err(ServiceError::NotRun { code }),
            None => Err(ServiceError::Failed {
                program: RUN,
                said: done.status.to_string(),
            }),
        }
    }

    /// Returns the words of `systemd-run`.
    fn words(&self, program: &Path, data: &Path, output: OutputFormat) -> Vec<String> {
        let mut words: Vec<String> = ["--quiet", "--pipe", "--wait", "--collect"]
            .map(str::to_owned)
            .into();
        words.push("--service-type=exec".into());
        if !self.property("Slice").is_empty() {
            words.push(format!("--slice={}", self.property("Slice")));
        }
        let properties = self.limits().chain(self.same()).chain(self.others());
        words.extend(properties.map(|(name, value)| format!("--property={name}={value}")));
        words.push("--".into());
        words.push(program.display().to_string());
        words.extend([
            "self-check".into(),
            "--data".into(),
            data.display().to_string(),
        ]);
        let output = match output {
            OutputFormat::Text => "text",
            OutputFormat::Json => "json",
        };
        words.extend(["--output".into(), output.into()]);
        words
    }

    fn limits(&self) -> impl Iterator<Item = (&str, String)> {
        LIMITS.into_iter().filter_map(|name| {
            let hard = self.property(name);
            let soft = match self.property(&format!("{name}{SOFT}")) {
                "" => hard,
                soft => soft,
            };
            (!hard.is_empty()).then(|| (name, format!("{soft}:{hard}")))
        })
    }

    fn same(&self) -> impl Iterator<Item = (&str, String)> {
        let set = SAME.into_iter().map(|name| (name, self.property(name)));
        set.filter(|(_, value)| !value.is_empty())
            .map(|(name, value)| (name, value.to_owned()))
    }

    /// What is written otherwise than it is shown. The folders that systemd makes for the service
    /// are only opened to it: this check makes none.
    fn others(&self) -> impl Iterator<Item = (&str, String)> {
        let of_state = self.property("StateDirectory").split_whitespace();
        let of_state = of_state.map(|name| format!("-/var/lib/{name}"));
        let shown = self.property("ReadWritePaths").split_whitespace();
        let open: Vec<_> = shown.map(str::to_owned).chain(of_state).collect();
        let open = (!open.is_empty()).then(|| ("ReadWritePaths", open.join(" ")));
        let quota = percent_of_a_second(self.property("CPUQuotaPerSecUSec"));
        let quota = quota.map(|percent| ("CPUQuota", format!("{percent}%")));
        open.into_iter().chain(quota)
    }
}

/// Returns the share of a CPU that a time of it within a second is, such as `1s 500ms`; `None`:
/// `infinity`, or no time.
fn percent_of_a_second(span: &str) -> Option<u64> {
    let mut us = 0.0;
    for word in span.split_whitespace() {
        let end = word.find(|c: char| c.is_ascii_alphabetic())?;
        let (number, unit) = word.split_at(end);
        let of_unit = match unit {
            "us" => 1.0,
            "ms" => 1_000.0,
            "s" => 1_000_000.0,
            "min" => 60_000_000.0,
            "h" => 3_600_000_000.0,
            _ => return None,
        };
        us += number.parse::<f64>().ok()? * of_unit;
    }
    (us > 0.0).then_some((us / 10_000.0).round().max(1.0) as u64)
}

/// Returns the data folder that a file of settings names.
fn data_of_file(file: &Path) -> Result<Option<String>, ServiceError> {
    let path = || file.display().to_string();
    let text = std::fs::read_to_string(file).map_err(|source| ServiceError::File {
        path: path(),
        source,
    })?;
    let table: toml::Table = text.parse().map_err(|source| ServiceError::Format {
        path: path(),
        source: Box::new(source),
    })?;
    let data = table.get("data").and_then(toml::Value::as_str);
    Ok(data.map(str::to_owned))
}

fn run(command: &mut Command, program: &'static str) -> Result<Output, ServiceError> {
    let command = command.stdin(Stdio::null()).stdout(Stdio::piped());
    let started = command.spawn().and_then(|child| child.wait_with_output());
    started.map_err(|source| ServiceError::NoProgram { program, source })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHOWN: &str = "LoadState=loaded\nUser=pelton\nGroup=pelton\nLimitNOFILE=65536\n\
        LimitNOFILESoft=1024\nLimitFSIZE=infinity\nLimitFSIZESoft=infinity\nMemoryMax=infinity\n\
        MemoryHigh=[not set]\nTasksMax=18446744073709551615\nProtectSystem=strict\n\
        StateDirectory=pelton other\nReadWritePaths=/srv/pelton\nSlice=system.slice\n\
        CPUQuotaPerSecUSec=1s 500ms\nEnvironment=PELTON_DATA=here A=b\n\
        ExecStart={ path=/usr/bin/pelton ; argv[]=/usr/bin/pelton serve --threads 2 ; flags= }\n\
        WorkingDirectory=/srv\n";

    fn unit(text: &str) -> ServiceUnit {
        ServiceUnit::parse("pelton", text).expect("it is loaded")
    }

    #[test]
    fn the_transient_unit_has_user_limits_and_folders_of_the_service() {
        let words = unit(SHOWN).words(Path::new("/p"), Path::new("/d"), OutputFormat::Json);
        assert_eq!(
            words,
            [
                "--quiet",
                "--pipe",
                "--wait",
                "--collect",
                "--service-type=exec",
                "--slice=system.slice",
                "--property=LimitNOFILE=1024:65536",
                "--property=LimitFSIZE=infinity:infinity",
                "--property=User=pelton",
                "--property=Group=pelton",
                "--property=MemoryMax=infinity",
                "--property=ProtectSystem=strict",
                "--property=ReadWritePaths=/srv/pelton -/var/lib/pelton -/var/lib/other",
                "--property=CPUQuota=150%",
                "--",
                "/p",
                "self-check",
                "--data",
                "/d",
                "--output",
                "json",
            ]
        );
    }

    #[test]
    fn the_data_folder_is_that_of_flag_variable_or_file() {
        let of = |text: &str| unit(text).data().expect("it can be found");
        assert_eq!(of(SHOWN), Path::new("/srv/here"));
        let flag = SHOWN.replace("--threads 2", "--data /flag");
        assert_eq!(of(&flag), Path::new("/flag"));
        let flag = SHOWN.replace("--threads 2", "--data=flag");
        assert_eq!(of(&flag), Path::new("/srv/flag"));
        let none = "LoadState=loaded\n";
        assert_eq!(of(none), Path::new("/").join(DEFAULT_FOLDER));
        let file = std::env::temp_dir().join(format!("pelton-unit-{}.toml", std::process::id()));
        let named = format!(
            "LoadState=loaded\nExecStart={{ argv[]=pelton serve --config {} ; x }}\n",
            file.display()
        );
        std::fs::write(&file, "data = \"/of/file\"\n").expect("file is written");
        assert_eq!(of(&named), Path::new("/of/file"));
        std::fs::write(&file, "threads = 2\n").expect("file is written");
        assert_eq!(of(&named), Path::new("/").join(DEFAULT_FOLDER));
        std::fs::write(&file, "data = ").expect("file is written");
        let odd = unit(&named).data();
        assert!(matches!(odd, Err(ServiceError::Format { .. })), "{odd:?}");
        std::fs::remove_file(&file).expect("it is there");
        let gone = unit(&named).data();
        assert!(matches!(gone, Err(ServiceError::File { .. })), "{gone:?}");
    }

    #[test]
    fn a_unit_that_is_not_there_is_refused() {
        let refused = ServiceUnit::parse("no", "LoadState=not-found\n");
        let text = refused
            .map(|_| ())
            .expect_err("it is not loaded")
            .to_string();
        assert!(text.contains("no unit no (not-found)"), "{text}");
        assert!(ServiceUnit::parse("no", "").is_err());
    }

    #[test]
    fn a_quota_is_read_in_all_units() {
        for (span, percent) in [
            ("infinity", None),
            ("", None),
            ("500ms", Some(50)),
            ("1.500000s", Some(150)),
            ("1min", Some(6_000)),
            ("100us", Some(1)),
            ("5parsec", None),
            ("s", None),
        ] {
            assert_eq!(percent_of_a_second(span), percent, "{span}");
        }
    }
}
