//! Secrets, of the random source of the operating system.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use ring::rand::{SecureRandom, SystemRandom};
use service::identities::Token;
use store::FolderSecret;
use zeroize::Zeroizing;

use crate::exit::Failure;

/// Draws a token.
pub fn draw_token() -> Option<Token> {
    random_bytes().map(|bytes| Token::new(*bytes))
}

/// Draws the secret of a data folder.
pub fn folder_secret() -> Result<FolderSecret, Failure> {
    let bytes = random_bytes();
    let bytes = bytes.ok_or_else(|| Failure::Failed("the system gives no random bytes".into()))?;
    Ok(FolderSecret::new(*bytes))
}

/// Makes a file for a secret, which only its owner can read. One that is there stays as it is.
pub fn create_file(flag: &str, path: &Path) -> Result<File, Failure> {
    let mut options = OpenOptions::new();
    let made = options.write(true).create_new(true).mode(0o600).open(path);
    made.map_err(|error| Failure::Failed(format!("{flag} {}: {error}", path.display())))
}

fn random_bytes() -> Option<Zeroizing<[u8; 32]>> {
    let mut bytes = Zeroizing::new([0; 32]);
    SystemRandom::new().fill(&mut bytes[..]).ok()?;
    Some(bytes)
}
