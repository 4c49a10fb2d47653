//! Descriptors from `.proto` files, compiled here: nobody needs a protoc.

use std::path::{Path, PathBuf};

use protox::Compiler;

use super::MethodError;
use crate::limits;

/// The `FileDescriptorSet` of a `.proto` file and all that it imports. Imports are looked for in
/// `import_paths`, then beside the file; those of `google/protobuf` are always there.
///
/// # Errors
/// If a file is missing, or cannot be compiled.
pub fn descriptors_in(file: &Path, import_paths: &[PathBuf]) -> Result<Vec<u8>, MethodError> {
    let bad = |reason: String| MethodError::BadProto {
        file: file.display().to_string(),
        reason,
    };
    let beside = match file.parent() {
        Some(folder) if folder != Path::new("") => folder.to_owned(),
        _ => PathBuf::from("."),
    };
    let mut folders = import_paths.to_vec();
    folders.push(beside);
    let compiled = Compiler::new(folders).and_then(|mut compiler| {
        compiler.include_imports(true).open_file(file)?;
        Ok(compiler.encode_file_descriptor_set())
    });
    let set = compiled.map_err(|error| bad(one_line(&format!("{error:?}"))))?;
    match set.len() > limits::MAX_DESCRIPTOR_BYTES {
        true => Err(bad(format!(
            "its descriptors have {} bytes, too many",
            set.len()
        ))),
        false => Ok(set),
    }
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::method::MethodName;

    /// A folder of a test, gone at its end.
    struct Folder(PathBuf);

    impl Folder {
        fn new(test: &str) -> Folder {
            let name = format!("pelton-proto-{test}-{}", std::process::id());
            let path = std::env::temp_dir().join(name);
            fs::create_dir_all(&path).expect("the folder is ours");
            Folder(path)
        }

        fn write(&self, name: &str, text: &str) -> PathBuf {
            let path = self.0.join(name);
            let folder = path.parent().expect("it has a folder");
            fs::create_dir_all(folder).expect("the folder is ours");
            fs::write(&path, format!("syntax = \"proto3\"; package t; {text}")).expect("written");
            path
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            fs::remove_dir_all(&self.0).expect("it was there");
        }
    }

    const SERVICE: &str = "import \"other/inner.proto\"; import \"google/protobuf/empty.proto\";
        service T { rpc Ask(Inner) returns (google.protobuf.Empty); }";

    fn encoded(file: &Path, folders: &[PathBuf]) -> Result<Vec<u8>, MethodError> {
        let set = descriptors_in(file, folders)?;
        let method: MethodName = "t.T/Ask".parse().expect("a name");
        let request = method.described_in(&set)?.request(r#"{"raw": "AAE="}"#)?;
        Ok(request.bytes().expect("it has no placeholder").to_vec())
    }

    #[test]
    fn imports_are_found_beside_the_file() {
        let folder = Folder::new("beside");
        folder.write("other/inner.proto", "message Inner { bytes raw = 1; }");
        let main = folder.write("main.proto", SERVICE);
        assert_eq!(encoded(&main, &[]), Ok(b"\x0a\x02\x00\x01".to_vec()));
    }

    #[test]
    fn imports_are_found_in_the_folders_that_are_named() {
        let folder = Folder::new("named");
        folder.write("b/other/inner.proto", "message Inner { bytes raw = 1; }");
        let main = folder.write("a/main.proto", SERVICE);
        let named = [folder.0.join("c"), folder.0.join("b")];
        assert_eq!(encoded(&main, &named), Ok(b"\x0a\x02\x00\x01".to_vec()));
        // A file below one of them has its name from there.
        let above = [folder.0.clone(), folder.0.join("b")];
        assert_eq!(encoded(&main, &above), Ok(b"\x0a\x02\x00\x01".to_vec()));
        let error = encoded(&main, &[]).expect_err("it is nowhere").to_string();
        assert!(error.contains("main.proto cannot be compiled"), "{error}");
        assert!(error.contains("other/inner.proto"), "{error}");
    }

    #[test]
    fn what_is_wrong_with_a_file_is_said_in_one_line() {
        let folder = Folder::new("wrong");
        for (name, text) in [
            ("syntax.proto", "message {"),
            ("type.proto", "message A { Nothing a = 1; }"),
        ] {
            let file = folder.write(name, text);
            let error = descriptors_in(&file, &[]).expect_err(name).to_string();
            assert!(error.contains(name) && !error.contains('\n'), "{error}");
        }
        let missing = descriptors_in(&folder.0.join("none.proto"), &[]);
        let error = missing.expect_err("there is none").to_string();
        assert!(error.contains("none.proto"), "{error}");
    }
}
