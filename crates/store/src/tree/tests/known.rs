//! Tables that are not those that were written.

use std::fs;

use super::*;
use crate::tree::TreeError;

/// A tree with a few tables; the seed says what is in it. Returns the names of its tables.
fn fill(folder: &Path, seed: u64, rounds: usize) -> Vec<String> {
    let trees = Trees::open(folder, small()).expect("it is a folder");
    let opened = match folder.join("3-5").exists() {
        true => trees.open_generation(GENERATION),
        false => trees.create(GENERATION),
    };
    let mut writer = opened.expect("it is whole");
    let mut random = Random::new(seed);
    for _ in 0..rounds {
        let mut last = writer.index().sequence();
        for _ in 0..10 {
            let commit = random_commit(&mut random, last);
            apply(&mut writer, &commit);
            last = commit.sequence;
        }
        assert!(writer.seal(u64::MAX));
        assert!(writer.index().flush().expect("there is room"));
    }
    drop(writer);
    let names = fs::read_dir(folder.join("3-5/tables")).expect("it is there");
    let names = names.map(|file| file.expect("readable").file_name());
    let mut names: Vec<_> = names.filter_map(|name| name.into_string().ok()).collect();
    names.sort();
    names
}

fn opened(folder: &Path) -> Result<TreeWriter, TreeError> {
    let trees = Trees::open(folder, small()).expect("it is a folder");
    trees.open_generation(GENERATION)
}

fn refused(folder: &Path) -> String {
    for _ in 0..2 {
        let error = opened(folder).expect_err("it is not what was written");
        assert!(error.is_of_damage(), "{error}");
    }
    opened(folder).expect_err("still").to_string()
}

/// What is done to the file that says which tables are whose.
fn change_known(folder: &Path, change: &str, before: &[u8]) {
    let known = folder.join("3-5/known-tables");
    match change {
        "it is whole" => {}
        "it is from before the last flush" => fs::write(known, before).expect("there is room"),
        "it is damaged" => fs::write(known, "nonsense").expect("there is room"),
        _ => unreachable!(),
    }
}

#[test]
fn table_of_another_tree_with_the_same_number_is_damage() {
    let states = [
        "it is whole",
        "it is from before the last flush",
        "it is damaged",
    ];
    for state in states {
        let (ours, others) = (
            TempFolder::new("known-ours"),
            TempFolder::new("known-other"),
        );
        fill(&ours.0, 1, 1);
        let before = fs::read(ours.0.join("3-5/known-tables")).expect("it was written");
        let tables = fill(&ours.0, 2, 1);
        assert_eq!(fill(&others.0, 3, 2), tables, "they have the same numbers");
        change_known(&ours.0, state, &before);
        drop(opened(&ours.0).unwrap_or_else(|error| panic!("{state}: {error}")));
        for name in &tables {
            let path = format!("3-5/tables/{name}");
            let whole = fs::read(ours.0.join(&path)).expect("it is there");
            fs::copy(others.0.join(&path), ours.0.join(&path)).expect("there is room");
            let why = refused(&ours.0);
            assert!(why.contains(&format!("`tables/{name}`")), "{state}: {why}");
            fs::write(ours.0.join(&path), [&whole[..], b"more"].concat()).expect("there is room");
            refused(&ours.0);
            fs::write(ours.0.join(&path), whole).expect("there is room");
        }
        drop(opened(&ours.0).unwrap_or_else(|error| panic!("{state}: {error}")));
    }
}

#[test]
fn file_that_keeps_a_tree_from_being_opened_is_named() {
    let folder = TempFolder::new("known-named");
    let tables = fill(&folder.0, 1, 2);
    let path = folder.0.join("3-5/tables").join(&tables[1]);
    let whole = fs::read(&path).expect("it is there");
    let name = format!("`tables/{}`", tables[1]);
    fs::remove_file(&path).expect("it is there");
    let why = refused(&folder.0);
    assert!(why.contains(&format!("{name} is missing")), "{why}");
    fs::write(&path, &whole[..whole.len() - 1]).expect("there is room");
    let why = refused(&folder.0);
    let told = format!("{name} has changed since it was written, or was cut");
    assert!(why.contains(&told), "{why}");
    let mut changed = whole.clone();
    // Where it says what is where.
    let end = changed.len() - 40;
    changed[end..].fill(0);
    fs::write(&path, changed).expect("there is room");
    let why = refused(&folder.0);
    assert!(why.contains(&format!("{name} has changed")), "{why}");
    assert!(!why.contains("LsmTreeError"), "{why}");
}

#[test]
fn tree_of_another_data_folder_or_database_is_damage() {
    let folder = TempFolder::new("known-owner");
    let trees = |owner| {
        let trees = Trees::open(&folder.0, small()).expect("it is a folder");
        trees.set_owner(owner);
        trees
    };
    fill(&folder.0, 1, 1);
    // Nobody has said so far whose it is.
    let writer = trees(7).open_generation(GENERATION).expect("it is whole");
    writer.index().note_tables();
    drop(writer);
    for (owner, is_ours) in [(7, true), (8, false), (0, true), (7, true)] {
        let opened = trees(owner).open_generation(GENERATION);
        assert_eq!(opened.is_ok(), is_ours, "{opened:?}");
    }
    let other = Generation {
        database: DatabaseId(4),
        ..GENERATION
    };
    fs::rename(folder.0.join("3-5"), folder.0.join("4-5")).expect("it is there");
    let error = trees(7).open_generation(other).expect_err("it is another");
    assert!(error.to_string().contains("another tree"), "{error}");
}

#[test]
fn tree_of_an_earlier_version_is_taken_as_it_is_and_known_from_then_on() {
    let folder = TempFolder::new("known-earlier");
    fill(&folder.0, 1, 2);
    let known = folder.0.join("3-5/known-tables");
    let text = fs::read(&known).expect("it was written");
    fs::remove_file(&known).expect("it is there");
    let writer = opened(&folder.0).expect("it is whole");
    writer.index().note_tables();
    drop(writer);
    assert_eq!(fs::read(&known).expect("it was written"), text);
}
