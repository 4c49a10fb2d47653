//! Writes a source file with its mutants, each behind a switch.

use std::ops::Range;

use crate::mutant::{Edit, Mutant};

/// The path of the function that says whether a mutant is switched on.
const SWITCH: &str = "crate::mutation_switch::on";

/// The module with that function, appended to the crate's root.
pub const SWITCH_MODULE: &str = include_str!("switch.txt");

/// Where a mutant stands in the file that was written.
#[derive(Debug)]
pub struct Placed {
    pub number: usize,
    /// The bytes that were written for it.
    pub range: Range<usize>,
    /// The same with the original expression, whose types and borrows it may change.
    pub whole: Range<usize>,
}

/// A file with its mutants.
pub struct Rendered {
    pub text: String,
    pub placed: Vec<Placed>,
}

/// Writes a file with mutants, given with their numbers. An expression that contains another one
/// with a mutant keeps both: a mutant has the original text inside, and only what is not mutated
/// has the inner switches.
pub fn render(text: &str, mutants: &[(usize, &Mutant)]) -> Rendered {
    let mut sorted = mutants.to_vec();
    // The outer of two that begin together comes first; an insertion before both.
    sorted.sort_by_key(|(number, mutant)| {
        let Range { start, end } = mutant.range;
        (
            start,
            if start == end { 0 } else { usize::MAX - end },
            *number,
        )
    });
    let mut rendered = Rendered {
        text: String::with_capacity(text.len() * 2),
        placed: Vec::new(),
    };
    part(text, 0..text.len(), &sorted, &mut rendered);
    rendered
}

fn part(text: &str, range: Range<usize>, mutants: &[(usize, &Mutant)], out: &mut Rendered) {
    let mut at = range.start;
    let mut rest = mutants;
    while let Some(&(_, first)) = rest.first() {
        let of_first = |other: &Mutant| other.range == first.range;
        let together = rest.iter().take_while(|(_, other)| of_first(other)).count();
        let (group, others) = rest.split_at(together);
        out.text.push_str(&text[at..first.range.start]);
        at = first.range.end;
        let inside = others
            .iter()
            .take_while(|(_, other)| other.range.start < at)
            .count();
        let (inner, others) = others.split_at(inside);
        rest = others;
        if first.range.is_empty() {
            insertions(group, out);
        } else {
            replacements(text, group, inner, out);
        }
    }
    out.text.push_str(&text[at..range.end]);
}

fn insertions(group: &[(usize, &Mutant)], out: &mut Rendered) {
    for (number, mutant) in group {
        let inserted = match &mutant.edit {
            Edit::Return(value) => format!(" if {SWITCH}({number}) {{ return {value}; }}"),
            Edit::NoMatch => format!(" if !{SWITCH}({number})"),
            Edit::Replace(_) => continue,
        };
        let start = out.text.len();
        out.text.push_str(&inserted);
        let range = start..out.text.len();
        out.placed.push(Placed {
            number: *number,
            range: range.clone(),
            whole: range,
        });
    }
}

fn replacements(
    text: &str,
    group: &[(usize, &Mutant)],
    inner: &[(usize, &Mutant)],
    out: &mut Rendered,
) {
    let (begin, first_placed) = (out.text.len(), out.placed.len());
    out.text.push('(');
    for (number, mutant) in group {
        let Edit::Replace(by) = &mutant.edit else {
            continue;
        };
        let start = out.text.len();
        out.text
            .push_str(&format!("if {SWITCH}({number}) {{ ({by}) }} else "));
        let range = start..out.text.len();
        out.placed.push(Placed {
            number: *number,
            range: range.clone(),
            whole: range,
        });
    }
    let own = first_placed..out.placed.len();
    out.text.push_str("{ (");
    part(text, group[0].1.range.clone(), inner, out);
    out.text.push_str(") })");
    let whole = begin..out.text.len();
    for placed in &mut out.placed[own] {
        placed.whole = whole.clone();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    use crate::find::{self, Source};

    fn rendered(text: &str) -> (Rendered, Vec<Mutant>) {
        let syntax = syn::parse_file(text).unwrap();
        let mutants = find::mutants(&Source {
            file: Path::new("a.rs"),
            text,
            syntax: &syntax,
        });
        let numbered: Vec<(usize, &Mutant)> = mutants.iter().enumerate().collect();
        (render(text, &numbered), mutants)
    }

    #[test]
    fn every_mutant_is_placed_once_and_the_result_is_a_source_file() {
        let text = "fn f(a: u8, b: &[u8]) -> bool {
            match a {
                1 | 2 => a + 1 * 2 < 3 && !b.is_empty() || a == 0,
                4 if a > 3 => false,
                _ => -(a as i8) > -1,
            }
        }";
        let (rendered, mutants) = rendered(text);
        let mut numbers: Vec<usize> = rendered.placed.iter().map(|placed| placed.number).collect();
        numbers.sort_unstable();
        assert_eq!(numbers, (0..mutants.len()).collect::<Vec<_>>());
        syn::parse_file(&rendered.text).unwrap();
        for placed in &rendered.placed {
            let own = format!("{SWITCH}({})", placed.number);
            assert_eq!(rendered.text[placed.range.clone()].matches(&own).count(), 1);
        }
    }

    #[test]
    fn a_file_without_mutants_stays_as_it_is() {
        let text = "const A: u8 = 1 + 2;\n";
        assert_eq!(render(text, &[]).text, text);
        assert_eq!(rendered(text).0.text, text);
    }

    #[test]
    fn only_the_original_has_the_inner_switches() {
        let (rendered, _) = rendered("fn f(a: bool, b: bool) { let _ = a && !b; }");
        let outer = rendered
            .text
            .find("(a) || (!b)")
            .expect("the mutant has the original text");
        let inner = rendered.text.find("{ (b) }").expect("the inner mutant");
        assert!(outer < inner);
    }
}
