//! What to write instead of words that other tools have, where the closest word of ours would be the wrong one.

use clap::error::{ContextKind, ContextValue, ErrorKind};

/// A word of ours that is less like the one that was written is no tip: for `decr` it would be `del`.
const LEAST_LIKENESS: f64 = 0.85;

/// Commands of other tools, and what does here what they do there. The first word is that of a group of commands.
const COMMANDS: [(&str, &str, &str); 31] = [
    ("", "decr", "`pelton incr KEY -1` subtracts 1"),
    ("", "incrby", "`pelton incr KEY N` adds N"),
    ("", "decrby", "`pelton incr KEY -N` subtracts N"),
    ("", "keys", "`pelton ls --prefix TEXT` lists keys"),
    (
        "",
        "list",
        "`pelton ls --prefix TEXT` lists keys, `pelton blob list` blobs",
    ),
    (
        "",
        "mget",
        "`pelton batch` reads many keys at once, one operation a line",
    ),
    (
        "",
        "mset",
        "`pelton batch` writes many keys at once, one operation a line",
    ),
    (
        "",
        "exists",
        "`pelton get KEY` ends with code 1 if the key is not there",
    ),
    (
        "",
        "expire",
        "`pelton put KEY VALUE --ttl TIME` writes a value that expires",
    ),
    (
        "",
        "ttl",
        "`pelton get KEY --output json` prints when the entry expires",
    ),
    ("", "rm", "`pelton delete KEY` removes a key"),
    ("", "remove", "`pelton delete KEY` removes a key"),
    ("", "unlink", "`pelton delete KEY` removes a key"),
    (
        "",
        "flushall",
        "`pelton delete --all` removes all keys of a database",
    ),
    (
        "",
        "flushdb",
        "`pelton delete --all` removes all keys of a database",
    ),
    (
        "",
        "ping",
        "`pelton status` asks a server whether it is ready",
    ),
    (
        "",
        "info",
        "`pelton status` tells what a server is and holds",
    ),
    (
        "",
        "health",
        "`pelton status` asks a server whether it is ready",
    ),
    ("", "start", "`pelton serve` starts a server"),
    ("", "server", "`pelton serve` starts a server"),
    ("", "run", "`pelton serve` starts a server"),
    (
        "",
        "stop",
        "a server stops at Ctrl-C or SIGTERM: `kill PID`",
    ),
    (
        "",
        "shutdown",
        "a server stops at Ctrl-C or SIGTERM: `kill PID`",
    ),
    ("", "version", "`pelton --version` prints the version"),
    ("", "bench", "`pelton load` loads a server and measures it"),
    (
        "",
        "cp",
        "`pelton upload FILE` stores a file, `pelton download NAME` fetches it",
    ),
    (
        "database",
        "delete",
        "`pelton database drop NAME` removes a database",
    ),
    (
        "database",
        "rm",
        "`pelton database drop NAME` removes a database",
    ),
    ("blob", "rm", "`pelton blob delete NAME` removes a blob"),
    (
        "blob",
        "upload",
        "`pelton upload FILE` stores a file as a blob",
    ),
    ("blob", "download", "`pelton download NAME` fetches a blob"),
];

/// Flags of other tools. The first word is the command, if it means something only there.
const FLAGS: [(&str, &str, &str); 19] = [
    ("", "--json", "`--output json` prints JSON"),
    ("", "-o", "`--output json` prints JSON"),
    (
        "serve",
        "--port",
        "`--listen HOST:PORT` says where to listen",
    ),
    ("serve", "-p", "`--listen HOST:PORT` says where to listen"),
    (
        "serve",
        "--host",
        "`--listen HOST:PORT` says where to listen",
    ),
    (
        "",
        "--host",
        "`--address HOST:PORT` says where the server listens",
    ),
    (
        "",
        "-h",
        "`--address HOST:PORT` says where the server listens",
    ),
    (
        "",
        "-p",
        "`--address HOST:PORT` says where the server listens",
    ),
    (
        "",
        "--port",
        "`--address HOST:PORT` says where the server listens",
    ),
    (
        "",
        "--server",
        "`--address HOST:PORT` says where the server listens",
    ),
    (
        "",
        "--endpoint",
        "`--address HOST:PORT` says where the server listens",
    ),
    (
        "",
        "--endpoints",
        "`--address HOST:PORT` says where the server listens",
    ),
    (
        "load",
        "-c",
        "`--connections N` and `--in-flight N` say how many calls go on at once",
    ),
    (
        "load",
        "--concurrency",
        "`--connections N` and `--in-flight N` say how many calls go on at once",
    ),
    ("load", "-n", "`--calls N` says how many calls are made"),
    ("load", "--rps", "`--rate N` begins so many calls a second"),
    ("load", "--qps", "`--rate N` begins so many calls a second"),
    (
        "load",
        "--header",
        "`--metadata NAME=VALUE` sends metadata with each call",
    ),
    (
        "load",
        "--proto",
        "a server with reflection needs none; else `--descriptor-set FILE`",
    ),
];

/// The same error with a tip where there is one, and without a tip that leads astray. `words` are the command line.
pub fn with_tip(mut error: clap::Error, words: &[String]) -> clap::Error {
    let command = commands(words);
    let tip = match error.kind() {
        ErrorKind::InvalidSubcommand => {
            let written = text(&error, ContextKind::InvalidSubcommand);
            let group = command.first().filter(|first| **first != written);
            let tip = tip_in(&COMMANDS, group.unwrap_or(&""), &written);
            keep_if_like(
                &mut error,
                ContextKind::SuggestedSubcommand,
                &written,
                tip.is_some(),
            );
            tip
        }
        ErrorKind::UnknownArgument => {
            let written = text(&error, ContextKind::InvalidArg);
            let tip = match written.starts_with('-') {
                true => flag_tip(&command, &written),
                false => word_tip(&command, words, &written),
            };
            keep_if_like(
                &mut error,
                ContextKind::SuggestedArg,
                &written,
                tip.is_some(),
            );
            // That it could be written as a value helps nobody who meant a flag.
            error.remove(ContextKind::Suggested);
            tip
        }
        _ => None,
    };
    if let Some(tip) = tip {
        error.insert(
            ContextKind::Suggested,
            ContextValue::StyledStrs(vec![tip.into()]),
        );
    }
    error
}

/// The words before the first flag that name commands: `blob list`.
fn commands(words: &[String]) -> Vec<&str> {
    let words = words.iter().skip(1).map(String::as_str);
    words
        .take_while(|word| !word.starts_with('-'))
        .take(2)
        .collect()
}

fn text(error: &clap::Error, kind: ContextKind) -> String {
    match error.get(kind) {
        Some(ContextValue::String(text)) => text.clone(),
        _ => String::new(),
    }
}

/// Removes a suggestion if there is a better one, or if it is too unlike.
fn keep_if_like(error: &mut clap::Error, kind: ContextKind, written: &str, has_better: bool) {
    let word = |text: &str| text.trim_start_matches('-').to_owned();
    let is_like =
        |other: &String| strsim::jaro_winkler(&word(written), &word(other)) >= LEAST_LIKENESS;
    let is_kept = match error.get(kind) {
        Some(ContextValue::String(other)) => is_like(other),
        Some(ContextValue::Strings(others)) => others.iter().any(is_like),
        _ => false,
    };
    if has_better || !is_kept {
        error.remove(kind);
    }
}

fn flag_tip(command: &[&str], written: &str) -> Option<String> {
    let is_ttl = written == "--ttl" && matches!(command.first(), Some(&("incr" | "append")));
    if is_ttl {
        let tip = "the expiry of the entry stays; `pelton put KEY 0 --number --if-absent --ttl TIME` begins a number that expires";
        return Some(tip.into());
    }
    let first = command.first().copied().unwrap_or_default();
    tip_in(&FLAGS, first, written).or_else(|| tip_in(&FLAGS, "", written))
}

/// What a table says of a word in a group.
fn tip_in(table: &[(&str, &str, &str)], group: &str, written: &str) -> Option<String> {
    let found = (table.iter()).find(|(of, word, _)| *of == group && *word == written);
    found.map(|(_, _, tip)| (*tip).to_owned())
}

/// For a word where none belongs.
fn word_tip(command: &[&str], words: &[String], written: &str) -> Option<String> {
    let before = words
        .iter()
        .position(|word| word == written)?
        .checked_sub(1)?;
    let flag = &words[before];
    if ["--original-ports", "--tls-self-signed"].contains(&flag.as_str()) {
        return Some(format!("write {flag}={written}"));
    }
    match command {
        ["scan" | "ls" | "count" | "export", ..] => Some(format!(
            "`--prefix {written}` takes the keys that begin with it"
        )),
        ["blob", "list" | "ls"] => Some(format!(
            "`--prefix {written}` takes the names that begin with it"
        )),
        ["get" | "delete" | "del", ..] => {
            Some("one key at a time; `pelton batch` takes many operations, one a line".into())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::arguments::Arguments;

    fn refusal(line: &str) -> String {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        let error = Arguments::try_parse_from(&words).expect_err(line);
        with_tip(error, &words).to_string()
    }

    #[test]
    fn words_of_other_tools_are_answered_with_ours() {
        for (line, expected) in [
            ("pelton decr a", "incr KEY -1"),
            ("pelton flushall", "delete --all"),
            ("pelton stop", "SIGTERM"),
            ("pelton database delete x", "database drop NAME"),
            ("pelton blob rm x", "blob delete NAME"),
            ("pelton get k --json", "--output json"),
            ("pelton serve --port 5", "--listen HOST:PORT"),
            ("pelton get k --port 5", "--address HOST:PORT"),
            ("pelton load --rps 5", "--rate N"),
            ("pelton scan a", "--prefix a"),
            ("pelton blob list p", "--prefix p"),
            ("pelton get a b", "one key at a time"),
            ("pelton incr a --ttl 5s", "--if-absent --ttl"),
            (
                "pelton serve --original-ports 0.0.0.0",
                "write --original-ports=0.0.0.0",
            ),
            // What is nearly right is still told.
            ("pelton sever", "'serve'"),
            ("pelton serve --thread 3", "'--threads'"),
        ] {
            let message = refusal(line);
            assert!(message.contains(expected), "{line}: {message}");
        }
    }

    #[test]
    fn nothing_is_suggested_that_is_unlike() {
        for (line, wrong) in [
            ("pelton decr a", "'del'"),
            ("pelton cp a", "completions"),
            ("pelton flushall", "'ls'"),
            ("pelton get k --previous", "exists: '--version'"),
            ("pelton get k --jsno", "-- --jsno"),
            ("pelton load --header a", "exists: '--threads'"),
        ] {
            let message = refusal(line);
            assert!(!message.contains(wrong), "{line}: {message}");
        }
    }

    /// A tip names commands and flags that there are.
    #[test]
    fn tips_can_be_followed() {
        use clap::CommandFactory;
        let command = Arguments::command();
        for (_, _, tip) in COMMANDS {
            let Some((_, rest)) = tip.split_once("`pelton ") else {
                continue;
            };
            let word = rest.split([' ', '`']).next().unwrap_or_default();
            assert!(
                word == "--version" || command.find_subcommand(word).is_some(),
                "{tip}"
            );
        }
    }
}
