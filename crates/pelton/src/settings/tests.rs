use super::*;
use crate::arguments::Arguments;
use clap::CommandFactory;

fn file(text: &str) -> SettingsFile {
    SettingsFile::parse(text).expect(text)
}

#[test]
fn flags_are_stronger_than_the_file() {
    let flags = ServeArguments {
        threads: Some(3),
        ..ServeArguments::default()
    };
    let settings = Settings::resolve(&flags, &file("threads = 2\nmax-streams = 7")).expect("valid");
    assert_eq!((settings.threads, settings.max_streams), (3, 7));
    assert_eq!(
        settings.max_connections,
        net::limits::MAX_CONNECTIONS,
        "untouched: the default"
    );
}

#[test]
fn the_file_takes_numbers_and_texts() {
    let text = r#"
        listen = ["127.0.0.1:0", "unix:/run/x.sock"]
        memory-limit = 1073741824
        max-value = "2MiB"
        pin = "0,1"
        interop = true
        drain-timeout = "3s"
        log-level = "debug"
    "#;
    let settings = Settings::resolve(&ServeArguments::default(), &file(text)).expect("valid");
    assert_eq!(settings.listen.len(), 2);
    assert_eq!(settings.memory_limit, MemoryLimit::Bytes(Size(1 << 30)));
    assert_eq!(settings.max_value, Size(2 << 20));
    assert_eq!(settings.pin.0, [0, 1]);
    assert!(settings.interop);
    assert_eq!(settings.drain_timeout.ms, 3_000);
    assert_eq!(settings.log_level, LogLevel::Debug);
    let one = file("listen = 'localhost:1'");
    assert_eq!(
        one.arguments.listen.map(|list| list.len()),
        Some(1),
        "one address needs no list"
    );
}

#[test]
fn an_empty_path_is_refused() {
    let names = [
        "data",
        "backup-root",
        "tls-cert",
        "tls-key",
        "tls-self-signed",
        "client-ca",
    ];
    for name in names {
        let text = format!("{name} = ''");
        let refused = Settings::resolve(&ServeArguments::default(), &file(&text));
        let error = refused.expect_err(&text).to_string();
        let expected = format!("{name} is empty, which is not possible: write a path");
        assert!(error.starts_with(&expected), "{error}");
    }
}

#[test]
fn what_is_said_of_tls_goes_together() {
    let with = |text: &str| Settings::resolve(&ServeArguments::default(), &file(text));
    for (text, expected) in [
        ("tls-cert = 'c'", "tls-cert needs tls-key"),
        ("tls-key = 'k'", "tls-key needs tls-cert"),
        (
            "tls-cert = 'c'\ntls-key = 'k'\ntls-self-signed = 'd'",
            "take one of the two",
        ),
        ("listen = 'tls:127.0.0.1:1'", "listen has tls:127.0.0.1:1"),
        ("client-ca = 'a'", "client-ca needs TLS"),
        (
            "client-auth = 'optional'\ntls-self-signed = 'd'",
            "client-auth needs client-ca",
        ),
        (
            "listen = 'unix:/x'\ntls-self-signed = 'd'",
            "no address in listen with TLS",
        ),
        (
            "listen = 'plain:[::1]:1'\ntls-cert = 'c'\ntls-key = 'k'",
            "no address in listen",
        ),
    ] {
        let error = with(text).expect_err(text).to_string();
        assert!(error.contains(expected), "{text}: {error}");
    }
    let both = with("listen = ['tls:[::1]:1', 'plain:[::1]:2', 'unix:/x']\ntls-self-signed = 'd'");
    let both = both.expect("valid");
    let tls: Vec<bool> = both.listen.iter().map(|one| one.has_tls(true)).collect();
    assert_eq!(tls, [true, false, false]);
    assert!(matches!(
        both.certificate(),
        Some(CertificateSource::SelfSigned(_))
    ));
}

#[test]
fn where_data_are_kept() {
    let folder = |text: &str| {
        let settings = Settings::resolve(&ServeArguments::default(), &file(text));
        let folder = settings.expect(text).folder().map(Path::to_owned);
        folder.map(|folder| folder.display().to_string())
    };
    assert_eq!(folder("").as_deref(), Some("pelton-data"));
    assert_eq!(folder("data = '/x'").as_deref(), Some("/x"));
    assert_eq!(folder("durability = 'volatile'"), None);
    assert_eq!(
        folder("durability = 'volatile'\ndata = 'y'").as_deref(),
        Some("y"),
        "for the other databases"
    );
}

#[test]
fn a_wrong_file_is_explained() {
    for (text, expected) in [
        ("threads = 'many'", "threads = 'many'"),
        ("max-value = '4G'", "4GiB"),
        ("listen = ['nowhere']", "write host:port"),
        ("memory-limit = true", "a text or a number"),
        ("drain-timeout = 10", "10s"),
        ("threads = ", "line 1"),
        ("durability = 'fast'", "interval=100ms"),
    ] {
        let message = SettingsFile::parse(text).expect_err(text).to_string();
        assert!(
            message.contains(expected),
            "{text}: {expected:?} is missing in\n{message}"
        );
    }
}

/// Nobody who writes a file knows the types of the program.
#[test]
fn a_file_that_is_wrong_is_explained_in_words() {
    let folder = std::env::temp_dir().join(format!("pelton-words-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("made");
    let path = folder.join("pelton.toml");
    for (text, expected) in [
        (
            &b"max-valu = 3"[..],
            "there is no setting `max-valu`; did you mean `max-value`?",
        ),
        (
            b"max_value = '1MiB'",
            "`max_value`; did you mean `max-value`?",
        ),
        (
            b"[server]\nthreads = 1",
            "there is no setting `server`; settings stand in no table",
        ),
        (
            b"zzz = 1",
            "there is no setting `zzz`; `pelton config print` shows",
        ),
        (b"threads = 'many'", "write a whole number"),
        (b"threads = -1", "write a whole number"),
        (b"interop = 'yes'", "write true or false"),
        (b"data = pelton", "a text stands in quotes"),
        (b"data = 'gr\xfcn'", "is not UTF-8 text"),
    ] {
        std::fs::write(&path, text).expect("written");
        let arguments = ServeArguments {
            config: Some(path.clone()),
            ..ServeArguments::default()
        };
        let message = Settings::load(&arguments).expect_err(expected).to_string();
        assert!(
            message.contains(expected),
            "{expected:?} is missing in\n{message}"
        );
        for foreign in ["usize", "u32", "unknown field", "stream did not"] {
            assert!(!message.contains(foreign), "{message}");
        }
    }
    std::fs::remove_dir_all(&folder).expect("it was there");
}

#[test]
fn a_mark_of_the_encoding_is_no_setting() {
    let marked = SettingsFile::parse("\u{feff}threads = 3\n").expect("valid");
    assert_eq!(marked.arguments.threads, Some(3));
}

#[test]
fn a_wrong_value_is_told_with_its_place_in_the_file() {
    let file = file("# ours\nthreads = 2\n  max-value='2GiB' # much\n");
    let refused = |arguments: &ServeArguments| {
        let error = Settings::resolve(arguments, &file).expect_err("too large");
        in_file(error, &file).to_string()
    };
    let told = refused(&ServeArguments::default());
    let expected = "line 3: max-value='2GiB' # much: not possible: write 1 to ";
    assert!(told.contains(expected), "{told}");
    // What a flag says does not stand there.
    let flag = ServeArguments {
        threads: Some(0),
        ..ServeArguments::default()
    };
    let told = refused(&flag);
    assert!(told.starts_with("threads is 0"), "{told}");
}

#[test]
fn what_no_server_can_run_with_is_refused() {
    for (text, expected) in [
        ("threads = 0", "threads is 0"),
        ("listen = []", "at least one address"),
        ("max-value = '2GiB'", "write 1 to 1GiB"),
        ("max-streams = 0", "max-streams"),
        ("max-connections = 0", "max-connections"),
        ("memory-limit = '1KiB'", "memory-limit"),
        ("stream-window = 1", "stream-window"),
        ("log-segment = 1", "log-segment is 1"),
        ("log-segment = '2GiB'", "write 64KiB to 1GiB"),
        ("connection-window = '4GiB'", "connection-window"),
        ("tcp-send-buffer = 1", "tcp-send-buffer"),
        ("slow-call-keys = 'prefix'", "slow-call is not given"),
        ("otlp-sample = 1", "otlp-endpoint is not given"),
        ("otlp-ca = '/x'", "otlp-endpoint is not given"),
        (
            "otlp-ca = '/x'\notlp-endpoint = 'http://a:1'",
            "write https:// in otlp-endpoint",
        ),
        ("otlp-service-name = ''", "otlp-service-name is empty"),
    ] {
        let error = Settings::resolve(&ServeArguments::default(), &file(text)).expect_err(text);
        assert!(error.to_string().contains(expected), "{text}: {error}");
    }
}

/// Nearly every flag of `serve` is a setting, and is printed under its own name.
#[test]
fn what_is_printed_is_what_there_is() {
    let settings = Settings::resolve(&ServeArguments::default(), &file("")).expect("valid");
    let printed: Vec<&str> = settings.lines().iter().map(|(name, _)| *name).collect();
    let command = Arguments::command();
    let serve = command
        .find_subcommand("serve")
        .expect("serve is a command");
    let flags: Vec<&str> = serve
        .get_arguments()
        .filter_map(|argument| argument.get_long())
        .collect();
    // What concerns a single start only is no setting.
    let is_setting = |name: &&str| !["config", "accept-loss"].contains(name);
    let flags: Vec<&str> = flags.into_iter().filter(is_setting).collect();
    assert_eq!(printed, flags);
}

#[test]
fn what_is_printed_can_be_read_back() {
    let text = "threads = 5\nmax-value = '3MiB'\npin = '0-2'\ntcp-send-buffer = '64KiB'";
    let before = Settings::resolve(&ServeArguments::default(), &file(text)).expect("valid");
    let matches = Arguments::command()
        .try_get_matches_from(["pelton", "config", "print"])
        .expect("valid");
    let matches = matches
        .subcommand()
        .and_then(|(_, config)| config.subcommand())
        .expect("print")
        .1;
    let printed = before.to_toml(matches, &file(text));
    let after = Settings::resolve(&ServeArguments::default(), &file(&printed)).expect("valid");
    assert_eq!(before.lines(), after.lines());
    let line = |name: &str| {
        printed
            .lines()
            .find(|line| line.starts_with(name))
            .expect("printed")
    };
    assert!(line("threads").ends_with("# file"), "{printed}");
    assert!(line("max-streams").ends_with("# default"), "{printed}");
}
