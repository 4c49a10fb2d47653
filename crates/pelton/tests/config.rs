//! Flags over environment over file over defaults, through the real binary.

mod support;

use std::fs;
use std::path::PathBuf;

use support::{Answer, Folder, Server, pelton, run};

/// A configuration file with this content, removed with the value.
struct File(PathBuf);

impl File {
    fn new(name: &str, content: &str) -> File {
        let path = std::env::temp_dir().join(format!("pelton-{name}-{}.toml", std::process::id()));
        fs::write(&path, content).expect("the file is written");
        File(path)
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

fn print(file: &File, environment: &[(&str, &str)], flags: &[&str]) -> Answer {
    let mut command = pelton();
    command
        .args(["config", "print", "--config"])
        .arg(&file.0)
        .args(flags);
    run(command.envs(environment.iter().copied()))
}

#[test]
fn each_source_is_weaker_than_the_one_before() {
    let content = "threads = 2\nmax-streams = 20\nmax-connections = 200\nlisten = '127.0.0.1:3'";
    let file = File::new("precedence", content);
    let environment = [
        ("PELTON_THREADS", "3"),
        ("PELTON_MAX_STREAMS", "30"),
        ("PELTON_LISTEN", "127.0.0.1:4,unix:/x"),
    ];
    let answer = print(&file, &environment, &["--threads", "4"]);
    assert_eq!(answer.code, 0, "{answer:?}");
    for (name, value, source) in [
        ("threads", "4", "flag"),
        ("max-streams", "30", "environment"),
        ("max-connections", "200", "file"),
        ("unix-mode", "\"600\"", "default"),
        ("listen", "[\"127.0.0.1:4\", \"unix:/x\"]", "environment"),
        ("interop", "false", "default"),
    ] {
        let line = answer
            .text()
            .lines()
            .find(|line| line.starts_with(&format!("{name} = ")));
        let line = line.unwrap_or_else(|| panic!("{name} is missing in\n{}", answer.text()));
        assert!(line.starts_with(&format!("{name} = {value} ")), "{line}");
        assert!(line.ends_with(&format!("# {source}")), "{line}");
    }
}

#[test]
fn what_is_printed_is_a_file_to_start_with() {
    let empty = File::new("empty", "");
    let printed = print(
        &empty,
        &[],
        &[
            "--threads",
            "1",
            "--listen",
            "127.0.0.1:0",
            "--interop",
            "--max-value",
            "2MiB",
        ],
    );
    let file = File::new("printed", printed.text());
    let again = print(&file, &[], &[]);
    let values = |answer: &Answer| -> Vec<String> {
        answer
            .text()
            .lines()
            .map(|line| {
                line.split(" # ")
                    .next()
                    .unwrap_or_default()
                    .trim_end()
                    .to_owned()
            })
            .collect()
    };
    assert_eq!(values(&printed), values(&again));

    let mut serve = pelton();
    serve.args(["serve", "--config"]).arg(&file.0);
    // The file names the default folder, which must not be made among the sources.
    let folder = Folder::new("printed-data");
    serve.current_dir(&folder.0);
    serve.env("PELTON_DURABILITY", "volatile");
    let server = Server::spawn(&mut serve);
    let too_large = server.run_with_input(&["put", "k"], &vec![0; (2 << 20) + 1]);
    assert!(
        too_large.stderr.contains("RESOURCE_EXHAUSTED"),
        "--max-value is in force: {}",
        too_large.stderr
    );
}

#[test]
fn the_environment_reaches_every_command() {
    let mut serve = pelton();
    serve
        .arg("serve")
        .env("PELTON_DURABILITY", "volatile")
        .envs([("PELTON_LISTEN", "127.0.0.1:0"), ("PELTON_THREADS", "1")]);
    let server = Server::spawn(&mut serve);
    // PELTON_ADDRESS is how all commands of these tests find their server.
    assert_eq!(server.run(["status"]).code, 0);
    let mut get = server.command(["get", "k"]);
    let answer = run(get.env("PELTON_DATABASE", "elsewhere"));
    assert!(answer.stderr.contains("elsewhere"), "{}", answer.stderr);
}

#[test]
fn wrong_settings_are_explained() {
    let check = |command: &mut std::process::Command| {
        let answer = run(command);
        assert_eq!(answer.code, 2, "{answer:?}");
        answer.stderr
    };
    // As every file that cannot be read.
    for flags in [
        &["--config", "/nowhere.toml"][..],
        &["--tls-cert", "/nowhere.pem", "--tls-key", "/nowhere.key"],
    ] {
        let missing = run(pelton().args(["config", "check"]).args(flags));
        assert_eq!(missing.code, 3, "{missing:?}");
        assert!(missing.stderr.contains(flags[1]), "{missing:?}");
    }
    let file = File::new("wrong", "threads = 1\nmax-valeu = '2MiB'\n");
    let unknown = check(pelton().args(["serve", "--config"]).arg(&file.0));
    assert!(
        unknown.contains("max-valeu")
            && unknown.contains("max-value")
            && unknown.contains("line 2"),
        "{unknown}"
    );
    let variable = check(
        pelton()
            .args(["config", "check"])
            .env("PELTON_MEMORY_LIMIT", "lots"),
    );
    assert!(
        variable.contains("lots") && variable.contains("4GiB") || variable.contains("64KiB"),
        "{variable}"
    );
    let flag = check(pelton().args(["serve", "--max-value", "2GiB"]));
    assert!(
        flag.contains("max-value") && flag.contains("1GiB"),
        "{flag}"
    );
    let nothing = run(pelton().args(["config", "check"]));
    assert_eq!(
        (nothing.code, nothing.text(), nothing.stderr.as_str()),
        (0, "", "")
    );
    let misspelt = check(pelton().arg("serv"));
    assert!(misspelt.contains("'serve'"), "{misspelt}");
}

#[test]
fn a_large_max_value_is_warned_about() {
    let mut serve = pelton();
    serve.args([
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--threads",
        "1",
        "--max-value",
        "8MiB",
        "--durability",
        "volatile",
    ]);
    let log = std::env::temp_dir().join(format!("pelton-warning-{}.log", std::process::id()));
    serve.stderr(fs::File::create(&log).expect("the file is made"));
    let server = Server::spawn(&mut serve);
    let value = vec![7; 8 << 20];
    assert_eq!(server.run_with_input(&["put", "k"], &value).code, 0);
    assert!(
        server.run(["get", "k"]).stdout == value,
        "the command line reads what is larger than the default"
    );
    drop(server);
    let said = fs::read_to_string(&log).expect("the log is there");
    assert!(
        said.contains("WARN") && said.contains("--max-value 8MiB"),
        "{said}"
    );
    fs::remove_file(&log).expect("it was there");
}

/// As `pelton serve` does: a misspelt setting is told where settings are looked at.
#[test]
fn variables_that_are_no_settings_are_named() {
    for word in ["check", "print"] {
        let told = run(pelton().args(["config", word]).env("PELTON_TREADS", "3"));
        assert_eq!(told.code, 0, "{told:?}");
        assert!(told.stderr.contains("PELTON_TREADS"), "{told:?}");
        assert!(!told.text().contains("TREADS"), "{told:?}");
        let silent = run(pelton().args(["config", word]));
        assert_eq!(silent.stderr, "", "{silent:?}");
    }
}

#[test]
fn the_files_of_a_certificate_are_checked() {
    let folder = Folder::new("check-certificate");
    let key = rcgen::KeyPair::generate().expect("random numbers");
    // Without subjectAltName, as `openssl req -subj /CN=localhost` makes it.
    let certificate = rcgen::CertificateParams::default().self_signed(&key);
    let file = |name: &str| {
        let path = folder.0.join(name);
        path.to_str().expect("the folder's name is text").to_owned()
    };
    let (certificate_file, key_file) = (file("certificate.pem"), file("key.pem"));
    fs::write(&certificate_file, certificate.expect("signed").pem()).expect("it is written");
    fs::write(&key_file, key.serialize_pem()).expect("it is written");
    let check = |certificate: &str, key: &str| {
        let flags = ["--tls-cert", certificate, "--tls-key", key];
        run(pelton().args(["config", "check"]).args(flags))
    };
    let valid = check(&certificate_file, &key_file);
    assert_eq!(valid.code, 0, "{valid:?}");
    let missing = file("missing.pem");
    for (certificate, key) in [(&missing, &key_file), (&certificate_file, &missing)] {
        let refused = check(certificate, key);
        assert_eq!(refused.code, 3, "{refused:?}");
        assert!(refused.stderr.contains(&missing), "{refused:?}");
    }
    // It is no certificate that a client can believe, and the client says what would be one.
    let flags = ["--tls-cert", &certificate_file, "--tls-key", &key_file];
    let server = Server::with(&[&["--listen", "127.0.0.1:0"][..], &flags].concat());
    let get = server.run(["get", "k", "--tls-ca", &certificate_file]);
    assert_eq!(get.code, 3, "{get:?}");
    assert!(
        get.stderr.contains("-addext subjectAltName=DNS:"),
        "{get:?}"
    );
}

#[test]
fn a_message_names_the_variable_that_is_wrong() {
    let serve = |flags: &[&str]| {
        let mut command = pelton();
        command.arg("serve").args(flags);
        run(command.env("PELTON_MAX_VALUE", "4G"))
    };
    let variable = serve(&[]);
    assert_eq!(variable.code, 2, "{variable:?}");
    let told = "'--max-value <SIZE>, which the variable PELTON_MAX_VALUE gives'";
    assert!(variable.stderr.contains(told), "{variable:?}");
    for flags in [&["--max-value", "4G"][..], &["--max-value=4G"]] {
        let flag = serve(flags);
        assert_eq!(flag.code, 2, "{flag:?}");
        assert!(!flag.stderr.contains("variable"), "{flag:?}");
    }
}

#[test]
fn what_is_wrong_is_said_in_words() {
    let refused = |words: &[&str], code: i32, part: &str| {
        let answer = support::run_with_timeout(pelton().args(words));
        assert_eq!(answer.code, code, "{answer:?}");
        assert!(answer.stderr.contains(part), "{part}: {answer:?}");
    };
    let whole = "a version is a whole number";
    refused(&["put", "k", "v", "--if-version", "x"], 2, whole);
    refused(&["delete", "k", "--if-version", "x"], 2, whole);
    refused(
        &["get", "k", "--address", "127.0.0.1:1978/"],
        2,
        "an address has none",
    );
    let own = "name another folder";
    refused(
        &["config", "check", "--data", "d", "--backup-root", "d"],
        2,
        own,
    );
    refused(
        &["config", "check", "--data", "d", "--backup-root", "d/b"],
        2,
        own,
    );
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = taken.local_addr().expect("it has an address").to_string();
    let mut serve = vec![
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--durability",
        "volatile",
    ];
    serve.extend(["--metrics-listen", &address]);
    refused(&serve, 3, "another process listens there");
    let server = Server::with(&["--listen", "127.0.0.1:0", "--memory-limit", "4GiB"]);
    let status = server.run(["status"]);
    assert!(status.text().contains(" of 4 GiB"), "{status:?}");
}

/// As scripts and files of services write that they have no value for a setting.
#[test]
fn an_empty_variable_is_one_that_is_not_set() {
    let empty = |words: &[&str], name: &str| run(pelton().args(words).env(name, ""));
    for name in ["PELTON_THREADS", "PELTON_LISTEN", "PELTON_CONFIG"] {
        let checked = empty(&["config", "check"], name);
        assert_eq!((checked.code, &*checked.stderr), (0, ""), "{name}");
        assert_eq!(
            empty(&["config", "print"], name).text(),
            run(pelton().args(["config", "print"])).text(),
            "{name}"
        );
    }
    for name in ["PELTON_ADDRESS", "PELTON_TIMEOUT", "PELTON_TLS_CA"] {
        let refused = empty(&["load", "--duration", "0s"], name);
        assert!(refused.stderr.contains("measures nothing"), "{refused:?}");
    }
}
