//! What is uploaded: files, those below folders, or standard input.

use std::borrow::Cow;
use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use crate::arguments::{OutputFormat, UploadArguments};
use crate::exit::Failure;
use crate::report::warn;

/// A file, or standard input.
pub(super) struct UploadSource {
    pub(super) path: PathBuf,
    pub(super) name: String,
    /// `None`: nobody knows, and it can be read only once.
    pub(super) size_bytes: Option<u64>,
    /// Empty: it cannot be resumed.
    pub(super) upload_id: Vec<u8>,
}

impl UploadSource {
    /// An error if the file that was opened is not as it was when the upload began: what was sent
    /// may be a mix of both.
    pub(super) fn check_unchanged(&self, file: &fs::File) -> io::Result<()> {
        if upload_id(&self.path, &file.metadata()?) == self.upload_id {
            return Ok(());
        }
        Err(io::Error::other(
            "it was changed while it was uploaded, and nothing was stored; upload it again",
        ))
    }

    /// What messages call it.
    pub(super) fn shown(&self) -> String {
        match self.upload_id.is_empty() {
            true => "standard input".into(),
            false => self.path.display().to_string(),
        }
    }
}

/// Returns what is to be uploaded, and as which blobs.
///
/// # Errors
/// If something cannot be read or has no name, or two have the same.
pub(super) fn sources(arguments: &UploadArguments) -> Result<Vec<UploadSource>, Failure> {
    if arguments.name.is_some() && arguments.files.len() > 1 {
        return Err(Failure::Usage(
            "--name is for a single file; --prefix goes before the names of several".into(),
        ));
    }
    let source = |(path, below): &(PathBuf, Option<String>)| {
        let metadata = (!is_stdin(path)).then(|| path.metadata());
        if matches!(&metadata, Some(Ok(found)) if found.is_dir()) {
            return Err(Failure::Failed(format!(
                "{} is a folder; --recursive uploads the files below it",
                path.display()
            )));
        }
        let from_path = path.file_name().map(|name| name.to_string_lossy());
        let from_path = below.as_deref().map(Cow::Borrowed).or(from_path);
        let name = match (&arguments.name, from_path) {
            (Some(name), _) => name.clone(),
            (None, Some(name)) if metadata.is_some() => format!("{}{name}", arguments.prefix),
            _ => {
                return Err(Failure::Usage(format!(
                    "{} has no name of its own; give the blob one with --name",
                    path.display()
                )));
            }
        };
        let Some(metadata) = metadata else {
            return Ok(UploadSource {
                path: path.clone(),
                name,
                size_bytes: None,
                upload_id: Vec::new(),
            });
        };
        let metadata = metadata.map_err(|error| unread(path, &error))?;
        if !metadata.is_file() {
            return Err(Failure::Failed(format!(
                "{} is {}, not a file; `pelton upload - --name NAME` stores what comes from \
                 standard input",
                path.display(),
                kind_of(metadata.file_type())
            )));
        }
        Ok(UploadSource {
            path: path.clone(),
            name,
            size_bytes: Some(metadata.len()),
            upload_id: upload_id(path, &metadata),
        })
    };
    let files = match arguments.recursive {
        true => with_those_below(&arguments.files, arguments.place.connection.output)?,
        false => (arguments.files.iter())
            .map(|file| (file.clone(), None))
            .collect(),
    };
    let sources: Vec<UploadSource> = files.iter().map(source).collect::<Result<_, _>>()?;
    match same_name(&sources) {
        Some((one, other)) => Err(Failure::Usage(format!(
            "{} and {} would both be the blob `{}`, of which one would replace the other; upload \
             them one by one, with --name",
            one.path.display(),
            other.path.display(),
            one.name
        ))),
        None => Ok(sources),
    }
}

/// What something is that is no file and no folder.
fn kind_of(file_type: fs::FileType) -> &'static str {
    match file_type {
        kind if kind.is_fifo() => "a named pipe",
        kind if kind.is_socket() => "a socket",
        _ => "a device",
    }
}

/// The files, and instead of each folder those below it with their paths from there, in the order
/// of their names. What is no file of the folder is left out with a warning: links to folders,
/// since they may lead back, links that lead out of the folder, since whoever filled it could have
/// other files of the user published, and pipes, sockets and devices, which may have no end.
fn with_those_below(
    files: &[PathBuf],
    format: OutputFormat,
) -> Result<Vec<(PathBuf, Option<String>)>, Failure> {
    let mut all = Vec::new();
    for file in files {
        if is_stdin(file) || !file.is_dir() {
            all.push((file.clone(), None));
            continue;
        }
        let before = all.len();
        let root = file.canonicalize().map_err(|error| unread(file, &error))?;
        let below = Below { root, format };
        below.add(file, "", &mut all)?;
        if all.len() == before {
            return Err(Failure::Failed(format!(
                "there is no file in the folder {}: nothing was uploaded",
                file.display()
            )));
        }
    }
    Ok(all)
}

/// A folder whose files are uploaded.
struct Below {
    /// Its path without links.
    root: PathBuf,
    /// Of warnings.
    format: OutputFormat,
}

impl Below {
    fn add(
        &self,
        folder: &Path,
        below: &str,
        all: &mut Vec<(PathBuf, Option<String>)>,
    ) -> Result<(), Failure> {
        let failed = |error: io::Error| unread(folder, &error);
        let entries = fs::read_dir(folder).map_err(failed)?;
        let mut entries = entries.collect::<Result<Vec<_>, _>>().map_err(failed)?;
        entries.sort_by_key(fs::DirEntry::file_name);
        for entry in entries {
            let path = entry.path();
            let name = format!("{below}{}", entry.file_name().to_string_lossy());
            let file_type = entry.file_type().map_err(failed)?;
            if file_type.is_dir() {
                self.add(&path, &format!("{name}/"), all)?;
                continue;
            }
            match self.why_not(&path, file_type.is_symlink()) {
                Some(why) => warn(
                    &format!("{} is {why}, and was left out", path.display()),
                    self.format,
                ),
                None => all.push((path, Some(name))),
            }
        }
        Ok(())
    }

    /// What a path is that is no file of the folder.
    fn why_not(&self, path: &Path, is_link: bool) -> Option<&'static str> {
        // That a file cannot be looked at is told when it is to be read.
        let target = match path.metadata() {
            Ok(target) => target,
            Err(error) if is_link && error.kind() == io::ErrorKind::NotFound => {
                return Some("a link to nothing");
            }
            Err(_) => return None,
        };
        let leads_out = || {
            let target = path.canonicalize();
            target.is_ok_and(|target| !target.starts_with(&self.root))
        };
        match target.file_type() {
            kind if kind.is_dir() => Some("a link to a folder"),
            kind if !kind.is_file() => Some(kind_of(kind)),
            _ if is_link && leads_out() => Some("a link out of the folder"),
            _ => None,
        }
    }
}

/// Two sources that would become the same blob.
fn same_name(sources: &[UploadSource]) -> Option<(&UploadSource, &UploadSource)> {
    let mut sorted: Vec<&UploadSource> = sources.iter().collect();
    sorted.sort_by(|one, other| one.name.cmp(&other.name));
    let pair = sorted
        .windows(2)
        .find(|pair| pair[0].name == pair[1].name)?;
    Some((pair[0], pair[1]))
}

fn is_stdin(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// The same for the same file as long as nobody has written to it, so that another run of the
/// program goes on where one was interrupted.
fn upload_id(path: &Path, metadata: &std::fs::Metadata) -> Vec<u8> {
    let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let path = crc32c::crc32c(path.as_os_str().as_encoded_bytes());
    let id = format!(
        "{path:08x}-{}-{}-{:x}.{:09}",
        metadata.ino(),
        metadata.len(),
        metadata.mtime(),
        metadata.mtime_nsec()
    );
    let mut id = id.into_bytes();
    id.truncate(store::blob::limits::UPLOAD_ID_BYTES);
    id
}

/// Says that a file cannot be read.
pub(super) fn unread(path: &Path, error: &io::Error) -> Failure {
    Failure::Failed(format!("{} cannot be read: {error}", path.display()))
}
