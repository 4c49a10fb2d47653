//! Every format that a released or committed version has written is read by this one: data folders,
//! backups, exports. What a newer version has written is refused and left as it was.

mod fixture;
mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use fixture::{FLAGS, Fixture, assert_holds, assert_uploads, complete_uploads};
use serde_json::{Value, json};
use support::{Answer, Folder, Server, pelton, run, run_with_timeout};

fn serve(data: &Path) -> Server {
    Server::durable(data, &FLAGS)
}

/// All files below a folder, with all that is in them.
fn files_below(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut files = BTreeMap::new();
    for entry in fs::read_dir(folder).expect("it is there") {
        let path = entry.expect("readable").path();
        if path.is_dir() {
            files.extend(files_below(&path));
        }
        let content = fs::read(&path).unwrap_or_default();
        files.insert(path, content);
    }
    files
}

/// The tokens are those that there were; in older formats there are none.
fn assert_tokens(server: &Server, expected: &Value) {
    let listed = server.run(["token", "list", "--output", "json"]);
    let known = |line: &str| {
        let token: Value = serde_json::from_str(line).expect("JSON");
        let fields = ["name", "rights", "created_at_ms", "binding"].into_iter();
        let fields = fields.filter_map(|field| Some((field.to_owned(), token.get(field)?.clone())));
        Value::Object(fields.collect())
    };
    let tokens: Vec<Value> = listed.text().lines().map(known).collect();
    let none = json!([]);
    assert_eq!(json!(tokens), *expected.get("tokens").unwrap_or(&none));
}

/// The data folder of an archive is opened, twice, and written to in between.
fn reads_folder(fixture: &Fixture, archive: &str) {
    let folder = Folder::new(&format!("formats-{archive}"));
    fixture.unpack(archive, &folder.data());
    let verify = run(pelton().args(["log", "verify"]).arg(folder.data()));
    assert_eq!(verify.code, 0, "{verify:?}");
    let expected = fixture.expected(archive);
    for _ in 0..2 {
        let server = serve(&folder.data());
        assert_holds(&server, expected, &folder);
        assert_uploads(&server, expected);
        assert_tokens(&server, expected);
        assert_eq!(server.run(["put", "written now", "v"]).code, 0);
        assert_eq!(server.run(["snapshot"]).code, 0);
        assert_eq!(server.run(["delete", "written now"]).code, 0);
        assert_eq!(server.stop("TERM").0, 0);
    }
}

#[test]
fn data_folder_after_a_clean_stop_is_read() {
    for fixture in Fixture::all() {
        reads_folder(&fixture, "stopped");
    }
}

#[test]
fn data_folder_after_a_kill_is_read() {
    for fixture in Fixture::all() {
        reads_folder(&fixture, "killed");
    }
}

#[test]
fn half_upload_of_an_older_version_is_resumed() {
    for fixture in Fixture::all() {
        let folder = Folder::new("formats-upload");
        fixture.unpack("stopped", &folder.data());
        let server = serve(&folder.data());
        let count = complete_uploads(&server, fixture.expected("stopped"), &folder);
        assert!(count > 0, "there is a half upload in the fixture");
    }
}

#[test]
fn backup_of_an_older_version_is_checked_and_restored() {
    for fixture in Fixture::all() {
        let folder = Folder::new("formats-backup");
        let backup = folder.0.join("backup");
        fixture.unpack("backup", &backup);
        let before = files_below(&backup);
        let check = run(pelton().args(["restore", "--verify-only"]).arg(&backup));
        assert_eq!(check.code, 0, "{check:?}");
        let restore = restore(&backup, &folder.data());
        assert_eq!(restore.code, 0, "{restore:?}");
        assert!(files_below(&backup) == before, "the backup was changed");
        for _ in 0..2 {
            let server = serve(&folder.data());
            assert_holds(&server, fixture.expected("backup"), &folder);
            assert_tokens(&server, fixture.expected("backup"));
            assert_eq!(server.stop("TERM").0, 0);
        }
    }
}

fn restore(backup: &Path, data: &Path) -> Answer {
    run(pelton().arg("restore").arg(backup).arg("--data").arg(data))
}

/// What an import keeps of the lines of an export: no versions, and expiries to within the time
/// that it takes.
fn kept(export: &str) -> Vec<Value> {
    let lines = export.lines();
    let mut entries: Vec<Value> = lines
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    for entry in &mut entries {
        let fields = entry.as_object_mut().expect("an object");
        fields.remove("version");
        if let Some(at_ms) = fields.get("expires_at_ms").and_then(Value::as_u64) {
            fields.insert("expires_at_ms".into(), json!(at_ms.div_ceil(EXPIRY_MS)));
        }
    }
    entries
}

/// A day: an import may take long on a busy machine, and entries live for a hundred years.
const EXPIRY_MS: u64 = 86_400_000;

#[test]
fn exports_of_an_older_version_are_imported() {
    for fixture in with_exports() {
        let before = fs::read_to_string(fixture.file("export.jsonl")).expect("readable");
        let database = &fixture.expected("stopped")["databases"][0];
        assert_eq!(
            database["name"],
            json!(""),
            "the default database comes first"
        );
        let count = database["entries"].as_array().expect("an array").len();
        assert_eq!(
            before.lines().count(),
            count + 2,
            "a head, the entries, an end"
        );
        for name in ["export.jsonl", "export.pelton"] {
            let server = Server::start();
            let file = fixture.file(name);
            let import = server.run(["import", file.to_str().expect("it is text")]);
            assert_eq!(import.code, 0, "{import:?}");
            let export = server.run(["export"]);
            let (now, before) = (kept(export.text()), kept(&before));
            let differing = now.iter().zip(&before).find(|(now, before)| now != before);
            assert!(now == before, "{name}: {differing:?}");
        }
    }
}

/// A start is refused with these words, and changes nothing.
fn assert_refused(data: &Path, flags: &[&str], words: &[&str]) {
    let before = files_below(data);
    let answer = run_with_timeout(
        pelton()
            .args(["serve", "--listen", "127.0.0.1:0", "--data"])
            .arg(data)
            .args(FLAGS)
            .args(flags),
    );
    assert_eq!(answer.code, 3, "{answer:?}");
    assert_eq!(answer.text(), "", "nothing is announced");
    for word in words {
        assert!(answer.stderr.contains(word), "{word} in {}", answer.stderr);
    }
    let after = files_below(data);
    let gone: Vec<&PathBuf> = before
        .keys()
        .filter(|path| !after.contains_key(*path) && !is_replaced_list(path, &before))
        .collect();
    assert!(gone.is_empty(), "{gone:?} is gone: {}", answer.stderr);
    let is_as_before = |(path, content)| before.get(path) == Some(content);
    assert!(after.iter().all(is_as_before), "{}", answer.stderr);
}

/// Whether a file is a list of tables that a newer one has replaced. The engine of databases on
/// disk removes these whenever it opens a tree, which happens before the log is read. The number of
/// the folder stands before all that.
fn is_replaced_list(path: &Path, files: &BTreeMap<PathBuf, Vec<u8>>) -> bool {
    let current = path.with_file_name("current");
    let (Some(current), Some(name)) = (files.get(&current), path.file_name()) else {
        return false;
    };
    let number = u64::from_le_bytes(current[..8].try_into().expect("it begins with eight bytes"));
    let name = name.to_string_lossy();
    name.strip_prefix('v').and_then(|name| name.parse().ok()) < Some(number)
        && name.starts_with('v')
}

/// The same without any exception.
fn assert_untouched(data: &Path, flags: &[&str], words: &[&str]) {
    let before = files_below(data);
    assert_refused(data, flags, words);
    assert!(files_below(data) == before);
}

/// The newest fixture: what a version after this one finds.
fn newest() -> Fixture {
    Fixture::all().pop().expect("there is one")
}

/// Those that have exports, of which there is at least one. Others were made when nothing had
/// changed in these.
fn with_exports() -> Vec<Fixture> {
    let mut fixtures = Fixture::all();
    fixtures.retain(|fixture| fixture.file("export.jsonl").exists());
    assert!(!fixtures.is_empty(), "no fixture has exports");
    fixtures
}

/// The numbers of the formats of what is in a data folder: of the folder, groups of the log,
/// snapshots.
fn formats_in(data: &Path) -> BTreeSet<(&'static str, u16)> {
    let mut formats = BTreeSet::new();
    for (path, bytes) in files_below(data) {
        let version = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        if bytes.starts_with(b"PeltnSnp") {
            formats.insert(("snapshot", version(8)));
        } else if bytes.starts_with(b"PeltnLog") {
            formats.insert(("log", version(8)));
        } else if path.file_name().is_some_and(|name| name == "pelton-data") {
            let text = String::from_utf8(bytes).expect("a text");
            let mut numbers = text.lines().filter_map(|line| line.strip_prefix("format "));
            let number = numbers.next().expect("it has one");
            formats.insert(("folder", number.parse().expect("a number")));
        }
    }
    formats
}

/// A raised number without a folder made by the version that raised it fails here.
#[test]
fn every_format_that_is_written_now_has_a_fixture() {
    let folder = Folder::new("formats-written");
    let mut known = BTreeSet::new();
    for (number, fixture) in Fixture::all().iter().enumerate() {
        let data = folder.0.join(number.to_string());
        fixture.unpack("stopped", &data);
        known.extend(formats_in(&data));
    }
    for version in [1, 2] {
        assert!(known.contains(&("snapshot", version)), "{known:?}");
    }
    newest().unpack("stopped", &folder.data());
    let server = serve(&folder.data());
    assert_eq!(server.run(["put", "written now", "v"]).code, 0);
    assert_eq!(server.run(["snapshot"]).code, 0);
    assert_eq!(server.stop("TERM").0, 0);
    let written = formats_in(&folder.data());
    let kinds: BTreeSet<&str> = written.iter().map(|(kind, _)| *kind).collect();
    assert_eq!(kinds, BTreeSet::from(["folder", "log", "snapshot"]));
    let missing: Vec<_> = written.difference(&known).collect();
    assert!(
        missing.is_empty(),
        "{missing:?} have no fixture: see tests/formats/README.md"
    );
}

/// Runs a check on a copy of a data folder in which something has the number of a later format.
fn with_newer(archive: &str, name: &str, raise: impl Fn(&Path), check: impl Fn(&Path)) {
    let folder = Folder::new(name);
    newest().unpack(archive, &folder.data());
    raise(&folder.data());
    check(&folder.data());
    // The second time as the first.
    check(&folder.data());
}

#[test]
fn data_folder_of_a_newer_format_is_refused_and_left_as_it_was() {
    for archive in ["stopped", "killed"] {
        with_newer(archive, "newer-folder", raise_folder, |data| {
            assert_untouched(data, &[], &["format 9", "use the version that made it"]);
            assert_untouched(data, &["--accept-loss"], &["format 9"]);
        });
    }
}

#[test]
fn log_of_a_newer_format_is_refused() {
    for archive in ["stopped", "killed"] {
        with_newer(archive, "newer-log", raise_log, |data| {
            assert_refused(data, &[], &["format 9", ".log"]);
            assert_refused(data, &["--accept-loss"], &["format 9", ".log"]);
        });
    }
}

#[test]
fn snapshot_of_a_newer_format_is_refused() {
    with_newer("stopped", "newer-snapshot", raise_snapshot, |data| {
        assert_refused(data, &[], &["format 9", ".snapshot"]);
        assert_refused(data, &["--accept-loss"], &["format 9", ".snapshot"]);
    });
}

#[test]
fn backup_of_a_newer_format_is_refused_and_left_as_it_was() {
    let folder = Folder::new("newer-backup");
    let backup = folder.0.join("backup");
    newest().unpack("backup", &backup);
    raise_manifest(&backup.join("MANIFEST"));
    let before = files_below(&backup);
    for _ in 0..2 {
        let refused = restore(&backup, &folder.data());
        assert_eq!(refused.code, 3, "{refused:?}");
        assert!(refused.stderr.contains("format 9"), "{}", refused.stderr);
        assert!(files_below(&backup) == before);
        assert!(!folder.data().exists(), "nothing is left behind");
    }
}

#[test]
fn exports_of_a_newer_format_are_refused_and_write_nothing() {
    let folder = Folder::new("newer-export");
    let (lines, binary) = (folder.0.join("lines"), folder.0.join("binary"));
    let fixture = with_exports().pop().expect("there is one");
    fs::copy(fixture.file("export.jsonl"), &lines).expect("it is copied");
    replace(&lines, "\"format_version\":1", "\"format_version\":2");
    let mut bytes = fs::read(fixture.file("export.pelton")).expect("readable");
    // Behind the eight bytes by which the file is recognised.
    bytes[8] = 2;
    fs::write(&binary, bytes).expect("writable");
    let server = Server::start();
    for file in [&lines, &binary] {
        let refused = server.run(["import", file.to_str().expect("it is text")]);
        assert!(refused.code == 2 || refused.code == 3, "{refused:?}");
        let told = &refused.stderr;
        assert!(
            told.contains("version is 2") || told.contains("version 2"),
            "{told}"
        );
        assert_eq!(server.run(["count"]).text(), "0\n");
    }
}

fn replace(path: &Path, from: &str, to: &str) {
    let text = fs::read_to_string(path).expect("readable");
    assert!(text.contains(from), "{from} in {}", path.display());
    fs::write(path, text.replacen(from, to, 1)).expect("writable");
}

fn files_with_end(folder: &Path, end: &str) -> Vec<PathBuf> {
    let paths = files_below(folder).into_keys();
    let paths = paths.filter(|path| path.to_string_lossy().ends_with(end));
    paths.collect()
}

/// Raises the format of the data folder, whichever it is.
fn raise_folder(data: &Path) {
    let path = data.join("pelton-data");
    let text = fs::read_to_string(&path).expect("readable");
    let line = text.lines().find(|line| line.starts_with("format "));
    replace(&path, line.expect("it has one"), "format 9");
    // A newer version has another checksum.
    if text.contains("end ") {
        replace(&path, "end ", "end 0");
    }
}

/// Raises the format of the first group in the last file of the log that has one, and mends its
/// checksum.
fn raise_log(data: &Path) {
    for path in files_with_end(data, ".log").into_iter().rev() {
        let mut bytes = fs::read(&path).expect("readable");
        if bytes.starts_with(b"PeltnLog") {
            let records = u64::from_le_bytes(bytes[80..88].try_into().expect("eight bytes"));
            let end = (128 + records as usize).next_multiple_of(512);
            bytes[8] = 9;
            let checksum = crc32c::crc32c(&bytes[..12]);
            let checksum = crc32c::crc32c_append(checksum, &bytes[16..end]);
            bytes[12..16].copy_from_slice(&checksum.to_le_bytes());
            return fs::write(&path, bytes).expect("writable");
        }
    }
    panic!("there is no group in the log");
}

fn raise_snapshot(data: &Path) {
    let path = files_with_end(data, ".snapshot")
        .pop()
        .expect("there is one");
    let mut bytes = fs::read(&path).expect("readable");
    assert!(bytes.starts_with(b"PeltnSnp"));
    bytes[8] = 9;
    // The first page repeats the checksum of what stands before it, in what its own checksum
    // covers.
    let prelude = crc32c::crc32c(&bytes[..16]);
    bytes[28..32].copy_from_slice(&prelude.to_le_bytes());
    let head = crc32c::crc32c(&bytes[20..56]);
    bytes[16..20].copy_from_slice(&head.to_le_bytes());
    fs::write(&path, bytes).expect("writable");
}

fn raise_manifest(path: &Path) {
    let text = fs::read_to_string(path).expect("readable");
    let line = text.lines().find(|line| line.starts_with("format "));
    replace(path, line.expect("it has one"), "format 9");
    let text = fs::read_to_string(path).expect("readable");
    let (body, _) = text.split_once("checksum ").expect("it ends with it");
    let checksum = crc32c::crc32c(body.as_bytes());
    fs::write(path, format!("{body}checksum {checksum:08x}\n")).expect("writable");
}
