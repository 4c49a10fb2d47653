//! Ctrl-C and SIGTERM while a command waits: the first one ends it, and it says how far it came.

mod support;

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use support::{Folder, Server, TIMEOUT, caught_signals, pelton};

const SIGHUP: i32 = 1;
const SIGINT: i32 = 2;
const SIGTERM: i32 = 15;

/// Commands that wait for an input that stays silent.
const SILENT: [&[&str]; 4] = [
    &["upload", "-", "--name", "blob"],
    &["import"],
    &["import", "-"],
    &["batch", "--mode", "independent"],
];

/// The same with SIGHUP as it usually is: where the tests run below `nohup`, programs would go on
/// to ignore it.
fn with_default_hangup(command: &Command) -> Command {
    let mut with_default = Command::new("env");
    with_default.arg("--default-signal=HUP");
    with_default
        .arg(command.get_program())
        .args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => with_default.env(name, value),
            None => with_default.env_remove(name),
        };
    }
    with_default
}

fn spawn(command: &mut Command) -> Child {
    with_default_hangup(command)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary runs")
}

/// Waits until a process notes signals, and a little longer: until it waits for its input. That it
/// handles SIGHUP, too, tells that from ending at once, which all commands do from their start on.
fn wait_until_listening(process: &Child) {
    wait_until_caught(process, &[SIGINT, SIGTERM, SIGHUP]);
    thread::sleep(Duration::from_millis(100));
}

fn wait_until_caught(process: &Child, signals: &[i32]) {
    let until = Instant::now() + TIMEOUT;
    let is_listening = || {
        let mask = caught_signals(process.id());
        signals.iter().all(|signal| mask & (1 << (signal - 1)) != 0)
    };
    while !is_listening() {
        assert!(Instant::now() < until, "it listens to signals");
        thread::sleep(Duration::from_millis(5));
    }
}

fn send(process: &Child, signal: i32) {
    let killed = Command::new("kill")
        .args([format!("-{signal}"), process.id().to_string()])
        .status();
    assert!(killed.expect("kill is there").success());
}

/// The exit code and standard error of a process that has to end although its input stays open.
fn ended(mut process: Child, what: &str) -> (Option<i32>, String) {
    let until = Instant::now() + TIMEOUT;
    while process.try_wait().expect("the child is ours").is_none() {
        if Instant::now() >= until {
            process.kill().expect("the child is ours");
            panic!("{what}: the first signal did not end it");
        }
        thread::sleep(Duration::from_millis(5));
    }
    let input = process.stdin.take();
    let output = process.wait_with_output().expect("it has ended");
    drop(input);
    let code = output.status.code();
    let code = code.or(output.status.signal().map(|signal| 128 + signal));
    (code, String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn the_first_signal_ends_a_command_whose_input_is_silent() {
    let folder = Folder::new("silent-input");
    let server = Server::durable(&folder.data(), &[]);
    for arguments in SILENT {
        for signal in [SIGINT, SIGTERM] {
            let what = format!("{arguments:?}, {signal}");
            let process = spawn(&mut server.command(arguments));
            wait_until_listening(&process);
            send(&process, signal);
            let (code, stderr) = ended(process, &what);
            assert_eq!(code, Some(128 + signal), "{what}: {stderr}");
            assert!(stderr.contains("interrupted; "), "{what}: {stderr}");
        }
    }
}

#[test]
fn a_named_pipe_that_nobody_writes_to_can_be_interrupted() {
    let folder = Folder::new("silent-pipe");
    let server = Server::start();
    let pipe = folder.0.join("pipe");
    let made = Command::new("mkfifo").arg(&pipe).status();
    assert!(made.expect("mkfifo is there").success());
    let pipe = pipe.to_str().expect("the folder's name is text");
    let process = spawn(&mut server.command(["import", pipe]));
    wait_until_listening(&process);
    send(&process, SIGINT);
    let (code, stderr) = ended(process, "import FIFO");
    assert_eq!(code, Some(130), "{stderr}");
    assert!(
        stderr.contains("interrupted; nothing was written"),
        "{stderr}"
    );
}

#[test]
fn an_upload_from_a_pipe_that_is_interrupted_says_how_much_was_sent() {
    let folder = Folder::new("upload-interrupt");
    let server = Server::durable(&folder.data(), &[]);
    let mut process = spawn(&mut server.command(["upload", "-", "--name", "blob"]));
    let mut input = process.stdin.take().expect("piped");
    input.write_all(b"hello").expect("it is read");
    wait_until_listening(&process);
    send(&process, SIGINT);
    let (code, stderr) = ended(process, "upload");
    drop(input);
    assert_eq!(code, Some(130), "{stderr}");
    assert!(
        stderr.contains("interrupted; 5 bytes were sent"),
        "{stderr}"
    );
    let stat = server.run(["blob", "stat", "blob"]);
    assert_eq!(stat.code, 1, "nothing is stored: {}", stat.stderr);
}

#[test]
fn a_load_that_waits_for_its_request_can_be_interrupted() {
    let server = Server::start();
    let address = server.addresses[0].clone();
    let arguments = ["load", "--method", "pelton.v1.Echo/Unary", "--data", "@-"];
    let mut command = pelton();
    command.args(arguments).args(["--address", &address]);
    let process = spawn(&mut command);
    wait_until_listening(&process);
    send(&process, SIGTERM);
    let (code, stderr) = ended(process, "load");
    assert_eq!(code, Some(143), "{stderr}");
    assert!(stderr.contains("interrupted"), "{stderr}");
}

/// How long a command has that says by itself what it was interrupted in, until it does.
const BEGUN: Duration = Duration::from_millis(500);

#[test]
fn many_echoes_and_a_wait_for_a_server_say_how_far_they_came() {
    let server = Server::start();
    for signal in [SIGINT, SIGTERM] {
        let process = spawn(&mut server.command(["echo", "--count", "1000000"]));
        wait_until_caught(&process, &[SIGINT, SIGTERM]);
        thread::sleep(BEGUN);
        send(&process, signal);
        let (code, stderr) = ended(process, "echo");
        assert_eq!(code, Some(128 + signal), "{stderr}");
        assert!(stderr.contains("interrupted; of 1000000 calls"), "{stderr}");

        let mut command = pelton();
        command.args(["status", "--wait", "1h", "--address", "unix:/nowhere.sock"]);
        let process = spawn(&mut command);
        wait_until_caught(&process, &[SIGINT, SIGTERM]);
        thread::sleep(BEGUN);
        send(&process, signal);
        let (code, stderr) = ended(process, "status --wait");
        assert_eq!(code, Some(128 + signal), "{stderr}");
        assert!(stderr.contains("interrupted; waited for"), "{stderr}");
    }
}

/// As when the terminal is closed: it stops when it has started, and is not killed in between.
#[test]
fn a_hangup_while_a_server_starts_stops_it_when_it_has_started() {
    let folder = Folder::new("hangup-at-start");
    for _ in 0..2 {
        let mut server = pelton();
        server.args(["serve", "--listen", "127.0.0.1:0", "--data"]);
        let process = spawn(server.arg(folder.data()));
        wait_until_caught(&process, &[SIGTERM]);
        send(&process, SIGHUP);
        let (code, stderr) = ended(process, "a server that starts");
        assert_eq!(code, Some(0), "{stderr}");
        assert!(stderr.contains("SIGHUP, and no --config"), "{stderr}");
    }
}

/// A service manager that reloads it early has it read the file once more.
#[test]
fn a_hangup_while_a_server_starts_has_it_read_its_settings_when_it_has_started() {
    let folder = Folder::new("reload-at-start");
    let config = folder.0.join("pelton.toml");
    std::fs::write(&config, "durability = 'volatile'\n").expect("written");
    for _ in 0..2 {
        let mut server = pelton();
        server.args(["serve", "--listen", "127.0.0.1:0", "--config"]);
        let mut process = spawn(server.arg(&config));
        wait_until_caught(&process, &[SIGTERM]);
        send(&process, SIGHUP);
        let log = BufReader::new(process.stderr.take().expect("it is piped"));
        let mut lines = log.lines().map_while(Result::ok);
        assert!(lines.any(|line| line.contains("SIGHUP: log-level is info")));
        send(&process, SIGTERM);
        let rest = thread::spawn(move || lines.count());
        let (code, _) = ended(process, "a server that has started");
        assert_eq!(code, Some(0));
        rest.join().expect("it reads to the end");
    }
}
