//! Downloads of all blobs below a name, as of a folder.

use std::fs;
use std::path::{Path, PathBuf};

use super::sink::DownloadTarget;
use super::{each_name, some_names};
use crate::arguments::DownloadArguments;
use crate::command::{Caller, in_database};
use crate::exit::{CallFailure, Failure};
use crate::in_place;

/// All blobs below the names, each with the path that it has from there.
pub(super) fn targets(arguments: &DownloadArguments) -> Result<Vec<DownloadTarget>, Failure> {
    let to = arguments.to.as_deref().unwrap_or(Path::new(""));
    if to.as_os_str() == "-" || (to.exists() && !to.is_dir()) {
        return Err(Failure::Usage(
            "--to must be a folder for all blobs below a name".into(),
        ));
    }
    let mut caller = Caller::connect(&arguments.place.connection)?;
    let mut targets = Vec::new();
    for name in &arguments.names {
        let prefix = match name.is_empty() || name.ends_with('/') {
            true => name.clone(),
            false => format!("{name}/"),
        };
        let before = targets.len();
        let database = &arguments.place.database;
        each_name(&mut caller, database, &prefix, |_, name| {
            let path = path_below(to, &prefix, &name)?;
            in_place::check_free(&path, arguments.force)?;
            let path = Some(path);
            targets.push(DownloadTarget { name, path });
            Ok(())
        })?;
        if targets.len() == before {
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
    Ok(targets)
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

/// Where a blob goes. Names are anybody's: none may lead out of the folder.
fn path_below(to: &Path, prefix: &str, name: &str) -> Result<PathBuf, Failure> {
    let rest = name.strip_prefix(prefix).unwrap_or(name);
    let is_plain = |part: &str| !matches!(part, "" | "." | "..") && !part.contains('\0');
    match rest.split('/').all(is_plain) {
        true => Ok(to.join(rest)),
        false => Err(Failure::Failed(format!(
            "the blob `{name}` cannot become a file below `{}`: a part of its name is empty, `.` \
             or `..`; download it alone, with --to FILE",
            to.display()
        ))),
    }
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
            let refused = path_below(to, "a/", name);
            let Err(Failure::Failed(message)) = refused else {
                panic!("{name}: {refused:?}");
            };
            assert!(message.contains("--to FILE"), "{message}");
        }
    }
}
