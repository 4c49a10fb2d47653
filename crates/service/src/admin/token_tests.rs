//! Calls about tokens, over a store in memory.

use std::cell::RefCell;
use std::sync::Arc;

use store::{DatabaseId, ReadView};

use crate::call::Shared;
use crate::fake::{Fake, Sent, draw_token, shared};
use crate::identities::{
    Binding, Identities, Identity, Proof, Token, TokenKey, Unauthenticated, UsableBindings,
};
use crate::limits::{
    BINDING_BYTES_MAX, GRANTS_MAX, IDENTITIES_MAX, TOKEN_CHANGE_TRIES, TOKEN_EXPIRY_MS_MAX,
    TOKEN_KEEP_MS_MAX, TOKEN_KEEP_OWN_MS, TOKEN_RIGHTS_BYTES_MAX,
};
use crate::method::Method;
use crate::rights::{Right, Rights};
use crate::status::{Code, Status};
use api::admin::*;

const START_MS: u64 = 1_000;

/// A server whose clock stands where the test sets it.
pub(super) struct Server {
    shared: Shared,
    pub(super) now_ms: u64,
    /// The token with which is called.
    own: Option<String>,
}

/// What is known of a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Described {
    name: String,
    pub(super) rights: Vec<String>,
    created_at_ms: u64,
    expires_at_ms: u64,
    expired: bool,
    previous_expires_at_ms: u64,
}

impl Server {
    /// One whose listener gives these rights to those without a token.
    pub(super) fn new(anonymous: Rights) -> Server {
        let shared = Shared {
            identities: Identities::new(TokenKey::new(&[1; 32]), vec![anonymous]),
            ..shared()
        };
        let now_ms = START_MS;
        Server {
            shared,
            now_ms,
            own: None,
        }
    }

    pub(super) fn shared(&self) -> &Shared {
        &self.shared
    }

    pub(super) fn call(&self, method: Method, request: &[u8]) -> Result<Vec<u8>, Status> {
        self.call_with(method, request, &mut || {})
    }

    /// The same, with something between each decision and its commit.
    fn call_with(
        &self,
        method: Method,
        request: &[u8],
        between: &mut dyn FnMut(),
    ) -> Result<Vec<u8>, Status> {
        let caller = self.own.as_ref().and_then(|token| self.caller(token));
        self.call_as(caller, method, request, between)
    }

    /// The same of a caller who has proved who they are, as the loop has found before.
    pub(super) fn call_as(
        &self,
        caller: Option<(Identity, Proof)>,
        method: Method,
        request: &[u8],
        between: &mut dyn FnMut(),
    ) -> Result<Vec<u8>, Status> {
        let mut fake = Fake::new(method, &self.shared);
        fake.actions.now_ms = self.now_ms;
        if let Some((identity, proof)) = caller {
            fake.actions.identity = Some(identity);
            fake.actions.proof = Some(proof);
        }
        fake.message(request, true, &self.shared);
        while let Some(kept) = fake.actions.wanted_read.take() {
            let view = self.shared.store.view(DatabaseId::IDENTITIES);
            let view = view.expect("it is always there");
            fake.read(&ReadView::memory(&view), &kept, &self.shared);
            drop(view);
            between();
            if !fake.actions.is_over {
                fake.commit(&self.shared);
                self.load();
            }
        }
        match fake.take_sent().as_mut_slice() {
            [Sent::Response(answer)] => Ok(std::mem::take(answer)),
            [Sent::Status(status)] => Err(status.clone()),
            other => panic!("one response or one status, not {other:?}"),
        }
    }

    fn load(&self) {
        let loaded = self.shared.identities.load(&self.shared.store, self.now_ms);
        assert_eq!(loaded, Ok(0));
    }

    fn bind(&self, name: &str, binding: &str, after_ms: u64) -> Result<(), Status> {
        let mut request = Vec::new();
        let wanted = CreateTokenRequest {
            name,
            rights: (&["read"][..]).into(),
            expires_after_ms: after_ms,
            binding,
        };
        wanted.encode(&mut request);
        let answer = self.call(Method::AdminCreateToken, &request)?;
        let answer = CreateTokenResponse::decode(&answer).expect("it is a message");
        assert_eq!(answer.token.reveal(), "");
        let shown = answer.description.expect("it is described").binding;
        assert_eq!(shown, binding.to_lowercase());
        Ok(())
    }

    pub(super) fn create(
        &self,
        name: &str,
        rights: &[&str],
        after_ms: u64,
    ) -> Result<String, Status> {
        let answer = self.call(Method::AdminCreateToken, &create(name, rights, after_ms))?;
        let answer = CreateTokenResponse::decode(&answer).expect("it is a message");
        let described = described(&answer.description.expect("it is described"));
        assert_eq!(
            (&*described.name, described.created_at_ms),
            (name, self.now_ms)
        );
        Ok(answer.token.reveal().to_owned())
    }

    pub(super) fn revoke(&self, name: &str, confirm_name: &str) -> Result<(), Status> {
        let mut request = Vec::new();
        RevokeTokenRequest { name, confirm_name }.encode(&mut request);
        let answer = self.call(Method::AdminRevokeToken, &request)?;
        assert!(answer.is_empty());
        Ok(())
    }

    pub(super) fn rotate(
        &self,
        name: &str,
        keep_for_ms: u64,
        after_ms: u64,
    ) -> Result<String, Status> {
        let wanted = RotateTokenRequest {
            name,
            keep_for_ms,
            expires_after_ms: after_ms,
            ..RotateTokenRequest::default()
        };
        self.rotate_as(&wanted)
    }

    fn rotate_as(&self, wanted: &RotateTokenRequest<'_>) -> Result<String, Status> {
        let mut request = Vec::new();
        wanted.encode(&mut request);
        let answer = self.call(Method::AdminRotateToken, &request)?;
        let answer = RotateTokenResponse::decode(&answer).expect("it is a message");
        Ok(answer.token.reveal().to_owned())
    }

    pub(super) fn list(&self) -> Vec<Described> {
        let answer = self
            .call(Method::AdminListTokens, &[])
            .expect("it is there");
        let answer = ListTokensResponse::decode(&answer).expect("it is a message");
        let tokens = answer.tokens.iter();
        tokens
            .map(|one| described(&one.expect("it is a message")))
            .collect()
    }

    /// The caller who has this token, as a loop knows them now.
    pub(super) fn caller(&self, token: &str) -> Option<(Identity, Proof)> {
        let table = self.shared.identities.table();
        let key = table.resolve(format!("Bearer {token}").as_bytes(), self.now_ms);
        let key = key.expect("it is good");
        Some((table.get(key)?.clone(), table.proof(key)?.clone()))
    }

    /// Who has this token.
    fn who(&self, token: &str) -> Result<String, Unauthenticated> {
        self.shared.identities.expire(self.now_ms);
        let table = self.shared.identities.table();
        let key = table.resolve(format!("Bearer {token}").as_bytes(), self.now_ms)?;
        let identity = table.get(key).expect("it was just found");
        Ok(identity.name().to_owned())
    }
}

fn create(name: &str, rights: &[&str], expires_after_ms: u64) -> Vec<u8> {
    let mut request = Vec::new();
    let wanted = CreateTokenRequest {
        name,
        rights: rights.into(),
        expires_after_ms,
        binding: "",
    };
    wanted.encode(&mut request);
    request
}

fn described(description: &TokenDescription<'_>) -> Described {
    let rights = description.rights.iter();
    Described {
        name: description.name.to_owned(),
        rights: rights.map(|one| one.expect("a text").to_owned()).collect(),
        created_at_ms: description.created_at_ms,
        expires_at_ms: description.expires_at_ms,
        expired: description.expired,
        previous_expires_at_ms: description.previous_expires_at_ms,
    }
}

pub(super) fn refused<T: std::fmt::Debug>(result: Result<T, Status>, code: Code, words: &[&str]) {
    let status = result.expect_err("it is refused");
    assert_eq!(status.code(), code, "{}", status.message());
    for word in words {
        assert!(
            status.message().contains(word),
            "{word:?}: {}",
            status.message()
        );
    }
}

#[test]
fn a_token_is_good_from_its_creation_to_its_revocation_and_again() {
    let server = Server::new(Rights::everything());
    let mut former: Vec<String> = Vec::new();
    for round in 0..3 {
        assert_eq!(server.list(), []);
        let rights = ["read:orders", "write:default/images/", "service:kvstore"];
        let token = server.create("ci", &rights, 0).expect("it can be made");
        assert_eq!(server.who(&token).as_deref(), Ok("ci"), "round {round}");
        for former in &former {
            assert_eq!(server.who(former), Err(Unauthenticated::Unknown));
        }
        let expected = Described {
            name: "ci".into(),
            rights: rights.map(str::to_owned).to_vec(),
            created_at_ms: START_MS,
            expires_at_ms: 0,
            expired: false,
            previous_expires_at_ms: 0,
        };
        assert_eq!(server.list(), [expected]);
        let again = server.create("ci", &["read"], 0);
        refused(again, Code::AlreadyExists, &["\"ci\"", "revoke it first"]);
        server.revoke("ci", "").expect("it is there");
        assert_eq!(server.who(&token), Err(Unauthenticated::Unknown));
        refused(
            server.revoke("ci", ""),
            Code::NotFound,
            &["no token \"ci\""],
        );
        former.push(token);
    }
    assert!(server.shared.identities.all().is_empty());
    let view = server.shared.store.view(DatabaseId::IDENTITIES);
    let statistics = view.expect("it is always there").statistics();
    assert_eq!(statistics.entries, 1, "what counts changes");
}

#[test]
fn a_rotated_token_is_kept_as_long_as_was_said() {
    let mut server = Server::new(Rights::everything());
    let first = server
        .create("ci", &["read"], 10_000)
        .expect("it can be made");
    let second = server.rotate("ci", 500, 0).expect("it is there");
    assert_eq!(server.who(&first).as_deref(), Ok("ci"));
    assert_eq!(server.who(&second).as_deref(), Ok("ci"));
    let listed = server.list();
    assert_eq!(
        (listed.len(), listed[0].previous_expires_at_ms),
        (1, START_MS + 500)
    );
    assert_eq!(listed[0].expires_at_ms, START_MS + 10_000);
    // Of three the oldest would go at once, and was to be good for another while.
    server.now_ms += 100;
    for keep_for_ms in [500, 0] {
        let again = server.rotate("ci", keep_for_ms, 0);
        let words = &["\"ci\"", "for another 1 s", "revoke_kept"];
        refused(again, Code::FailedPrecondition, words);
        assert_eq!(server.who(&first).as_deref(), Ok("ci"));
        assert_eq!(server.who(&second).as_deref(), Ok("ci"));
    }
    let third = server.rotate_as(&RotateTokenRequest {
        name: "ci",
        keep_for_ms: 500,
        revoke_kept: true,
        ..RotateTokenRequest::default()
    });
    let third = third.expect("it is there");
    assert_eq!(server.who(&first), Err(Unauthenticated::Unknown));
    assert_eq!(server.who(&second).as_deref(), Ok("ci"));
    server.now_ms += 500;
    assert_eq!(server.who(&second), Err(Unauthenticated::Expired));
    assert_eq!(server.who(&third).as_deref(), Ok("ci"));
    assert_eq!(server.list()[0].previous_expires_at_ms, 0);
    // Without a time the one before goes at once.
    let fourth = server.rotate("ci", 0, 0).expect("it is there");
    assert_eq!(server.who(&third), Err(Unauthenticated::Unknown));
    assert_eq!(server.who(&fourth).as_deref(), Ok("ci"));
    refused(server.rotate("other", 0, 0), Code::NotFound, &["\"other\""]);
}

/// The response may never reach whoever rotates its own.
#[test]
fn the_callers_own_token_stays_good_for_an_hour_unless_told_otherwise() {
    let mut server = Server::new(Rights::default());
    let mut own = server.create("ci", &["admin"], 0).expect("it can be made");
    for _ in 0..2 {
        server.own = Some(own.clone());
        // Both are lost, and the one that is left makes a third one.
        let lost = server.rotate("ci", 0, 0).expect("it is there");
        let until_ms = server.now_ms + TOKEN_KEEP_OWN_MS;
        assert_eq!(server.list()[0].previous_expires_at_ms, until_ms);
        server.now_ms += 10;
        let second = server.rotate("ci", 0, 0).expect("it is there");
        assert_eq!(server.who(&own).as_deref(), Ok("ci"));
        assert_eq!(server.who(&lost), Err(Unauthenticated::Unknown));
        // Not longer than was said at first.
        assert_eq!(server.list()[0].previous_expires_at_ms, until_ms);
        // That of somebody else goes at once, and the own too if that is asked for.
        server.create("other", &["admin"], 0).expect("a free name");
        let other = server.rotate("other", 0, 0).expect("it is there");
        server.own = Some(other.clone());
        refused(
            server.rotate("ci", 0, 0),
            Code::FailedPrecondition,
            &["kept for another 60 min"],
        );
        let third = server.rotate_as(&RotateTokenRequest {
            name: "ci",
            revoke_kept: true,
            ..RotateTokenRequest::default()
        });
        let third = third.expect("it is there");
        for gone in [&own, &second] {
            assert_eq!(server.who(gone), Err(Unauthenticated::Unknown));
        }
        server.own = Some(third.clone());
        let wanted = RotateTokenRequest {
            name: "ci",
            revoke_own: true,
            ..RotateTokenRequest::default()
        };
        own = server.rotate_as(&wanted).expect("it is there");
        server.own = Some(own.clone());
        assert_eq!(server.who(&third), Err(Unauthenticated::Unknown));
        server.revoke("other", "").expect("it is there");
    }
    assert_eq!(server.list().len(), 1);
}

#[test]
fn the_last_administrator_that_does_not_expire_is_kept_from_expiring() {
    let mut server = Server::new(Rights::default());
    for _ in 0..2 {
        server.create("admin", &["admin"], 0).expect("a free name");
        server.create("soon", &["admin"], 10).expect("a free name");
        let last = &["\"admin\"", "the last token", "does not expire"];
        refused(server.revoke("admin", ""), Code::FailedPrecondition, last);
        refused(server.rotate("admin", 0, 9), Code::FailedPrecondition, last);
        let wanted = |confirm_name| RotateTokenRequest {
            name: "admin",
            expires_after_ms: 9,
            confirm_name,
            ..RotateTokenRequest::default()
        };
        let wrong = server.rotate_as(&wanted("soon"));
        refused(wrong, Code::InvalidArgument, &["another name"]);
        // One that stays is enough, and none that expires is asked for.
        server.create("other", &["admin"], 0).expect("a free name");
        server.rotate("admin", 0, 9).expect("there is another one");
        server.revoke("soon", "").expect("there is another one");
        refused(
            server.revoke("other", ""),
            Code::FailedPrecondition,
            &["other"],
        );
        server.rotate("admin", 0, 20).expect("it expires already");
        server.revoke("other", "other").expect("it was confirmed");
        refused(
            server.revoke("admin", ""),
            Code::FailedPrecondition,
            &["the last token"],
        );
        server.rotate_as(&wanted("admin")).expect("it is there");
        server.now_ms += 9;
        server.revoke("admin", "").expect("it has expired");
        assert_eq!(server.list(), []);
    }
}

#[test]
fn an_expired_token_is_listed_and_can_be_rotated_or_revoked() {
    let mut server = Server::new(Rights::everything());
    for _ in 0..2 {
        let token = server.create("ci", &["read"], 50).expect("it can be made");
        server.now_ms += 49;
        assert_eq!(server.who(&token).as_deref(), Ok("ci"));
        server.now_ms += 1;
        assert_eq!(server.who(&token), Err(Unauthenticated::Expired));
        assert!(server.list()[0].expired);
        let again = server.create("ci", &["read"], 0);
        refused(again, Code::AlreadyExists, &["\"ci\""]);
        let rotated = server.rotate("ci", 60, 0);
        refused(rotated, Code::InvalidArgument, &["has expired"]);
        let next = server.rotate("ci", 60, 50).expect("it has another expiry");
        assert_eq!(server.who(&next).as_deref(), Ok("ci"));
        // What had expired does not come back.
        assert_eq!(server.who(&token), Err(Unauthenticated::Unknown));
        server.revoke("ci", "").expect("it is there");
        assert_eq!(server.list(), []);
    }
}

#[test]
fn the_last_administrator_is_revoked_with_a_confirmation_only() {
    let mut server = Server::new(Rights::default());
    server
        .create("reader", &["read"], 0)
        .expect("it can be made");
    server
        .create("of-one", &["admin:orders"], 0)
        .expect("it can be made");
    for _ in 0..2 {
        server
            .create("admin", &["admin"], 0)
            .expect("it can be made");
        server
            .create("soon", &["admin"], 10)
            .expect("it can be made");
        server.now_ms += 10;
        let last = &["\"admin\"", "the last token", "confirm_name"];
        refused(server.revoke("admin", ""), Code::FailedPrecondition, last);
        refused(
            server.revoke("admin", "soon"),
            Code::InvalidArgument,
            &["another name"],
        );
        // One that has expired is none.
        server.revoke("soon", "").expect("it is none");
        server
            .create("other", &["read", "admin"], 0)
            .expect("it can be made");
        server.revoke("other", "").expect("there is another one");
        server.revoke("admin", "admin").expect("it was confirmed");
    }
    assert_eq!(server.list().len(), 2);
    // Where everybody may make tokens there is no last one.
    let open = Server::new(Rights::everything());
    assert!(open.shared.identities.is_open_for(Right::Admin));
    open.create("admin", &["admin"], 0).expect("it can be made");
    open.revoke("admin", "")
        .expect("everybody may make another one");
}

/// A start may be given one of them, when nobody is an administrator any more.
#[test]
fn tokens_of_the_first_administrator_are_remembered_when_they_are_revoked() {
    let server = Server::new(Rights::everything());
    let was_revoked = |token: &str| {
        let token = Token::parse(token.as_bytes()).expect("a token");
        let shared = &server.shared;
        shared.identities.was_revoked(&shared.store, &token)
    };
    let mut before = Vec::new();
    for _ in 0..2 {
        let first = server.create("admin", &["admin"], 0).expect("made");
        assert!(!was_revoked(&first));
        let second = server.rotate("admin", 0, 0).expect("another one");
        assert!(was_revoked(&first) && !was_revoked(&second));
        // One that is kept is good for a while, and not made anew after that.
        let third = server.rotate("admin", 1_000, 0).expect("another one");
        assert!(was_revoked(&second) && !was_revoked(&third));
        server.revoke("admin", "").expect("everybody may make one");
        before.extend([first, second, third]);
        assert!(before.iter().all(|token| was_revoked(token)));
        // Of other names a start makes none.
        let other = server.create("other", &["admin"], 0).expect("made");
        server.revoke("other", "").expect("it is there");
        assert!(!was_revoked(&other));
    }
    assert!(server.list().is_empty());
}

#[test]
fn what_is_wrong_with_a_request_is_said() {
    let server = Server::new(Rights::everything());
    let long = "n".repeat(65);
    for name in ["", ".ci", "a b", "a/b", &long] {
        let made = server.create(name, &["read"], 0);
        refused(made, Code::InvalidArgument, &["field name", "1 to 64"]);
    }
    let many = vec!["read"; GRANTS_MAX + 1];
    let wide = format!("read:a/{}", "x".repeat(TOKEN_RIGHTS_BYTES_MAX / 2));
    for (rights, words) in [
        (&[][..], "0 rights"),
        (&many, "65 rights"),
        (&["reed"], "\"reed\" is no right"),
        (&["read", "admin:a/b"], "admin of some blobs"),
        (&["read:"], "ends with `:`"),
        (&[&*wide, &*wide], "bytes together"),
    ] {
        let made = server.create("ci", rights, 0);
        refused(made, Code::InvalidArgument, &["field rights", words]);
    }
    let made = server.create("ci", &["read"], TOKEN_EXPIRY_MS_MAX + 1);
    refused(
        made,
        Code::InvalidArgument,
        &["expires_after_ms", "3660 days"],
    );
    server
        .create("ci", &["read"], TOKEN_EXPIRY_MS_MAX)
        .expect("it can be made");
    let rotated = server.rotate("ci", TOKEN_KEEP_MS_MAX + 1, 0);
    refused(rotated, Code::InvalidArgument, &["keep_for_ms", "30 days"]);
    server
        .rotate("ci", TOKEN_KEEP_MS_MAX, TOKEN_EXPIRY_MS_MAX)
        .expect("it is there");
    for method in [
        Method::AdminCreateToken,
        Method::AdminListTokens,
        Method::AdminRevokeToken,
        Method::AdminRotateToken,
    ] {
        refused(
            server.call(method, &[0xff]),
            Code::InvalidArgument,
            &[method.path()],
        );
    }
}

#[test]
fn there_are_so_many_tokens_and_no_more() {
    let server = Server::new(Rights::everything());
    let key = server.shared.identities.key().clone();
    let record = |number: usize| {
        let token = crate::identities::Token::new(std::array::from_fn(|at| match at {
            0 | 1 => (number >> (8 * at)) as u8,
            _ => 7,
        }));
        let issued = crate::identities::IssuedToken {
            hash: key.hash(&token),
            expires_ms: u64::MAX,
        };
        let rights = Rights::new(vec!["read".parse().expect("a right")]);
        let name = format!("token-{number:04}");
        let identity = crate::identities::Identity::new(&name, rights, u64::MAX, vec![issued]);
        crate::identities::record::IdentityRecord {
            identity: identity.expect("it is sound").into(),
            created_ms: 1,
        }
    };
    let records: Vec<_> = (1..IDENTITIES_MAX).map(record).collect();
    write(&server, &records);
    server
        .create("last", &["read"], 0)
        .expect("there is room for one");
    let made = server.create("more", &["read"], 0);
    refused(
        made,
        Code::ResourceExhausted,
        &["1000 tokens", "revoke one"],
    );
    assert_eq!(server.list().len(), IDENTITIES_MAX);
    server.revoke("token-0500", "").expect("it is there");
    server
        .create("more", &["read"], 0)
        .expect("there is room again");
}

fn write(server: &Server, records: &[crate::identities::record::IdentityRecord]) {
    let store = &server.shared.store;
    let mut batch = store.write_batch();
    let mut commit = batch.begin(0, DatabaseId::IDENTITIES, store::Mode::Independent);
    for record in records {
        let put = store::Operation::Put {
            key: record.identity.name().as_bytes(),
            value: &record.encode(),
            condition: store::Condition::None,
            expiry: store::Expiry::None,
            want_previous: false,
        };
        commit.push(&put).expect("it fits");
    }
    commit.submit();
    let mut outcomes = store::Outcomes::new();
    drop(store.committer().run(&mut batch, &mut Now, &mut outcomes));
    server.load();
}

struct Now;

impl store::Clock for Now {
    fn now_ns(&mut self) -> u64 {
        0
    }

    fn now_ms(&mut self) -> u64 {
        START_MS
    }
}

/// Two who change tokens at the same moment: the later one looks again, and decides on what is
/// there then.
#[test]
fn a_change_that_another_one_has_overtaken_is_decided_anew() {
    let server = Server::new(Rights::default());
    server.create("one", &["admin"], 0).expect("it can be made");
    server.create("two", &["admin"], 0).expect("it can be made");
    let mut request = Vec::new();
    let (name, confirm_name) = ("one", "");
    RevokeTokenRequest { name, confirm_name }.encode(&mut request);
    let mut turns = 0;
    // While the other administrator is revoked, this one becomes the last.
    let revoked = server.call_with(Method::AdminRevokeToken, &request, &mut || {
        turns += 1;
        if turns == 1 {
            server.revoke("two", "").expect("there is another one");
        }
    });
    refused(revoked, Code::FailedPrecondition, &["the last token"]);
    assert_eq!((turns, server.list().len()), (2, 1));
    // Two make a token of one name: one of them has made it.
    let turns = RefCell::new(0);
    let made = server.call_with(
        Method::AdminCreateToken,
        &create("ci", &["read"], 0),
        &mut || {
            let turn = turns.replace_with(|turn| *turn + 1);
            if turn == 0 {
                server.create("ci", &["write"], 0).expect("it can be made");
            }
        },
    );
    refused(made, Code::AlreadyExists, &["\"ci\""]);
    // Somebody is quicker each time.
    let mut turns = 0;
    let made = server.call_with(
        Method::AdminCreateToken,
        &create("late", &["read"], 0),
        &mut || {
            turns += 1;
            server.rotate("ci", 0, 0).expect("it is there");
        },
    );
    refused(made, Code::Aborted, &["nothing was done"]);
    assert_eq!(turns, TOKEN_CHANGE_TRIES);
    assert!(server.list().iter().all(|one| one.name != "late"));
}

/// What is done to an administrator while a change of theirs is under way.
type Deed = fn(&Server) -> Result<(), Status>;

/// A change that is under way when its caller is revoked is not made when it is decided anew, also
/// where the loop of the caller has not heard of that yet.
#[test]
fn no_change_is_made_by_who_was_revoked_while_it_was_under_way() {
    let deeds: [(Deed, bool); 5] = [
        (|server| server.revoke("thief", ""), false),
        (|server| server.rotate("thief", 0, 0).map(drop), false),
        (|server| server.rotate("thief", 1_000, 0).map(drop), true),
        (
            |server| server.create("other", &["read"], 0).map(drop),
            true,
        ),
        // Somebody else has the name by then.
        (
            |server| {
                server.revoke("thief", "")?;
                server.create("thief", &["admin"], 0).map(drop)
            },
            false,
        ),
    ];
    for (deed, may_go_on) in deeds {
        for _ in 0..2 {
            let server = Server::new(Rights::default());
            for name in ["admin", "victim"] {
                server.create(name, &["admin"], 0).expect("it can be made");
            }
            let (set_role, role) = &changes()[3];
            server.call(*set_role, role).expect("it can be made");
            for (method, request) in changes() {
                for name in ["thief", "other"] {
                    let _ = server.revoke(name, "");
                }
                let token = server.create("thief", &["admin"], 0).expect("it is made");
                let mut decided = 0;
                let made = server.call_as(server.caller(&token), method, &request, &mut || {
                    decided += 1;
                    if decided == 1 {
                        deed(&server).expect("it can be done");
                    }
                });
                match may_go_on {
                    true => assert_eq!(made.map(drop), Ok(()), "{method:?}"),
                    false => refused(made, Code::Unauthenticated, &["was revoked"]),
                }
                assert_eq!(decided, 2, "{method:?}");
            }
            let ghosts = server.list();
            let ghosts = ghosts.iter().filter(|one| one.name == "ghost").count();
            assert_eq!(ghosts, usize::from(may_go_on));
        }
    }
}

/// A request of each method that changes something, which can be made in this order.
fn changes() -> Vec<(Method, Vec<u8>)> {
    let encoded = |encode: &dyn Fn(&mut Vec<u8>)| {
        let mut request = Vec::new();
        encode(&mut request);
        request
    };
    let rotate = RotateTokenRequest {
        name: "victim",
        keep_for_ms: 0,
        ..RotateTokenRequest::default()
    };
    let revoke = RevokeTokenRequest {
        name: "victim",
        confirm_name: "",
    };
    let set = SetRoleRequest {
        name: "ghosts",
        rights: (&["admin"][..]).into(),
    };
    let drop = DropRoleRequest { name: "ghosts" };
    vec![
        (Method::AdminCreateToken, create("ghost", &["admin"], 0)),
        (Method::AdminRotateToken, encoded(&|out| rotate.encode(out))),
        (Method::AdminRevokeToken, encoded(&|out| revoke.encode(out))),
        (Method::AdminSetRole, encoded(&|out| set.encode(out))),
        (Method::AdminDropRole, encoded(&|out| drop.encode(out))),
    ]
}

/// Whoever has the list of hashes but not the key finds no token in it, and no token fits to it
/// under another key.
#[test]
fn a_stolen_list_of_hashes_is_of_no_use_without_its_key() {
    let server = Server::new(Rights::everything());
    let token = server
        .create("admin", &["admin"], 0)
        .expect("it can be made");
    let view = server.shared.store.view(DatabaseId::IDENTITIES);
    let view = view.expect("it is always there");
    let read = server.shared.identities.read(&ReadView::memory(&view));
    let stored = read.stored();
    let mut bytes = Vec::new();
    for record in &stored.records {
        bytes.extend(record.encode());
    }
    drop(view);
    let secret = &token.as_bytes()["pelton_".len()..];
    assert!(
        !bytes.windows(8).any(|part| part == &secret[..8]),
        "it is not in there"
    );
    assert!(
        !bytes.windows(8).any(|part| part == [1; 8]),
        "nor are its bytes"
    );
    let header = format!("Bearer {token}");
    for key in [[1; 32], [2; 32]] {
        let elsewhere = Identities::new(TokenKey::new(&key), vec![Rights::default()]);
        let identities = stored
            .records
            .iter()
            .map(|record| (*record.identity).clone());
        elsewhere
            .replace(identities.collect(), START_MS)
            .expect("they are sound");
        let found = elsewhere.table().resolve(header.as_bytes(), START_MS);
        assert_eq!(found.is_ok(), key == [1; 32]);
    }
}

#[test]
fn without_a_secret_or_random_bytes_there_are_no_tokens() {
    let server = Server {
        own: None,
        shared: Shared {
            store: store::Store::in_memory(store::StoreConfig::new(1)).expect("it is sound"),
            draw_token: draw_token(),
            ..shared()
        },
        now_ms: START_MS,
    };
    let made = server.create("ci", &["read"], 0);
    refused(made, Code::FailedPrecondition, &["no secret yet"]);
    let server = Server {
        own: None,
        shared: Shared {
            draw_token: Box::new(|| None),
            ..shared()
        },
        now_ms: START_MS,
    };
    let made = server.create("ci", &["read"], 0);
    refused(made, Code::Internal, &["random bytes"]);
    assert_eq!(server.list(), []);
}

#[test]
fn a_list_waits_until_it_can_be_sent() {
    let server = Server::new(Rights::everything());
    server.create("ci", &["read"], 0).expect("it can be made");
    let shared = &server.shared;
    let mut fake = Fake::new(Method::AdminListTokens, shared);
    fake.actions.can_send = false;
    fake.message(&[], true, shared);
    for can_send in [false, true] {
        fake.actions.can_send = can_send;
        let kept = fake.actions.wanted_read.take().expect("it looks");
        let view = shared.store.view(DatabaseId::IDENTITIES);
        let view = view.expect("it is always there");
        fake.read(&ReadView::memory(&view), &kept, shared);
        if !can_send {
            assert_eq!(fake.take_sent(), []);
            fake.writable(shared);
            assert!(fake.actions.wanted_read.is_none(), "it still waits");
            fake.actions.can_send = true;
            fake.writable(shared);
        }
    }
    assert!(matches!(&fake.take_sent()[..], [Sent::Response(_)]));
}

#[test]
fn each_state_of_a_binding_twice() {
    let mut server = Server::new(Rights::everything());
    let who = |server: &Server| {
        let binding = "san:dns:w.example".parse().expect("a binding");
        server.shared.identities.expire(server.now_ms);
        let table = server.shared.identities.table();
        let found = table.resolve_bindings(&[Arc::new(binding)], server.now_ms)?;
        Ok(found.map(|key| table.get(key).expect("found").name().to_owned()))
    };
    for _ in 0..2 {
        assert_eq!(who(&server), Ok(None));
        server
            .bind("w", "san:dns:W.example", 50)
            .expect("it can be bound");
        assert_eq!(who(&server), Ok(Some("w".into())));
        let again = server.bind("w", "san:dns:x.example", 0);
        refused(again, Code::AlreadyExists, &["\"w\""]);
        let same = server.bind("x", "san:dns:w.example", 0);
        refused(
            same,
            Code::AlreadyExists,
            &["field binding", "\"w\" is bound to it"],
        );
        let rotated = server.rotate("w", 0, 0);
        refused(
            rotated,
            Code::FailedPrecondition,
            &["bound to san:dns:w.example"],
        );
        server.now_ms += 50;
        assert_eq!(who(&server), Err(Unauthenticated::BindingExpired));
        assert!(server.list()[0].expired);
        server.revoke("w", "").expect("it is there");
        assert_eq!(server.list(), []);
    }
    for (binding, words) in [
        ("san:dns:*.w", "patterns match nobody"),
        ("w.example", "is none of"),
        ("uid:65534", "other namespaces"),
    ] {
        let made = server.bind("w", binding, 0);
        refused(made, Code::InvalidArgument, &["field binding", words]);
    }
    let long = format!("san:uri:a:{}", "x".repeat(BINDING_BYTES_MAX - 2));
    server.bind("long", &long, 0).expect("it is not too long");
    let made = server.bind("longer", &format!("{long}x"), 0);
    refused(made, Code::InvalidArgument, &["field binding", "at most"]);
}

#[test]
fn somebody_who_is_bound_can_be_the_last_administrator() {
    let server = Server::new(Rights::default());
    for _ in 0..2 {
        let mut request = Vec::new();
        let wanted = CreateTokenRequest {
            name: "admin",
            rights: (&["admin"][..]).into(),
            expires_after_ms: 0,
            binding: "uid:0",
        };
        wanted.encode(&mut request);
        let made = server.call(Method::AdminCreateToken, &request);
        made.expect("it can be bound");
        let last = server.revoke("admin", "");
        refused(last, Code::FailedPrecondition, &["the last token"]);
        server.revoke("admin", "admin").expect("it was confirmed");
    }
}

/// What nobody can show where the server listens lets nobody in, as a start knows it too.
#[test]
fn somebody_whose_binding_cannot_be_shown_is_no_administrator() {
    let everything = UsableBindings::ALL;
    for (bindings, usable, useless) in [
        (
            UsableBindings {
                users: false,
                ..everything
            },
            "san:dns:w.example",
            "uid:0",
        ),
        (
            UsableBindings {
                certificates: false,
                ..everything
            },
            "uid:0",
            "san:dns:w.example",
        ),
    ] {
        let mut server = Server::new(Rights::default());
        server.shared.identities =
            Identities::new(TokenKey::new(&[1; 32]), vec![Rights::default()])
                .with_bindings(bindings);
        for _ in 0..2 {
            server.create("admin", &["admin"], 0).expect("it is made");
            assert!(bind_admin(&server, "useless", useless));
            let noun = useless.parse::<Binding>().expect("a binding").noun();
            let noun = format!("show the {noun} of \"useless\"");
            let last = server.revoke("admin", "");
            refused(last, Code::FailedPrecondition, &["the last token", &noun]);
            let expiry = server.rotate("admin", 0, 1_000);
            refused(expiry, Code::FailedPrecondition, &["that does not expire"]);
            // It takes nothing away, and is no replacement of anybody.
            server.revoke("useless", "").expect("it is none");
            assert!(!bind_admin(&server, "usable", usable));
            server.revoke("admin", "").expect("there is another one");
            server.revoke("usable", "usable").expect("it was confirmed");
        }
    }
}

/// Binds an administrator, and returns whether nobody can show that.
fn bind_admin(server: &Server, name: &str, binding: &str) -> bool {
    let mut request = Vec::new();
    let wanted = CreateTokenRequest {
        name,
        rights: (&["admin"][..]).into(),
        expires_after_ms: 0,
        binding,
    };
    wanted.encode(&mut request);
    let answer = server.call(Method::AdminCreateToken, &request);
    let answer = answer.expect("it can be bound");
    let answer = CreateTokenResponse::decode(&answer).expect("it is a message");
    answer.description.expect("it is described").unprovable
}

#[test]
fn a_token_is_no_name_and_no_part_of_a_right() {
    let server = Server::new(Rights::everything());
    let token = server.create("ci", &["read"], 0).expect("it can be made");
    let named = server.create(&token, &["read"], 0);
    let right = server.create("other", &[&format!("read:{token}")], 0);
    for refusal in [named, right] {
        let status = refusal.clone().expect_err("it is a token");
        assert!(!status.message().contains(&token), "{status:?}");
        refused(refusal, Code::InvalidArgument, &["token"]);
    }
    assert_eq!(server.list().len(), 1);
}
