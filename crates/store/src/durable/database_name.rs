//! How messages name a database.

use std::fmt;

/// A database by its name, for messages.
pub(crate) struct Named<'a>(pub(crate) &'a str);

impl fmt::Display for Named<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            "" => formatter.write_str("the default database"),
            name => write!(formatter, "the database `{name}`"),
        }
    }
}
