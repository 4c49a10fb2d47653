//! The commands for blobs.

use std::path::PathBuf;

use clap::{ArgGroup, Args, Subcommand};

use super::number;
use super::store::{ConnectionArguments, parse_version_there};
use crate::size::{Size, Span};

/// Which database.
#[derive(Args, Clone, Debug)]
pub struct BlobPlaceArguments {
    #[command(flatten)]
    pub connection: ConnectionArguments,

    /// The database; empty: the default database
    #[arg(long, value_name = "NAME", env = "PELTON_DATABASE", default_value = "")]
    pub database: String,
}

/// How content travels.
#[derive(Args, Clone, Debug)]
pub struct TransferArguments {
    /// Bytes of content in one message, at most 4MiB
    #[arg(long, value_name = "SIZE", default_value = "256KiB")]
    pub chunk_size: Size,

    /// How many at a time
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = number::whole::<u8>(1, 64))]
    pub parallel: u8,

    /// Attempts in a row that bring nothing further, before it is given up
    #[arg(
        long,
        value_name = "N",
        default_value_t = 10,
        value_parser = number::whole::<u32>(0, u32::MAX.into())
    )]
    pub attempts: u32,
}

/// `pelton upload`
#[derive(Args, Debug)]
pub struct UploadArguments {
    /// The files; `-`: standard input, which cannot be resumed
    #[arg(value_name = "FILE", required = true)]
    pub files: Vec<PathBuf>,

    /// The name of the blob; only with a single file [default: the name of the file, without its
    /// folder]
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,

    /// Goes before the names of files
    #[arg(long, value_name = "TEXT", default_value = "", conflicts_with = "name")]
    pub prefix: String,

    /// Take folders, too: all files below them, each under its path from there, such as
    /// `2026/may.jpg`
    #[arg(long, conflicts_with = "name")]
    pub recursive: bool,

    /// What kind of content it is, for those who download it
    #[arg(long, value_name = "TYPE", default_value = "")]
    pub content_type: String,

    /// Compress what is sent with gzip; it is stored as it was
    #[arg(long)]
    pub compress: bool,

    /// Only if there is no blob of the name; otherwise nothing is stored: exit code 1
    #[arg(long, conflicts_with = "if_version")]
    pub if_absent: bool,

    /// Only if the blob of the name has this version; otherwise nothing is stored: exit code 1
    #[arg(long, value_name = "VERSION", value_parser = parse_version_there)]
    pub if_version: Option<u64>,

    #[command(flatten)]
    pub transfer: TransferArguments,

    #[command(flatten)]
    pub place: BlobPlaceArguments,
}

/// `pelton download`
#[derive(Args, Debug)]
pub struct DownloadArguments {
    /// The names of the blobs
    #[arg(value_name = "NAME", required = true)]
    pub names: Vec<String>,

    /// The file, or the folder of several; `-`: standard output [default: the last part of the
    /// name, here]
    #[arg(long, value_name = "PATH")]
    pub to: Option<PathBuf>,

    /// Take all blobs below each NAME, as below a folder, and make the folders that they need; an
    /// empty NAME: every blob
    #[arg(long)]
    pub recursive: bool,

    /// Replace files that are there
    #[arg(long)]
    pub force: bool,

    #[command(flatten)]
    pub transfer: TransferArguments,

    #[command(flatten)]
    pub place: BlobPlaceArguments,
}

/// `pelton blob …`
#[derive(Debug, Subcommand)]
pub enum BlobCommand {
    /// List blobs in the order of their names: size, version and name, separated by tabs
    #[command(visible_alias = "ls")]
    List(ListBlobsArguments),

    /// Describe a blob; exit code 1 if there is none
    Stat(BlobArguments),

    /// Remove a blob, or all of a prefix
    ///
    /// A blob that is not there is a miss: exit code 1. With --prefix or --all, blobs are removed
    /// one after the other, and their number is printed; none is none. A command that is
    /// interrupted says how many it has removed.
    Delete(DeleteBlobArguments),

    /// List uploads that are not complete, or discard some
    ///
    /// A line has the stored bytes, the age of the last of them, the address that they came from
    /// (`-`: not known), `open` if a call goes on with it or `idle`, the id (in hexadecimal, after
    /// `0x`, if it is no plain text) and the name, separated by tabs.
    Uploads(UploadsArguments),
}

/// `pelton blob uploads`
#[derive(Args, Debug)]
pub struct UploadsArguments {
    /// Discard those of this name, and what is stored of them; exit code 1 if there are none
    #[arg(long, value_name = "NAME", conflicts_with = "discard_all")]
    pub discard: Option<String>,

    /// Discard all that are listed
    #[arg(long)]
    pub discard_all: bool,

    /// Only those of which nothing came for so long, such as 10min or 12h
    #[arg(long, value_name = "TIME")]
    pub idle: Option<Span>,

    #[command(flatten)]
    pub place: BlobPlaceArguments,
}

/// `pelton blob list`
#[derive(Args, Debug)]
pub struct ListBlobsArguments {
    /// Only names that begin with it
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub prefix: String,

    /// Go on after this name
    #[arg(long, value_name = "NAME", default_value = "")]
    pub start_after: String,

    /// At most so many
    #[arg(long, value_name = "N", value_parser = number::limit)]
    pub limit: Option<u64>,

    #[command(flatten)]
    pub place: BlobPlaceArguments,
}

/// `pelton blob delete`
#[derive(Args, Debug)]
#[command(group = ArgGroup::new("which").args(["name", "prefix", "all"]).required(true))]
pub struct DeleteBlobArguments {
    /// The name
    #[arg(value_name = "NAME")]
    pub name: Option<String>,

    /// Delete all blobs whose names begin with this, which must not be empty
    #[arg(long, value_name = "TEXT")]
    pub prefix: Option<String>,

    /// Delete every blob of the database
    #[arg(long)]
    pub all: bool,

    #[command(flatten)]
    pub place: BlobPlaceArguments,
}

/// A blob by its name.
#[derive(Args, Debug)]
pub struct BlobArguments {
    /// The name
    #[arg(value_name = "NAME")]
    pub name: String,

    #[command(flatten)]
    pub place: BlobPlaceArguments,
}
