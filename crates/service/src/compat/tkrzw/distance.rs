//! The distance of Levenshtein between two texts, computed in pieces.

/// A text as what is compared: bytes, or code points.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TextUnit {
    Byte,
    CodePoint,
}

/// A pattern to which distances are computed, and how far one of them is.
#[derive(Debug)]
pub(super) struct Distance {
    unit: TextUnit,
    pattern: Vec<u32>,
    /// The text that is compared, and how much of it is done.
    text: Vec<u32>,
    done: usize,
    /// Distances of what is done of the text to each beginning of the pattern.
    row: Vec<u32>,
}

impl TextUnit {
    /// Returns the units of a text. What is no UTF-8 has its replacement.
    fn units(self, text: &[u8]) -> Vec<u32> {
        match self {
            TextUnit::Byte => text.iter().map(|&byte| u32::from(byte)).collect(),
            TextUnit::CodePoint => {
                let text = String::from_utf8_lossy(text);
                text.chars().map(u32::from).collect()
            }
        }
    }
}

impl Distance {
    pub(super) fn new(unit: TextUnit, pattern: &[u8]) -> Distance {
        Distance {
            unit,
            pattern: unit.units(pattern),
            text: Vec::new(),
            done: 0,
            row: Vec::new(),
        }
    }

    /// Begins with another text.
    pub(super) fn begin(&mut self, text: &[u8]) {
        self.text = self.unit.units(text);
        self.done = 0;
        self.row.clear();
        // The pattern has fewer units than a number of 32 bits can tell.
        self.row.extend(0..=self.pattern.len() as u32);
    }

    /// Goes on for as many comparisons as `budget` says, and at least a row of them. Returns the
    /// distance when it is known.
    pub(super) fn advance(&mut self, budget: &mut usize) -> Option<u32> {
        while let Some(&unit) = self.text.get(self.done) {
            self.advance_row(unit);
            self.done += 1;
            let Some(left) = budget.checked_sub(self.row.len()) else {
                *budget = 0;
                break;
            };
            *budget = left;
        }
        (self.done == self.text.len()).then(|| self.row.last().copied().unwrap_or(0))
    }

    fn advance_row(&mut self, unit: u32) {
        let mut cells = self.row.iter_mut();
        let Some(first) = cells.next() else { return };
        let mut diagonal = *first;
        *first += 1;
        let mut left = *first;
        for (cell, &other) in cells.zip(&self.pattern) {
            let replaced = diagonal + u32::from(unit != other);
            diagonal = *cell;
            *cell = replaced.min(*cell + 1).min(left + 1);
            left = *cell;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn distance(unit: TextUnit, pattern: &str, text: &str, mut budget: usize) -> u32 {
        let mut distance = Distance::new(unit, pattern.as_bytes());
        distance.begin(b"another text before");
        distance.begin(text.as_bytes());
        let step = budget;
        loop {
            budget = step;
            if let Some(known) = distance.advance(&mut budget) {
                return known;
            }
        }
    }

    #[test]
    fn distances_are_those_of_the_whole_table_however_they_are_cut() {
        for (pattern, text, bytes, points) in [
            ("", "", 0, 0),
            ("abc", "", 3, 3),
            ("", "abc", 3, 3),
            ("kitten", "sitting", 3, 3),
            ("flaw", "lawn", 2, 2),
            ("ä", "a", 2, 1),
            ("äö", "öä", 2, 2),
            ("same", "same", 0, 0),
        ] {
            for budget in [1, 7, 1_000] {
                let byte = distance(TextUnit::Byte, pattern, text, budget);
                let point = distance(TextUnit::CodePoint, pattern, text, budget);
                assert_eq!((byte, point), (bytes, points), "{pattern} {text}");
            }
        }
    }
}
