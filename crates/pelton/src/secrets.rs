//! Secrets, of the random source of the operating system.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use ring::rand::{SecureRandom, SystemRandom};
use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::process::geteuid;
use service::identities::{TOKEN_PREFIX, Token};
use store::FolderSecret;
use zeroize::Zeroizing;

use crate::credentials::is_named_as_token;
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

/// What stands in a file that is to have a token, of the same length as one: so there is room for
/// it on the disk. It is none.
const PLACEHOLDER: &[u8; 51] = b"no token yet: this file is about to get one       \n";

/// A new file for a token, which only its owner can read.
pub struct TokenFile {
    flag: &'static str,
    path: PathBuf,
    file: File,
}

impl TokenFile {
    /// Makes the file, and room in it, on the device. One that is there stays as it is.
    pub fn create(flag: &'static str, path: &Path) -> Result<TokenFile, Failure> {
        if is_named_as_token(path) {
            // The name of a file is seen by all who can list its folder.
            return Err(Failure::Usage(format!(
                "{flag}: this is a token, not the name of a file: name a file that is to be made"
            )));
        }
        let mut options = OpenOptions::new();
        let made = options.write(true).create_new(true).mode(0o600).open(path);
        let file = TokenFile {
            flag,
            path: path.to_owned(),
            file: made.map_err(|error| not_created(flag, path, &error))?,
        };
        let reserved = file.put(PLACEHOLDER).and_then(|()| sync_folder_of(path));
        match reserved {
            Ok(()) => Ok(file),
            Err(error) => {
                file.discard();
                Err(failed(flag, path, &error))
            }
        }
    }

    /// The same; a file that a start has left here that was cut off is taken up, with the token
    /// that stands in it, if it got so far.
    pub fn take_up(
        flag: &'static str,
        path: &Path,
    ) -> Result<(TokenFile, Option<Zeroizing<String>>), Failure> {
        if std::fs::symlink_metadata(path).is_err() {
            return TokenFile::create(flag, path).map(|file| (file, None));
        }
        let opened = open_there(path);
        let file = opened.map_err(|error| failed(flag, path, &error))?;
        let is_ours = is_for_owner_only(&file);
        let text = read_token(&file);
        let is_unread = text.is_err();
        let text = text.unwrap_or_default();
        let token = Zeroizing::new(text.trim().to_owned());
        let has_token = Token::parse(token.as_bytes()).is_some();
        if is_unread || !is_ours || !(has_token || is_unfinished(text.as_bytes())) {
            return Err(Failure::Failed(format!(
                "{flag} {}: there is something of this name already, and not a token in a file \
                 that only its owner can read, as a start makes it that is cut off: choose another \
                 name, or remove it",
                path.display()
            )));
        }
        let file = TokenFile {
            flag,
            path: path.to_owned(),
            file,
        };
        if has_token {
            return Ok((file, Some(token)));
        }
        file.put(PLACEHOLDER)
            .map_err(|error| failed(flag, path, &error))?;
        Ok((file, None))
    }

    /// Writes the token, and returns when it is on the device.
    pub fn write(&self, token: &str) -> Result<(), Failure> {
        let text = Zeroizing::new(format!("{token}\n"));
        let put = self.put(text.as_bytes());
        put.map_err(|error| failed(self.flag, &self.path, &error))
    }

    fn put(&self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all_at(bytes, 0)?;
        self.file.set_len(bytes.len() as u64)?;
        self.file.sync_all()
    }

    /// Removes the file: there is no token for it.
    pub fn discard(&self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Returns whether this is what a start that was cut off may have left of a token's file, or a loss
/// of power: some of a token, and then some of what stood there before, or zeros.
fn is_unfinished(text: &[u8]) -> bool {
    let is_rest = |(at, rest): (usize, &[u8])| {
        let before = PLACEHOLDER.get(at..).unwrap_or_default();
        before.starts_with(rest) || rest.iter().all(|&byte| byte == 0)
    };
    let cuts = (0..=text.len()).map(|at| text.split_at(at));
    text.len() <= PLACEHOLDER.len()
        && cuts
            .filter(|(begun, _)| begins_token(begun))
            .any(|(begun, rest)| is_rest((begun.len(), rest)))
}

/// Returns whether a token may begin so.
fn begins_token(begun: &[u8]) -> bool {
    let prefix = TOKEN_PREFIX.as_bytes();
    let is_digit = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    match begun.strip_prefix(prefix) {
        Some(digits) => digits.iter().all(is_digit),
        None => prefix.starts_with(begun),
    }
}

/// Returns whether there is a token in a file that only its owner can read.
pub fn has_token(path: &Path) -> bool {
    let found = open_there(path).ok().filter(is_for_owner_only);
    let text = found.and_then(|file| read_token(&file).ok());
    text.is_some_and(|text| Token::parse(text.trim().as_bytes()).is_some())
}

/// Opens a file that is there, and waits for nobody.
fn open_there(path: &Path) -> io::Result<File> {
    let flags = OFlags::NOFOLLOW.bits() | OFlags::NONBLOCK.bits();
    let mut options = OpenOptions::new();
    let options = options.read(true).write(true);
    options.custom_flags(flags.cast_signed()).open(path)
}

fn is_for_owner_only(file: &File) -> bool {
    file.metadata()
        .is_ok_and(|of| of.is_file() && of.mode() & 0o077 == 0 && of.uid() == geteuid().as_raw())
}

/// Reads what may be a token, and one byte more than one has.
fn read_token(file: &File) -> io::Result<Zeroizing<String>> {
    // Large enough that it is not moved, which would leave a copy.
    let mut text = Zeroizing::new(String::with_capacity(PLACEHOLDER.len() + 1));
    let most = text.capacity() as u64;
    file.take(most).read_to_string(&mut text).map(|_| text)
}

/// Why there is no new file: what another command has left that was cut off can be removed.
fn not_created(flag: &str, path: &Path, error: &io::Error) -> Failure {
    if error.kind() != io::ErrorKind::AlreadyExists {
        return failed(flag, path, error);
    }
    if !is_left_over(path) {
        return Failure::Failed(format!(
            "{flag} {}: there is something of this name already, and it stays as it is: choose \
             another name, or remove it first if nobody needs it",
            path.display()
        ));
    }
    let path = path.display();
    Failure::Failed(format!(
        "{flag} {path}: a command that was cut off has left this file without a token. Remove it; \
         if `pelton token list` shows the token nevertheless, `pelton token rotate NAME --to \
         {path}` makes another one of its name"
    ))
}

/// Returns whether a file waits for a token still.
fn is_left_over(path: &Path) -> bool {
    let flags = OFlags::NOFOLLOW.bits() | OFlags::NONBLOCK.bits();
    let mut options = OpenOptions::new();
    let opened = (options.read(true).custom_flags(flags.cast_signed())).open(path);
    let mut found = Vec::new();
    let read = opened.and_then(|file| {
        let most = PLACEHOLDER.len() as u64 + 1;
        file.take(most).read_to_end(&mut found)
    });
    read.is_ok() && found == PLACEHOLDER
}

fn failed(flag: &str, path: &Path, error: &io::Error) -> Failure {
    let is_link = std::fs::symlink_metadata(path).is_ok_and(|found| found.is_symlink());
    match is_link {
        true => Failure::Failed(format!(
            "{flag} {}: this is a symbolic link, which is not followed: name the file itself, or \
             remove the link",
            path.display()
        )),
        false => Failure::Failed(format!("{flag} {}: {error}", path.display())),
    }
}

/// Has the name of a new file outlive a loss of power, where the file system can.
pub fn sync_folder_of(path: &Path) -> io::Result<()> {
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    match File::open(folder).and_then(|folder| folder.sync_all()) {
        // It may be written to, and not read.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(()),
        // Some file systems know no such thing.
        Err(error) if error.raw_os_error() == Some(Errno::INVAL.raw_os_error()) => Ok(()),
        synced => synced,
    }
}

fn random_bytes() -> Option<Zeroizing<[u8; 32]>> {
    let mut bytes = Zeroizing::new([0; 32]);
    SystemRandom::new().fill(&mut bytes[..]).ok()?;
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_symbolic_link_for_a_token_is_named_as_what_it_is() {
        let name = format!("pelton-token-link-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::os::unix::fs::symlink("/nowhere/at/all", &path).expect("it is new");
        let refused = TokenFile::take_up("--to", &path).map(|_| ());
        std::fs::remove_file(&path).expect("it is there");
        let message = refused.expect_err("it is not followed").to_string();
        assert!(message.contains("this is a symbolic link"), "{message}");
        assert!(message.contains("--to ") && message.contains(&*path.to_string_lossy()));
    }

    /// Wherever its writing was cut off, the next start has its file; nothing else is overwritten.
    #[test]
    fn a_file_with_a_part_of_a_token_is_unfinished_and_another_one_is_not() {
        let token = draw_token().expect("there are random bytes").text();
        let token = format!("{}\n", *token).into_bytes();
        for cut in 0..token.len() {
            let torn = [&token[..cut], &PLACEHOLDER[cut..]].concat();
            let zeros = [&token[..cut], &vec![0; PLACEHOLDER.len() - cut]].concat();
            for left in [&torn[..], &token[..cut], &PLACEHOLDER[..cut], &zeros] {
                let shown = String::from_utf8_lossy(left);
                assert!(is_unfinished(left), "{cut}: {shown}");
            }
        }
        for other in [
            &b"a password"[..],
            b"no token",
            b"pelton_token of another kind",
            &[&token[..], b"\n"].concat(),
            &[0; PLACEHOLDER.len() + 1],
        ] {
            let is_prefix = PLACEHOLDER.starts_with(other);
            assert_eq!(is_unfinished(other), is_prefix, "{other:?}");
        }
    }

    #[test]
    fn a_file_that_was_left_without_a_token_is_told_from_others() {
        let folder = std::env::temp_dir().join(format!("pelton-token-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder for temporary files");
        let path = folder.join("token");
        let refusal = || match TokenFile::create("--to", &path) {
            Err(Failure::Failed(message)) => message,
            other => panic!("it is refused, not {:?}", other.is_ok()),
        };
        for _ in 0..2 {
            let left = TokenFile::create("--to", &path).expect("there is no such file");
            let message = refusal();
            assert!(message.contains("was cut off") && message.contains("rotate NAME"));
            left.write("pelton_x").expect("it can be written");
            assert!(!refusal().contains("was cut off"));
            left.discard();
            std::fs::create_dir(&path).expect("there is no such file");
            assert!(!refusal().contains("was cut off"));
            std::fs::remove_dir(&path).expect("it is there");
        }
        std::fs::remove_dir(&folder).expect("it is empty");
    }
}
