//! What to write instead of words that other tools have, where the closest word of ours would be
//! the wrong one.

use clap::error::{ContextKind, ContextValue, ErrorKind};

/// A word of ours that is less like the one that was written is no tip: for `decr` it would be
/// `del`.
const LEAST_LIKENESS: f64 = 0.85;

/// Commands of other tools, and what does here what they do there. The first word is that of a
/// group of commands.
const COMMANDS: &[(&str, &str, &str)] = &[
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
    ("blob", "get", "`pelton download NAME` fetches a blob"),
    (
        "blob",
        "cat",
        "`pelton download NAME --to -` writes a blob to standard output",
    ),
    (
        "blob",
        "put",
        "`pelton upload FILE` stores a file as a blob",
    ),
    (
        "database",
        "rename",
        "a database keeps its name; `pelton export` and `pelton import` copy its entries",
    ),
    (
        "",
        "watch",
        "Watch, a feed of changes, is not there yet; `pelton scan` reads what is there",
    ),
    (
        "",
        "subscribe",
        "Watch, a feed of changes, is not there yet; `pelton scan` reads what is there",
    ),
    (
        "",
        "metrics",
        "`pelton serve --metrics-listen PORT` serves metrics for Prometheus",
    ),
    (
        "",
        "shell",
        "there is no interactive shell; each command does one thing: `pelton --help` lists them",
    ),
];

/// Flags of other tools. The first word is the command, if it means something only there.
const FLAGS: &[(&str, &str, &str)] = &[
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
    (
        "load",
        "--requests",
        "`--calls N` says how many calls are made",
    ),
    ("load", "-n", "`--calls N` says how many calls are made"),
    ("serve", "--dir", "`--data DIR` names the data folder"),
    ("serve", "--folder", "`--data DIR` names the data folder"),
    ("serve", "--directory", "`--data DIR` names the data folder"),
    ("serve", "--data-dir", "`--data DIR` names the data folder"),
    ("serve", "-d", "`--data DIR` names the data folder"),
    (
        "database drop",
        "--yes",
        "`--with-content` removes a database with what is in it",
    ),
    (
        "database drop",
        "-y",
        "`--with-content` removes a database with what is in it",
    ),
    (
        "database drop",
        "--force",
        "`--with-content` removes a database with what is in it",
    ),
    (
        "database drop",
        "-f",
        "`--with-content` removes a database with what is in it",
    ),
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

/// The same error with a tip where there is one, and without a tip that leads astray. `words` are
/// the command line.
pub fn with_tip(mut error: clap::Error, words: &[String]) -> clap::Error {
    let line = Line::new(words);
    let tip = match error.kind() {
        ErrorKind::InvalidSubcommand => {
            let written = text(&error, ContextKind::InvalidSubcommand);
            let group = line.command.first().filter(|first| **first != written);
            let lower = written.to_lowercase();
            let tip = tip_in(COMMANDS, group.unwrap_or(&""), &lower)
                .or_else(|| address_tip(&line, &written));
            error.remove(ContextKind::SuggestedSubcommand);
            let known = line.known.get_subcommands();
            let known: Vec<String> = known
                .flat_map(|one| {
                    std::iter::once(one.get_name())
                        .chain(one.get_visible_aliases())
                        .map(str::to_owned)
                        .collect::<Vec<_>>()
                })
                .collect();
            if tip.is_none()
                && let Some(like) = word_like(&lower, known.iter().map(String::as_str))
            {
                let like = ContextValue::Strings(vec![like.to_owned()]);
                error.insert(ContextKind::SuggestedSubcommand, like);
            }
            tip
        }
        ErrorKind::UnknownArgument => {
            let written = text(&error, ContextKind::InvalidArg);
            let tip = match written.starts_with('-') {
                true => line
                    .flag_before_command(&written)
                    .or_else(|| flag_tip(&line.command, &written))
                    .or_else(|| line.word_with_dash(&written)),
                false => word_tip(&line, &written),
            };
            let was_like = keep_if_like(
                &mut error,
                ContextKind::SuggestedArg,
                &written,
                tip.is_some(),
            );
            if !was_like {
                // Else it names the flag that was suggested.
                error.insert(ContextKind::Usage, ContextValue::StyledStr(line.usage()));
            }
            tip
        }
        ErrorKind::InvalidValue => {
            let written = text(&error, ContextKind::InvalidValue);
            keep_if_like(&mut error, ContextKind::SuggestedValue, &written, false);
            return error;
        }
        _ => return error,
    };
    // That it could be written as a value helps nobody who meant a flag, and an empty list is
    // printed as empty lines.
    error.remove(ContextKind::Suggested);
    if let Some(tip) = tip {
        error.insert(
            ContextKind::Suggested,
            ContextValue::StyledStrs(vec![tip.into()]),
        );
    }
    error
}

/// Returns the one of `known` words that is most like one that was written, if one is: a slip or
/// two of the finger.
pub fn word_like<'a>(written: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let slips = |one: &str| strsim::damerau_levenshtein(written, one);
    let likeness = |one: &str| strsim::jaro_winkler(written, one);
    let is_like = |one: &&str| {
        let allowed = usize::from(written.len() > 2);
        slips(one) <= allowed || likeness(one) >= LEAST_LIKENESS
    };
    known.into_iter().filter(is_like).min_by(|one, other| {
        slips(one)
            .cmp(&slips(other))
            .then(likeness(other).total_cmp(&likeness(one)))
    })
}

/// A command line that was refused.
struct Line<'a> {
    words: &'a [String],
    /// The words before the first flag that may name commands: `blob list`.
    command: Vec<&'a str>,
    /// The command that these words name, as far as there is one.
    known: clap::Command,
}

impl<'a> Line<'a> {
    fn new(words: &'a [String]) -> Line<'a> {
        let command: Vec<&str> = (words.iter().skip(1).map(String::as_str))
            .take_while(|word| !word.starts_with('-'))
            .take(2)
            .collect();
        let mut known = super::command();
        known.build();
        for word in &command {
            match known.find_subcommand(word) {
                Some(found) => known = found.clone(),
                None => break,
            }
        }
        Line {
            words,
            command,
            known,
        }
    }

    fn usage(&self) -> clap::builder::StyledStr {
        self.known.clone().render_usage()
    }

    /// What to write instead of a flag in front of the command that has it.
    fn flag_before_command(&self, written: &str) -> Option<String> {
        if !self.command.is_empty() {
            return None;
        }
        let mut command = &self.known;
        let begin = (1..self.words.len())
            .find(|&index| command.find_subcommand(&self.words[index]).is_some())?;
        let mut end = begin;
        while let Some(found) = (self.words.get(end)).and_then(|word| command.find_subcommand(word))
        {
            command = found;
            end += 1;
        }
        let name = written.trim_start_matches('-');
        let has_flag = command.get_arguments().any(|one| {
            let short = one.get_short().map(String::from);
            one.get_long() == Some(name) || short.as_deref() == Some(name)
        });
        let line: Vec<String> = [
            &self.words[begin..end],
            &self.words[1..begin],
            &self.words[end..],
        ]
        .concat()
        .iter()
        .map(|word| quoted(word))
        .collect();
        has_flag.then(|| format!("flags go behind the command: `pelton {}`", line.join(" ")))
    }

    /// What to write where a key, a value or a name begins with a dash.
    fn word_with_dash(&self, written: &str) -> Option<String> {
        let first = self.command.first()?;
        let word = self.words.iter().find(|word| word.starts_with(written))?;
        let is_flag = word.starts_with("--") || self.known.get_positionals().next().is_none();
        if is_flag {
            return None;
        }
        let what = match *first {
            "upload" => "a file whose name",
            "download" | "blob" | "database" => "a name that",
            "echo" => "a text that",
            _ => "a key or value that",
        };
        Some(format!(
            "{what} begins with a dash stands behind `--`, and flags stand before it: `pelton {} \
             -- {}`",
            first,
            quoted(word)
        ))
    }
}

/// A word as a shell reads it.
pub fn quoted(word: &str) -> String {
    let is_plain = |one: char| one.is_alphanumeric() || "-_./:=@%+,".contains(one);
    match !word.is_empty() && word.chars().all(is_plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    }
}

fn text(error: &clap::Error, kind: ContextKind) -> String {
    match error.get(kind) {
        Some(ContextValue::String(text)) => text.clone(),
        _ => String::new(),
    }
}

/// Removes a suggestion if there is a better one, or if it is too unlike. Returns whether it is
/// there.
fn keep_if_like(
    error: &mut clap::Error,
    kind: ContextKind,
    written: &str,
    has_better: bool,
) -> bool {
    let word = |text: &str| text.trim_start_matches('-').to_owned();
    let is_like = |other: &String| word_like(&word(written), [word(other).as_str()]).is_some();
    let is_kept = match error.get(kind) {
        Some(ContextValue::String(other)) => is_like(other),
        Some(ContextValue::Strings(others)) => others.iter().any(is_like),
        _ => false,
    };
    let is_kept = is_kept && !has_better;
    if !is_kept {
        error.remove(kind);
    }
    is_kept
}

fn flag_tip(command: &[&str], written: &str) -> Option<String> {
    if written == "--ttl" {
        let tip = match command.first() {
            Some(&"incr") => {
                "the expiry of the entry stays; `pelton put KEY 0 --number --if-absent --ttl TIME` \
                 begins a number that expires"
            }
            Some(&"append") => {
                "the expiry of the entry stays; `pelton put KEY VALUE --if-absent --ttl TIME` \
                 begins a value that expires"
            }
            _ => return None,
        };
        return Some(tip.into());
    }
    let both = command.join(" ");
    let first = command.first().copied().unwrap_or_default();
    [both.as_str(), first, ""]
        .into_iter()
        .find_map(|group| tip_in(FLAGS, group, written))
}

/// An address where none belongs.
fn address_tip(line: &Line<'_>, written: &str) -> Option<String> {
    written.parse::<net::Address>().ok()?;
    let flag = match line.command[..] {
        ["serve", ..] => "--listen",
        ["load" | "status" | "snapshot", ..] | ["database", "list"] => "--address",
        _ => return None,
    };
    Some(format!("write {flag} {written}"))
}

/// What a table says of a word in a group.
fn tip_in(table: &[(&str, &str, &str)], group: &str, written: &str) -> Option<String> {
    let found = (table.iter()).find(|(of, word, _)| *of == group && *word == written);
    found.map(|(_, _, tip)| (*tip).to_owned())
}

/// For a word where none belongs.
fn word_tip(line: &Line<'_>, written: &str) -> Option<String> {
    let place = line.words.iter().position(|word| word == written)?;
    let flag = &line.words[place.checked_sub(1)?];
    if ["--original-ports", "--tls-self-signed"].contains(&flag.as_str()) {
        return Some(format!("write {flag}={written}"));
    }
    match line.command[..] {
        ["scan" | "ls" | "count" | "export", ..] => Some(prefix_tip("keys", written)),
        ["blob", "list" | "ls"] => Some(prefix_tip("names", written)),
        ["get" | "delete" | "del", ..] => {
            Some("one key at a time; `pelton batch` takes many operations, one a line".into())
        }
        _ => address_tip(line, written),
    }
}

/// For the beginning of keys or names that was written as a pattern or without its flag.
fn prefix_tip(what: &str, written: &str) -> String {
    match written.split_once(['*', '?']) {
        None => format!(
            "`--prefix {}` takes the {what} that begin with it",
            quoted(written)
        ),
        Some(("", _)) => format!("there are no wildcards; without a word all {what} are taken"),
        Some((before, _)) => format!(
            "there are no wildcards; `--prefix {}` takes the {what} that begin with it",
            quoted(before)
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(line: &str) -> String {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        let error = crate::arguments::command()
            .try_get_matches_from(&words)
            .expect_err(line);
        let message = with_tip(error, &words).to_string();
        assert!(
            !message.contains("\n\n\n"),
            "{line}: empty lines\n{message}"
        );
        message
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
            ("pelton scan city/*", "no wildcards; `--prefix city/` takes"),
            ("pelton ls a?c", "no wildcards; `--prefix a` takes"),
            ("pelton count *", "no wildcards; without a word all keys"),
            (
                "pelton append a b --ttl 1h",
                "put KEY VALUE --if-absent --ttl",
            ),
            ("pelton watch a", "not there yet"),
            ("pelton metrics", "--metrics-listen"),
            ("pelton database rename a b", "keeps its name"),
            ("pelton database drop x --yes", "--with-content"),
            ("pelton database drop x --force", "--with-content"),
            ("pelton load --requests 100", "--calls N"),
            (
                "pelton load 127.0.0.1:1978",
                "write --address 127.0.0.1:1978",
            ),
            (
                "pelton status localhost:1978",
                "write --address localhost:1978",
            ),
            ("pelton serve 0.0.0.0:1978", "write --listen 0.0.0.0:1978"),
            ("pelton blob get x", "pelton download NAME"),
            ("pelton serve --dir x", "--data DIR"),
            ("pelton put -x v", "`pelton put -- -x`"),
            ("pelton get -x", "`pelton get -- -x`"),
            (
                "pelton --address h:1 get a",
                "behind the command: `pelton get --address h:1 a`",
            ),
            (
                "pelton --output=json blob list --prefix a",
                "behind the command: `pelton blob list --output=json --prefix a`",
            ),
            // What is nearly right is still told.
            ("pelton gte a", "'get'"),
            ("pelton GET a", "'get'"),
            ("pelton KEYS a", "pelton ls --prefix"),
            ("pelton blob lst", "'list'"),
            ("pelton sttaus", "'status'"),
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
            ("pelton serve --dir x", "--discard-uploads"),
            ("pelton watch a", "'batch'"),
            ("pelton nonsense", "tip"),
            ("pelton database nonsense", "tip"),
            ("pelton completions tcsh", "'zsh'"),
            ("pelton --wrong get a", "behind the command"),
        ] {
            let message = refusal(line);
            assert!(!message.contains(wrong), "{line}: {message}");
        }
    }

    /// A tip names commands and flags that there are.
    #[test]
    fn tips_can_be_followed() {
        let command = crate::arguments::command();
        for (_, _, tip) in COMMANDS {
            let Some((_, rest)) = tip.split_once("`pelton ") else {
                continue;
            };
            let word = rest.split([' ', '`']).next().unwrap_or_default();
            assert!(
                ["--version", "--help"].contains(&word) || command.find_subcommand(word).is_some(),
                "{tip}"
            );
        }
    }
}
