//! Downloads of all blobs below a name, as of a folder.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

use super::sink::{DownloadTarget, no_folder};
use super::{each_name, some_names};
use crate::arguments::{DownloadArguments, OutputFormat};
use crate::command::{Caller, in_database};
use crate::exit::{CallFailure, Failure};
use crate::in_place;
use crate::report::warn;

/// All blobs below the names, each with the path that it has from there, and how many were left out
/// with a warning since their names cannot be those of files: names are anybody's, and one of them
/// must not keep the others from being fetched.
pub(super) fn targets(
    arguments: &DownloadArguments,
) -> Result<(Vec<DownloadTarget>, u64), Failure> {
    let to = arguments.to.as_deref().unwrap_or(Path::new(""));
    if to.as_os_str() == "-" {
        return Err(Failure::Usage(
            "--to must be a folder for all blobs below a name".into(),
        ));
    }
    // One that is not there is made.
    if to.components().as_path().exists() && !to.is_dir() {
        return Err(no_folder(to));
    }
    let mut caller = Caller::connect(&arguments.place.connection)?;
    let (mut targets, mut left_out, mut files) = (Vec::new(), 0, HashSet::new());
    for name in &arguments.names {
        let prefix = match name.is_empty() || name.ends_with('/') {
            true => name.clone(),
            false => format!("{name}/"),
        };
        let before = targets.len() as u64 + left_out;
        let database = &arguments.place.database;
        each_name(&mut caller, database, &prefix, |_, name| {
            let path = path_below(to, &prefix, &name).and_then(|path| {
                // The names come in order: that of a folder before those below it.
                let folder = path
                    .ancestors()
                    .skip(1)
                    .find(|folder| files.contains(*folder));
                match folder {
                    Some(folder) => Err(format!("{} is to be a file", folder.display())),
                    None => Ok(path),
                }
            });
            match path {
                Ok(path) => {
                    in_place::check_free(&path, arguments.force)?;
                    files.insert(path.clone());
                    let path = Some(path);
                    targets.push(DownloadTarget { name, path });
                }
                Err(why) => {
                    warn_of(&name, to, &why, arguments.place.connection.output);
                    left_out += 1;
                }
            }
            Ok(())
        })?;
        if targets.len() as u64 + left_out == before {
            let hint = what_there_is(&mut caller, arguments, name)?;
            let database = in_database(database);
            return Err(Failure::from(CallFailure {
                what: format!(
                    "there is no blob below `{prefix}`{database}: nothing was downloaded"
                ),
                address: caller.address.clone(),
                status: None,
                hint,
                names_nothing: true,
                is_miss: true,
            }));
        }
    }
    Ok((targets, left_out))
}

/// Says that a blob is left out.
fn warn_of(name: &str, to: &Path, why: &str, format: OutputFormat) {
    let text = format!(
        "the blob `{name}` cannot become a file below `{}`, and was left out: {why}; download it \
         alone, with --to FILE",
        to.display()
    );
    warn(&text, format);
}

/// Names that are shown of those that there are.
const NAMES_SHOWN: usize = 3;

/// What could have been meant by a name below which there is nothing.
fn what_there_is(
    caller: &mut Caller,
    arguments: &DownloadArguments,
    name: &str,
) -> Result<String, Failure> {
    let (names, _) = some_names(caller, &arguments.place.database, "", "")?;
    if names.is_empty() {
        return Ok("there is no blob at all".into());
    }
    if names.iter().any(|one| one == name) {
        return Ok(format!("there is a blob `{name}`: leave --recursive out"));
    }
    let shown: Vec<String> = names
        .iter()
        .take(NAMES_SHOWN)
        .map(|name| format!("`{name}`"))
        .collect();
    let and_more = if names.len() > NAMES_SHOWN {
        " and others"
    } else {
        ""
    };
    Ok(format!(
        "there are {}{and_more}: an upload of a folder leaves its name out, unless --prefix gives \
         one; `pelton download --recursive ''` fetches every blob, `pelton blob list` shows them",
        shown.join(", ")
    ))
}

/// Bytes of the name of a file, and of the ending that it has until it is complete.
const FILE_NAME_BYTES: usize = 255 - ".part.state".len();

/// Where a blob goes, or why there is no file for it. Names are anybody's: none may lead out of the
/// folder.
fn path_below(to: &Path, prefix: &str, name: &str) -> Result<PathBuf, String> {
    let rest = name.strip_prefix(prefix).unwrap_or(name);
    let is_plain = |part: &str| !matches!(part, "" | "." | "..") && !part.contains('\0');
    if !rest.split('/').all(is_plain) {
        return Err("a part of its name is empty, `.` or `..`".into());
    }
    if rest.split('/').any(|part| part.len() > FILE_NAME_BYTES) {
        return Err(format!(
            "a part of its name has more than {FILE_NAME_BYTES} bytes"
        ));
    }
    Ok(to.join(rest))
}

/// Makes the folders above a file.
pub(super) fn make_folder(target: &DownloadTarget) -> Result<(), Failure> {
    let folder = target.path.as_deref().and_then(Path::parent);
    match folder {
        Some(folder) if !folder.as_os_str().is_empty() => {
            fs::create_dir_all(folder).map_err(|error| {
                Failure::Failed(format!(
                    "the folder {} for the blob `{}` cannot be made: {error}",
                    folder.display(),
                    target.name
                ))
            })
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_name_leads_out_of_the_folder() {
        let to = Path::new("to");
        let inside = path_below(to, "a/", "a/b/..c.jpg").expect("a plain name");
        assert_eq!(inside, Path::new("to/b/..c.jpg"));
        let everything = path_below(to, "", "a/b").expect("a plain name");
        assert_eq!(everything, Path::new("to/a/b"));
        for name in [
            "a/", "a//b", "a/../b", "a/b/..", "a//etc", "a/./b", "a/b/", "a/b\0",
        ] {
            let refused = path_below(to, "a/", name).expect_err(name);
            assert!(refused.contains("empty, `.` or `..`"), "{refused}");
        }
        let long = "n".repeat(FILE_NAME_BYTES);
        path_below(to, "", &long).expect("a file can have it");
        path_below(to, "", &format!("a/{long}n/b")).expect_err("no file can have it");
    }
}
