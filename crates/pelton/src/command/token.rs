//! `pelton token create|list|revoke|rotate`

use std::fs::File;
use std::io::Write;
use std::path::Path;

use api::admin::{
    CreateTokenRequest, CreateTokenResponse, ListTokensResponse, RevokeTokenRequest,
    RotateTokenRequest, RotateTokenResponse, TokenDescription,
};
use serde_json::{Map, Value};
use service::Method;
use service::limits::{TOKEN_EXPIRY_MS_MAX, TOKEN_KEEP_MS_MAX};
use time::OffsetDateTime;

use super::{Caller, unreadable};
use crate::arguments::{
    ConnectionArguments, CreateTokenArguments, ListTokensArguments, NewTokenArguments,
    RevokeTokenArguments, RotateTokenArguments,
};
use crate::exit::{Exit, Failure};
use crate::output::{Output, in_columns, note, object};
use crate::secrets;
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
        expires_after_ms: some_time("--expires", arguments.expires, TOKEN_EXPIRY_MS_MAX)?,
        binding: &binding,
    };
    let mut bytes = Vec::new();
    request.encode(&mut bytes);
    let place = NewToken::open(&arguments.new)?;
    let called = call(&arguments.connection, Method::AdminCreateToken, &bytes);
    let answer = place.if_made(called)?;
    let answer = CreateTokenResponse::decode(&answer).map_err(unreadable)?;
    let described = answer.description.unwrap_or_default();
    match binding.is_empty() {
        true => place.show(answer.token.reveal(), &described, &arguments.connection),
        // A server that does not know of bindings has made a token.
        false if described.binding.is_empty() => Err(Failure::Failed(format!(
            "the server does not know of bindings, and has made a token in its place: \
             `pelton token revoke {}` takes it back",
            described.name
        ))),
        false => show_bound(&described, &arguments.connection),
    }
}

/// Says what was bound.
fn show_bound(
    described: &TokenDescription<'_>,
    connection: &ConnectionArguments,
) -> Result<Exit, Failure> {
    let mut output = Output::new(connection.output);
    match output.is_json() {
        true => output.object(fields(described)?)?,
        false => output.line("bound")?,
    }
    output.end()?;
    note(format_args!("{}: {}", described.name, summary(described)?));
    Ok(Exit::Done)
}

/// What is said of a new identity.
fn summary(described: &TokenDescription<'_>) -> Result<String, Failure> {
    let bound = match described.binding {
        "" => String::new(),
        binding => format!("{binding}; "),
    };
    let expires = match described.expires_at_ms {
        0 => "it does not expire".into(),
        at_ms => format!("it expires {}", at(at_ms)),
    };
    Ok(format!(
        "{bound}{}; {expires}",
        rights(described)?.join(", ")
    ))
}

/// Makes another token for a name.
pub fn rotate_token(arguments: &RotateTokenArguments) -> Result<Exit, Failure> {
    let request = RotateTokenRequest {
        name: &arguments.name,
        keep_for_ms: match arguments.keep {
            Some(Span { ms: 0 }) => 0,
            keep => some_time("--keep", keep, TOKEN_KEEP_MS_MAX)?,
        },
        expires_after_ms: some_time("--expires", arguments.expires, TOKEN_EXPIRY_MS_MAX)?,
    };
    let mut bytes = Vec::new();
    request.encode(&mut bytes);
    let place = NewToken::open(&arguments.new)?;
    let called = call(&arguments.connection, Method::AdminRotateToken, &bytes);
    let name = &arguments.name;
    let called = called.map_err(|failure| {
        failure.or_miss(&format!("nothing rotated: there is no token `{name}`"))
    });
    let answer = place.if_made(called)?;
    let answer = RotateTokenResponse::decode(&answer).map_err(unreadable)?;
    let described = answer.description.unwrap_or_default();
    place.show(answer.token.reveal(), &described, &arguments.connection)
}

/// 0 is never in a request, and a mistake on the command line.
fn some_time(flag: &str, span: Option<Span>, most_ms: u64) -> Result<u64, Failure> {
    match span {
        Some(Span { ms }) if ms > most_ms => {
            let days = most_ms / DAY_MS;
            Err(Failure::Usage(format!(
                "{flag}: at most {days}d can be given"
            )))
        }
        Some(Span { ms: 0 }) => Err(Failure::Usage(format!(
            "{flag} 0: it would have expired at once; without {flag} it does not change"
        ))),
        span => Ok(span.map_or(0, |span| span.ms)),
    }
}

const DAY_MS: u64 = 24 * 60 * 60 * 1000;

fn call(
    connection: &ConnectionArguments,
    method: Method,
    request: &[u8],
) -> Result<Vec<u8>, Failure> {
    Caller::connect(connection)?.unary(method, request)
}

/// Where a new token goes. A file is made before the token is, which nobody can ask for again.
enum NewToken<'a> {
    Output,
    File(&'a Path, File),
}

impl NewToken<'_> {
    fn open(arguments: &NewTokenArguments) -> Result<NewToken<'_>, Failure> {
        match &arguments.to {
            None => Ok(NewToken::Output),
            Some(path) => Ok(NewToken::File(path, secrets::create_file("--to", path)?)),
        }
    }

    /// Removes the file again where there is no token.
    fn if_made<T>(&self, made: Result<T, Failure>) -> Result<T, Failure> {
        if let (NewToken::File(path, _), Err(_)) = (self, &made) {
            let _ = std::fs::remove_file(path);
        }
        made
    }

    fn show(
        self,
        token: &str,
        described: &TokenDescription<'_>,
        connection: &ConnectionArguments,
    ) -> Result<Exit, Failure> {
        let mut fields = fields(described)?;
        let mut output = Output::new(connection.output);
        match self {
            NewToken::Output => {
                fields.insert("token".into(), token.into());
                match output.is_json() {
                    true => output.object(fields)?,
                    false => output.line(token)?,
                }
            }
            NewToken::File(path, mut file) => {
                let written = writeln!(file, "{token}").and_then(|()| file.sync_all());
                written.map_err(|error| {
                    Failure::Failed(format!(
                        "--to {}: {error}; the token was made, and nobody can ask for it again: \
                         `pelton token rotate {}` makes another one",
                        path.display(),
                        described.name
                    ))
                })?;
                if output.is_json() {
                    output.object(fields)?;
                }
            }
        }
        output.end()?;
        note(format_args!(
            "{}: {}. The token is not shown again",
            described.name,
            summary(described)?
        ));
        Ok(Exit::Done)
    }
}

/// Takes a token back.
pub fn revoke_token(arguments: &RevokeTokenArguments) -> Result<Exit, Failure> {
    let name = &*arguments.name;
    let confirm_name = match arguments.last_admin {
        true => name,
        false => "",
    };
    let mut request = Vec::new();
    RevokeTokenRequest { name, confirm_name }.encode(&mut request);
    let answer = call(&arguments.connection, Method::AdminRevokeToken, &request);
    answer.map_err(|failure| match failure {
        Failure::Call(mut failure) if failure.what.contains(LAST_ADMIN) => {
            let told = failure.what.split(". Make another").next();
            failure.what = told.unwrap_or_default().to_owned();
            failure.hint = "make another one first, or revoke it with --last-admin".into();
            Failure::Call(failure)
        }
        failure => failure.or_miss(&format!("nothing revoked: there is no token `{name}`")),
    })?;
    let mut output = Output::new(arguments.connection.output);
    match output.is_json() {
        true => output.object(object([("revoked", true.into())]))?,
        false => output.line("revoked")?,
    }
    output.end()?;
    Ok(Exit::Done)
}

/// What stands in the server's refusal to revoke the last administrator's token.
const LAST_ADMIN: &str = "is the last token with the right admin";

/// Lists all tokens.
pub fn list_tokens(arguments: &ListTokensArguments) -> Result<Exit, Failure> {
    let answer = call(&arguments.connection, Method::AdminListTokens, b"")?;
    let answer = ListTokensResponse::decode(&answer).map_err(unreadable)?;
    let tokens: Result<Vec<TokenDescription<'_>>, _> = answer.tokens.iter().collect();
    let tokens = tokens.map_err(unreadable)?;
    let mut output = Output::new(arguments.connection.output);
    if output.is_json() {
        for token in &tokens {
            output.object(fields(token)?)?;
        }
    } else {
        for line in table(&tokens)? {
            output.line(&line)?;
        }
    }
    output.end()?;
    Ok(Exit::Done)
}

fn rights<'a>(token: &TokenDescription<'a>) -> Result<Vec<&'a str>, Failure> {
    let rights: Result<Vec<&str>, _> = token.rights.iter().collect();
    rights.map_err(unreadable)
}

fn fields(token: &TokenDescription<'_>) -> Result<Map<String, Value>, Failure> {
    let mut fields = object([
        ("name", token.name.into()),
        ("rights", rights(token)?.into()),
        ("created_at_ms", token.created_at_ms.into()),
    ]);
    if token.expires_at_ms > 0 {
        fields.insert("expires_at_ms".into(), token.expires_at_ms.into());
        fields.insert("expired".into(), token.expired.into());
    }
    if token.previous_expires_at_ms > 0 {
        let at_ms = token.previous_expires_at_ms;
        fields.insert("previous_expires_at_ms".into(), at_ms.into());
    }
    if !token.binding.is_empty() {
        fields.insert("binding".into(), token.binding.into());
    }
    Ok(fields)
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

fn table(tokens: &[TokenDescription<'_>]) -> Result<Vec<String>, Failure> {
    let mut rows = vec![COLUMNS.map(str::to_owned)];
    for token in tokens {
        rows.push(cells(token)?);
    }
    Ok(in_columns(rows, [false; COLUMNS.len()]))
}

fn cells(token: &TokenDescription<'_>) -> Result<[String; COLUMNS.len()], Failure> {
    let expires = match token.expires_at_ms {
        0 => "never".into(),
        at_ms if token.expired => format!("{} (expired)", at(at_ms)),
        at_ms => at(at_ms),
    };
    let previous = match token.previous_expires_at_ms {
        0 => "-".into(),
        at_ms => at(at_ms),
    };
    Ok([
        token.name.to_owned(),
        at(token.created_at_ms),
        expires,
        previous,
        match token.binding {
            "" => "-".into(),
            binding => binding.to_owned(),
        },
        rights(token)?.join(","),
    ])
}

/// A time as people write it, in UTC.
fn at(ms: u64) -> String {
    let seconds = i64::try_from(ms / 1000).unwrap_or(i64::MAX);
    match OffsetDateTime::from_unix_timestamp(seconds) {
        Err(_) => format!("{ms} ms after 1970"),
        Ok(time) => format!(
            "{}-{:02}-{:02} {:02}:{:02}Z",
            time.year(),
            u8::from(time.month()),
            time.day(),
            time.hour(),
            time.minute()
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let lines = table(&[token, expired]).expect("they are messages");
        let cells = |line: &String| {
            let cells = line.split("  ").map(|cell| cell.trim().to_owned());
            cells.filter(|cell| !cell.is_empty()).collect::<Vec<_>>()
        };
        let rights = "read:orders,write:default/images/";
        let created = "2023-11-14 22:13Z";
        let previous = "18446744073709551615 ms after 1970";
        let expected = [
            COLUMNS,
            ["ci", created, "never", "-", "-", rights],
            [
                "a-longer-name",
                created,
                "2027-01-15 08:00Z (expired)",
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

    #[test]
    fn a_time_of_nothing_and_one_that_is_too_long_are_refused() {
        let time = |ms| some_time("--expires", Some(Span { ms }), 7).ok();
        assert_eq!([0, 5, 7, 8].map(time), [None, Some(5), Some(7), None]);
        assert_eq!(some_time("--expires", None, 7).ok(), Some(0));
    }
}
