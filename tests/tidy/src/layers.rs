//! The layers of the crates: a crate depends only on crates of lower layers.

use crate::source::Tree;
use crate::violation::Violation;

/// The crates, their layers, and the lower crates that they must not know.
const LAYERS: [(&str, u8, &[&str]); 15] = [
    ("pelton", 6, &[]),
    ("lab", 5, &[]),
    ("server", 4, &[]),
    // A workspace of its own.
    ("python", 4, &["net", "wire", "service", "store", "server"]),
    ("client", 3, &["service", "store"]),
    ("net", 2, &["wire", "api", "store"]),
    ("service", 2, &[]),
    ("cassandra", 2, &[]),
    ("wire", 1, &[]),
    ("api", 1, &[]),
    ("store", 1, &[]),
    ("allocator", 0, &[]),
    ("protobuf", 0, &[]),
    ("wal", 0, &[]),
    (TESTKIT, 255, &[]),
];

/// A crate for tests: all may use it there, and nothing that ships.
const TESTKIT: &str = "testkit";

/// A crate named in a manifest.
#[derive(Debug)]
struct Dependency {
    name: String,
    line: usize,
    for_tests: bool,
}

/// Returns the dependencies on crates of the same or a higher layer.
pub fn check(tree: &Tree) -> Vec<Violation> {
    let names = tree.crates();
    let mut found = Vec::new();
    for name in &names {
        let manifest = format!("crates/{name}/Cargo.toml");
        let mut add =
            |line, message| found.push(Violation::new("layers", &manifest, line, message));
        let Some(own) = layer(name) else {
            add(
                1,
                format!("`{name}` has no layer: add it to tests/tidy/src/layers.rs"),
            );
            continue;
        };
        for dependency in dependencies(tree.text(&manifest).unwrap_or_default()) {
            let is_own = dependency.name == *name;
            if let Some(other) = layer(&dependency.name).filter(|_| !is_own)
                && let Some(message) = broken(own, other, dependency.for_tests)
            {
                add(dependency.line, message);
            }
        }
    }
    found
}

type Layer = &'static (&'static str, u8, &'static [&'static str]);

fn layer(name: &str) -> Option<Layer> {
    LAYERS.iter().find(|(known, ..)| *known == name)
}

fn broken(own: Layer, other: Layer, for_tests: bool) -> Option<String> {
    let (name, layer, forbidden) = own;
    let (other_name, other_layer, _) = other;
    if *other_name == TESTKIT {
        return (!for_tests).then(|| format!("`{TESTKIT}` is for [dev-dependencies] only"));
    }
    if other_layer >= layer {
        return Some(format!(
            "`{name}` (layer {layer}) must not use `{other_name}` (layer {other_layer})"
        ));
    }
    let is_forbidden = !for_tests && forbidden.contains(other_name);
    is_forbidden.then(|| format!("`{name}` must not know `{other_name}`"))
}

/// Returns the dependencies that a manifest names.
fn dependencies(manifest: &str) -> Vec<Dependency> {
    let mut found = Vec::new();
    let mut section: Option<bool> = None;
    for (index, line) in manifest.lines().enumerate() {
        let line = line.trim();
        let mut add = |name: &str, for_tests| {
            let name = name.trim().trim_matches('"');
            found.push(Dependency {
                name: name.strip_prefix("pelton-").unwrap_or(name).to_owned(),
                line: index + 1,
                for_tests,
            });
        };
        if let Some(header) = line.strip_prefix('[') {
            let header = header.split(']').next().unwrap_or_default();
            let (table, name) = match header.split_once("dependencies.") {
                Some((start, name)) => (format!("{start}dependencies"), Some(name)),
                None => (header.to_owned(), None),
            };
            let for_tests = table.ends_with("dev-dependencies");
            section = table.ends_with("dependencies").then_some(for_tests);
            if let (Some(name), Some(for_tests)) = (name, section.take_if(|_| name.is_some())) {
                add(name, for_tests);
            }
        } else if let Some(for_tests) = section
            && let Some((name, _)) = line.split_once(['=', '.'])
            && !line.starts_with('#')
        {
            add(name, for_tests);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(name: &str, manifest: &str) -> Vec<String> {
        let path = format!("crates/{name}/Cargo.toml");
        let violations = check(&Tree::of(&[(&path, manifest)]));
        violations.iter().map(Violation::to_string).collect()
    }

    #[test]
    fn a_higher_layer_is_a_violation() {
        let found = found(
            "store",
            "[dependencies]\nbytes = \"1\"\nservice.workspace = true\n",
        );
        assert_eq!(found.len(), 1);
        assert!(found[0].starts_with("crates/store/Cargo.toml:3: [layers] `store` (layer 1)"));
    }

    #[test]
    fn a_crate_on_the_same_layer_is_a_violation() {
        assert_eq!(
            found("wire", "[dependencies]\nstore = { path = \"../store\" }\n").len(),
            1
        );
        assert_eq!(
            found("wire", "[dependencies.pelton-store]\npath = \"../store\"\n").len(),
            1
        );
        assert_eq!(
            found("wire", "[target.'cfg(unix)'.dependencies]\nstore = \"1\"\n").len(),
            1
        );
        assert_eq!(
            found("wire", "[dev-dependencies]\nstore.workspace = true\n").len(),
            1
        );
    }

    #[test]
    fn lower_layers_and_the_crate_itself_are_allowed() {
        let manifest = "[package]\nname = \"server\"\n[dependencies]\nwire.workspace = true
net.workspace = true\n[dev-dependencies]\npelton-server = { path = \".\" }\n[features]\nlab = []";
        assert_eq!(found("server", manifest), [""; 0]);
    }

    #[test]
    fn what_a_crate_must_not_know_is_a_violation() {
        assert_eq!(
            found("client", "[dependencies]\nstore.workspace = true\n").len(),
            1
        );
        assert_eq!(
            found("client", "[dependencies]\nwire.workspace = true\n").len(),
            0
        );
    }

    #[test]
    fn the_crate_for_tests_is_for_tests_only() {
        assert_eq!(
            found("wal", "[dependencies]\ntestkit.workspace = true\n").len(),
            1
        );
        assert_eq!(
            found("wal", "[dev-dependencies]\ntestkit.workspace = true\n").len(),
            0
        );
    }

    #[test]
    fn a_crate_without_a_layer_is_a_violation() {
        assert_eq!(found("drive", "").len(), 1);
    }
}
