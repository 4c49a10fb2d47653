//! The token with which commands call a server: where it comes from, and to whom it goes.
//!
//! A token is never an argument: arguments are in lists of processes and in histories of shells.

use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use client::Credentials;
use service::identities::Token;
use service::redact::contains_token;
use zeroize::Zeroizing;

use crate::arguments::CredentialArguments;
use crate::arguments::TOKEN_FILE_VARIABLE;
use crate::exit::Failure;
use crate::limits::STORE_PASSWORD_FILE_BYTES;
use crate::output::note;
use crate::settings::{ADMIN_TOKEN_VARIABLE, TOKEN_VARIABLE};

/// The variable with the token with which a replica calls its leader.
pub const FOLLOW_TOKEN_VARIABLE: &str = "PELTON_FOLLOW_TOKEN";

/// Bytes of a file that are read for a token, which has 50.
const FILE_BYTES_MAX: u64 = 4096;

/// Bits of the mode of a file by which all users of a machine may read it.
const OTHERS_READ: u32 = 0o004;

/// Returns what proves who calls; `None`: no token was given.
pub fn credentials(arguments: &CredentialArguments) -> Result<Option<Credentials>, Failure> {
    let token = token(arguments)?;
    credentials_of(arguments, token.as_ref().map(|token| token.as_str()))
}

/// Returns the token with which a command calls, as its file or the variable has it now.
pub fn token(arguments: &CredentialArguments) -> Result<Option<Zeroizing<String>>, Failure> {
    let file = ("--token-file", arguments.token_file.as_deref());
    let given = given_token(file, TOKEN_VARIABLE)?;
    Ok(given.map(|(token, _)| token))
}

/// Returns what proves who calls with this token.
pub fn credentials_of(
    arguments: &CredentialArguments,
    token: Option<&str>,
) -> Result<Option<Credentials>, Failure> {
    let Some(token) = token else {
        return Ok(None);
    };
    let credentials = Credentials::token(token).map_err(|_| no_token("what was given"))?;
    Ok(Some(match arguments.token_without_tls {
        true => credentials.also_without_tls(),
        false => credentials,
    }))
}

/// Whether variables name a token, whatever is in it.
pub fn is_token_in_environment() -> bool {
    let is_set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    is_set(TOKEN_VARIABLE) || is_set(TOKEN_FILE_VARIABLE)
}

/// Returns the token that was given, in the file of a flag or else in a variable, and where it was.
pub fn given_token(
    (flag, file): (&str, Option<&Path>),
    variable: &str,
) -> Result<Option<(Zeroizing<String>, String)>, Failure> {
    let (text, from) = match (file, std::env::var_os(variable)) {
        (Some(path), _) => (read_file(flag, path)?, path.display().to_string()),
        (None, Some(value)) if !value.is_empty() => {
            let text = value.into_string().map_err(|_| no_token(variable))?;
            (Zeroizing::new(text), variable.to_owned())
        }
        _ => return Ok(None),
    };
    let token = text.trim();
    match Token::parse(token.as_bytes()) {
        None => Err(no_token(&from)),
        Some(_) => Ok(Some((Zeroizing::new(token.to_owned()), from))),
    }
}

/// Reads a file with a token, and says so where others can read it too.
fn read_file(flag: &str, path: &Path) -> Result<Zeroizing<String>, Failure> {
    let failed = |error: io::Error| match is_named_as_token(path) {
        true => Failure::Usage(token_as_file(flag, "or put it into a file")),
        false => unreadable(flag, path, &error),
    };
    let file = File::open(path).map_err(failed)?;
    warn_if_for_all(&file, path, "and use the token in it");
    match read_secret(file, FILE_BYTES_MAX) {
        Err(error) if error.kind() == io::ErrorKind::InvalidData => {
            Err(no_token(&path.display().to_string()))
        }
        read => read.map_err(failed),
    }
}

/// Reads a file with a password, in one line, and says so where others can read it too. No error
/// shows what stands there.
#[cfg_attr(
    not(feature = "cassandra"),
    allow(dead_code, reason = "called by the engine, which this build has not")
)]
pub fn password(flag: &str, path: &Path) -> Result<Zeroizing<String>, Failure> {
    let file = File::open(path).map_err(|error| unreadable(flag, path, &error))?;
    warn_if_for_all(&file, path, "and the password in it");
    let text = read_secret(file, STORE_PASSWORD_FILE_BYTES + 1);
    let text = text.map_err(|error| unreadable(flag, path, &error))?;
    let line = text.strip_suffix('\n').unwrap_or(&text);
    let line = line.strip_suffix('\r').unwrap_or(line);
    if line.is_empty() || line.contains('\n') || text.len() as u64 > STORE_PASSWORD_FILE_BYTES {
        return Err(Failure::Usage(format!(
            "{flag}: {} has no password: one line of at most {STORE_PASSWORD_FILE_BYTES} bytes is \
             expected",
            path.display()
        )));
    }
    Ok(Zeroizing::new(line.to_owned()))
}

fn unreadable(flag: &str, path: &Path, error: &io::Error) -> Failure {
    Failure::Failed(format!("{flag}: cannot read {}: {error}", path.display()))
}

/// Warns if all users of this machine can read a file, and do that with it.
fn warn_if_for_all(file: &File, path: &Path, what: &str) {
    let is_for_all = |of: Metadata| of.is_file() && of.permissions().mode() & OTHERS_READ != 0;
    if file.metadata().is_ok_and(is_for_all) {
        note(format_args!(
            "warning: all users of this machine can read {}, {what}: chmod 600 {0}",
            path.display()
        ));
    }
}

/// Reads at most so many bytes.
fn read_secret(file: File, most: u64) -> io::Result<Zeroizing<String>> {
    // Large enough that it is not moved, which would leave a copy.
    let capacity = usize::try_from(most).unwrap_or(0).saturating_add(1);
    let mut text = Zeroizing::new(String::with_capacity(capacity));
    file.take(most).read_to_string(&mut text).map(|_| text)
}

/// Returns whether somebody has written a token where the name of a file belongs.
pub fn is_named_as_token(path: &Path) -> bool {
    path.to_str().is_some_and(contains_token)
}

/// What is said of a token that stands where the name of a file belongs, and what to do.
pub fn token_as_file(flag: &str, what_else: &str) -> String {
    let variable = match flag {
        "--admin-token-file" => ADMIN_TOKEN_VARIABLE,
        "--follow-token-file" => FOLLOW_TOKEN_VARIABLE,
        _ => TOKEN_VARIABLE,
    };
    format!("{flag}: this is a token, not the name of a file: {variable} takes it, {what_else}")
}

/// Without what stands there: it may be another secret.
fn no_token(from: &str) -> Failure {
    Failure::Usage(format!(
        "{from} has no token: one line of 50 characters that begins with `pelton_` is expected, as \
         `pelton token create` prints it"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_one_line_and_no_error_shows_it() {
        let name = format!("pelton-password-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let read = |text: &[u8]| {
            std::fs::write(&path, text).expect("a folder for temporary files");
            let read = password("--store-password-file", &path);
            std::fs::remove_file(&path).expect("it is there");
            read.map(|text| (*text).clone())
                .map_err(|error| error.to_string())
        };
        for (text, expected) in [
            (&b"s3cret\n"[..], "s3cret"),
            (b" s3 cret \r\n", " s3 cret "),
            (b"s3cret", "s3cret"),
        ] {
            assert_eq!(read(text).as_deref(), Ok(expected));
        }
        let long = [b's'; STORE_PASSWORD_FILE_BYTES as usize + 1];
        for text in [&b""[..], b"\n", b"s3cret\nof two", b"s3cret\xff", &long] {
            let message = read(text).expect_err("it is no password");
            assert!(message.starts_with("--store-password-file: "), "{message}");
            assert!(!message.contains("s3"), "{message}");
        }
        assert!(password("--store-password-file", Path::new("/nowhere/at/all")).is_err());
    }
}
