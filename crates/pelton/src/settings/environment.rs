//! Environment variables that look like settings, and are none.

use clap::{Command, CommandFactory};

use crate::arguments::Arguments;

/// Returns the names that begin with `PELTON_` and mean nothing to any command, in order: most often misspelt ones.
pub fn unknown_variables(names: impl Iterator<Item = String>) -> Vec<String> {
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

/// Kubernetes gives each container the addresses of all services, by their names: a service `pelton` comes like this.
fn is_from_kubernetes(name: &str) -> bool {
    let is_port = name == "PELTON_PORT" || name.starts_with("PELTON_PORT_");
    is_port || name.starts_with("PELTON_SERVICE_")
}

fn collect(command: &Command, known: &mut Vec<String>) {
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
}
