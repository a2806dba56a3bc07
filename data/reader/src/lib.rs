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
pub use serve::{Server, get_object, is_kept_object, keep_objects, main, put_object};
pub use wire::{
    Array, Block, Contents, Format, Framing, Group, Kind, Layout, Reply, Request, Shape, Source, read_reply,
    read_request, write_reply, write_request,
};

/// The version of requests and replies: that of Ferrotune.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Whether a name is the address of an object in a store, or of a file on a web server, and not a path.
pub fn is_remote(name: &str) -> bool {
    let scheme = name.split_once("://").map(|(scheme, _)| scheme);
    scheme.is_some_and(|scheme| matches!(scheme, "abfs" | "abfss" | "az" | "gs" | "http" | "https" | "s3" | "s3a"))
}

/// Whether new objects can be put there: into a store, or into a folder that is given as `file:///FOLDER`.
pub fn takes_objects(address: &str) -> bool {
    let is_web = address.starts_with("http://") || address.starts_with("https://");
    is_remote(address) && !is_web || address.starts_with("file:///")
}

/// The variables of this process that say how to reach the store of an address, and as whom.
pub fn store_variables(address: &str) -> Vec<(String, String)> {
    let prefixes: &[&str] = match address.split_once("://").map_or("", |(scheme, _)| scheme) {
        "s3" | "s3a" => &["AWS_"],
        "gs" => &["GOOGLE_", "STORAGE_EMULATOR_HOST"],
        "abfs" | "abfss" | "az" => &["AZURE_"],
        _ => &[],
    };
    let is_meant = |name: &str| prefixes.iter().any(|prefix| name.starts_with(prefix));
    // A variable that is not UTF-8 is none of theirs.
    let variables =
        std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    variables.filter(|(name, _)| is_meant(name)).collect()
}

/// The program's subcommand that is a reader.
pub const SUBCOMMAND: &str = "reader";
