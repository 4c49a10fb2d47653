//! The data folder: whether a server would start in it.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, AtFlags, CWD, accessat};
use rustix::io::Errno;
use store::durable::{FolderError, inspect_folder};

use super::fact::MachineFact;
use super::user::Users;

const NAME: &str = "data folder";

/// Where the data of a server would be.
pub(super) enum DataPlace {
    /// In this folder, which is there.
    Folder,
    /// In a folder that a start makes in this one.
    Parent(PathBuf),
    /// In a folder that cannot be made, as the one around it is not there either.
    Nowhere,
    /// There is a file.
    File,
    /// This user may not get there, or not write there.
    Closed(ClosedFolder),
}

/// A folder that is in the way of a user.
pub(super) struct ClosedFolder {
    path: PathBuf,
    why: Errno,
    /// Nothing in it can be reached.
    is_on_the_way: bool,
}

impl DataPlace {
    pub(super) fn find(data: &Path) -> DataPlace {
        // A path that is empty is the only one without an absolute form.
        let absolute = std::path::absolute(data).unwrap_or_else(|_| data.to_owned());
        if let Some(closed) = ClosedFolder::on_the_way_to(&absolute) {
            return DataPlace::Closed(closed);
        }
        match fs::metadata(data) {
            Ok(found) if found.is_dir() => DataPlace::Folder,
            Ok(_) => DataPlace::File,
            Err(_) => match parent(data) {
                parent if parent.is_dir() => DataPlace::Parent(parent.to_owned()),
                _ => DataPlace::Nowhere,
            },
        }
    }
}

/// Returns the folder around one.
fn parent(data: &Path) -> &Path {
    match data.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    }
}

impl ClosedFolder {
    /// Returns the first folder that this user may not go through, or that it may not write: the
    /// one of the path, or the one around it if that is not there.
    fn on_the_way_to(path: &Path) -> Option<ClosedFolder> {
        let mut folders: Vec<_> = path.ancestors().collect();
        folders.reverse();
        let closed = |folder: &Path, access| {
            let why = accessat(CWD, folder, access, AtFlags::EACCESS).err()?;
            let path = folder.to_owned();
            (why != Errno::NOENT).then_some(ClosedFolder {
                path,
                why,
                is_on_the_way: access == Access::EXEC_OK,
            })
        };
        let mut on_the_way = folders.iter().filter(|folder| folder.is_dir());
        if let Some(found) = on_the_way
            .clone()
            .find_map(|folder| closed(folder, Access::EXEC_OK))
        {
            return Some(found);
        }
        let last = on_the_way.next_back()?;
        let is_meant = *last == path || path.parent() == Some(*last);
        let all = Access::READ_OK | Access::WRITE_OK | Access::EXEC_OK;
        is_meant.then(|| closed(last, all)).flatten()
    }

    /// Returns what to do so that a server of this user can store in `data`.
    fn advice(&self, data: &Path, users: &Users) -> String {
        let (path, data) = (self.path.display(), data.display());
        if self.why == Errno::ROFS {
            return format!(
                "{path} is read-only here: in a unit ReadWritePaths={path} (`systemctl edit`), \
                 else mount its file system to be written"
            );
        }
        let own = users.own_name();
        let Ok(found) = fs::metadata(&self.path) else {
            return format!("{path} cannot be used by {own}: {}", self.why);
        };
        let (owner, mode) = (users.name(found.uid()), found.mode() & 0o7777);
        let whose = format!("{path} belongs to {owner} with mode {mode:04o}, and this is {own}");
        let look = format!("`runuser -u {owner} -- pelton self-check --data {data}`");
        match found.uid() {
            0 if self.is_on_the_way => format!(
                "{whose}: choose a folder elsewhere, such as one in /var/lib, which is the server's"
            ),
            _ if self.is_on_the_way => format!(
                "{whose}: look as {owner} (`--service`, or {look}), or choose another folder"
            ),
            // Nobody runs a server as root for it.
            0 => format!(
                "{whose}: make a folder that is the server's, `install -d -o {own} -m 700 {data}` \
                 as root, or `chown -R {own}: {data}` if it is there"
            ),
            _ => format!(
                "{whose}: look as {owner} (`--service`, or {look}), or give it to {own}: \
                 `chown -R {own}: {data}` as root"
            ),
        }
    }
}

/// Returns whether a server would start in the folder.
pub(super) fn fact(data: &Path, place: &DataPlace, users: &Users) -> MachineFact {
    let fact = |what: &str| MachineFact::ok(NAME, format!("{}{what}", data.display()));
    match place {
        DataPlace::Closed(closed) => {
            fact(", not open to this user").problem(closed.advice(data, users))
        }
        DataPlace::File => {
            fact(" is no folder").problem("a server could not store there; --data names another")
        }
        DataPlace::Nowhere => fact(" is not there").problem(format!(
            "nor is the folder around it: `mkdir -p {}`, or --data names another one",
            parent(data).display()
        )),
        DataPlace::Parent(_) => fact(" is not there, a start makes it"),
        DataPlace::Folder => match inspect_folder(data) {
            Ok(true) => fact(", of a server"),
            Ok(false) => fact(", empty"),
            Err(error) => fact("").problem(without_folder(&error, data)),
        },
    }
}

/// Returns what a start would say, without the name of the folder, which stands before it.
fn without_folder(error: &FolderError, data: &Path) -> String {
    let text = error.to_string();
    let prefix = format!("{}: ", data.display());
    text.strip_prefix(&prefix).unwrap_or(&text).to_owned()
}

/// Returns what to do where a folder cannot be written though its rights allow it.
pub(super) fn advice_of_write(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::PermissionDenied => "this user may not write there: see `data folder`",
        io::ErrorKind::ReadOnlyFilesystem => {
            "it is read-only here: in a unit ReadWritePaths=, else mount it to be written"
        }
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "the device, or the share of this user, is full: make room there"
        }
        io::ErrorKind::FileTooLarge => {
            "raise the limit on the size of files (`ulimit -f`, LimitFSIZE= of systemd)"
        }
        _ => "a server could not write there; --data names another folder",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::self_check::Judgement;
    use crate::test_machine::machine;

    fn folder(name: &str) -> PathBuf {
        let name = format!("pelton-check-folder-{name}-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        fs::create_dir_all(&folder).expect("folder is made");
        folder
    }

    fn judged(data: &Path) -> (String, Judgement) {
        let users = Users::read(&machine("nobody", &[]));
        let found = fact(data, &DataPlace::find(data), &users);
        (found.value + ": " + &found.advice, found.judgement)
    }

    #[test]
    fn a_folder_is_judged_as_a_start_would() {
        let parent = folder("judged");
        let data = parent.join("data");
        let of = |data: &Path| judged(data).1;
        assert_eq!(of(&data), Judgement::Ok);
        assert!(judged(&data).0.contains("a start makes it"));
        assert_eq!(of(&data.join("deeper")), Judgement::Problem);
        assert!(judged(&data.join("deeper")).0.contains("mkdir -p"));
        assert!(!data.exists());
        fs::write(&data, "x").expect("file is written");
        assert!(judged(&data).0.contains("data is no folder"));
        assert_eq!(of(&parent), Judgement::Problem);
        let (text, _) = judged(&parent);
        assert!(text.contains("not empty (there is data)"), "{text}");
        fs::remove_file(&data).expect("it is there");
        assert_eq!(of(&parent), Judgement::Ok);
        assert!(judged(&parent).0.contains(", empty"));
    }

    #[test]
    fn whose_a_closed_folder_is_and_what_helps_is_said() {
        let passwd = "own:x:4242:1::/:/nologin\n";
        let users = Users::read(&machine("closed", &[("etc/passwd", passwd)]));
        let closed = |path: &str, why| ClosedFolder {
            path: path.into(),
            why,
            is_on_the_way: false,
        };
        let data = Path::new("/proc/data");
        let of_root = closed("/proc", Errno::ACCESS).advice(data, &users);
        assert!(
            of_root.contains("/proc belongs to 0 with mode 0555"),
            "{of_root}"
        );
        assert!(of_root.contains("-m 700 /proc/data"), "{of_root}");
        let read_only = closed("/proc", Errno::ROFS).advice(data, &users);
        assert!(read_only.contains("ReadWritePaths=/proc ("), "{read_only}");
        let on_the_way = ClosedFolder {
            is_on_the_way: true,
            ..closed("/proc", Errno::ACCESS)
        };
        let on_the_way = on_the_way.advice(data, &users);
        assert!(on_the_way.contains("elsewhere"), "{on_the_way}");
        assert!(!on_the_way.contains("chown"), "{on_the_way}");
        let gone = closed("/proc/no/such", Errno::ACCESS).advice(data, &users);
        assert!(gone.contains("cannot be used"), "{gone}");
    }
}
