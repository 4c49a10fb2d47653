//! Answers of a run, of which some are kept.

use crate::limits::{KEPT_ANSWERS, KEPT_ANSWERS_BYTES};

/// The first answers of a run, and how many bytes all of them had, as messages.
#[derive(Debug, Default)]
pub(crate) struct KeptAnswers {
    answers: u64,
    bytes: u64,
    samples: Vec<Vec<u8>>,
    sample_bytes: usize,
}

impl KeptAnswers {
    /// Notes an answer, and keeps it if there is room.
    pub(crate) fn note(&mut self, answer: &[u8]) {
        self.answers += 1;
        self.bytes += answer.len() as u64;
        let has_room = self.samples.len() < KEPT_ANSWERS
            && answer.len() <= KEPT_ANSWERS_BYTES - self.sample_bytes;
        if has_room {
            self.sample_bytes += answer.len();
            self.samples.push(answer.to_vec());
        }
    }

    /// Bytes of an answer on average; 0 if there was none.
    pub(crate) fn mean_bytes(&self) -> f64 {
        self.bytes as f64 / self.answers.max(1) as f64
    }

    /// Those that were kept.
    pub(crate) fn samples(&self) -> &[Vec<u8>] {
        &self.samples
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_answers_are_kept_and_the_bytes_of_all_are_counted() {
        let mut kept = KeptAnswers::default();
        assert_eq!(kept.mean_bytes(), 0.0);
        let almost_all = vec![7; KEPT_ANSWERS_BYTES - 3];
        // There is no room for the second, and there is for the third.
        for answer in [&almost_all[..], b"four", b"abc", b"x"] {
            kept.note(answer);
        }
        assert_eq!(kept.samples(), [almost_all, b"abc".to_vec()]);
        let bytes = (KEPT_ANSWERS_BYTES - 3 + 8) as f64;
        assert_eq!(kept.mean_bytes(), bytes / 4.0);

        let mut small = KeptAnswers::default();
        (0..KEPT_ANSWERS + 5).for_each(|_| small.note(b"a"));
        assert_eq!(small.samples().len(), KEPT_ANSWERS);
        assert_eq!(small.mean_bytes(), 1.0);
    }
}
