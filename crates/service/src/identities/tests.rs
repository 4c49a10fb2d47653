use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;
use crate::limits::{GRANTS_MAX, IDENTITY_NAME_BYTES_MAX};
use crate::rights::{Grant, Right};

fn identities() -> Identities {
    let listeners = vec![Rights::everything(), Rights::default()];
    Identities::new(TokenKey::new(&[9; 32]), listeners)
}

fn token(number: u8) -> Token {
    Token::new([number; TOKEN_BYTES])
}

fn header(number: u8) -> String {
    format!("Bearer {}", *token(number).text())
}

fn rights(texts: &[&str]) -> Rights {
    let grants = texts.iter().map(|text| text.parse().expect(text));
    Rights::new(grants.collect::<Vec<Grant>>())
}

/// An identity of these tokens, each with the time when it expires.
fn identity(key: &TokenKey, name: &str, expires_ms: u64, tokens: &[(u8, u64)]) -> Identity {
    let issued = tokens.iter().map(|&(number, expires_ms)| IssuedToken {
        hash: key.hash(&token(number)),
        expires_ms,
    });
    let rights = rights(&[&format!("read:{name}")]);
    Identity::new(name, rights, expires_ms, issued.collect()).expect("a sound identity")
}

#[test]
fn a_listener_stands_for_those_without_a_token_in_every_table() {
    let identities = identities();
    for round in 0..3 {
        let table = identities.table();
        let of = |listener| table.get(table.of_listener(listener));
        let everything = of(0).expect("the first listener");
        assert!(everything.is_anonymous() && everything.name().is_empty());
        assert!(everything.rights().on_server(Right::Admin));
        assert!(of(1).expect("the second listener").rights().is_nothing());
        // The slot behind them is that of a token, and no listener's.
        assert_eq!(table.of_listener(2), IdentityKey::NOBODY);
        assert!(of(2).is_none() && of(usize::MAX).is_none());
        let new = identity(identities.key(), "one", NEVER_MS, &[(round, NEVER_MS)]);
        identities.replace(vec![new], 0).expect("one identity");
    }
}

#[test]
fn a_token_is_good_until_it_is_revoked_and_again_when_it_was_made_again() {
    let identities = identities();
    let mut keys = Vec::new();
    for _ in 0..2 {
        let before = identities.table();
        assert_eq!(
            before.resolve(header(1).as_bytes(), 0),
            Err(Unauthenticated::Unknown)
        );
        let one = identity(identities.key(), "one", NEVER_MS, &[(1, NEVER_MS)]);
        identities.replace(vec![one], 0).expect("one identity");
        let table = identities.table();
        assert_eq!(table.version(), before.version() + 1);
        assert_eq!(identities.version(), table.version());
        let key = table.resolve(header(1).as_bytes(), 0).expect("it is good");
        assert_eq!(table.get(key).expect("it is there").name(), "one");
        // Whoever holds the table before finds nothing in a slot that was free then.
        assert!(before.get(key).is_none());
        identities.replace(Vec::new(), 0).expect("none");
        assert!(identities.table().get(key).is_none());
        // The slot is the same, and no key of it is found twice.
        assert!(!keys.contains(&key), "{key:?}");
        keys.push(key);
        assert_eq!(identities.table().slots_in_use(), 2);
    }
    assert!(
        keys.iter()
            .all(|&key| identities.table().get(key).is_none())
    );
}

#[test]
fn a_key_stays_good_while_others_come_and_go() {
    let identities = identities();
    let with = |numbers: &[u8]| {
        let one = |&number: &u8| {
            let name = format!("n{number}");
            identity(identities.key(), &name, NEVER_MS, &[(number, NEVER_MS)])
        };
        let all = numbers.iter().map(one).collect();
        identities.replace(all, 0).expect("they differ");
        identities.table()
    };
    let key = with(&[5]).resolve(header(5).as_bytes(), 0).expect("good");
    for numbers in [&[1, 2, 5][..], &[5], &[9, 5, 8, 7], &[5, 6]] {
        let table = with(numbers);
        assert_eq!(table.get(key).expect("it stays").name(), "n5");
        for &number in numbers {
            let key = table.resolve(header(number).as_bytes(), 0).expect("good");
            let name = format!("n{number}");
            assert_eq!(table.get(key).expect("it is there").name(), name);
        }
    }
    // As many slots as there ever were at once, beside those of the listeners.
    assert_eq!(identities.table().slots(), 2 + 4);
    assert_eq!(identities.table().slots_in_use(), 2 + 2);
}

#[test]
fn what_may_be_done_changes_for_new_calls_and_ends_those_that_run() {
    let identities = identities();
    let hash = identities.key().hash(&token(1));
    let with = |right: &str| {
        let issued = IssuedToken {
            hash,
            expires_ms: NEVER_MS,
        };
        let one = Identity::new("one", rights(&[right]), NEVER_MS, vec![issued]);
        let replaced = identities.replace(vec![one.expect("sound")], 0);
        replaced.expect("one identity");
        identities.table()
    };
    for _ in 0..2 {
        let key = with("write")
            .resolve(header(1).as_bytes(), 0)
            .expect("good");
        assert!(with("write").get(key).is_some());
        let table = with("read");
        assert!(table.get(key).is_none());
        assert_eq!(table.why_ended(key), Unauthenticated::RightsChanged);
        assert_eq!(table.get_former(key).map(Identity::name), Some("one"));
        let key = table.resolve(header(1).as_bytes(), 0).expect("good");
        assert!(
            table
                .get(key)
                .is_some_and(|one| !one.rights().on_server(Right::Write))
        );
    }
}

/// What is said of calls that have run is said of their caller, and not of who came after it.
#[test]
fn a_key_of_somebody_who_was_revoked_names_nobody_but_in_what_is_said() {
    let identities = identities();
    let key = identities.key().clone();
    let with = |numbers: &[u8]| {
        let one = |number: &u8| {
            identity(
                &key,
                &format!("n{number}"),
                NEVER_MS,
                &[(*number, NEVER_MS)],
            )
        };
        let replaced = identities.replace(numbers.iter().map(one).collect(), 0);
        replaced.expect("they differ");
        identities.table()
    };
    for _ in 0..2 {
        let one = with(&[1]).resolve(header(1).as_bytes(), 0).expect("good");
        let name =
            |table: &IdentityTable, key| table.get_former(key).map(|it| it.name().to_owned());
        for numbers in [&[][..], &[2]] {
            let table = with(numbers);
            assert!(table.get(one).is_none());
            assert_eq!(table.why_ended(one), Unauthenticated::Ended);
            assert_eq!(name(&table, one).as_deref(), Some("n1"));
        }
        let table = with(&[]);
        assert_eq!(name(&table, one), None, "two have had its slot since");
        assert_eq!(table.why_ended(one), Unauthenticated::Ended);
    }
}

#[test]
fn a_token_expires_at_its_time_and_not_before() {
    let identities = identities();
    for round in 0..2 {
        let at_ms = 1_000 * (round + 1);
        let key = identities.key();
        let all = vec![
            identity(key, "soon", at_ms, &[(1, NEVER_MS)]),
            identity(key, "late", at_ms + 5, &[(2, NEVER_MS)]),
            identity(key, "never", NEVER_MS, &[(3, NEVER_MS)]),
        ];
        identities.replace(all, 0).expect("they differ");
        let table = identities.table();
        assert_eq!(table.next_expiry_ms(), at_ms);
        let resolve = |number, now_ms| table.resolve(header(number).as_bytes(), now_ms);
        let soon = resolve(1, at_ms - 1).expect("it is good");
        // The table knows before another one is made.
        assert_eq!(resolve(1, at_ms), Err(Unauthenticated::Expired));
        assert!(!identities.expire(at_ms - 1));
        assert_eq!(identities.version(), table.version());
        assert!(identities.expire(at_ms));
        assert!(!identities.expire(at_ms), "once");
        let later = identities.table();
        assert_eq!(later.next_expiry_ms(), at_ms + 5);
        assert!(later.get(soon).is_none());
        // It is told from one that was never there, whatever the time.
        let found = later.resolve(header(1).as_bytes(), 0);
        assert_eq!(found, Err(Unauthenticated::Expired));
        let unknown = later.resolve(header(9).as_bytes(), 0);
        assert_eq!(unknown, Err(Unauthenticated::Unknown));
        assert!(later.resolve(header(3).as_bytes(), at_ms).is_ok());
        assert!(identities.expire(at_ms + 5));
        assert_eq!(identities.table().next_expiry_ms(), NEVER_MS);
        assert!(!identities.expire(NEVER_MS - 1));
        assert_eq!(identities.all().len(), 3);
    }
}

#[test]
fn while_a_token_takes_the_place_of_another_both_are_good() {
    let identities = identities();
    let mut first = (1, NEVER_MS);
    for round in 0..2 {
        let replace = |tokens: &[(u8, u64)]| {
            let one = identity(identities.key(), "one", NEVER_MS, tokens);
            identities.replace(vec![one], 0).expect("one identity");
            identities.table()
        };
        let resolve =
            |table: &IdentityTable, number: u8| table.resolve(header(number).as_bytes(), 0);
        let old = resolve(&replace(&[first]), first.0).expect("good");
        let second = (10 + round, NEVER_MS);
        let both = replace(&[(first.0, 500), second]);
        let new = resolve(&both, second.0).expect("good");
        assert_eq!(resolve(&both, first.0), Ok(old), "what runs goes on");
        assert_ne!(old, new);
        assert!(identities.expire(500));
        let after = identities.table();
        assert!(after.get(old).is_none(), "each token ends by itself");
        assert_eq!(resolve(&after, second.0), Ok(new));
        let alone = replace(&[second]);
        assert_eq!(resolve(&alone, first.0), Err(Unauthenticated::Unknown));
        assert_eq!(resolve(&alone, second.0), Ok(new));
        first = second;
    }
    assert_eq!(identities.table().slots(), 2 + 2);
}

#[test]
fn what_is_no_token_is_told_from_one_that_nobody_knows() {
    let table = identities().table();
    for (value, why) in [
        ("", Unauthenticated::NoToken),
        ("Bearer", Unauthenticated::NoToken),
        ("Basic dXNlcjpwYXNz", Unauthenticated::NoToken),
        (&header(1), Unauthenticated::Unknown),
    ] {
        assert_eq!(table.resolve(value.as_bytes(), 0), Err(why), "{value:?}");
    }
}

#[test]
fn loops_are_woken_by_each_change_as_long_as_they_live() {
    let identities = identities();
    let woken = Arc::new(AtomicUsize::new(0));
    let waker = || -> Arc<LoopWaker> {
        let woken = Arc::clone(&woken);
        Arc::new(move || {
            woken.fetch_add(1, Ordering::Relaxed);
        })
    };
    let stays = waker();
    identities.wake_on_change(&stays);
    for round in 1..=100 {
        let goes = waker();
        identities.wake_on_change(&goes);
        identities.replace(Vec::new(), 0).expect("none");
        assert_eq!(woken.load(Ordering::Relaxed), 2 * round);
    }
    assert!(
        identities.lock_wakers().len() <= 8,
        "those that went are forgotten"
    );
}

#[test]
fn what_is_too_much_is_refused_and_changes_nothing() {
    let identities = identities();
    let key = identities.key().clone();
    let hash = |number: usize| {
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&number.to_be_bytes());
        TokenHash::from_bytes(bytes)
    };
    let many = |count: usize| -> Vec<Identity> {
        let one = |number| {
            let issued = IssuedToken {
                hash: hash(number),
                expires_ms: NEVER_MS,
            };
            let name = format!("n{number}");
            Identity::new(&name, Rights::default(), NEVER_MS, vec![issued]).expect("sound")
        };
        (0..count).map(one).collect()
    };
    for _ in 0..2 {
        identities
            .replace(many(IDENTITIES_MAX), 0)
            .expect("as many as may be");
        assert_eq!(identities.table().slots_in_use(), 2 + IDENTITIES_MAX);
        let version = identities.version();
        let one = |name: &str, number| identity(&key, name, NEVER_MS, &[(number, NEVER_MS)]);
        for (all, error) in [
            (
                many(IDENTITIES_MAX + 1),
                IdentitiesError::TooMany(IDENTITIES_MAX + 1),
            ),
            (
                vec![one("a", 1), one("b", 2), one("a", 3)],
                IdentitiesError::SameName("a".into()),
            ),
            (
                vec![one("a", 1), one("b", 1)],
                IdentitiesError::SameProof("a".into()),
            ),
        ] {
            assert_eq!(identities.replace(all, 0), Err(error));
            assert_eq!(identities.version(), version);
        }
        identities.replace(Vec::new(), 0).expect("none");
        assert_eq!(identities.table().slots_in_use(), 2);
    }
}

#[test]
fn an_identity_has_a_name_and_not_too_much() {
    let issued = IssuedToken {
        hash: TokenHash::from_bytes([0; 32]),
        expires_ms: NEVER_MS,
    };
    let make = |name: &str, grants: usize, tokens: usize| {
        let rights = rights(&vec!["read"; grants]);
        Identity::new(name, rights, NEVER_MS, vec![issued; tokens]).map(|_| ())
    };
    let longest = "x".repeat(IDENTITY_NAME_BYTES_MAX);
    assert_eq!(make(&longest, GRANTS_MAX, TOKENS_PER_IDENTITY_MAX), Ok(()));
    assert_eq!(make("ci.deploy-1_a", 0, 1), Ok(()));
    // As CreateToken has it: no other name is ever stored.
    let longer = format!("{longest}x");
    for name in ["", "a b", "a\n", "ä", "a/b", "a@b", "role:a", ".a", &longer] {
        assert_eq!(make(name, 1, 1), Err(IdentityError::Name), "{name:?}");
    }
    let error = IdentityError::TooManyGrants(GRANTS_MAX + 1);
    assert_eq!(make("a", GRANTS_MAX + 1, 1), Err(error));
    for tokens in [0, TOKENS_PER_IDENTITY_MAX + 1] {
        assert_eq!(make("a", 1, tokens), Err(IdentityError::Tokens(tokens)));
    }
}

fn bound(name: &str, binding: &str, expires_ms: u64) -> Identity {
    let binding = binding.parse().expect("a binding");
    let rights = rights(&[&format!("read:{name}")]);
    Identity::bound(name, rights, expires_ms, binding).expect("a sound identity")
}

/// Who is proved by these.
fn proved(
    identities: &Identities,
    bindings: &[&str],
    now_ms: u64,
) -> Result<Option<String>, Unauthenticated> {
    let parse = |text: &&str| Arc::new(text.parse::<Binding>().expect("a binding"));
    let bindings: Vec<Arc<Binding>> = bindings.iter().map(parse).collect();
    let table = identities.table();
    let key = table.resolve_bindings(&bindings, now_ms)?;
    Ok(key.map(|key| table.get(key).expect("it is there").name().to_owned()))
}

#[test]
fn one_binding_proves_one_identity_and_several_none() {
    let identities = identities();
    let hash = format!("sha256:{}", "ab".repeat(32));
    for _ in 0..2 {
        assert_eq!(proved(&identities, &["san:dns:a.example"], 0), Ok(None));
        let all = vec![
            bound("a", "san:dns:A.example", NEVER_MS),
            bound("b", "san:uri:spiffe://x/b", NEVER_MS),
            bound("c", &hash, NEVER_MS),
            bound("d", "uid:7", 500),
            identity(identities.key(), "t", NEVER_MS, &[(1, NEVER_MS)]),
        ];
        identities.replace(all, 0).expect("they differ");
        for (shown, found) in [
            (&["san:dns:a.example"][..], Ok(Some("a"))),
            (
                &["san:dns:x", "san:dns:a.EXAMPLE", "san:dns:A.example"],
                Ok(Some("a")),
            ),
            (&["san:uri:spiffe://X/b"], Ok(None)),
            (
                &["san:email:a@a.example", "san:uri:spiffe://x/b"],
                Ok(Some("b")),
            ),
            (&[&hash], Ok(Some("c"))),
            (
                &[&hash, "san:dns:a.example"],
                Err(Unauthenticated::Ambiguous),
            ),
            (
                &["san:dns:a.example", "san:uri:spiffe://x/b"],
                Err(Unauthenticated::Ambiguous),
            ),
            (&["san:dns:b.a.example", "san:dns:example"], Ok(None)),
            (&["uid:7"], Ok(Some("d"))),
            (&["uid:8"], Ok(None)),
            (&[], Ok(None)),
        ] {
            let found = found.map(|name| name.map(str::to_owned));
            assert_eq!(proved(&identities, shown, 0), found, "{shown:?}");
        }
        // Nothing of it proves the identity of a token, and no token what is bound.
        let header = header(1);
        assert!(identities.table().resolve(header.as_bytes(), 0).is_ok());
        assert_eq!(proved(&identities, &["uid:7"], 499), Ok(Some("d".into())));
        for _ in 0..2 {
            let expired = proved(&identities, &["uid:7"], 500);
            assert_eq!(expired, Err(Unauthenticated::BindingExpired));
            identities.expire(500);
        }
        // One that has expired is still somebody.
        let two = proved(&identities, &["uid:7", "san:dns:a.example"], 500);
        assert_eq!(two, Err(Unauthenticated::Ambiguous));
        assert_eq!(identities.table().slots_in_use(), 2 + 4);
        identities.replace(Vec::new(), 500).expect("none");
        assert_eq!(identities.table().slots_in_use(), 2);
    }
}

#[test]
fn a_binding_keeps_its_key_until_it_is_taken_back_or_bound_to_somebody_else() {
    let identities = identities();
    let key_of = |binding: &str| {
        let binding = Arc::new(binding.parse().expect("a binding"));
        identities
            .table()
            .resolve_bindings(&[binding], 0)
            .expect("one")
    };
    let with = |all: Vec<Identity>| identities.replace(all, 0).expect("they differ");
    for _ in 0..2 {
        with(vec![
            bound("a", "uid:1", NEVER_MS),
            bound("b", "uid:2", NEVER_MS),
        ]);
        let (one, two) = (key_of("uid:1").expect("a"), key_of("uid:2").expect("b"));
        with(vec![bound("a", "uid:1", 9), bound("c", "uid:2", NEVER_MS)]);
        let table = identities.table();
        assert_eq!(table.get(one).map(Identity::name), Some("a"));
        assert!(table.get(two).is_none(), "it is somebody else's now");
        with(vec![bound("c", "uid:2", NEVER_MS)]);
        assert!(identities.table().get(one).is_none());
        with(Vec::new());
        assert_eq!(key_of("uid:2"), None);
    }
}

#[test]
fn no_two_identities_are_bound_to_the_same() {
    let identities = identities();
    let two = vec![
        bound("a", "san:dns:A.example", NEVER_MS),
        bound("b", "san:dns:a.example", NEVER_MS),
    ];
    let refused = identities.replace(two, 0);
    assert_eq!(refused, Err(IdentitiesError::SameProof("a".into())));
}
