//! The token of the first administrator: made at a start, or given by a secret manager.

use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::FileType;
use server::{AskForToken, FirstAdmin, FirstAdminError, StartError};
use service::identities::{FIRST_ADMIN, Token};
use store::Refusal;
use zeroize::Zeroizing;

use crate::credentials::given_token;
use crate::exit::Failure;
use crate::limits::STDOUT_WAIT_MS;
use crate::output;
use crate::secrets::{self, TokenFile};
use crate::settings::{ADMIN_TOKEN_VARIABLE, FORMAT_FILE, Settings};

/// What is to become of the first administrator's token.
pub struct InitAdmin {
    source: TokenSource,
    /// One that was made, and goes to standard output when the server listens.
    shown: Arc<Mutex<Option<Zeroizing<String>>>>,
    /// One that was made lies here. It goes if the server does not start.
    written: Arc<Mutex<Option<PathBuf>>>,
}

enum TokenSource {
    /// Nobody wants one.
    Nobody,
    /// It was given.
    Given(Zeroizing<String>),
    /// It is made, and written here, or to standard output.
    Made(Option<PathBuf>),
}

impl InitAdmin {
    /// What the settings say.
    pub fn new(settings: &Settings) -> Result<InitAdmin, Failure> {
        let file = ("--admin-token-file", settings.admin_token_file.as_deref());
        let source = match given_token(file, ADMIN_TOKEN_VARIABLE)? {
            Some((_, from)) if settings.init_admin_file.is_some() || settings.init_admin => {
                return Err(Failure::Usage(format!(
                    "{from} gives the administrator's token, and {} has one made: take one of the \
                     two",
                    match settings.init_admin {
                        true => "init-admin",
                        false => "init-admin-file",
                    }
                )));
            }
            Some((token, _)) => TokenSource::Given(token),
            None if settings.init_admin_file.is_some() => {
                TokenSource::Made(settings.init_admin_file.clone())
            }
            None if settings.init_admin => TokenSource::Made(None),
            None => TokenSource::Nobody,
        };
        if let TokenSource::Made(Some(path)) = &source {
            check_file(path, settings.folder())?;
        }
        Ok(InitAdmin {
            source,
            shown: Arc::default(),
            written: Arc::default(),
        })
    }

    /// Returns whether there will be an administrator if the server starts.
    pub fn is_wanted(&self) -> bool {
        !matches!(self.source, TokenSource::Nobody)
    }

    /// Returns what the server asks if there is no administrator.
    pub fn ask(&self) -> Option<Box<AskForToken>> {
        match &self.source {
            TokenSource::Nobody => None,
            TokenSource::Given(text) => {
                let text = text.clone();
                Some(Box::new(move || token_of(&text)))
            }
            TokenSource::Made(place) => {
                let (place, shown) = (place.clone(), Arc::clone(&self.shown));
                let written = Arc::clone(&self.written);
                Some(Box::new(move || match &place {
                    None => make_shown(&shown),
                    Some(path) => make_in_file(path, &written),
                }))
            }
        }
    }

    /// The server has not started: what was made for it is of no use, unless the log may have it.
    pub fn discard_after(&self, error: &StartError) {
        let unknown = FirstAdminError::Refused(Refusal::OutcomeUnknown);
        if matches!(error, StartError::FirstAdmin(error) if *error == unknown) {
            return;
        }
        if let Some(path) = lock(&self.written).take() {
            let _ = std::fs::remove_file(path);
        }
    }

    /// Says what came of it, and shows a token that was made: the server listens.
    pub fn tell(&self, came: &FirstAdmin) {
        match (came, &self.source) {
            (FirstAdmin::NotWanted, _) => {}
            (FirstAdmin::Exists, _) => tracing::info!(
                "there is an administrator's token already: none was made, and one that is given \
                 is not looked at (pelton token list)"
            ),
            (FirstAdmin::Revoked, TokenSource::Made(Some(path))) => tracing::warn!(
                "the token in {} was revoked, and is not made anew, so that there is no \
                 administrator: remove the file, and the next start makes another token",
                path.display()
            ),
            (FirstAdmin::Revoked, _) => tracing::warn!(
                "the token that is given for `{FIRST_ADMIN}` was revoked or rotated away, and is \
                 not made anew, so that there is no administrator: give another one, or start \
                 with --init-admin-file FILE in its place, which makes one"
            ),
            (FirstAdmin::Made, TokenSource::Made(Some(path))) => tracing::info!(
                "the token of `{FIRST_ADMIN}`, with the right admin, lies in {}",
                path.display()
            ),
            (FirstAdmin::Made, _) => {
                tracing::info!("the token `{FIRST_ADMIN}` was made, with the right admin");
            }
        }
        if let Some(token) = lock(&self.shown).take() {
            let line = Zeroizing::new(format!(
                "token of the administrator `{FIRST_ADMIN}`, shown this once: {}\n",
                *token
            ));
            if output::print_patiently(line.as_bytes()).is_err() {
                tracing::error!(
                    "the token `{FIRST_ADMIN}` was made, and standard output did not take it: \
                     docs/security.md says how to make another one"
                );
            }
        }
    }
}

fn token_of(text: &str) -> Result<Token, String> {
    Token::parse(text.as_bytes()).ok_or_else(|| "the administrator's token is none".to_owned())
}

/// Makes a token that goes to standard output once the server listens.
fn make_shown(shown: &Mutex<Option<Zeroizing<String>>>) -> Result<Token, String> {
    if !is_seen_once() {
        return Err(
            "--init-admin: the administrator's token is not written to standard output, which is \
             neither a terminal nor a pipe: a file or log would keep it; --init-admin-file FILE \
             writes it into a file of its own"
                .into(),
        );
    }
    output::wait_for_room(STDOUT_WAIT_MS).map_err(|error| {
        format!(
            "--init-admin: standard output does not take the administrator's token, and it is \
             shown only once: {error}"
        )
    })?;
    let token = draw()?;
    *lock(shown) = Some(token.text());
    Ok(token)
}

/// Refuses a file with a token where the data folder is new: no start before can have been cut off
/// in it, so that the token is one of another server.
fn check_file(path: &Path, folder: Option<&Path>) -> Result<(), Failure> {
    let is_new = folder.is_some_and(|folder| !folder.join(FORMAT_FILE).exists());
    if !is_new || !secrets::has_token(path) {
        return Ok(());
    }
    Err(Failure::Failed(format!(
        "--init-admin-file {}: there is a token in this file already, and it is not of this data \
         folder, which is new: choose another name, remove the file if nobody needs its token, or \
         have this server take the same token by --admin-token-file {0}",
        path.display()
    )))
}

/// Makes a token, and writes it into this file before anybody could need it. One that is there
/// already is taken.
fn make_in_file(path: &Path, written: &Mutex<Option<PathBuf>>) -> Result<Token, String> {
    let file = TokenFile::take_up("--init-admin-file", path);
    let (file, left) = file.map_err(|error| error.to_string())?;
    if let Some(left) = left {
        // Of a start that came no further: whoever has seen the file has this token.
        tracing::warn!(
            "there is a token in {} already, of a start that came no further, or of another \
             server, and no administrator here: it becomes the token of `{FIRST_ADMIN}`",
            path.display()
        );
        return token_of(&left);
    }
    *lock(written) = Some(path.to_owned());
    let token = draw()?;
    file.write(&token.text())
        .map_err(|error| error.to_string())?;
    Ok(token)
}

fn draw() -> Result<Token, String> {
    secrets::draw_token().ok_or_else(|| "the system gives no random bytes".to_owned())
}

/// Returns whether standard output goes to somebody who reads it now.
fn is_seen_once() -> bool {
    let stdout = io::stdout();
    let kind = rustix::fs::fstat(&stdout).map(|stat| FileType::from_raw_mode(stat.st_mode));
    stdout.is_terminal() || kind.is_ok_and(|kind| kind == FileType::Fifo)
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
