//! Shell completions and man pages, made from the command line's own table.

use std::fs;
use std::io::Write as _;
use std::path::Path;

use clap::{Command, CommandFactory};
use clap_complete::Shell;

use crate::arguments::Arguments;
use crate::arguments::OutputFormat;
use crate::exit::{Exit, Failure};
use crate::output::Output;

const NAME: &str = "pelton";

/// `pelton completions SHELL`
pub fn completions(shell: Shell) -> Result<Exit, Failure> {
    let script = completion(shell);
    let mut output = Output::new(OutputFormat::Text);
    output.line(script.trim_end())?;
    output.end()?;
    Ok(Exit::Done)
}

fn completion(shell: Shell) -> String {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Arguments::command(), NAME, &mut script);
    String::from_utf8(script)
        .expect("made of the names and texts of the command line, which are UTF-8")
}

/// `pelton man DIR`
pub fn man_pages(folder: &Path) -> Result<Exit, Failure> {
    let failed = |what: &Path, error: std::io::Error| {
        Failure::Failed(format!("cannot write {}: {error}", what.display()))
    };
    fs::create_dir_all(folder).map_err(|error| failed(folder, error))?;
    for (name, page) in pages() {
        let path = folder.join(name);
        let written = fs::File::create(&path).and_then(|mut file| file.write_all(&page));
        written.map_err(|error| failed(&path, error))?;
    }
    Ok(Exit::Done)
}

/// Name and content of each page: one for the program, and one for each command.
fn pages() -> Vec<(String, Vec<u8>)> {
    let mut command = Arguments::command().disable_help_subcommand(true);
    command.build();
    let mut pages = Vec::new();
    add_pages(&command, &mut pages);
    pages
}

fn add_pages(command: &Command, pages: &mut Vec<(String, Vec<u8>)>) {
    let name = command.get_display_name().unwrap_or(NAME).to_owned();
    let mut page = Vec::new();
    clap_mangen::Man::new(command.clone())
        .render(&mut page)
        .expect("a Vec takes what is written");
    pages.push((format!("{name}.1"), with_exit_status(page)));
    for below in command
        .get_subcommands()
        .filter(|below| !below.is_hide_set())
    {
        add_pages(below, pages);
    }
}

/// The same page, in which the table of exit codes has the heading of man-pages(7), and its lines
/// are not filled into a paragraph.
fn with_exit_status(page: Vec<u8>) -> Vec<u8> {
    const EXTRA: &str = ".SH EXTRA\n";
    let text = String::from_utf8(page).expect("made of texts that are UTF-8");
    let Some((before, rest)) = text.split_once(EXTRA) else {
        return text.into_bytes();
    };
    let (table, behind) = rest.split_at(rest.find(".SH ").unwrap_or(rest.len()));
    format!("{before}.SH \"EXIT STATUS\"\n.nf\n{table}.fi\n{behind}").into_bytes()
}

#[cfg(test)]
mod tests {
    use std::process::{Command as Process, Stdio};

    use clap::ValueEnum;

    use super::*;

    /// Names of all commands, such as `database create`.
    fn commands(command: &Command, above: &str, names: &mut Vec<String>) {
        for below in command.get_subcommands() {
            let name = format!("{above}{}", below.get_name());
            commands(below, &format!("{name} "), names);
            names.push(name);
        }
    }

    fn all_commands() -> Vec<String> {
        let mut names = Vec::new();
        commands(&Arguments::command(), "", &mut names);
        assert!(names.len() > 20, "{names:?}");
        names
    }

    #[test]
    fn every_command_and_flag_is_in_every_completion() {
        let command = Arguments::command();
        let serve = command.find_subcommand("serve").expect("it is a command");
        let flags: Vec<_> = serve
            .get_arguments()
            .filter_map(|argument| argument.get_long())
            .collect();
        for &shell in Shell::value_variants() {
            let script = completion(shell);
            for name in all_commands() {
                let last = name.rsplit(' ').next().expect("a word");
                assert!(script.contains(last), "{shell}: {name}");
            }
            for flag in &flags {
                assert!(script.contains(flag), "{shell}: --{flag}");
            }
        }
    }

    #[test]
    fn bash_takes_its_completion() {
        let mut bash = Process::new("bash");
        // `complete -p` fails if nothing is said about the program.
        bash.args(["--norc", "-c", "eval \"$(cat)\" && complete -p pelton"]);
        bash.stdin(Stdio::piped()).stdout(Stdio::piped());
        let Ok(mut bash) = bash.spawn() else {
            eprintln!("left out: there is no bash here");
            return;
        };
        let mut stdin = bash.stdin.take().expect("piped");
        stdin
            .write_all(completion(Shell::Bash).as_bytes())
            .expect("bash reads");
        drop(stdin);
        let answer = bash.wait_with_output().expect("bash ends");
        let said = String::from_utf8_lossy(&answer.stdout);
        assert!(answer.status.success() && said.contains("pelton"), "{said}");
    }

    #[test]
    fn every_command_has_a_man_page() {
        let pages = pages();
        let text = |name: &str| {
            let found = pages.iter().find(|(page, _)| page == name);
            let (_, page) = found.unwrap_or_else(|| panic!("there is no {name}"));
            String::from_utf8_lossy(page).into_owned()
        };
        for name in all_commands() {
            let page = text(&format!("pelton-{}.1", name.replace(' ', "-")));
            assert!(
                page.contains(".SH NAME") && page.contains(".SH SYNOPSIS"),
                "{name}"
            );
        }
        let program = text("pelton.1");
        let table = program.split_once(".SH \"EXIT STATUS\"\n.nf\n");
        let (before, table) = table.expect("the table of exit codes is not filled");
        assert!(!before.contains(".SH EXTRA"), "{program}");
        assert!(
            table.contains("\n  0    done\n") && table.contains("\n.fi\n"),
            "{table}"
        );
        let serve = text("pelton-serve.1");
        assert!(
            serve.contains("PELTON_LISTEN") && serve.contains("memory\\-limit"),
            "{serve}"
        );
        assert_eq!(pages.len(), all_commands().len() + 1);
    }
}
