//! Texts of peers and of files, as a terminal may show them.

/// The text with a question mark for each control character: a terminal would take them for
/// commands, and a line end for the end of what is shown.
pub(crate) fn without_controls(text: &str) -> String {
    let shown = |c: char| if c.is_control() { '?' } else { c };
    text.chars().map(shown).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_would_take_for_a_command_is_not_shown() {
        assert_eq!(without_controls("a\u{1b}[2Jb\nc\u{9b}"), "a?[2Jb?c?");
        assert_eq!(without_controls("Grüße 🦀"), "Grüße 🦀");
    }
}
