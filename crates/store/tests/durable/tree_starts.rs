//! Starts on folders of trees that are not as they were left: an older copy, what nothing names,
//! what is no tree at all. A start that is refused changes nothing.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use store::durable::{OpenError, Opened};
use store::limits::SET_ASIDE_MS;
use store::tree::TreeError;
use store::{DatabaseId, Durability, Kind, SET_ASIDE_FOLDER, Store, StoreConfig};
use testkit::suite::{Engine, put};
use testkit::{Files, read_folder, write_folder};
use wal::disk::{Disk, SimulatedDisk};
use wal::{LogConfig, LogId};

use crate::bench::log_config;
use crate::tree_bench::{OnDisk, TempFolder, place};
use crate::tree_faults::{APPLIED, Client};

fn config() -> StoreConfig {
    let mut config = StoreConfig::new(1);
    config.default_database.durability = Durability::Synced;
    config
}

fn open(disk: &SimulatedDisk, folder: &TempFolder, log: &LogConfig) -> Result<Opened, OpenError> {
    Store::open_with_trees(
        config(),
        Arc::new(disk.clone()),
        log,
        Some(&place(&folder.0)),
    )
}

fn accepting() -> LogConfig {
    LogConfig {
        accept_loss: true,
        new_log_id: LogId {
            history: 8,
            secret: 9,
        },
        ..log_config()
    }
}

/// All files below a folder, and links as where they lead; folders are there with nothing in them.
fn content(folder: &Path) -> Files {
    let mut found = Files::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(next).expect("it is there") {
            let path = entry.expect("it is read").path();
            let bytes = match fs::symlink_metadata(&path).expect("it is there") {
                link if link.is_symlink() => {
                    fs::read_link(&path).map(|to| to.into_os_string().into_encoded_bytes())
                }
                entry if entry.is_dir() => {
                    folders.push(path.clone());
                    Ok(Vec::new())
                }
                _ => fs::read(&path),
            };
            found.insert(path, bytes.expect("it is there"));
        }
    }
    found
}

/// A start that is refused, and changes nothing; twice. Returns why.
fn refused(disk: &SimulatedDisk, folder: &TempFolder, log: &LogConfig) -> OpenError {
    let mut why = None;
    for _ in 0..2 {
        let (before, steps) = (content(&folder.0), disk.step_count());
        why = Some(open(disk, folder, log).expect_err("it must not start"));
        assert_eq!(disk.step_count(), steps, "nothing is changed");
        let after = content(&folder.0);
        let names = |files: &Files| files.keys().cloned().collect::<Vec<_>>();
        assert_eq!(names(&after), names(&before));
        assert!(after == before, "nothing is changed");
        disk.kill();
    }
    why.expect("it was refused twice")
}

/// The default database, on disk, with some tables and more in the log, as a crash leaves it.
struct Crashed {
    disk: SimulatedDisk,
    folder: Arc<TempFolder>,
    tree: PathBuf,
}

fn write(client: &mut Client, from: u32) {
    for number in from..from + 20 {
        let key = format!("key-{number}");
        let operation = put(key.as_bytes(), &[7; 400]);
        assert_eq!(client.commit(DatabaseId::DEFAULT, &[operation]), APPLIED);
    }
}

fn flush(client: &mut Client) {
    client.made.commit_loop.seal_trees();
    client
        .made
        .commit_loop
        .flush_trees()
        .expect("there is room");
}

impl Crashed {
    /// `between` is called with the folder of the tree when some of it is on the device, before
    /// more is.
    fn new(between: &mut dyn FnMut(&Path)) -> Crashed {
        let mut client = Client::new();
        write(&mut client, 0);
        flush(&mut client);
        let index = client.made.store.tree(DatabaseId::DEFAULT);
        let tree = index.expect("it is on disk").folder().to_owned();
        between(&tree);
        for round in 1..4 {
            write(&mut client, 20 * round);
            flush(&mut client);
        }
        client.snapshot();
        // What is in the log alone.
        write(&mut client, 80);
        let (disk, folder) = (client.made.disk.clone(), client.made.folder.clone());
        drop(client);
        disk.kill();
        Crashed { disk, folder, tree }
    }

    /// Starts, and finds everything; twice.
    fn is_whole(&self) {
        for _ in 0..2 {
            let opened = OnDisk::open(config(), &self.disk, &self.folder);
            let opened = opened.unwrap_or_else(|error| panic!("{error}"));
            let index = opened.store.tree(DatabaseId::DEFAULT);
            let view = index.expect("it is on disk").view();
            for number in 0..100 {
                let key = format!("key-{number}");
                let found = view.get(key.as_bytes(), 0);
                assert!(found.expect("it is read").is_some(), "key-{number}");
            }
            drop((view, opened));
            self.disk.kill();
        }
    }

    fn tree_error(&self) -> TreeError {
        match refused(&self.disk, &self.folder, &log_config()) {
            OpenError::Tree(error) | OpenError::Database { error, .. } => error,
            other => panic!("{other}"),
        }
    }
}

fn replace_folder(folder: &Path, files: &Files) {
    fs::remove_dir_all(folder).expect("it is there");
    write_folder(folder, files);
}

#[test]
fn an_older_copy_of_a_tree_is_refused() {
    let mut older = Files::new();
    let crashed = Crashed::new(&mut |tree| older = read_folder(tree));
    let newer = read_folder(&crashed.tree);
    assert!(older != newer);
    replace_folder(&crashed.tree, &older);
    let named = refused(&crashed.disk, &crashed.folder, &log_config()).to_string();
    assert!(named.starts_with("the default database: "), "{named}");
    let why = crashed.tree_error();
    assert!(matches!(why, TreeError::Older { .. }), "{why}");
    assert!(why.to_string().contains("is an older copy"), "{why}");
    replace_folder(&crashed.tree, &newer);
    crashed.is_whole();
    // Accepted as a loss it is given up as a whole: nobody can say what it lacks.
    replace_folder(&crashed.tree, &older);
    let opened = open(&crashed.disk, &crashed.folder, &accepting()).expect("a loss is accepted");
    assert_eq!(opened.trees_lost.len(), 1);
    drop(opened);
    crashed.disk.kill();
    let opened = open(&crashed.disk, &crashed.folder, &log_config()).expect("it has begun anew");
    assert!(opened.trees_lost.is_empty());
}

#[test]
fn an_older_copy_is_no_loss_while_the_log_has_the_rest() {
    let mut client = Client::new();
    write(&mut client, 0);
    flush(&mut client);
    client.snapshot();
    let index = client.made.store.tree(DatabaseId::DEFAULT);
    let tree = index.expect("it is on disk").folder().to_owned();
    let older = read_folder(&tree);
    for round in 1..5 {
        write(&mut client, 20 * round);
        flush(&mut client);
    }
    let (disk, folder) = (client.made.disk.clone(), client.made.folder.clone());
    drop(client);
    disk.kill();
    replace_folder(&tree, &older);
    let crashed = Crashed { disk, folder, tree };
    crashed.is_whole();
}

/// The engine removes lists and tables that are of no use as it opens a folder.
#[test]
fn a_start_that_is_refused_leaves_trees_as_they_were() {
    let crashed = Crashed::new(&mut |_| ());
    let before = read_folder(&crashed.tree);
    for (name, bytes) in [
        ("v900", "a list that nobody names"),
        ("tables/900", "a table that no list names"),
        (".tmp-current", "left by a crash"),
    ] {
        fs::write(crashed.tree.join(name), bytes).expect("there is room");
    }
    let snapshots = || {
        let names = crashed.disk.list().expect("it can be listed");
        let is_snapshot = |name: &String| name.ends_with(".snapshot");
        names.into_iter().filter(is_snapshot).collect::<Vec<_>>()
    };
    // Without its snapshot the log begins too late.
    let [name] = &snapshots()[..] else {
        panic!("there is one");
    };
    let snapshot = crashed.disk.contents(name);
    crashed.disk.remove(name).expect("it is there");
    let why = refused(&crashed.disk, &crashed.folder, &log_config());
    assert!(matches!(why, OpenError::Log(_)), "{why}");
    let file = crashed.disk.create(name).expect("it is gone");
    file.write_all_at(&snapshot, 0).expect("there is room");
    crashed.is_whole();
    let after = read_folder(&crashed.tree);
    let left = |name: &str| after.contains_key(Path::new(name));
    assert!(!left("v900") && !left("tables/900") && !left(".tmp-current"));
    assert!(before.contains_key(Path::new("current")));
}

#[test]
fn what_is_no_tree_is_refused_by_name() {
    let crashed = Crashed::new(&mut |_| ());
    let before = read_folder(&crashed.tree);
    let table = (before.keys())
        .find(|name| name.starts_with("tables"))
        .expect("there is one");
    let list = (before.keys())
        .find(|name| name.to_string_lossy().starts_with('v'))
        .expect("there is one");
    for name in [Path::new("current"), list, table, Path::new("tables/900")] {
        let (path, words) = (crashed.tree.join(name), name.display().to_string());
        let _ = fs::remove_file(&path);
        fs::create_dir(&path).expect("nothing is there");
        let why = crashed.tree_error().to_string();
        assert!(why.contains(&format!("`{words}` is not a file")), "{why}");
        fs::remove_dir(&path).expect("it is there");
        std::os::unix::fs::symlink("nowhere", &path).expect("there is room");
        let why = crashed.tree_error().to_string();
        let link = format!("`{words}` is a link to nothing");
        assert!(why.contains(&link), "{why}");
        fs::remove_file(&path).expect("it is there");
        if let Some(bytes) = before.get(name) {
            fs::write(&path, bytes).expect("there is room");
        }
    }
    fs::write(crashed.tree.join("tables/strange"), "text").expect("there is room");
    let why = crashed.tree_error().to_string();
    assert!(
        why.contains("`tables/strange` is not the name of a table"),
        "{why}"
    );
    fs::remove_file(crashed.tree.join("tables/strange")).expect("it is there");
    for whole in [crashed.tree.join("tables"), crashed.tree.clone()] {
        let moved = crashed.folder.0.join("moved");
        fs::rename(&whole, &moved).expect("nothing is there");
        fs::write(&whole, "text").expect("there is room");
        let why = crashed.tree_error().to_string();
        assert!(why.contains("not a folder"), "{why}");
        fs::remove_file(&whole).expect("it is there");
        if whole != crashed.tree {
            let why = crashed.tree_error();
            assert!(matches!(why, TreeError::Damaged { .. }), "{why}");
        }
        fs::rename(&moved, &whole).expect("nothing is there");
    }
    // A folder of trees that is none, and one that is gone, which is not made either.
    let trees = crashed.folder.0.join("trees");
    let moved = crashed.folder.0.join("moved");
    fs::rename(&trees, &moved).expect("nothing is there");
    assert!(matches!(crashed.tree_error(), TreeError::Missing { .. }));
    assert!(!trees.exists());
    fs::write(&trees, "text").expect("there is room");
    let why = crashed.tree_error().to_string();
    assert!(why.contains("it is not a folder"), "{why}");
    fs::remove_file(&trees).expect("it is there");
    fs::rename(&moved, &trees).expect("nothing is there");
    crashed.is_whole();
}

#[test]
fn trees_that_nothing_names_are_set_aside() {
    let crashed = Crashed::new(&mut |_| ());
    let trees = crashed.folder.0.join("trees");
    let content = read_folder(&crashed.tree);
    // Of a database that the log does not know, of one that is later than all of it, and copies
    // under lower numbers, which say of themselves that they are another tree; and what is over for
    // certain.
    let unknown = ["7-900000", "0-900001", "0-1", "9-2"];
    for name in unknown.iter().chain(&["3-900002.new", "0-900003.held"]) {
        write_folder(&trees.join(name), &content);
    }
    fs::create_dir(trees.join("strange")).expect("there is room");
    let mut set_aside = 0;
    for log in [log_config(), accepting()] {
        let opened = open(&crashed.disk, &crashed.folder, &log);
        set_aside += opened.expect("it is whole").trees_set_aside;
        crashed.disk.kill();
    }
    assert_eq!(set_aside, 4);
    let names = |folder: &Path| {
        let entries = fs::read_dir(folder).expect("it is there");
        let names = entries.map(|entry| entry.expect("it is read").file_name());
        let mut names: Vec<_> = names.filter_map(|name| name.into_string().ok()).collect();
        names.sort();
        names
    };
    let kept = crashed.tree.file_name().expect("it has one");
    assert_eq!(names(&trees), [kept.to_str().expect("a text"), "strange"]);
    let aside = crashed.folder.0.join(SET_ASIDE_FOLDER);
    let moved = names(&aside);
    assert_eq!(moved.len(), 4);
    for (moved, name) in (moved.iter()).zip(["0-1", "0-900001", "7-900000", "9-2"]) {
        assert!(moved.ends_with(&format!("-{name}")), "{moved}");
        assert!(read_folder(&aside.join(moved)) == content);
    }
    crashed.is_whole();
    // What is there long enough goes, and nothing else.
    fs::create_dir(aside.join("strange")).expect("there is room");
    let since_ms = moved[0].split_once('-').expect("a time and a name").0;
    let since_ms: u64 = since_ms.parse().expect("a number");
    for (after_ms, left) in [(SET_ASIDE_MS - 1, 5), (SET_ASIDE_MS, 1)] {
        let log = LogConfig {
            now_ms: since_ms + after_ms,
            ..log_config()
        };
        let opened = open(&crashed.disk, &crashed.folder, &log).expect("it is whole");
        assert_eq!(opened.trees_set_aside, 0);
        drop(opened);
        crashed.disk.kill();
        assert_eq!(names(&aside).len(), left);
    }
}

/// What is left of a database that was dropped is removed, also when the log says nothing of it any
/// more; not if somebody else has put something there.
#[test]
fn only_what_is_ours_is_removed_of_a_database_that_was_dropped() {
    let mut client = Client::new();
    assert_eq!(client.create("gone", Kind::Disk), APPLIED);
    let gone = client.id("gone");
    for number in 0..15_u32 {
        let key = number.to_be_bytes();
        assert_eq!(client.commit(gone, &[put(&key, &[7; 400])]), APPLIED);
    }
    // The first one makes its folder.
    flush(&mut client);
    flush(&mut client);
    write(&mut client, 0);
    let tree = client.made.store.tree(gone).expect("it is on disk");
    let path = tree.folder().to_owned();
    drop(tree);
    let ours = read_folder(&path);
    assert!(ours.contains_key(Path::new("known-tables")));
    client.drop_database("gone");
    client.snapshot();
    client.snapshot();
    let (disk, folder) = (client.made.disk.clone(), client.made.folder.clone());
    drop(client);
    disk.kill();
    let aside = folder.0.join(SET_ASIDE_FOLDER);
    let others = [None, Some("mine"), Some("tables/mine"), Some("vacation")];
    for (suffix, other) in ["", ".new", ".held"]
        .into_iter()
        .flat_map(|suffix| others.map(|other| (suffix, other)))
    {
        let mut files = ours.clone();
        files.extend(other.map(|name| (PathBuf::from(name), b"text".to_vec())));
        let path = PathBuf::from(format!("{}{suffix}", path.display()));
        write_folder(&path, &files);
        let opened = open(&disk, &folder, &log_config()).expect("it is whole");
        let expected = u64::from(other.is_some());
        assert_eq!(opened.trees_set_aside, expected, "{suffix} {other:?}");
        drop(opened);
        disk.kill();
        assert!(!path.exists());
        if other.is_some() {
            let mut moved = fs::read_dir(&aside).expect("it was made");
            let moved = moved.next().expect("it was moved").expect("it is read");
            assert!(read_folder(&moved.path()) == files, "{suffix} {other:?}");
            fs::remove_dir_all(moved.path()).expect("it is there");
        }
    }
}

/// The engine removes whatever begins with the letter of its lists; only what belongs to it is
/// gone, and tables are told.
#[test]
fn a_file_of_somebody_else_stays_in_the_folder_of_a_tree() {
    let crashed = Crashed::new(&mut |_| ());
    let others = ["vacation", "v12.txt", "mine"];
    for _ in 0..2 {
        for name in others {
            fs::write(crashed.tree.join(name), "text").expect("there is room");
        }
        for name in ["v900", "tables/900"] {
            fs::write(crashed.tree.join(name), "any").expect("there is room");
        }
        let opened = open(&crashed.disk, &crashed.folder, &log_config()).expect("it is whole");
        assert_eq!(opened.trees_strays, [crashed.tree.join("tables/900")]);
        drop(opened);
        crashed.disk.kill();
        for name in others {
            let text = fs::read_to_string(crashed.tree.join(name));
            assert_eq!(text.expect("it is there"), "text", "{name}");
        }
        assert!(!crashed.tree.join("v900").exists());
    }
}

/// The file of the data folder is damaged: it is named, and where that is accepted no tree is given
/// up. The folder has the identity from then on that its trees have noted, so that a crash at any
/// time leaves them its own.
#[test]
fn no_tree_is_given_up_for_a_damaged_file_of_the_data_folder() {
    const NAME: &str = "pelton-data";
    let crashed = Crashed::new(&mut |_| ());
    let whole = crashed.disk.contents(NAME);
    let text = String::from_utf8(whole.clone()).expect("a text");
    let owner = text.lines().find(|line| line.starts_with("folder "));
    let owner = owner.expect("it has one").to_owned();
    let at = |line: &str| text.find(line).expect("it has one") + line.len() - 2;
    let is_of_log = |line: &&str| line.starts_with("log ") || line.starts_with("segment ");
    let mut places: Vec<_> = text.lines().filter(is_of_log).map(at).collect();
    places.extend([
        at("format 6"),
        at("format 6") + 1,
        at(&owner),
        text.len() - 9,
    ]);
    for place in places {
        crashed.disk.flip(NAME, place, 1);
        let why = refused(&crashed.disk, &crashed.folder, &log_config()).to_string();
        assert!(why.contains("pelton-data: this file"), "{place}: {why}");
        let opened = open(&crashed.disk, &crashed.folder, &accepting()).expect("it is accepted");
        assert!(opened.trees_lost.is_empty() && opened.recovered.loss.is_none());
        assert_eq!(opened.trees_set_aside, 0);
        drop(opened);
        crashed.disk.kill();
        let now = String::from_utf8(crashed.disk.contents(NAME)).expect("a text");
        assert!(now.contains(&owner), "{place}: {now}");
        crashed.is_whole();
    }
}

/// A tree that was begun, and whose folder was not made before a crash, is not made by a start that
/// is refused.
#[test]
fn a_start_that_is_refused_makes_no_tree() {
    let mut client = Client::new();
    assert_eq!(client.create("late", Kind::Disk), APPLIED);
    let late = client.id("late");
    assert_eq!(client.commit(late, &[put(b"key", b"value")]), APPLIED);
    let (disk, folder) = (client.made.disk.clone(), client.made.folder.clone());
    let tree = client.made.store.tree(late).expect("it is on disk");
    assert!(!tree.is_made());
    let path = tree.folder().to_owned();
    drop((tree, client));
    disk.kill();
    let strange = config_that_is_refused();
    let opened = Store::open_with_trees(
        strange,
        Arc::new(disk.clone()),
        &log_config(),
        Some(&place(&folder.0)),
    );
    assert!(matches!(opened, Err(OpenError::DefaultHasContent)));
    assert!(!path.exists());
    disk.kill();
    for _ in 0..2 {
        let opened = OnDisk::open(config(), &disk, &folder).expect("it is whole");
        let view = opened.store().tree(late).expect("it is on disk").view();
        assert!(view.get(b"key", 0).expect("it is read").is_some());
        drop((view, opened));
        assert!(path.exists());
        disk.kill();
    }
}

/// The default database has content, and cannot become volatile.
fn config_that_is_refused() -> StoreConfig {
    let mut config = StoreConfig::new(1);
    config.default_database.durability = Durability::Volatile;
    config
}
