//! The tables, and what is wrong with those that are found.
//!
//! Only [`init`](crate::init) makes them. A start compares what is there with what this version
//! needs, and changes nothing.

use std::fmt;

/// The version of the schema, which the catalogue keeps. A later version of this program that needs
/// other tables has another one.
pub const SCHEMA_VERSION: i32 = 1;

/// What a column is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColumnRole {
    /// A part of the partition key.
    Partition,
    /// A part of the key within the partition.
    Clustering,
    /// One for all rows of a partition.
    Static,
    /// Any other.
    Regular,
}

/// A column of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableColumn {
    /// Its name.
    pub name: &'static str,
    /// Its type in CQL.
    pub type_name: &'static str,
    /// What it is for.
    pub role: ColumnRole,
}

/// A table of the keyspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableShape {
    /// Its name.
    pub name: &'static str,
    /// Its columns; those of the key first, in their order.
    pub columns: &'static [TableColumn],
}

/// A column that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundColumn {
    /// Its table.
    pub table: String,
    /// Its name.
    pub name: String,
    /// Its type as the engine writes it.
    pub type_name: String,
    /// What it is for: `partition_key`, `clustering`, `static` or `regular`.
    pub role: String,
}

/// What is wrong with a schema.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SchemaDifference {
    /// A table is missing.
    #[error("there is no table `{0}`")]
    NoTable(&'static str),
    /// A column is missing.
    #[error("table `{table}` has no column `{column}`")]
    NoColumn {
        /// The table.
        table: &'static str,
        /// The column.
        column: &'static str,
    },
    /// A column is another one than it should be.
    #[error("column `{column}` of table `{table}` is {found}, and should be {needed}")]
    OtherColumn {
        /// The table.
        table: &'static str,
        /// The column.
        column: &'static str,
        /// What was found.
        found: String,
        /// What is needed.
        needed: String,
    },
}

/// A name that is no keyspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the name of a keyspace has 1 to 48 small letters, digits or '_', and begins with a letter"
)]
pub struct KeyspaceNameError;

const fn column(name: &'static str, type_name: &'static str, role: ColumnRole) -> TableColumn {
    TableColumn {
        name,
        type_name,
        role,
    }
}

/// All databases, in one partition, so that one conditional batch gives out a number and a name.
/// Its other partitions are empty, and read for health.
pub const CATALOGUE: TableShape = TableShape {
    name: "catalogue",
    columns: &[
        column("part", "int", ColumnRole::Partition),
        column("name", "text", ColumnRole::Clustering),
        column("schema_version", "int", ColumnRole::Static),
        column("next_id", "int", ColumnRole::Static),
        column("id", "int", ColumnRole::Regular),
        // What made it, so that a gateway recognises its own change.
        column("made", "bigint", ColumnRole::Regular),
        column("config", "blob", ColumnRole::Regular),
        // The same as in `config`, for people.
        column("shape", "text", ColumnRole::Regular),
    ],
};

/// The entries of databases with the promise `linearizable`.
pub const LINEARIZABLE: TableShape = TableShape {
    name: "linearizable",
    columns: &[
        column("database", "int", ColumnRole::Partition),
        column("bucket", "int", ColumnRole::Partition),
        column("key", "blob", ColumnRole::Clustering),
        column("value", "blob", ColumnRole::Regular),
        column("version", "bigint", ColumnRole::Regular),
        column("expires_ms", "bigint", ColumnRole::Regular),
        column("bytes", "int", ColumnRole::Regular),
        // Never set. Its deletion carries the condition on a row that stays as it is.
        column("guard", "boolean", ColumnRole::Regular),
    ],
};

/// The entries of databases with the promise `quorum`.
pub const QUORUM: TableShape = TableShape {
    name: "quorum",
    columns: &[
        column("database", "int", ColumnRole::Partition),
        column("bucket", "int", ColumnRole::Partition),
        column("key", "blob", ColumnRole::Clustering),
        column("head", "blob", ColumnRole::Regular),
        column("entry", "blob", ColumnRole::Regular),
    ],
};

/// All tables.
pub const TABLES: [TableShape; 3] = [CATALOGUE, LINEARIZABLE, QUORUM];

/// Returns the statement that makes a keyspace with so many replicas in each data center.
pub fn create_keyspace(keyspace: &str, replicas: u8) -> String {
    format!(
        "CREATE KEYSPACE IF NOT EXISTS {keyspace} WITH replication = \
         {{'class': 'NetworkTopologyStrategy', 'replication_factor': {replicas}}} \
         AND durable_writes = true"
    )
}

/// Returns the statement that makes a table.
pub fn create_table(keyspace: &str, table: &TableShape) -> String {
    let mut columns = Vec::new();
    for column in table.columns {
        let suffix = match column.role {
            ColumnRole::Static => " STATIC",
            _ => "",
        };
        columns.push(format!("{} {}{suffix}", column.name, column.type_name));
    }
    let names = |role| {
        let of_role = table.columns.iter().filter(|column| column.role == role);
        of_role
            .map(|column| column.name)
            .collect::<Vec<_>>()
            .join(", ")
    };
    let (partition, clustering) = (names(ColumnRole::Partition), names(ColumnRole::Clustering));
    format!(
        "CREATE TABLE IF NOT EXISTS {keyspace}.{} ({}, PRIMARY KEY (({partition}), {clustering}))",
        table.name,
        columns.join(", ")
    )
}

/// Returns what this version needs and the schema has not. More columns and tables than needed do
/// no harm.
pub fn differences(found: &[FoundColumn]) -> Vec<SchemaDifference> {
    let mut all = Vec::new();
    for table in &TABLES {
        if !found.iter().any(|column| column.table == table.name) {
            all.push(SchemaDifference::NoTable(table.name));
            continue;
        }
        all.extend((table.columns.iter()).filter_map(|column| difference(table, column, found)));
    }
    all
}

fn difference(
    table: &TableShape,
    needed: &TableColumn,
    found: &[FoundColumn],
) -> Option<SchemaDifference> {
    let same_name =
        |column: &&FoundColumn| column.table == table.name && column.name == needed.name;
    let Some(found) = found.iter().find(same_name) else {
        return Some(SchemaDifference::NoColumn {
            table: table.name,
            column: needed.name,
        });
    };
    let role = needed.role.to_string();
    if found.type_name == needed.type_name && found.role == role {
        return None;
    }
    Some(SchemaDifference::OtherColumn {
        table: table.name,
        column: needed.name,
        found: format!("{} ({})", found.type_name, found.role),
        needed: format!("{} ({role})", needed.type_name),
    })
}

/// Fails if a name cannot be that of a keyspace. It goes into statements as it is.
pub fn check_keyspace_name(name: &str) -> Result<(), KeyspaceNameError> {
    let is_allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
    let begins_well = name.starts_with(|first: char| first.is_ascii_lowercase());
    match begins_well && name.len() <= 48 && name.bytes().all(is_allowed) {
        true => Ok(()),
        false => Err(KeyspaceNameError),
    }
}

impl fmt::Display for ColumnRole {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            ColumnRole::Partition => "partition_key",
            ColumnRole::Clustering => "clustering",
            ColumnRole::Static => "static",
            ColumnRole::Regular => "regular",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What an engine with the right tables returns.
    fn complete() -> Vec<FoundColumn> {
        let mut found = Vec::new();
        for table in &TABLES {
            found.extend(table.columns.iter().map(|column| FoundColumn {
                table: table.name.to_owned(),
                name: column.name.to_owned(),
                type_name: column.type_name.to_owned(),
                role: column.role.to_string(),
            }));
        }
        found
    }

    #[test]
    fn the_right_tables_have_no_difference() {
        assert_eq!(differences(&complete()), []);
        let mut more = complete();
        more.push(FoundColumn {
            table: "quorum".to_owned(),
            name: "note".to_owned(),
            type_name: "text".to_owned(),
            role: "regular".to_owned(),
        });
        assert_eq!(differences(&more), []);
    }

    #[test]
    fn what_is_missing_or_different_is_named() {
        assert_eq!(differences(&[]).len(), TABLES.len());
        let mut found = complete();
        found.retain(|column| (column.table.as_str(), column.name.as_str()) != ("quorum", "head"));
        let version = |column: &&mut FoundColumn| column.name == "version";
        found.iter_mut().find(version).unwrap().type_name = "int".to_owned();
        let texts: Vec<String> = differences(&found)
            .iter()
            .map(|one| one.to_string())
            .collect();
        assert_eq!(
            texts,
            [
                "column `version` of table `linearizable` is int (regular), and should be bigint \
                 (regular)",
                "table `quorum` has no column `head`"
            ]
        );
    }

    #[test]
    fn statements_name_every_column_and_the_key() {
        let text = create_table("shop", &CATALOGUE);
        assert!(text.starts_with("CREATE TABLE IF NOT EXISTS shop.catalogue (part int, name text"));
        assert!(text.contains("next_id int STATIC"));
        assert!(text.ends_with("PRIMARY KEY ((part), name))"));
        let text = create_table("shop", &QUORUM);
        assert!(text.ends_with("PRIMARY KEY ((database, bucket), key))"));
        assert!(create_keyspace("shop", 3).contains("'replication_factor': 3"));
    }

    #[test]
    fn names_of_keyspaces_cannot_bring_statements_along() {
        for name in ["a", "pelton_1", &"k".repeat(48)] {
            assert_eq!(check_keyspace_name(name), Ok(()), "{name}");
        }
        for name in [
            "",
            "1a",
            "_a",
            "A",
            "a-b",
            "a b",
            "a;",
            "ä",
            &"k".repeat(49),
        ] {
            assert_eq!(check_keyspace_name(name), Err(KeyspaceNameError), "{name}");
        }
    }
}
