//! Environment variables that look like settings, and are none.

use clap::{Command, CommandFactory};

use crate::arguments::Arguments;

/// What to say about variables of this process that look like settings, and are none.
pub fn warning_of_variables() -> Option<String> {
    let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    let unknown = unknown_variables(names);
    (!unknown.is_empty()).then(|| {
        format!(
            "environment variables that are no settings of Pelton, and change nothing: {}; `pelton \
             serve --help` names those that are",
            unknown.join(", ")
        )
    })
}

/// What a command that is not `serve` says of variables that look as if one of its own was meant.
/// Others pass in silence: scripts have variables of their own.
pub fn warning_of_misspelt_variables() -> Option<String> {
    let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    let misspelt: Vec<String> = misspelt_variables(names)
        .into_iter()
        .map(|(name, meant)| format!("{name} (is {meant} meant?)"))
        .collect();
    (!misspelt.is_empty()).then(|| {
        format!(
            "environment variables that are no settings of Pelton, and change nothing: {}",
            misspelt.join(", ")
        )
    })
}

/// Variables that stand for no flag: tokens, as arguments are seen by everybody, and the file with
/// profiles, which `--profile` needs before flags are read.
const VARIABLES_WITHOUT_FLAG: [&str; 3] = [TOKEN_VARIABLE, ADMIN_TOKEN_VARIABLE, PROFILES_VARIABLE];

/// The variable with the token of a command that speaks to a server.
pub const TOKEN_VARIABLE: &str = "PELTON_TOKEN";

/// The variable with the token of the first administrator, made elsewhere.
pub const ADMIN_TOKEN_VARIABLE: &str = "PELTON_ADMIN_TOKEN";

/// Letters that may be wrong, missing or too many in a name that was meant to be another.
const MISSPELT_LETTERS: usize = 2;

/// The variable with the name of the file that has the profiles of a user.
pub const PROFILES_VARIABLE: &str = "PELTON_CLIENT_CONFIG";

/// Returns unknown names with the known one that each is like.
fn misspelt_variables(names: impl Iterator<Item = String>) -> Vec<(String, String)> {
    let mut known = Vec::new();
    collect(&Arguments::command(), &mut known);
    let distance = |one: &str, other: &str| strsim::damerau_levenshtein(one, other);
    let meant = |name: String| {
        let nearest = known.iter().min_by_key(|one| distance(&name, one))?;
        (distance(&name, nearest) <= MISSPELT_LETTERS).then(|| (name, nearest.clone()))
    };
    unknown_variables(names)
        .into_iter()
        .filter_map(meant)
        .collect()
}

/// Returns the names that begin with `PELTON_` and mean nothing to any command, in order: most
/// often misspelt ones.
fn unknown_variables(names: impl Iterator<Item = String>) -> Vec<String> {
    let mut known = Vec::new();
    collect(&Arguments::command(), &mut known);
    let mut unknown: Vec<String> = names
        .filter(|name| {
            name.starts_with("PELTON_") && !known.contains(name) && !is_from_kubernetes(name)
        })
        .collect();
    unknown.sort();
    unknown
}

/// Kubernetes gives each container the addresses of all services, by their names: a service
/// `pelton` comes like this.
fn is_from_kubernetes(name: &str) -> bool {
    let is_port = name == "PELTON_PORT" || name.starts_with("PELTON_PORT_");
    is_port || name.starts_with("PELTON_SERVICE_")
}

fn collect(command: &Command, known: &mut Vec<String>) {
    known.extend(VARIABLES_WITHOUT_FLAG.map(str::to_owned));
    let variables = command
        .get_arguments()
        .filter_map(|argument| argument.get_env());
    known.extend(variables.map(|name| name.to_string_lossy().into_owned()));
    for one in command.get_subcommands() {
        collect(one, known);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn misspelt_variables_are_found_and_others_are_not() {
        let names = [
            "PELTON_THREADS",
            "PELTON_TREADS",
            "PELTON_ADDRESS",
            "PELTON_CONFIG",
            "PELTON_LISTN",
            "PELTON_PORT",
            "PELTON_PORT_1978_TCP_ADDR",
            "PELTON_SERVICE_HOST",
            "PATH",
            "pelton_threads",
        ];
        let unknown = unknown_variables(names.into_iter().map(str::to_owned));
        assert_eq!(unknown, ["PELTON_LISTN", "PELTON_TREADS"]);
    }

    #[test]
    fn a_client_is_told_of_variables_that_are_nearly_right() {
        let names = [
            "PELTON_ADRESS",
            "PELTON_ADDRESS",
            "PELTON_DATABSE",
            "PELTON_SEED",
            "PELTON_IMAGE_TAG",
        ];
        let misspelt = misspelt_variables(names.into_iter().map(str::to_owned));
        let expected = [
            ("PELTON_ADRESS", "PELTON_ADDRESS"),
            ("PELTON_DATABSE", "PELTON_DATABASE"),
        ];
        let expected = expected.map(|(name, meant)| (name.to_owned(), meant.to_owned()));
        assert_eq!(misspelt, expected);
    }
}
