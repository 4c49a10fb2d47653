//! Pages of docs/ that are made from the program's own tables, so that they stay true.
//! `UPDATE_DOCS=1 cargo test -p pelton pages` writes them anew.

mod limits;
mod rights;

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use clap::{Arg, Command, CommandFactory};

use crate::arguments::Arguments;

const CLI_HEAD: &str = "\
# The command line

This page is made from the program's own table of commands and flags; a test proves that it is up to
date. `pelton COMMAND --help` says the same.

## Settings and their order

Each setting of `pelton serve` can be given in three places. The stronger one counts:

1. a flag: `--max-value 2MiB`
2. an environment variable: `PELTON_MAX_VALUE=2MiB`
3. the TOML file named by `--config` or `PELTON_CONFIG`: `max-value = \"2MiB\"`
4. the default

A variable that begins with `PELTON_` and means nothing is named by `serve` and `config check`;
other commands name those that are nearly right, such as `PELTON_ADRESS`. A variable that is set to
nothing (`PELTON_ADDRESS=`) counts as one that is not set.

`pelton config print` shows each setting as it would be used, with the place it comes from. `pelton
config check` only checks.

## How values are written

- **Sizes**: bytes (`65536`, `4_000_000`), or with a unit: `64KiB`, `4MiB`, `2GiB` (powers of 1024),
  `4MB`, `2GB` (powers of 1000). `4G` is refused, since it could mean either.
- **Times**: `500ms`, `10s`, `2min` or `2m`, `1h`, `30d`, or several, the largest first: `1h30m`. A
  bare number is refused, since it could mean seconds or milliseconds.
- **Addresses**: `host:port`, `[ipv6]:port`, `unix:/path`. No URLs: nothing stands before the host
  and behind the port.
- **Keys** are bytes. `--key-encoding` says how they are written on the command line and in text
  output:

| `--key-encoding` | on the command line | in text output |
|---|---|---|
| `text` | as they are | escaped |
| `escape` | escaped | escaped |
| `hex`, `base64` | in that form | in that form |

**Escaped** means: a line end is `\\n`, a tab `\\t`, a carriage return `\\r`, a backslash `\\\\`;
`\\xNN`, with two hexadecimal digits, is a byte of any other character that is not printed, a byte
that is not UTF-8, or a blank at the beginning or the end. All else stands as it is. Values are
escaped in the same way where they are printed beside keys. So what `scan` and `ls` print can be
read line by line and given back, whatever is in the keys ([an
example](shell.md#any-key-in-a-script)).

## What is printed

Answers go to standard output, all else to standard error. With `--output json` each answer is one
JSON object on one line. Keys and values in it are text if they are UTF-8, else base64; the field
`key_encoding` or `value_encoding` says which: `text` or `base64`. Of a miss the object says so
(`\"found\":false`, `\"applied\":false`). [The fields of each command](json-output.md) have a page
of their own.

With `--output json` the error that ends a command with code 2, 3, 129, 130 or 143, or for which
code 1 has no object, is one JSON object on standard error:

    {\"error\":\"…\",\"address\":\"127.0.0.1:1978\",\"status\":\"NOT_FOUND\",\
    \"hint\":\"…\",\"exit_code\":3}

`error` says what happened, and to what; `hint` what to do, `address` which server it was, and
`status` the gRPC status that it gave, each where there is one; `exit_code` is that of the program.

## Exit codes

| code | meaning |
|---|---|
| 0 | done; a range without entries is an answer too (`scan`, `count`, `delete --prefix`) |
| 1 | a miss: what the command is about is not there, a database to be created is there already, or a condition was not met; with `status`: the server is not ready; with `self-check`: there is a problem; with `load`: calls failed, the result is void, or --rate was not reached |
| 2 | wrong usage: a flag, a variable, what stands in the configuration file, or a name that no blob, database or backup can have |
| 3 | it could not be done: the server was not reached, it refused, or a file could not be read or written; also if what the command works *with* is missing |
| 130 | interrupted by Ctrl-C (SIGINT): every command but `serve`, for which it is the way to end, with 0. The message says how far it came, and of a write that was sent that the server may have done it all the same; `load` prints what it has measured by then |
| 143 | the same by SIGTERM |
| 129 | the same by SIGHUP: its terminal has gone. Commands that may take long and `load` end as at Ctrl-C, unless `nohup` or the like has them ignore it |

What is missing, and what that means:

| missing | commands | code |
|---|---|---|
| a key | `get`, `delete`, and all with `--if-present`, `--if-version`, `--if-value` | 1 |
| a number: the value has not 8 bytes | `get --number`, `incr` | 1 |
| a blob | `download`, `blob stat`, `blob delete` | 1 |
| a database that is the object | `database drop`, `database convert` | 1 |
| a database to look in or write to (`--database`) | all others | 3 |
| a file or a folder | `put --file`, `batch`, `transact`, `import`, `upload`, `restore`, `log` | 3 |
| all content: standard input or a list is empty | `put`, `append`, `upload`, `batch`, `transact`, `import` | 2 |
| the server | all | 3 |
| the file of `--config`, of a certificate or of a key | `serve`, `config`, `--tls-…` | 3 |

When whoever reads the output goes away (`pelton scan | head`), the program ends quietly with 0. A
standard output that was closed (`>&-`) is the same to it as `/dev/null`, since nothing in the
process tells one from the other: what would have been printed is lost, with 0.

";

/// Flags that many commands share; they are described once.
const COMMON: [&str; 5] = ["address", "timeout", "output", "database", "key_encoding"];

/// docs/cli.md
fn cli_page() -> String {
    let mut page = CLI_HEAD.to_owned();
    let mut command = Arguments::command();
    command.build();
    page.push_str("## Common flags\n\nCommands that speak to a server share these flags.\n\n");
    let get = command.find_subcommand("get").expect("get is a command");
    describe_arguments(
        get.get_arguments().filter(|argument| is_common(argument)),
        &mut page,
    );
    describe_all(&command, "pelton", &mut page);
    page.truncate(page.trim_end().len());
    page.push('\n');
    page
}

fn describe_all(command: &Command, path: &str, page: &mut String) {
    for sub in command.get_subcommands() {
        if sub.get_name() == "help" {
            continue;
        }
        let path = format!("{path} {}", sub.get_name());
        // `pelton load` does something by itself, and has commands below it.
        if !sub.has_subcommands() || sub.get_name() == "load" {
            describe(sub, &path, page);
        }
        describe_all(sub, &path, page);
    }
}

fn describe(command: &Command, path: &str, page: &mut String) {
    let about = command
        .get_long_about()
        .or(command.get_about())
        .expect("every command is explained");
    let about = about.to_string();
    let about: Vec<String> = about.lines().map(|line| wrapped(line.split(' '))).collect();
    let about = about.join("\n");
    writeln!(page, "## {path}\n\n{about}\n").expect("a String takes what is written");
    let above = path.rsplit_once(' ').map_or(path, |(above, _)| above);
    let aliases: Vec<String> = (command.get_visible_aliases())
        .map(|alias| format!("`{above} {alias}`"))
        .collect();
    if !aliases.is_empty() {
        let aliases = aliases.join(", ");
        writeln!(page, "Also {aliases}.\n").expect("a String takes what is written");
    }
    if path.starts_with("pelton config ") {
        page.push_str("Takes all flags of [pelton serve](#pelton-serve).\n\n");
        return;
    }
    let own = |argument: &&Arg| {
        !is_common(argument) && !["version", "help"].contains(&argument.get_id().as_str())
    };
    if command.get_arguments().any(|argument| own(&argument)) {
        describe_arguments(command.get_arguments().filter(own), page);
    }
    let common = command
        .get_arguments()
        .filter(|argument| is_common(argument))
        .map(form);
    let common: Vec<String> = common.collect();
    if let Some((last, others)) = common.split_last() {
        let others = others.iter().map(|flag| format!("{flag},"));
        let words: Vec<String> = std::iter::once("[Common flags](#common-flags):".to_owned())
            .chain(others)
            .chain([format!("{last}.")])
            .collect();
        let list = wrapped(words.iter().map(String::as_str));
        writeln!(page, "{list}\n").expect("a String takes what is written");
    }
}

/// These words in lines of at most 100 columns, as all pages have.
fn wrapped<'a>(words: impl Iterator<Item = &'a str>) -> String {
    const COLUMNS: usize = 100;
    let (mut text, mut used) = (String::new(), 0);
    for word in words {
        let columns = word.chars().count();
        if used > 0 && used + 1 + columns > COLUMNS {
            text.push('\n');
            used = 0;
        } else if used > 0 {
            text.push(' ');
            used += 1;
        }
        text.push_str(word);
        used += columns;
    }
    text
}

fn is_common(argument: &Arg) -> bool {
    COMMON.contains(&argument.get_id().as_str())
}

fn describe_arguments<'a>(arguments: impl Iterator<Item = &'a Arg>, page: &mut String) {
    page.push_str("| argument | variable | default | meaning |\n|---|---|---|---|\n");
    for argument in arguments {
        let cells = [
            form(argument),
            variable(argument),
            default(argument),
            meaning(argument),
        ];
        let cells = cells.map(|cell| cell.replace('|', "\\|"));
        writeln!(page, "| {} |", cells.join(" | ")).expect("a String takes what is written");
    }
    page.push('\n');
}

/// `--flag VALUE` or `KEY`.
fn form(argument: &Arg) -> String {
    let takes_value = argument.get_action().takes_values();
    let names = argument
        .get_value_names()
        .filter(|_| takes_value)
        .unwrap_or_default();
    let value = names
        .iter()
        .map(|name| name.as_str())
        .collect::<Vec<_>>()
        .join(" ");
    match argument.get_long() {
        Some(long) => format!("`{}`", format!("--{long} {value}").trim_end()),
        None if argument.is_required_set() => format!("`{value}`"),
        None => format!("`[{value}]`"),
    }
}

fn variable(argument: &Arg) -> String {
    argument
        .get_env()
        .map_or(String::new(), |name| format!("`{}`", name.display()))
}

/// The default as clap knows it, or as the last bracket of the help says it where the program works
/// it out.
fn default(argument: &Arg) -> String {
    let known: Vec<_> = argument
        .get_default_values()
        .iter()
        .map(|value| value.display().to_string())
        .collect();
    let is_switch = !argument.get_action().takes_values();
    match told_default(&help(argument)) {
        Some((_, told, _)) => told.to_owned(),
        None if is_switch || known.is_empty() => String::new(),
        None if known == [""] => "empty".into(),
        None => format!("`{}`", known.join(",")),
    }
}

/// A help text around its last bracket with a default: before it, the default, behind it.
fn told_default(help: &str) -> Option<(&str, &str, &str)> {
    let (before, rest) = help.rsplit_once("[default: ")?;
    let (told, behind) = rest.split_once(']')?;
    Some((before.trim_end(), told, behind))
}

fn meaning(argument: &Arg) -> String {
    let help = help(argument);
    let told = told_default(&help);
    let mut text = told
        .map_or(help.clone(), |(before, _, behind)| {
            format!("{before}{behind}")
        })
        .trim()
        .replace("\n\n", ". ")
        .replace('\n', " ");
    let values = argument.get_possible_values();
    if !values.is_empty() && argument.get_action().takes_values() && argument.get_id() != "interop"
    {
        let values = values.iter().map(|value| match value.get_help() {
            Some(help) => format!("`{}` ({help})", value.get_name()),
            None => format!("`{}`", value.get_name()),
        });
        write!(text, ": {}", values.collect::<Vec<_>>().join(", "))
            .expect("a String takes what is written");
    }
    text
}

fn help(argument: &Arg) -> String {
    let help = argument.get_long_help().or(argument.get_help());
    help.expect("every argument is explained").to_string()
}

/// Compares a page with its file, or writes it if that was asked for.
fn check_page(name: &str, page: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../docs")
        .join(name);
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::write(&path, page).expect("docs/ is writable");
    }
    let there = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        there == page,
        "docs/{name} is not up to date: run UPDATE_DOCS=1 cargo test -p pelton pages"
    );
}

#[test]
fn cli_page_is_up_to_date() {
    check_page("cli.md", &cli_page());
}

#[test]
fn limits_page_is_up_to_date() {
    check_page("limits.md", &limits::page());
}

#[test]
fn method_rights_page_is_up_to_date() {
    check_page("method-rights.md", &rights::page());
}
