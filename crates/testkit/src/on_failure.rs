//! What a test that fails prints.

/// Prints what brings a failure back, if the test panics while it lives.
#[derive(Debug)]
pub struct OnFailure(pub String);

impl OnFailure {
    /// Names the seed of a test.
    pub fn of_seed(seed: u64) -> OnFailure {
        OnFailure(format!("the seed was {seed}"))
    }
}

impl Drop for OnFailure {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("failed: {}", self.0);
        }
    }
}
