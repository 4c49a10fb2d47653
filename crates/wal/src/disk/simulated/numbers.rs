//! The numbers by which a simulated disk decides.

use std::fmt;

/// A source of random numbers, which is an argument as time is.
pub(super) struct Numbers(Box<dyn NumberSource>);

/// A boxed iterator that can be cloned.
trait NumberSource: Send {
    fn number(&mut self) -> u64;
    fn boxed(&self) -> Box<dyn NumberSource>;
}

impl<T: Iterator<Item = u64> + Clone + Send + 'static> NumberSource for T {
    fn number(&mut self) -> u64 {
        self.next().unwrap_or(0)
    }

    fn boxed(&self) -> Box<dyn NumberSource> {
        Box::new(self.clone())
    }
}

impl Numbers {
    pub(super) fn new(source: impl Iterator<Item = u64> + Clone + Send + 'static) -> Numbers {
        Numbers(Box::new(source))
    }

    /// Returns a number below `bound`.
    pub(super) fn below(&mut self, bound: usize) -> usize {
        (self.0.number() % bound as u64) as usize
    }

    /// Returns true once in `times`.
    pub(super) fn once_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    /// Returns one of several.
    pub(super) fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }
}

impl Clone for Numbers {
    fn clone(&self) -> Numbers {
        Numbers(self.0.boxed())
    }
}

impl fmt::Debug for Numbers {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Numbers")
    }
}
