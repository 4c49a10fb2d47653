//! docs/limits.md: every constant of every `limits` module, with its value and its reason.
//!
//! The page is read from the source files: the comment of a constant is the reason that the page
//! gives, so there is one place for both.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

/// The crates from the network inwards, their files, and what they are in a word.
const MODULES: &[(&str, &str, &str)] = &[
    ("net", "limits.rs", "Sockets and event loops"),
    ("wire", "limits.rs", "HTTP/2, HPACK and gRPC"),
    ("protobuf", "limits.rs", "Protobuf messages"),
    ("server", "limits.rs", "Dispatch, admission and draining"),
    ("service", "limits.rs", "What each call may ask for"),
    ("store", "limits.rs", "Keys, values and commits"),
    ("store", "remote_kind/limits.rs", "Databases elsewhere"),
    ("cassandra", "limits.rs", "Cassandra and ScyllaDB"),
    ("wal", "limits.rs", "The log"),
    ("store", "snapshot/limits.rs", "Snapshots"),
    ("store", "tree/limits.rs", "Databases on disk"),
    ("store", "backup/limits.rs", "Backups"),
    ("store", "blob/limits.rs", "Blobs"),
    ("client", "limits.rs", "The client"),
    ("client", "spans/limits.rs", "Spans that are exported"),
    ("python", "limits.rs", "The channel for Python"),
    ("lab", "limits.rs", "The load generator"),
    ("lab", "tap/limits.rs", "The tap"),
    ("lab", "sweep/limits.rs", "Sweeps and comparisons"),
    ("lab", "diagnose/limits.rs", "Diagnosis"),
    ("lab", "agent/limits.rs", "The agent of the lab"),
    ("pelton", "limits.rs", "The program"),
];

const HEAD: &str = "\
# Limits

Everything that could grow has a bound with a name. This page lists all of them, with their values
and reasons. It is made from the `limits` modules of the crates; a test proves that it is up to
date. Those with a flag of `pelton serve` say what its default is.
";

/// One constant.
#[derive(Debug, PartialEq)]
struct LimitConstant {
    name: String,
    value: String,
    reason: String,
}

pub fn page() -> String {
    let mut page = HEAD.to_owned();
    for (name, file, title) in MODULES {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../{name}/src/{file}"));
        let source = fs::read_to_string(&path).expect("every crate has a limits module");
        let limits = read(&source);
        assert!(!limits.is_empty(), "{name} has limits");
        write!(
            page,
            "\n## {title} (`{name}`)\n\n| limit | value | reason |\n|---|---|---|\n"
        )
        .expect("a String takes what is written");
        for LimitConstant {
            name,
            value,
            reason,
        } in limits
        {
            writeln!(page, "| `{name}` | {value} | {reason} |")
                .expect("a String takes what is written");
        }
    }
    page
}

/// All constants of a source file with the comments above them.
fn read(source: &str) -> Vec<LimitConstant> {
    let mut limits: Vec<LimitConstant> = Vec::new();
    let mut reason = String::new();
    let mut declaration = String::new();
    for line in source.lines().map(str::trim) {
        if let Some(comment) = line.strip_prefix("///") {
            let gap = if reason.is_empty() { "" } else { " " };
            write!(reason, "{gap}{}", comment.trim()).expect("a String takes what is written");
            continue;
        }
        let begins = ["pub const ", "pub(crate) const "]
            .iter()
            .find_map(|start| line.strip_prefix(start));
        match begins {
            Some(rest) if !rest.starts_with("fn ") => declaration = rest.to_owned(),
            _ if !declaration.is_empty() => {
                write!(declaration, " {line}").expect("a String takes what is written")
            }
            _ => reason.clear(),
        }
        if declaration.ends_with(';') {
            let limit = limit(
                &std::mem::take(&mut declaration),
                &std::mem::take(&mut reason),
                &limits,
            );
            limits.push(limit);
        }
    }
    limits
}

/// `NAME: usize = 64 << 10;`
fn limit(declaration: &str, reason: &str, known: &[LimitConstant]) -> LimitConstant {
    let (head, expression) = declaration.split_once('=').expect("a constant has a value");
    let name = head
        .split(':')
        .next()
        .expect("a constant has a name")
        .trim();
    assert!(!reason.is_empty(), "{name} gives a reason");
    let expression = expression.trim().trim_end_matches(';');
    // Links between items mean nothing on a page.
    let reason = reason
        .replace("[`", "`")
        .replace("`]", "`")
        .replace("crate::", "")
        .replace('|', "\\|");
    LimitConstant {
        name: name.into(),
        value: value(expression, known),
        reason,
    }
}

/// The value of an expression for people; what is not a number of our small language stands as it
/// is.
fn value(expression: &str, known: &[LimitConstant]) -> String {
    if let Some(list) = expression
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'))
    {
        return list
            .split(',')
            .map(|item| value(item.trim(), known))
            .collect::<Vec<_>>()
            .join(", ");
    }
    for (constructor, unit) in [
        ("Duration::from_secs(", "s"),
        ("Duration::from_millis(", "ms"),
    ] {
        if let Some(number) = expression
            .strip_prefix(constructor)
            .and_then(|rest| rest.strip_suffix(')'))
        {
            return format!("{} {unit}", value(number, known));
        }
    }
    if let Some(other) = known.iter().find(|limit| limit.name == expression) {
        return other.value.clone();
    }
    evaluate(expression).map_or_else(|| format!("`{expression}`"), grouped)
}

/// Sums of products of shifted numbers, without brackets but those around a whole summand: what
/// limits are written in.
fn evaluate(expression: &str) -> Option<u64> {
    let sum = |text: &str| text.split(" + ").map(product).sum::<Option<u64>>();
    sum(expression)
}

fn product(text: &str) -> Option<u64> {
    let text = text.trim().trim_start_matches('(').trim_end_matches(')');
    text.split('*')
        .map(|factor| shifted(factor.trim()))
        .product()
}

fn shifted(text: &str) -> Option<u64> {
    let number = |text: &str| text.trim().replace('_', "").parse::<u64>().ok();
    match text.split_once("<<") {
        Some((value, bits)) => number(value)?.checked_shl(u32::try_from(number(bits)?).ok()?),
        None => number(text),
    }
}

/// `65 536`, and for what is a round number of bytes `67 108 864 (64 Mi)`.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let groups: Vec<&str> = digits
        .as_bytes()
        .rchunks(3)
        .rev()
        .map(|group| str::from_utf8(group).expect("digits are ASCII"))
        .collect();
    let text = groups.join("\u{a0}");
    match number {
        _ if number >= 1 << 30 && number.is_multiple_of(1 << 30) => {
            format!("{text} ({} Gi)", number >> 30)
        }
        _ if number >= 1 << 20 && number.is_multiple_of(1 << 20) => {
            format!("{text} ({} Mi)", number >> 20)
        }
        _ if number >= 1 << 14 && number.is_multiple_of(1 << 10) => {
            format!("{text} ({} Ki)", number >> 10)
        }
        _ => text,
    }
}

#[test]
fn constants_are_read_with_their_reasons() {
    let source = "\
        //! The module.\n\
        use std::time::Duration;\n\
        /// The first,\n/// on two lines.\n\
        pub const FIRST_BYTES: usize = 64 << 10;\n\
        /// A list.\n\
        pub const LIST: [usize; 2] =\n    [4 * 1024, FIRST_BYTES];\n\
        /// A function is no limit.\n\
        pub const fn function() -> u64 { 1 }\n\
        /// A time.\n\
        pub const WAIT: Duration = Duration::from_millis(20);\n\
        /// A sum.\n\
        pub const SUM: usize = (1 << 30) + (1 << 20);\n\
        /// Something else.\n\
        pub const OTHER: f64 = 0.5;\n";
    let limits = read(source);
    let found: Vec<(&str, &str, &str)> = limits
        .iter()
        .map(|limit| (&*limit.name, &*limit.value, &*limit.reason))
        .collect();
    let expected = [
        (
            "FIRST_BYTES",
            "65\u{a0}536 (64 Ki)",
            "The first, on two lines.",
        ),
        ("LIST", "4\u{a0}096, 65\u{a0}536 (64 Ki)", "A list."),
        ("WAIT", "20 ms", "A time."),
        ("SUM", "1\u{a0}074\u{a0}790\u{a0}400 (1025 Mi)", "A sum."),
        ("OTHER", "`0.5`", "Something else."),
    ];
    assert_eq!(found, expected);
}
