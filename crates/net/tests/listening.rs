//! Listeners: what can go wrong when binding, and what is left behind.

mod common;

use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};

use common::{Directory, Server, one_loop};
use net::{Address, BindError, LoopConfig, Loops};

fn bind_error(address: &Address) -> BindError {
    let config = LoopConfig {
        listen: vec![address.clone().into()],
        ..one_loop()
    };
    match Loops::bind(config) {
        Ok(_) => panic!("bound {address}"),
        Err(error) => error,
    }
}

#[test]
fn a_port_in_use_is_named() {
    let server = Server::start(one_loop());
    let error = bind_error(&server.addresses[0]);
    assert!(matches!(&error, BindError::InUse { address } if *address == server.addresses[0]));
    let said = format!(
        "cannot listen on {}: another process listens there",
        server.addresses[0]
    );
    assert_eq!(error.to_string(), said);
}

#[test]
fn the_port_chosen_by_the_system_is_reported_and_names_become_numbers() {
    let config = LoopConfig {
        listen: vec!["localhost:0".parse().expect("valid")],
        ..one_loop()
    };
    let loops = Loops::bind(config).expect("every machine has localhost");
    let Address::Tcp { host, port } = &loops.addresses()[0] else {
        panic!("not TCP")
    };
    assert!(
        *port > 0
            && host
                .parse::<std::net::IpAddr>()
                .expect("a number")
                .is_loopback()
    );
}

#[test]
fn other_errors_name_address_and_cause() {
    let unknown = bind_error(&"no.such.host.invalid:1".parse().expect("valid form"));
    assert!(
        matches!(unknown, BindError::UnknownHost { .. }),
        "{unknown}"
    );
    let foreign = bind_error(&"192.0.2.1:1978".parse().expect("valid form"));
    assert!(
        foreign
            .to_string()
            .starts_with("cannot listen on 192.0.2.1:1978: "),
        "{foreign}"
    );
    let nowhere = bind_error(
        &"unix:/no/such/directory/socket"
            .parse()
            .expect("valid form"),
    );
    assert!(matches!(nowhere, BindError::Failed { .. }), "{nowhere}");
    assert!(matches!(
        Loops::bind(LoopConfig {
            listen: Vec::new(),
            ..one_loop()
        }),
        Err(BindError::NoAddress)
    ));
    for threads in [0, 1_000_000] {
        let result = Loops::bind(LoopConfig {
            threads,
            ..one_loop()
        });
        assert!(matches!(result, Err(BindError::Threads(_))));
    }
}

#[test]
fn a_stale_socket_file_is_replaced_and_ours_removed() {
    let directory = Directory::new("stale");
    let path = directory.0.join("socket");
    drop(UnixListener::bind(&path).expect("free")); // a killed server leaves its file
    assert!(path.exists());
    let listen = vec![directory.socket().into()];
    let server = Server::start(LoopConfig {
        listen,
        unix_mode: 0o640,
        ..one_loop()
    });
    let mode = std::fs::metadata(&path)
        .expect("bound")
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o640);
    let mut stream = server.connect_unix(0);
    stream.write_all(b"x").expect("open");
    stream.read_exact(&mut [0]).expect("echo");
    drop(stream);
    let user = server.habits.peers.lock().expect("no panic")[0].user;
    assert_eq!(user, Some(rustix::process::geteuid().as_raw()));
    assert!(server.stop().expect("runs").drained);
    assert!(!path.exists());
}

#[test]
fn a_living_socket_or_another_kind_of_file_is_left_alone() {
    let directory = Directory::new("alive");
    let path = directory.0.join("socket");
    let _alive = UnixListener::bind(&path).expect("free");
    assert!(matches!(
        bind_error(&directory.socket()),
        BindError::InUse { .. }
    ));
    UnixStream::connect(&path).expect("still there");
    let file = directory.0.join("file");
    std::fs::write(&file, "precious").expect("writable");
    let error = bind_error(&Address::Unix(file.clone()));
    assert!(matches!(error, BindError::NotASocket { .. }), "{error}");
    assert_eq!(std::fs::read(&file).expect("still there"), b"precious");
}

#[test]
fn a_socket_file_that_was_replaced_is_not_removed() {
    let directory = Directory::new("replaced");
    let path = directory.0.join("socket");
    let server = Server::start(LoopConfig {
        listen: vec![directory.socket().into()],
        ..one_loop()
    });
    std::fs::remove_file(&path).expect("bound");
    let _successor = UnixListener::bind(&path).expect("free");
    assert!(server.stop().expect("runs").drained);
    assert!(path.exists(), "it is the successor's");
}
