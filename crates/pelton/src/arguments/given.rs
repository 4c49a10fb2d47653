//! Which of some flags or settings is given.

/// Returns the first name whose condition holds, to be refused by it.
pub fn first_given<const N: usize>(names: [(&'static str, bool); N]) -> Option<&'static str> {
    let found = names.into_iter().find(|(_, is_given)| *is_given);
    found.map(|(name, _)| name)
}
