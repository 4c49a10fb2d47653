//! Who may read what this process makes.

use rustix::fs::Mode;

/// Lets only the user of this process read and write the files and folders that it makes from here
/// on: a data folder holds the secret under which tokens are hashed, and everything that is stored.
/// Of files whose permissions are given when they are made, those of others are taken away too.
pub fn deny_others() {
    rustix::process::umask(Mode::RWXG | Mode::RWXO);
}
