//! Control groups: the folders in which the limits of this process stand.

use std::path::{Path, PathBuf};

/// The version of the interface of control groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupVersion {
    /// A hierarchy for each controller.
    V1,
    /// One hierarchy for all.
    V2,
}

/// Returns the folders of the control groups that bound this process in one respect, from its own
/// up to the top: each of them binds. `groups` is the text of `/proc/self/cgroup`, `root` is `/`
/// outside tests. In a container the path in it may not exist below `/sys/fs/cgroup`; then the walk
/// up finds the container's own top.
pub fn folders(root: &Path, groups: &str, controller: &str) -> Vec<(GroupVersion, PathBuf)> {
    let group = |line: &str| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, path) = (parts.next()?, parts.next()?.to_owned());
        match controllers {
            "" => Some((GroupVersion::V2, root.join("sys/fs/cgroup"), path)),
            _ if controllers.split(',').any(|name| name == controller) => {
                let mount = root.join("sys/fs/cgroup").join(controller);
                Some((GroupVersion::V1, mount, path))
            }
            _ => None,
        }
    };
    let mut found = Vec::new();
    for (version, mount, path) in groups.lines().filter_map(group) {
        let mut folder = mount.join(path.trim_start_matches('/'));
        while folder.starts_with(&mount) {
            found.push((version, folder.clone()));
            if !folder.pop() {
                break;
            }
        }
    }
    found
}

#[cfg(test)]
pub mod tests {
    use std::fs;

    use super::*;

    /// A folder that looks like the `/` of a machine with these files.
    pub fn machine(name: &str, files: &[(&str, &str)]) -> PathBuf {
        let name = format!("pelton-machine-{name}-{}", std::process::id());
        let root = std::env::temp_dir().join(name);
        for (path, content) in files {
            let path = root.join(path);
            fs::create_dir_all(path.parent().expect("every file lies in a folder"))
                .expect("folder is made");
            fs::write(path, content).expect("file is written");
        }
        root
    }

    #[test]
    fn all_groups_up_to_the_top_bind() {
        let root = Path::new("/");
        let found = folders(root, "0::/a/b\n", "memory");
        let paths = ["/sys/fs/cgroup/a/b", "/sys/fs/cgroup/a", "/sys/fs/cgroup"];
        let expected = paths.map(|path| (GroupVersion::V2, PathBuf::from(path)));
        assert_eq!(found, expected);
        let found = folders(root, "7:cpu,cpuacct:/x\n5:memory:/box\n", "cpu");
        let paths = ["/sys/fs/cgroup/cpu/x", "/sys/fs/cgroup/cpu"];
        let expected = paths.map(|path| (GroupVersion::V1, PathBuf::from(path)));
        assert_eq!(found, expected);
    }

    #[test]
    fn lines_of_another_form_are_passed_over() {
        for text in ["", "\n", "0", "0:", "x:y", "1:cpu", "5:memory:/box"] {
            assert_eq!(folders(Path::new("/"), text, "cpu"), [], "{text:?}");
        }
    }
}
