//! The token with which commands call a server: where it comes from, and to whom it goes.
//!
//! A token is never an argument: arguments are in lists of processes and in histories of shells.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use client::Credentials;
use service::identities::Token;
use zeroize::Zeroizing;

use crate::arguments::CredentialArguments;
use crate::exit::Failure;
use crate::output::note;
use crate::settings::TOKEN_VARIABLE;

/// Bytes of a file that are read for a token, which has 50.
const FILE_BYTES_MAX: u64 = 4096;

/// Bits of the mode of a file by which all users of a machine may read it.
const OTHERS_READ: u32 = 0o004;

/// Returns what proves who calls; `None`: no token was given.
pub fn credentials(arguments: &CredentialArguments) -> Result<Option<Credentials>, Failure> {
    let (text, from) = match (&arguments.token_file, std::env::var_os(TOKEN_VARIABLE)) {
        (Some(path), _) => (read_file("--token-file", path)?, path.display().to_string()),
        (None, Some(value)) if !value.is_empty() => {
            let text = value.into_string();
            let text = text.map_err(|_| no_token(TOKEN_VARIABLE))?;
            (Zeroizing::new(text), TOKEN_VARIABLE.to_owned())
        }
        _ => return Ok(None),
    };
    let token = text.trim();
    let sendable = Token::parse(token.as_bytes()).and_then(|_| Credentials::token(token).ok());
    let credentials = sendable.ok_or_else(|| no_token(&from))?;
    Ok(Some(match arguments.token_without_tls {
        true => credentials.also_without_tls(),
        false => credentials,
    }))
}

/// Reads a file with a token, and says so where others can read it too.
pub fn read_file(flag: &str, path: &Path) -> Result<Zeroizing<String>, Failure> {
    let failed = |error: io::Error| {
        Failure::Failed(format!("{flag}: cannot read {}: {error}", path.display()))
    };
    let file = File::open(path).map_err(failed)?;
    let mode = file
        .metadata()
        .map(|metadata| metadata.permissions().mode());
    if mode.is_ok_and(|mode| mode & OTHERS_READ != 0)
        && fs::metadata(path).is_ok_and(|of| of.is_file())
    {
        note(format_args!(
            "warning: all users of this machine can read {}, and use the token in it: chmod 600 \
             {0}",
            path.display()
        ));
    }
    // Large enough that it is not moved, which would leave a copy.
    let mut text = Zeroizing::new(String::with_capacity(FILE_BYTES_MAX as usize + 1));
    let read = file.take(FILE_BYTES_MAX).read_to_string(&mut text);
    match read {
        Err(error) if error.kind() == io::ErrorKind::InvalidData => {
            Err(no_token(&path.display().to_string()))
        }
        read => read.map(|_| text).map_err(failed),
    }
}

/// Without what stands there: it may be another secret.
pub fn no_token(from: &str) -> Failure {
    Failure::Usage(format!(
        "{from} has no token: one line of 50 characters that begins with `pelton_` is expected, as \
         `pelton token create` prints it"
    ))
}
