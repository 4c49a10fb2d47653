//! The `.proto` files, compiled.

#[cfg(test)]
pub(crate) use tests::proto_files;

/// All files of `proto/` as a serialized `google.protobuf.FileDescriptorSet`.
///
/// It is committed so that a build needs no protobuf compiler; a test proves it current and says
/// how to renew it.
pub(crate) const DESCRIPTOR_SET: &[u8] = include_bytes!("descriptor_set.bin");

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::{Path, PathBuf};

    use super::*;

    fn root() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../proto")
    }

    /// The names of all `.proto` files, as others import them, in order.
    pub(crate) fn proto_files() -> Vec<String> {
        let mut names = Vec::new();
        add_files_below(&root(), &mut names);
        names.sort();
        names
    }

    fn add_files_below(folder: &Path, names: &mut Vec<String>) {
        for entry in fs::read_dir(folder).expect("the folder is there") {
            let path = entry.expect("it can be listed").path();
            if path.is_dir() {
                add_files_below(&path, names);
            } else if path
                .extension()
                .is_some_and(|extension| extension == "proto")
            {
                let name = path.strip_prefix(root()).expect("it lies below");
                names.push(name.to_str().expect("names are ASCII").to_owned());
            }
        }
    }

    #[test]
    fn descriptor_set_is_current() {
        let files = proto_files().into_iter().map(|name| root().join(name));
        let mut compiler = protox::Compiler::new([root()]).expect("the folder is there");
        compiler
            .include_imports(true)
            .open_files(files)
            .expect("the files compile");
        let compiled = compiler.encode_file_descriptor_set();
        let target = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/descriptor_set.bin");
        if std::env::var_os("RENEW").is_some() {
            return fs::write(target, compiled).expect("it can be written");
        }
        assert!(
            compiled == DESCRIPTOR_SET,
            "{} is not what proto/ compiles to; renew it with \
             RENEW=1 cargo test -p pelton-service descriptor_set_is_current",
            target.display()
        );
    }
}
