//! Rows of several buckets in the order of their keys.
//!
//! Each bucket is read page by page, in order. A row may leave when every bucket that goes on has
//! one here: only then is the smallest known.

use std::collections::VecDeque;

use store::Direction;

/// A row that has a key.
pub trait HasKey {
    /// Returns the key.
    fn key(&self) -> &[u8];
}

/// Merges the rows of several buckets. Holds at most what was pushed and not taken yet.
#[derive(Debug)]
pub struct Merge<R> {
    direction: Direction,
    sources: Vec<MergeSource<R>>,
}

#[derive(Debug)]
struct MergeSource<R> {
    rows: VecDeque<R>,
    has_ended: bool,
}

impl<R: HasKey> Merge<R> {
    /// Creates the merge of `sources` buckets.
    pub fn new(sources: usize, direction: Direction) -> Merge<R> {
        let source = || MergeSource {
            rows: VecDeque::new(),
            has_ended: false,
        };
        Merge {
            direction,
            sources: (0..sources).map(|_| source()).collect(),
        }
    }

    /// Returns the sources whose next page is needed before [`Merge::take_next`] returns more.
    pub fn starving(&self) -> Vec<usize> {
        let is_starving = |source: &MergeSource<R>| source.rows.is_empty() && !source.has_ended;
        let sources = self.sources.iter().enumerate();
        sources
            .filter(|(_, source)| is_starving(source))
            .map(|(index, _)| index)
            .collect()
    }

    /// Adds the next page of a source, in the order of the merge. After `is_last` there is no more.
    pub fn push_page(&mut self, source: usize, rows: Vec<R>, is_last: bool) {
        if let Some(source) = self.sources.get_mut(source) {
            source.rows.extend(rows);
            source.has_ended |= is_last;
        }
    }

    /// Returns the next row. `None`: a source is starving, or all have ended.
    pub fn take_next(&mut self) -> Option<R> {
        let mut best: Option<usize> = None;
        for (index, source) in self.sources.iter().enumerate() {
            let Some(row) = source.rows.front() else {
                if source.has_ended {
                    continue;
                }
                return None;
            };
            let is_better = best
                .and_then(|best| self.sources.get(best)?.rows.front())
                .is_none_or(|best| self.is_before(row.key(), best.key()));
            if is_better {
                best = Some(index);
            }
        }
        self.sources.get_mut(best?)?.rows.pop_front()
    }

    fn is_before(&self, key: &[u8], other: &[u8]) -> bool {
        match self.direction {
            Direction::Forward => key < other,
            Direction::Backward => key > other,
        }
    }
}

#[cfg(test)]
mod tests {
    use testkit::Random;

    use super::*;

    impl HasKey for Vec<u8> {
        fn key(&self) -> &[u8] {
            self
        }
    }

    /// Takes everything, with pages of `page` rows.
    fn merged(parts: &[Vec<Vec<u8>>], direction: Direction, page: usize) -> Vec<Vec<u8>> {
        let mut merge = Merge::new(parts.len(), direction);
        let mut at = vec![0; parts.len()];
        let mut taken = Vec::new();
        loop {
            while let Some(row) = merge.take_next() {
                taken.push(row);
            }
            let starving = merge.starving();
            if starving.is_empty() {
                return taken;
            }
            for source in starving {
                let end = (at[source] + page).min(parts[source].len());
                let rows = parts[source][at[source]..end].to_vec();
                at[source] = end;
                merge.push_page(source, rows, end == parts[source].len());
            }
        }
    }

    #[test]
    fn rows_of_all_sources_come_in_the_order_of_their_keys() {
        let mut random = Random::new(5);
        for round in 0..200 {
            let mut all: Vec<Vec<u8>> = (0..random.below(200_usize))
                .map(|_| random.bytes(6, |random| random.below(4_u8)))
                .collect();
            all.sort();
            all.dedup();
            let mut parts = vec![Vec::new(); 1 + random.below(9_usize)];
            for key in &all {
                let part = random.below(parts.len());
                parts[part].push(key.clone());
            }
            let page = 1 + random.below(7_usize);
            assert_eq!(merged(&parts, Direction::Forward, page), all, "{round}");
            parts.iter_mut().for_each(|part| part.reverse());
            all.reverse();
            assert_eq!(merged(&parts, Direction::Backward, page), all, "{round}");
        }
    }

    #[test]
    fn no_row_leaves_while_a_source_starves() {
        let mut merge = Merge::new(2, Direction::Forward);
        merge.push_page(0, vec![b"b".to_vec()], false);
        assert_eq!(merge.take_next(), None);
        assert_eq!(merge.starving(), [1]);
        merge.push_page(1, vec![b"a".to_vec()], true);
        assert_eq!(merge.take_next(), Some(b"a".to_vec()));
        assert_eq!(merge.take_next(), Some(b"b".to_vec()));
        assert_eq!(merge.take_next(), None);
        assert_eq!(merge.starving(), [0]);
    }

    #[test]
    fn a_merge_of_nothing_is_complete() {
        let mut merge = Merge::<Vec<u8>>::new(0, Direction::Forward);
        assert_eq!(merge.take_next(), None);
        assert!(merge.starving().is_empty());
    }
}
