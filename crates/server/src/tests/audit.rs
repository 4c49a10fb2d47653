//! The lines of the audit trail: one for each call that administrates, and some for denials.

use std::sync::Arc;

use net::tls::{Agreed, PeerCertificate};
use service::Method;
use service::identities::{Identity, IdentityRecord, IssuedToken, NEVER_MS, TOKEN_BYTES, Token};
use service::rights::{Grant, Rights};
use store::{Clock, Condition, DatabaseId, Expiry, Mode, Operation, Outcomes, Store};
use wire::grpc::{Code, Metadata};
use wire::{ErrorCode, Event, RequestHead, StreamKey};

use super::path;
use crate::limits::{
    ACTION_LINES_PER_CALLER, DENIAL_LINE_CONNECTION_MS, DENIAL_LINES_PER_CONNECTION,
};
use crate::pair::Pair;

fn header(number: u8) -> String {
    format!("Bearer {}", *Token::new([number; TOKEN_BYTES]).text())
}

fn rights(text: &str) -> Rights {
    Rights::new(vec![text.parse::<Grant>().expect("a right")])
}

/// A message whose fields are these texts.
fn message(fields: &[(u32, &str)]) -> Vec<u8> {
    let mut message = Vec::new();
    for (field, text) in fields {
        protobuf::writer::bytes(&mut message, *field, text.as_bytes());
    }
    message
}

/// A connection to a server where nobody may do anything without a token, with tokens for these
/// rights: 1, 2 and so on.
fn open(of_tokens: &[&str]) -> Pair {
    let pair = Pair::of(Rights::default());
    let identities = &pair.handler.shared().identities;
    let one = |(number, right): (usize, &&str)| {
        let number = number as u8 + 1;
        let issued = IssuedToken {
            hash: identities.key().hash(&Token::new([number; TOKEN_BYTES])),
            expires_ms: NEVER_MS,
        };
        let made = Identity::new(&format!("n{number}"), rights(right), NEVER_MS, vec![issued]);
        made.expect("a sound identity")
    };
    let all: Vec<Identity> = of_tokens.iter().enumerate().map(one).collect();
    store_identities(&pair.handler.shared().store, &all);
    identities.replace(all, 0).expect("they differ");
    pair
}

/// Puts them where changes of tokens look for who asks for them.
fn store_identities(store: &Store, all: &[Identity]) {
    let mut batch = store.write_batch();
    let mut commit = batch.begin(0, DatabaseId::IDENTITIES, Mode::Atomic);
    for identity in all {
        let record = IdentityRecord {
            identity: identity.clone().into(),
            created_ms: 0,
        };
        let pushed = commit.push(&Operation::Put {
            key: identity.name().as_bytes(),
            value: &record.encode(),
            condition: Condition::None,
            expiry: Expiry::None,
            want_previous: false,
        });
        pushed.expect("it fits");
    }
    commit.submit();
    let mut outcomes = Outcomes::new();
    drop((store.committer()).run(&mut batch, &mut Unmoved, &mut outcomes));
}

/// A clock that stands.
struct Unmoved;

impl Clock for Unmoved {
    fn now_ns(&mut self) -> u64 {
        0
    }

    fn now_ms(&mut self) -> u64 {
        0
    }
}

fn begin(pair: &mut Pair, method: Method, token: Option<u8>, message: &[u8]) -> StreamKey {
    let header = token.map(header);
    pair.call_with((&path(method), header.as_deref()), message, true)
}

fn call(pair: &mut Pair, method: Method, token: Option<u8>, message: &[u8]) -> Code {
    let call = begin(pair, method, token, message);
    for _ in 0..6 {
        for event in pair.turn() {
            if event == (Event::Finished { stream: call }) {
                let code = pair.client.status().code();
                pair.client.forget(call);
                return code;
            }
        }
    }
    panic!("the call has not ended");
}

fn lines(pair: &Pair) -> Vec<String> {
    std::mem::take(&mut *pair.audited.lock().expect("one thread"))
}

fn create_database(name: &str) -> Vec<u8> {
    let described = message(&[(1, name)]);
    let mut request = Vec::new();
    protobuf::writer::bytes(&mut request, 1, &described);
    request
}

#[test]
fn each_call_that_administrates_has_a_line() {
    let mut pair = open(&["admin"]);
    for (method, request, line) in [
        (
            Method::AdminCreateDatabase,
            create_database("o\nrders"),
            "administration|CreateDatabase|o\nrders||n1|",
        ),
        (
            Method::AdminDropDatabase,
            message(&[(1, "")]),
            "administration|DropDatabase|default||n1|",
        ),
        (
            Method::AdminConvertDatabase,
            [message(&[(1, "gone")]), vec![0x10, 2]].concat(),
            "administration|ConvertDatabase|gone|to disk|n1|",
        ),
        (
            Method::AdminBackup,
            message(&[(1, "copy")]),
            "administration|Backup|copy||n1|",
        ),
        (
            Method::AdminSnapshot,
            Vec::new(),
            "administration|Snapshot|||n1|",
        ),
        (
            Method::AdminListTokens,
            Vec::new(),
            "token|ListTokens|||n1|",
        ),
        (
            Method::AdminRevokeToken,
            message(&[(1, "gone")]),
            "token|RevokeToken|gone||n1|",
        ),
    ] {
        for _ in 0..2 {
            let code = call(&mut pair, method, Some(1), &request);
            assert_eq!(lines(&pair), [format!("{line}{}", code.name())]);
        }
    }
    // What does not administrate has none.
    assert_eq!(call(&mut pair, Method::Get, Some(1), b""), Code::Ok);
    assert_eq!(
        call(&mut pair, Method::AdminStatistics, Some(1), b""),
        Code::Ok
    );
    assert!(lines(&pair).is_empty());
}

#[test]
fn changes_of_tokens_name_them_and_their_rights_and_who_has_made_them() {
    let mut pair = Pair::open();
    for _ in 0..2 {
        let wanted = message(&[(1, "ci"), (2, "read:a"), (2, "write:b/x/")]);
        let code = call(&mut pair, Method::AdminCreateToken, None, &wanted);
        assert_eq!(code, Code::Ok);
        let name = message(&[(1, "ci")]);
        assert_eq!(
            call(&mut pair, Method::AdminRotateToken, None, &name),
            Code::Ok
        );
        assert_eq!(
            call(&mut pair, Method::AdminRevokeToken, None, &name),
            Code::Ok
        );
        let expected = [
            "token|CreateToken|ci|read:a,write:b/x/|(anonymous)|OK",
            "token|RotateToken|ci||(anonymous)|OK",
            "token|RevokeToken|ci||(anonymous)|OK",
        ];
        assert_eq!(lines(&pair), expected);
    }
}

/// Whoever makes a token with a right that reads as several shows it as one.
#[test]
fn a_right_with_a_comma_is_not_taken_for_several() {
    let mut pair = Pair::open();
    for _ in 0..2 {
        let wanted = message(&[(1, "ci"), (2, "read:a/x,admin"), (2, "read:b")]);
        let code = call(&mut pair, Method::AdminCreateToken, None, &wanted);
        assert_eq!(code, Code::Ok);
        let line = r#"token|CreateToken|ci|"read:a/x,admin",read:b|(anonymous)|OK"#;
        assert_eq!(lines(&pair), [line]);
        let wanted = message(&[(1, "other"), (2, "read:a/\nb")]);
        let code = call(&mut pair, Method::AdminCreateToken, None, &wanted);
        assert_eq!(code, Code::InvalidArgument);
        let line = r#"token|CreateToken|other|"read:a/\nb"|(anonymous)|INVALID_ARGUMENT"#;
        assert_eq!(lines(&pair), [line]);
        let name = message(&[(1, "ci")]);
        call(&mut pair, Method::AdminRevokeToken, None, &name);
        lines(&pair);
    }
}

/// A caller that leaves has asked for it all the same.
#[test]
fn a_call_that_administrates_and_is_given_up_has_a_line() {
    let mut pair = open(&["admin"]);
    for _ in 0..2 {
        let mut metadata = Metadata::new();
        let pushed = metadata.push_ascii("authorization", header(1));
        pushed.expect("it may stand in a header");
        let path = path(Method::AdminBackup);
        let head = RequestHead {
            metadata: Some(&metadata),
            ..RequestHead::call("test", &path)
        };
        let opened = pair.client.open(&mut pair.sent, &head);
        let call = opened.expect("a stream is free");
        pair.turn();
        assert!(lines(&pair).is_empty() && pair.handler.running() == 1);
        (pair.client).reset(call, &mut pair.sent, ErrorCode::Cancel);
        pair.client.forget(call);
        pair.turn();
        assert_eq!(lines(&pair), ["administration|Backup|||n1|CANCELLED"]);
        assert_eq!(pair.handler.running(), 0);
    }
}

#[test]
fn denials_have_lines_with_who_and_why() {
    let mut pair = open(&["read:a", "admin:a"]);
    let denied =
        |call: &str, who: &str, why: &str| format!("denial|{call}||{why}|{who}|PERMISSION_DENIED");
    for _ in 0..2 {
        pair.now_ns += 100 * DENIAL_LINE_CONNECTION_MS * 1_000_000;
        // Before the call begins, and within it.
        call(&mut pair, Method::Put, Some(1), b"");
        call(&mut pair, Method::Get, Some(1), b"");
        let name = message(&[(1, "b")]);
        call(&mut pair, Method::AdminDropDatabase, Some(2), &name);
        let [put, get, dropped] = <[String; 3]>::try_from(lines(&pair)).expect("three lines");
        let why = "the call needs the right `write`, which it has nowhere: the token of \"n1\" is \
                   not good for it";
        assert_eq!(put, denied("Put", "n1", why));
        let why = "the call needs the right `read:default`: the token of \"n1\" is not good for it";
        let on_default = |line: String| line.replace("||", "|default|");
        assert_eq!(get, on_default(denied("Get", "n1", why)));
        let why = "the call needs the right `admin:b`: the token of \"n2\" is not good for it";
        assert_eq!(
            dropped,
            denied("DropDatabase", "n2", why).replace("||", "|b|")
        );
        call(&mut pair, Method::Get, None, b"");
        call(&mut pair, Method::Get, Some(9), b"");
        let unknown = lines(&pair);
        assert_eq!(unknown.len(), 2);
        for (line, who) in unknown.iter().zip(["(anonymous)", "(unknown)"]) {
            let end = format!("|{who}|UNAUTHENTICATED");
            assert!(
                line.starts_with("denial|Get||") && line.ends_with(&end),
                "{line}"
            );
        }
    }
}

#[test]
fn a_connection_that_is_denied_again_and_again_has_few_lines_and_all_are_counted() {
    let mut pair = open(&["read:a"]);
    const CALLS: u64 = 100;
    for _ in 0..2 {
        pair.now_ns += 100 * DENIAL_LINE_CONNECTION_MS * 1_000_000;
        for _ in 0..CALLS {
            call(&mut pair, Method::Put, Some(1), b"");
        }
        assert_eq!(lines(&pair).len() as u64, DENIAL_LINES_PER_CONNECTION);
        pair.now_ns += DENIAL_LINE_CONNECTION_MS * 1_000_000;
        call(&mut pair, Method::Put, Some(1), b"");
        let missed = CALLS - DENIAL_LINES_PER_CONNECTION;
        let [line] = &lines(&pair)[..] else {
            panic!("one line");
        };
        assert!(
            line.ends_with(&format!("|PERMISSION_DENIED|{missed}")),
            "{line}"
        );
        // Others who call meanwhile on another connection have their own.
        pair.close();
        pair.accept(false);
        pair.client = wire::Connection::new(&wire::Config::client(), pair.now_ns);
        pair.io = net::Io::new();
        pair.greet();
        call(&mut pair, Method::Get, None, b"");
        assert_eq!(lines(&pair).len(), 1);
    }
}

/// However much somebody lists, or is refused, before he changes something.
#[test]
fn lists_and_refusals_hide_no_change() {
    let mut pair = open(&["admin"]);
    for _ in 0..2 {
        pair.now_ns += 100 * DENIAL_LINE_CONNECTION_MS * 1_000_000;
        for _ in 0..ACTION_LINES_PER_CALLER {
            call(&mut pair, Method::AdminListRoles, Some(1), b"");
        }
        let refused = message(&[(1, "gone")]);
        call(&mut pair, Method::AdminRevokeToken, Some(1), &refused);
        assert_eq!(lines(&pair).len() as u64, ACTION_LINES_PER_CALLER);
        for (method, request, line) in [
            (
                Method::AdminCreateToken,
                message(&[(1, "hidden"), (2, "admin"), (4, "uid:7")]),
                "token|CreateToken|hidden|admin for uid:7|n1|OK",
            ),
            (
                Method::AdminRevokeToken,
                message(&[(1, "hidden")]),
                "token|RevokeToken|hidden||n1|OK",
            ),
            (
                Method::AdminSetRole,
                message(&[(1, "dev"), (2, "read")]),
                "token|SetRole|dev|read|n1|OK",
            ),
        ] {
            assert_eq!(call(&mut pair, method, Some(1), &request), Code::Ok);
            assert_eq!(lines(&pair), [line]);
        }
        pair.now_ns += 100 * DENIAL_LINE_CONNECTION_MS * 1_000_000;
        call(&mut pair, Method::AdminListRoles, Some(1), b"");
        assert_eq!(lines(&pair), ["token|ListRoles|||n1|OK|1"]);
    }
}

/// A stream whose token is revoked, or may do less than before, ends as denied, and its line says
/// whose it was.
#[test]
fn the_end_of_a_call_whose_token_was_revoked_has_a_line() {
    for (right, why) in [(None, "was revoked"), (Some("read:a"), "were changed")] {
        let mut pair = open(&["read"]);
        let watch = begin(&mut pair, Method::HealthWatch, Some(1), b"");
        pair.turn();
        let identities = &pair.handler.shared().identities;
        let issued = IssuedToken {
            hash: identities.key().hash(&Token::new([1; TOKEN_BYTES])),
            expires_ms: NEVER_MS,
        };
        let less = |right| Identity::new("n1", rights(right), NEVER_MS, vec![issued]);
        let left = right.map(|right| less(right).expect("sound"));
        let replaced = identities.replace(left.into_iter().collect(), 0);
        replaced.expect("at most one");
        pair.turn();
        let ended = lines(&pair);
        assert_eq!(ended.len(), 1, "{ended:?}");
        assert!(ended[0].contains(why), "{ended:?}");
        assert!(ended[0].ends_with("|n1|UNAUTHENTICATED"), "{ended:?}");
        pair.client.forget(watch);
    }
}

/// Whoever shows a certificate, or is known as a user, learns that this is bound to no name; its
/// line says which one it is.
#[test]
fn who_shows_what_is_bound_to_nobody_is_told_so() {
    let certificate = PeerCertificate {
        fingerprint: [7; 32],
        not_after_s: u64::MAX,
        names: Vec::new(),
        trust: None,
    };
    let fingerprint = format!("(sha256:{})|", "07".repeat(32));
    for (certificate, user, why, shown) in [
        (
            Some(certificate),
            None,
            "the certificate of this connection was seen",
            &*fingerprint,
        ),
        (
            None,
            Some(1000),
            "user 1000, whose process calls",
            "(uid:1000)|",
        ),
        (None, None, "`authorization: Bearer pelton_…`", "|"),
    ] {
        let agreed = certificate.map(|certificate| Agreed {
            application: Some(b"h2".to_vec()),
            resumed: false,
            certificate: Some(Arc::new(certificate)),
        });
        let mut pair = Pair::of_peer(Rights::default(), agreed, user);
        for token in [None, Some(9)] {
            assert_eq!(
                call(&mut pair, Method::Get, token, b""),
                Code::Unauthenticated
            );
            let [line] = <[String; 1]>::try_from(lines(&pair)).expect("one line");
            assert_eq!(line.contains(why), token.is_none(), "{line}");
            let is_shown = line.contains(&format!("{shown}(anonymous)"));
            assert_eq!(is_shown, token.is_none(), "{line}");
        }
    }
}
