//! docs/method-rights.md: which right each method needs, as the table of methods has it.

use std::fmt::Write as _;

use service::Method;
use service::method::{Access, DatabaseName};

const HEAD: &str = "\
# Which right each method needs

This page is made from the server's own table of methods; a test proves that it is up to date, and
another one calls each method with tokens of every kind. What rights are is in
[security.md](security.md#rights).

The right is needed where the third column says. For blobs a right on the beginning of their names
is enough, and for a drop-in service the grant in the last column. A Batch, a Transact and a batch
of a Pipe need `read` if all their operations read, else `write`. *any* is some right, wherever it
holds, so that whoever has none is refused; *none* is served to everybody. Plain HTTP/2 requests
stand here under the names that the metrics have.

| method | right | where | or |
|---|---|---|---|
";

pub fn page() -> String {
    let mut page = HEAD.to_owned();
    for &method in Method::ALL {
        let entry = method.entry();
        let granted = method.drop_in().map(|service| service.name());
        let granted = granted.map_or(String::new(), |name| format!("`service:{name}`"));
        let (label, right) = (method.label(), right(entry.access));
        let place = place(entry.database);
        writeln!(page, "| `{label}` | {right} | {place} | {granted} |")
            .expect("a String takes what is written");
    }
    page
}

fn right(access: Access) -> &'static str {
    match access {
        Access::Open => "none",
        Access::AnyRight => "any",
        Access::Read => "`read`",
        Access::ReadOrWrite => "`read` or `write`",
        Access::Write => "`write`",
        Access::Administer => "`admin`",
    }
}

fn place(database: DatabaseName) -> &'static str {
    match database {
        DatabaseName::Nowhere => "",
        DatabaseName::Server => "the whole server",
        DatabaseName::Readable => "any database: it lists those that the caller may read",
        DatabaseName::Field(_) | DatabaseName::InQuery => "the database of the request",
        DatabaseName::FromSettings => "the database that the settings name",
        DatabaseName::TheDefault => "the default database",
    }
}
