//! What to write instead of words that other tools have, where the closest word of ours would be
//! the wrong one.

use clap::error::{ContextKind, ContextValue, ErrorKind};

use super::other_tools::{COMMANDS, FLAGS};

/// A word of ours that is less like the one that was written is no tip: for `decr` it would be
/// `del`.
const LEAST_LIKENESS: f64 = 0.85;

/// The same error with a tip where there is one, and without a tip that leads astray. `words` are
/// the command line.
pub fn with_tip(mut error: clap::Error, words: &[String]) -> clap::Error {
    let line = RefusedLine::new(words);
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
struct RefusedLine<'a> {
    words: &'a [String],
    /// The words before the first flag that may name commands: `blob list`.
    command: Vec<&'a str>,
    /// The command that these words name, as far as there is one.
    known: clap::Command,
}

impl<'a> RefusedLine<'a> {
    fn new(words: &'a [String]) -> RefusedLine<'a> {
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
        RefusedLine {
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
fn address_tip(line: &RefusedLine<'_>, written: &str) -> Option<String> {
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
fn word_tip(line: &RefusedLine<'_>, written: &str) -> Option<String> {
    let place = line.words.iter().position(|word| word == written)?;
    let flag = &line.words[place.checked_sub(1)?];
    let takes_equals_sign = [
        "--original-ports",
        "--tls-self-signed",
        "--interop",
        "--discard-uploads",
    ];
    if takes_equals_sign.contains(&flag.as_str()) {
        return Some(format!("write {flag}={written}"));
    }
    match line.command[..] {
        ["scan" | "ls" | "count" | "export" | "watch", ..] => Some(prefix_tip("keys", written)),
        ["blob", "list" | "ls"] => Some(prefix_tip("names", written)),
        ["get" | "delete" | "del", ..] => {
            Some("one key at a time; `pelton batch` takes many operations, one a line".into())
        }
        ["put" | "set" | "append", ..] => Some(
            "a key or value of several words stands in quotes: `pelton put KEY 'some words'`"
                .into(),
        ),
        ["serve" | "config", ..] if written.ends_with(".toml") => {
            Some(format!("write --config {}", quoted(written)))
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
    fn words_for_tokens_and_roles_are_answered_with_ours() {
        for (line, expected) in [
            ("pelton role create x", "role set NAME"),
            ("pelton role delete x", "role drop NAME"),
            ("pelton token delete x", "token revoke NAME"),
            ("pelton token update x", "`pelton role set` changes"),
            ("pelton tokens list", "token list"),
        ] {
            let message = refusal(line);
            assert!(message.contains(expected), "{line}: {message}");
        }
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
            ("pelton serve --tls-client-ca f", "--client-ca FILE"),
            ("pelton serve --tls-ca f", "--client-ca FILE"),
            ("pelton get k --tls-client-ca f", "--tls-ca FILE"),
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
            ("pelton watch a", "--prefix a"),
            ("pelton subscribe a", "`pelton watch` prints"),
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
    fn a_word_that_is_like_another_thing_leads_to_the_right_one() {
        for (line, expected) in [
            ("pelton put k --value 5", "pelton put KEY VALUE"),
            ("pelton put k v --nx", "--if-absent"),
            ("pelton put k v --ex 10", "--ttl TIME"),
            ("pelton put hello world some value", "stands in quotes"),
            ("pelton setnx a b", "--if-absent"),
            ("pelton setex a 1 b", "--ttl TIME"),
            ("pelton getdel a", "delete KEY --previous"),
            ("pelton get --prefix k", "scan --prefix TEXT"),
            ("pelton get a -n 1", "--database NAME"),
            ("pelton load -n 1", "--calls N"),
            ("pelton scan --match a", "--prefix TEXT"),
            ("pelton incr n --by 3", "pelton incr KEY 3"),
            ("pelton serve --bind 0.0.0.0", "--listen HOST:PORT"),
            ("pelton serve pelton.toml", "write --config pelton.toml"),
            ("pelton config check a.toml", "write --config a.toml"),
            ("pelton serve --interop true", "write --interop=true"),
            ("pelton stat x", "pelton blob stat NAME"),
            ("pelton db list", "pelton database list"),
            ("pelton database show x", "pelton database list"),
            ("pelton config get x", "pelton config print"),
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
            ("pelton put k --value 5", "--if-value"),
            ("pelton setnx a b", "'set'"),
            ("pelton getset a b", "'get'"),
            ("pelton hget a b", "'get'"),
            ("pelton serve --bind 0.0.0.0", "'--kind'"),
            ("pelton stat x", "'status'"),
            ("pelton get a -n 1", "-- -n"),
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
