//! Headers of exports from a file: secrets are no arguments, which everybody on a machine sees.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use client::otlp::OtlpHeaders;
use zeroize::Zeroizing;

use crate::exit::Failure;
use crate::limits::OTLP_HEADER_FILE_BYTES;

/// Bits of the mode of a file by which all users of a machine may read it.
const OTHERS_READ: u32 = 0o004;

/// Adds the headers of a file, and returns whether all users of this machine can read it. `flag`
/// names the file. No error shows what stands there.
pub fn add_headers(
    headers: &mut OtlpHeaders,
    (flag, path): (&str, &Path),
) -> Result<bool, Failure> {
    let shown = path.display();
    let failed = |why: &dyn std::fmt::Display| Failure::Failed(format!("{flag}: {shown}: {why}"));
    let file = File::open(path)
        .map_err(|error| Failure::Failed(format!("{flag}: cannot read {shown}: {error}")))?;
    let of = file.metadata().map_err(|error| failed(&error))?;
    let is_for_all = of.is_file() && of.permissions().mode() & OTHERS_READ != 0;
    // Large enough that it is not moved, which would leave a copy.
    let mut text = Zeroizing::new(String::with_capacity(OTLP_HEADER_FILE_BYTES as usize + 1));
    let read = file
        .take(OTLP_HEADER_FILE_BYTES + 1)
        .read_to_string(&mut text);
    read.map_err(|error| match error.kind() {
        io::ErrorKind::InvalidData => failed(&"it is not UTF-8 text"),
        _ => failed(&error),
    })?;
    if text.len() as u64 > OTLP_HEADER_FILE_BYTES {
        return Err(failed(&format_args!(
            "it has more than {OTLP_HEADER_FILE_BYTES} bytes"
        )));
    }
    for (index, line) in text.lines().enumerate() {
        let (number, line) = (index + 1, line.trim());
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let Some((name, value)) = line.split_once('=') else {
            return Err(failed(&format_args!(
                "line {number} is no NAME=VALUE: write one such as x-api-key=KEY"
            )));
        };
        let pushed = headers.push(name, value);
        pushed.map_err(|error| failed(&format_args!("line {number}: {error}")))?;
    }
    Ok(is_for_all)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn read(text: &[u8]) -> Result<Vec<String>, String> {
        let name = format!("pelton-otlp-headers-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::write(&path, text).expect("a folder for temporary files");
        let mut headers = OtlpHeaders::default();
        let added = add_headers(&mut headers, ("--otlp-header-file", &path));
        fs::remove_file(&path).expect("it is there");
        added.map_err(|error| error.to_string())?;
        Ok(headers.names().map(str::to_owned).collect())
    }

    #[test]
    fn each_line_is_a_header_and_errors_show_none() {
        let names =
            read(b"# the key of the shop\n\nX-Api-Key=s3cret==\r\n authorization = Basic s3\n");
        assert_eq!(
            names,
            Ok(vec!["x-api-key".to_owned(), "authorization".to_owned()])
        );
        let long = vec![b'#'; OTLP_HEADER_FILE_BYTES as usize + 1];
        for (text, expected) in [
            (&b"a=b\ns3cret"[..], "line 2 is no NAME=VALUE"),
            (b"te=s3cret", "line 1: a header of this name"),
            (b"x=\xff", "not UTF-8"),
            (&long, "it has more than"),
        ] {
            let message = read(text).expect_err(expected);
            assert!(message.starts_with("--otlp-header-file: /"), "{message}");
            assert!(message.contains(expected), "{message}");
            assert!(!message.contains("s3cret"), "{message}");
        }
        let missing = ("--otlp-header-file", Path::new("/nowhere/at/all"));
        let error = add_headers(&mut OtlpHeaders::default(), missing).expect_err("it is away");
        assert!(error.to_string().contains("cannot read /nowhere/at/all"));
    }
}
