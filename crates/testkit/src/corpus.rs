//! Inputs of the fuzz targets (fuzz/), which ordinary tests replay.

use std::path::{Path, PathBuf};

use crate::OnFailure;

/// Passes each input of the corpus of a fuzz target, `fuzz/corpus/TARGET`, to the target's body.
///
/// # Panics
/// If there are none, and where the body panics.
pub fn replay_corpus(target: &str, body: impl Fn(&[u8])) {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
    let inputs = inputs(&corpus.join(target));
    assert!(!inputs.is_empty(), "fuzz/corpus/{target} has no inputs");
    for path in inputs {
        let _on_failure = OnFailure(format!("the input is {}", path.display()));
        body(&std::fs::read(&path).expect("it was listed"));
    }
}

/// Returns the files in a folder, in an order that is always the same.
fn inputs(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return Vec::new();
    };
    let paths = entries.map(|entry| entry.expect("it can be listed").path());
    let mut paths: Vec<PathBuf> = paths.filter(|path| path.is_file()).collect();
    paths.sort();
    paths
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "fuzz/corpus/none has no inputs")]
    fn a_corpus_without_inputs_is_a_failure() {
        replay_corpus("none", |_| {});
    }
}
