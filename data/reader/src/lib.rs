//! Reads files of data in a process of its own: tables, images, records and arrays become plain numbers and bytes.
//!
//! The program `ferrotune reader` is that process. A damaged file can only end it, and what decodes files is not part
//! of the library that each cell links. Knows no tensor and no dataset: those are of `ferrotune-data`, which starts
//! readers and asks them.

mod npy;
#[cfg(feature = "serve")]
mod serve;
mod wire;

pub use npy::{NPY_HEADER_BYTES, NpyHeader};
#[cfg(feature = "serve")]
pub use serve::{is_kept_object, keep_objects, main};
pub use wire::{
    Array, Block, Contents, Format, Framing, Group, Kind, Layout, Reply, Request, Shape, Source, read_reply,
    write_request,
};
#[cfg(feature = "serve")]
pub(crate) use wire::{read_request, write_reply};

/// The version of requests and replies: that of Ferrotune.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Whether a name is the address of an object in a store, or of a file on a web server, and not a path.
pub fn is_remote(name: &str) -> bool {
    let scheme = name.split_once("://").map(|(scheme, _)| scheme);
    scheme.is_some_and(|scheme| matches!(scheme, "abfs" | "abfss" | "az" | "gs" | "http" | "https" | "s3" | "s3a"))
}

/// The program's subcommand that is a reader.
pub const SUBCOMMAND: &str = "reader";
