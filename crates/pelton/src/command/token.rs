//! `pelton token create|list|revoke|rotate`

use std::io;

use api::admin::{
    CreateTokenRequest, ListDatabasesRequest, ListTokensRequest, RevokeTokenRequest,
    RotateTokenRequest, TokenDescription,
};
use api::rpc::Rpc;
use api::rpc::admin::{CreateToken, ListDatabases, ListTokens, RevokeToken, RotateToken};
use client::typed::Reply;
use rustix::fs::{FallocateFlags, FileType, fallocate};
use rustix::io::{Errno, retry_on_intr};
use rustix::process::{Resource, getrlimit};
use serde_json::{Map, Value};
use service::limits::{TOKEN_EXPIRY_MS_MAX, TOKEN_KEEP_MS_MAX};
use service::rights::{Grant, shown_right};
use time::OffsetDateTime;

use super::Caller;
use crate::arguments::{
    ConnectionArguments, CreateTokenArguments, ListTokensArguments, NewTokenArguments,
    RevokeTokenArguments, RotateTokenArguments,
};
use crate::exit::{Exit, Failure};
use crate::interrupt::Interrupt;
use crate::output::{Output, in_columns, note, object, wait_for_room};
use crate::secrets::TokenFile;
use crate::size::Span;

/// Makes a token.
pub fn create_token(arguments: &CreateTokenArguments) -> Result<Exit, Failure> {
    let rights: Vec<String> = arguments.rights.iter().map(ToString::to_string).collect();
    let rights: Vec<&str> = rights.iter().map(String::as_str).collect();
    let binding = arguments.certificate.as_ref().or(arguments.uid.as_ref());
    let binding = binding.map_or_else(String::new, ToString::to_string);
    let request = CreateTokenRequest {
        name: &arguments.name,
        rights: (&rights[..]).into(),
        expires_after_ms: some_time(
            ("--expires", "it does not expire"),
            arguments.expires,
            TOKEN_EXPIRY_MS_MAX,
        )?,
        binding: &binding,
    };
    if !binding.is_empty() {
        let bound = bind(&arguments.connection, &request)?;
        warn_of_databases(&arguments.connection, &arguments.rights);
        return Ok(bound);
    }
    let place = NewToken::open(&arguments.new)?;
    let reply = place.call::<CreateToken>(&arguments.connection, &request)?;
    warn_of_databases(&arguments.connection, &arguments.rights);
    let answer = reply.message();
    let described = answer.description.unwrap_or_default();
    let name = &arguments.name;
    let again = format!("`pelton token revoke {name}` takes it back");
    place.show(
        answer.token.reveal(),
        &described,
        &arguments.connection,
        &again,
    )
}

/// Has a name bound to a certificate or a user.
fn bind(
    connection: &ConnectionArguments,
    request: &CreateTokenRequest<'_>,
) -> Result<Exit, Failure> {
    let reply = Caller::connect(connection)?.call::<CreateToken>(request)?;
    let described = reply.message().description.unwrap_or_default();
    match described.binding.is_empty() {
        // A server that does not know of bindings has made a token.
        true => Err(Failure::Failed(format!(
            "the server does not know of bindings, and has made a token in its place: \
             `pelton token revoke {}` takes it back",
            described.name
        ))),
        false => show_bound(&described, connection),
    }
}

/// Says which rights are of databases that are not there: they may come, or be a slip.
pub(super) fn warn_of_databases(connection: &ConnectionArguments, rights: &[Grant]) {
    let named: Vec<&str> = rights.iter().filter_map(Grant::database).collect();
    if named.iter().all(|name| name.is_empty()) {
        return;
    }
    let listed = Caller::connect(connection)
        .and_then(|mut caller| caller.call::<ListDatabases>(&ListDatabasesRequest {}));
    let Ok(reply) = listed else {
        return;
    };
    let databases = reply.message().databases;
    let there = |name: &str| {
        let known = databases.iter().flatten().filter_map(|one| one.database);
        known.into_iter().any(|one| one.name == name)
    };
    for name in named
        .into_iter()
        .filter(|name| !name.is_empty() && !there(name))
    {
        note(format_args!(
            "warning: there is no database `{name}`; the right holds there when one is made of \
             this name"
        ));
    }
}

/// Says what was bound.
fn show_bound(
    described: &TokenDescription<'_>,
    connection: &ConnectionArguments,
) -> Result<Exit, Failure> {
    let mut output = Output::new(connection.output);
    match output.is_json() {
        true => output.object(fields(described))?,
        false => output.line("bound")?,
    }
    output.end()?;
    note(format_args!("{}: {}", described.name, summary(described)));
    if described.unprovable {
        note(format_args!(
            "warning: nobody can be {} there: {}",
            described.name,
            match described.binding.starts_with("uid:") {
                true => "the server listens on no UNIX socket (--listen unix:PATH)",
                false => "the server asks for no certificates of clients (--client-ca)",
            }
        ));
    }
    Ok(Exit::Done)
}

/// What is said of a new identity.
fn summary(described: &TokenDescription<'_>) -> String {
    let bound = match described.binding {
        "" => String::new(),
        binding => format!("{binding}; "),
    };
    let expires = match described.expires_at_ms {
        0 => "it does not expire".into(),
        at_ms => format!("it expires {}", at(at_ms)),
    };
    let previous = match described.previous_expires_at_ms {
        0 => String::new(),
        at_ms => format!("; the one before is good until {}", at(at_ms)),
    };
    format!(
        "{bound}{}; {expires}{previous}",
        shown_rights(described, ", ")
    )
}

/// Makes another token for a name.
pub fn rotate_token(arguments: &RotateTokenArguments) -> Result<Exit, Failure> {
    let name = &*arguments.name;
    let request = RotateTokenRequest {
        name,
        keep_for_ms: match arguments.keep {
            Some(Span { ms: 0 }) => 0,
            keep => some_time(("--keep", UNCHANGED), keep, TOKEN_KEEP_MS_MAX)?,
        },
        expires_after_ms: some_time(
            ("--expires", UNCHANGED),
            arguments.expires,
            TOKEN_EXPIRY_MS_MAX,
        )?,
        revoke_own: arguments.keep.is_some(),
        confirm_name: if arguments.last_admin { name } else { "" },
        revoke_kept: arguments.revoke_kept,
    };
    let place = NewToken::open(&arguments.new)?;
    let called = place.call::<RotateToken>(&arguments.connection, &request);
    let reply = called.map_err(|failure| match refused_as_last(failure) {
        Ok(failure) => failure.with("make another one first, or rotate it with --last-admin"),
        Err(failure) => {
            in_flags(failure).or_miss(&format!("nothing rotated: there is no token `{name}`"))
        }
    })?;
    let answer = reply.message();
    let described = answer.description.unwrap_or_default();
    let again = way_back(name, described.previous_expires_at_ms);
    place.show(
        answer.token.reveal(),
        &described,
        &arguments.connection,
        &again,
    )
}

/// What can be done about a new token that was lost, as long as the one before is good.
fn way_back(name: &str, previous_expires_at_ms: u64) -> String {
    match previous_expires_at_ms {
        0 => format!(
            "the one before is good no longer; an administrator's `pelton token rotate {name}` \
             makes another one"
        ),
        at_ms => format!(
            "the one before is good until {}: `pelton token rotate {name}` makes another one",
            at(at_ms)
        ),
    }
}

/// What becomes of the expiry of a name without --expires.
const UNCHANGED: &str = "it does not change";

/// 0 is never in a request, and a mistake on the command line. `without`: what holds without the
/// flag.
fn some_time(
    (flag, without): (&str, &str),
    span: Option<Span>,
    most_ms: u64,
) -> Result<u64, Failure> {
    match span {
        Some(Span { ms }) if ms > most_ms => {
            let days = most_ms / DAY_MS;
            Err(Failure::Usage(format!(
                "{flag}: at most {days}d can be given"
            )))
        }
        Some(Span { ms: 0 }) => Err(Failure::Usage(format!(
            "{flag} 0: it would have expired at once; without {flag} {without}"
        ))),
        span => Ok(span.map_or(0, |span| span.ms)),
    }
}

const DAY_MS: u64 = 24 * 60 * 60 * 1000;

/// Where a new token goes. There is room for it before the token is made: nobody can ask for it
/// again.
enum NewToken {
    Output,
    File(TokenFile),
}

impl NewToken {
    fn open(arguments: &NewTokenArguments) -> Result<NewToken, Failure> {
        match &arguments.to {
            None => check_output().map(|()| NewToken::Output),
            Some(path) => Ok(NewToken::File(TokenFile::create("--to", path)?)),
        }
    }

    /// Has the token made. A signal that comes meanwhile is noted, and the token comes to its place
    /// all the same; a second one ends the program.
    fn call<M: Rpc>(
        &self,
        connection: &ConnectionArguments,
        request: &M::Request<'_>,
    ) -> Result<Reply<M>, Failure> {
        let interrupt = Interrupt::listen();
        let called = Caller::connect(connection).and_then(|mut caller| {
            if interrupt.is_set() {
                let message = "interrupted: no token was made".to_owned();
                return Err(Failure::Interrupted(message));
            }
            (caller.call::<M>(request)).map_err(|failure| match failure.is_unknown() {
                true => failure.with(
                    "the token may have been made all the same, and nobody has it: `pelton token \
                     list` shows its name",
                ),
                false => failure,
            })
        });
        if let (NewToken::File(file), Err(_)) = (self, &called) {
            file.discard();
        }
        called
    }

    /// Brings the token to its place. `again`: what to do if that does not take it.
    fn show(
        self,
        token: &str,
        described: &TokenDescription<'_>,
        connection: &ConnectionArguments,
        again: &str,
    ) -> Result<Exit, Failure> {
        let mut fields = fields(described);
        let mut output = Output::new(connection.output);
        let shown = match &self {
            NewToken::Output => {
                fields.insert("token".into(), token.into());
                let printed = output.either(token, || fields.clone());
                printed.and_then(|()| output.flush())
            }
            NewToken::File(file) => file.write(token),
        };
        shown.map_err(|failure| {
            let why = match failure {
                Failure::Failed(message) => message,
                _ => "standard output was closed".into(),
            };
            Failure::Failed(format!(
                "{why}; the token was made, and nobody can ask for it again: {again}"
            ))
        })?;
        note(format_args!(
            "{}: {}. The token is not shown again",
            described.name,
            summary(described)
        ));
        if matches!(self, NewToken::File(_)) && output.is_json() {
            output.object(fields)?;
        }
        output.end()?;
        Ok(Exit::Done)
    }
}

/// Looks whether standard output will take a token, as far as that can be known: that somebody
/// reads the pipe, or that there is room on the disk.
fn check_output() -> Result<(), Failure> {
    let stdout = io::stdout();
    let refused = |why: &str| {
        Err(Failure::Failed(format!(
            "cannot write to standard output: {why}; no token was made"
        )))
    };
    let stat = match rustix::fs::fstat(&stdout) {
        Ok(stat) => stat,
        Err(error) => return refused(&error.to_string()),
    };
    // What a program finds that is started without standard output (`>&-`): the standard library
    // opens it so, and nothing tells the one from the other.
    let null = rustix::fs::stat("/dev/null");
    let is_device = FileType::from_raw_mode(stat.st_mode) == FileType::CharacterDevice;
    if is_device && null.is_ok_and(|null| null.st_rdev == stat.st_rdev) {
        return refused(
            "it is closed, or /dev/null, where nobody can read it; --to FILE writes it into a file",
        );
    }
    // A device that takes nothing (/dev/full) does not take nothing either.
    if is_device && let Err(error) = retry_on_intr(|| rustix::io::write(&stdout, &[])) {
        return refused(&error.to_string());
    }
    if FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile {
        let end = u64::try_from(stat.st_size).unwrap_or(0);
        // Which the call below does not look at.
        let most = getrlimit(Resource::Fsize).current.unwrap_or(u64::MAX);
        if most.saturating_sub(end) < TOKEN_ROOM_BYTES {
            return refused("the file may not grow (ulimit -f)");
        }
        let room = fallocate(&stdout, FallocateFlags::KEEP_SIZE, end, TOKEN_ROOM_BYTES);
        return match room {
            Err(error @ (Errno::NOSPC | Errno::DQUOT | Errno::FBIG | Errno::BADF)) => {
                refused(&error.to_string())
            }
            // Not all file systems know this.
            _ => Ok(()),
        };
    }
    match wait_for_room(0) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => refused(&error.to_string()),
        _ => Ok(()),
    }
}

/// Room on a disk for what is printed of a token, also as JSON.
const TOKEN_ROOM_BYTES: u64 = 4096;

/// Takes a token back.
pub fn revoke_token(arguments: &RevokeTokenArguments) -> Result<Exit, Failure> {
    let name = &*arguments.name;
    let confirm_name = match arguments.last_admin {
        true => name,
        false => "",
    };
    let request = RevokeTokenRequest { name, confirm_name };
    let revoked = Caller::connect(&arguments.connection)?.call::<RevokeToken>(&request);
    revoked.map_err(|failure| match refused_as_last(failure) {
        Ok(failure) => failure.with("make another one first, or revoke it with --last-admin"),
        Err(failure) => failure.or_miss(&format!("nothing revoked: there is no token `{name}`")),
    })?;
    let mut output = Output::new(arguments.connection.output);
    match output.is_json() {
        true => output.object(object([("revoked", true.into())]))?,
        false => output.line("revoked")?,
    }
    output.end()?;
    Ok(Exit::Done)
}

/// Returns the refusal to take the last administrator away, without what the API says to do about
/// it; `Err`: another failure.
fn refused_as_last(failure: Failure) -> Result<Failure, Failure> {
    match failure {
        Failure::Call(mut failure) if failure.what.contains(LAST_ADMIN) => {
            let told = failure.what.split(". Make another").next();
            failure.what = told.unwrap_or_default().to_owned();
            failure.hint.clear();
            Ok(Failure::Call(failure))
        }
        failure => Err(failure),
    }
}

/// The refusal to revoke a token that is kept, with our flag in the place of the API's field.
fn in_flags(failure: Failure) -> Failure {
    match failure {
        Failure::Call(mut failure) if failure.what.contains(REVOKE_KEPT) => {
            failure.what = failure.what.replace(REVOKE_KEPT, "write --revoke-kept");
            Failure::Call(failure)
        }
        failure => failure,
    }
}

/// What stands in the server's refusal to revoke a token that is kept.
const REVOKE_KEPT: &str = "set field revoke_kept";

/// What stands in the server's refusal to revoke the last administrator's token.
const LAST_ADMIN: &str = "is the last token with the right admin";

/// Lists all tokens.
pub fn list_tokens(arguments: &ListTokensArguments) -> Result<Exit, Failure> {
    let mut caller = Caller::connect(&arguments.connection)?;
    let reply = caller.call::<ListTokens>(&ListTokensRequest {})?;
    let tokens: Vec<TokenDescription<'_>> = reply.message().tokens.iter().flatten().collect();
    let mut output = Output::new(arguments.connection.output);
    if output.is_json() {
        for token in &tokens {
            output.object(fields(token))?;
        }
    } else {
        for line in table(&tokens) {
            output.line(&line)?;
        }
    }
    output.end()?;
    Ok(Exit::Done)
}

fn rights<'a>(token: &TokenDescription<'a>) -> Vec<&'a str> {
    token.rights.iter().flatten().collect()
}

/// The rights in one text, in which each is told from the others.
fn shown_rights(token: &TokenDescription<'_>, separator: &str) -> String {
    let rights = rights(token).into_iter().map(shown_right);
    rights.collect::<Vec<_>>().join(separator)
}

fn fields(token: &TokenDescription<'_>) -> Map<String, Value> {
    let mut fields = object([
        ("name", token.name.into()),
        ("rights", rights(token).into()),
        ("created_at_ms", token.created_at_ms.into()),
    ]);
    if token.expires_at_ms > 0 {
        fields.insert("expires_at_ms".into(), token.expires_at_ms.into());
    }
    if token.expires_at_ms > 0 || token.expired {
        fields.insert("expired".into(), token.expired.into());
    }
    if token.previous_expires_at_ms > 0 {
        let at_ms = token.previous_expires_at_ms;
        fields.insert("previous_expires_at_ms".into(), at_ms.into());
    }
    if !token.binding.is_empty() {
        fields.insert("binding".into(), token.binding.into());
    }
    if token.unprovable {
        fields.insert("unprovable".into(), true.into());
    }
    fields
}

/// The columns of `pelton token list`; the last one has any length.
const COLUMNS: [&str; 6] = [
    "NAME",
    "CREATED",
    "EXPIRES",
    "PREVIOUS UNTIL",
    "BOUND TO",
    "RIGHTS",
];

fn table(tokens: &[TokenDescription<'_>]) -> Vec<String> {
    let mut rows = vec![COLUMNS.map(str::to_owned)];
    rows.extend(tokens.iter().map(cells));
    in_columns(rows, [false; COLUMNS.len()])
}

fn cells(token: &TokenDescription<'_>) -> [String; COLUMNS.len()] {
    let expires = match token.expires_at_ms {
        // The secret under which it was hashed is gone.
        0 if token.expired => "never (invalid)".into(),
        0 => "never".into(),
        at_ms if token.expired => format!("{} (expired)", at(at_ms)),
        at_ms => at(at_ms),
    };
    let previous = match token.previous_expires_at_ms {
        0 => "-".into(),
        at_ms => at(at_ms),
    };
    [
        shown_right(token.name).into_owned(),
        at(token.created_at_ms),
        expires,
        previous,
        match token.binding {
            "" => "-".into(),
            binding if token.unprovable => format!("{} (not shown here)", shown_right(binding)),
            binding => shown_right(binding).into_owned(),
        },
        shown_rights(token, ","),
    ]
}

/// A time as people write it, in UTC.
fn at(ms: u64) -> String {
    let seconds = i64::try_from(ms / 1000).unwrap_or(i64::MAX);
    match OffsetDateTime::from_unix_timestamp(seconds) {
        Err(_) => format!("{ms} ms after 1970"),
        Ok(time) => format!(
            "{}-{:02}-{:02} {:02}:{:02}:{:02}Z",
            time.year(),
            u8::from(time.month()),
            time.day(),
            time.hour(),
            time.minute(),
            time.second()
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lost_token_is_made_again_by_the_one_before_while_that_is_good() {
        let kept = way_back("ci", 1_700_000_000_000);
        assert!(kept.starts_with("the one before is good until 2023-11-14 22:13:20Z: `pelton"));
        let gone = way_back("ci", 0);
        assert!(gone.starts_with("the one before is good no longer; an administrator's"));
    }

    #[test]
    fn tokens_are_listed_in_columns() {
        let rights = ["read:orders", "write:default/images/"];
        let token = TokenDescription {
            name: "ci",
            rights: (&rights[..]).into(),
            created_at_ms: 1_700_000_000_000,
            ..TokenDescription::default()
        };
        let expired = TokenDescription {
            name: "a-longer-name",
            expires_at_ms: 1_800_000_000_000,
            expired: true,
            previous_expires_at_ms: u64::MAX,
            binding: "san:dns:worker.example",
            ..token
        };
        let lines = table(&[token, expired]);
        let cells = |line: &String| {
            let cells = line.split("  ").map(|cell| cell.trim().to_owned());
            cells.filter(|cell| !cell.is_empty()).collect::<Vec<_>>()
        };
        let rights = "read:orders,write:default/images/";
        let created = "2023-11-14 22:13:20Z";
        let previous = "18446744073709551615 ms after 1970";
        let expected = [
            COLUMNS,
            ["ci", created, "never", "-", "-", rights],
            [
                "a-longer-name",
                created,
                "2027-01-15 08:00:00Z (expired)",
                previous,
                "san:dns:worker.example",
                rights,
            ],
        ];
        for (line, expected) in lines.iter().zip(expected) {
            assert_eq!(cells(line), expected);
            let column = line.find(expected[2]).expect("it is there");
            assert_eq!(column, lines[0].find(COLUMNS[2]).expect("it is there"));
        }
        assert_eq!(lines.len(), expected.len());
    }

    /// A prefix of blobs may have any characters, and a server of an earlier version took them all.
    #[test]
    fn no_right_is_taken_for_several_or_makes_a_line_of_its_own() {
        let rights = ["read:a/x,admin", "read:a/\nroot  never  admin"];
        let token = TokenDescription {
            name: "ci",
            rights: (&rights[..]).into(),
            ..TokenDescription::default()
        };
        let lines = table(&[token]);
        let shown = r#""read:a/x,admin","read:a/\nroot  never  admin""#;
        assert_eq!(lines.len(), 2);
        assert!(lines[1].ends_with(shown), "{}", lines[1]);
        let told = summary(&token);
        assert!(
            told.starts_with(&shown.replace(r#"","#, r#"", "#)),
            "{told}"
        );
    }

    #[test]
    fn a_time_of_nothing_and_one_that_is_too_long_are_refused() {
        let time = |ms| some_time(("--expires", UNCHANGED), Some(Span { ms }), 7).ok();
        assert_eq!([0, 5, 7, 8].map(time), [None, Some(5), Some(7), None]);
        assert_eq!(some_time(("--expires", UNCHANGED), None, 7).ok(), Some(0));
        let refused = some_time(("--expires", "it does not expire"), Some(Span { ms: 0 }), 7);
        let told = refused.expect_err("it would have expired").to_string();
        assert!(
            told.ends_with("without --expires it does not expire"),
            "{told}"
        );
    }
}
