//! Import circles between the modules of a crate.
//!
//! The modules in one module are its children; a child stands for all that is in its folder. If a
//! child imports a sibling, the sibling must not import it back, by whatever way. What a module
//! imports from the modules around it, or from those inside it, is no part of a circle.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use crate::modules::{ModulePath, Modules};
use crate::paths;
use crate::violation::Violation;
use crate::workspace::Workspace;

/// The imports among the children of one module: from a name to others.
type Siblings = BTreeMap<String, BTreeSet<String>>;

/// An import between children of one module.
#[derive(Debug)]
struct Edge {
    parent: ModulePath,
    from: String,
    to: String,
    file: String,
    line: usize,
}

/// Returns a violation for each file and each sibling that it imports in a circle.
pub fn check(workspace: &Workspace) -> Vec<Violation> {
    let packages = workspace.packages.iter();
    let programs = packages.flat_map(|package| &package.programs);
    programs.flat_map(circles).collect()
}

fn circles(modules: &Modules) -> Vec<Violation> {
    let edges = edges(modules);
    let mut graphs: HashMap<&ModulePath, Siblings> = HashMap::new();
    for edge in &edges {
        let graph = graphs.entry(&edge.parent).or_default();
        let targets = graph.entry(edge.from.clone()).or_default();
        targets.insert(edge.to.clone());
    }
    let mut found = Vec::new();
    for edge in &edges {
        if let Some(way) = way(&graphs[&edge.parent], &edge.to, &edge.from) {
            let message = format!(
                "`{}` imports `{}`, which imports it back: {}",
                edge.from,
                edge.to,
                way.join(" -> ")
            );
            found.push(Violation::new("circles", &edge.file, edge.line, message));
        }
    }
    found
}

/// Returns the first import of each file and each sibling of its module.
fn edges(modules: &Modules) -> Vec<Edge> {
    let mut edges: BTreeMap<(String, ModulePath, String), Edge> = BTreeMap::new();
    for (path, module) in modules.iter() {
        let source = modules.file_module(path);
        for used in paths::of(module) {
            let Some(target) = modules.resolve(path, &used.segments) else {
                continue;
            };
            let target = modules.file_module(&target);
            let common = source
                .iter()
                .zip(&target)
                .take_while(|(a, b)| a == b)
                .count();
            if common == source.len() || common == target.len() {
                continue;
            }
            let edge = Edge {
                parent: source[..common].to_vec(),
                from: source[common].clone(),
                to: target[common].clone(),
                file: module.file.clone(),
                line: used.line,
            };
            let key = (edge.file.clone(), edge.parent.clone(), edge.to.clone());
            let first = edges.entry(key).or_insert(edge);
            first.line = first.line.min(used.line);
        }
    }
    edges.into_values().collect()
}

/// Returns the shortest way from one sibling to another.
fn way(graph: &Siblings, from: &str, to: &str) -> Option<Vec<String>> {
    let mut before: BTreeMap<&str, &str> = BTreeMap::new();
    let mut queue = VecDeque::from([from]);
    while let Some(name) = queue.pop_front() {
        if name == to {
            let mut way = vec![name.to_owned()];
            let mut name = name;
            while let Some(previous) = before.get(name).filter(|_| name != from) {
                way.insert(0, (*previous).to_owned());
                name = previous;
            }
            return Some(way);
        }
        for next in graph.get(name).into_iter().flatten() {
            if next != from && !before.contains_key(next.as_str()) {
                before.insert(next, name);
                queue.push_back(next);
            }
        }
    }
    None
}

#[cfg(test)]
mod tests;
