//! The reader: a process that reads files of data. Tables, images, records and arrays become plain numbers and bytes.
//!
//! The program `ferrotune reader` is that process. A damaged file can end only that process, and the decoders of files are not part
//! of the library that each cell links. Knows neither tensors nor datasets: `ferrotune-data` has them, starts
//! readers and sends them requests.

mod npy;
#[cfg(feature = "serve")]
mod serve;
mod wire;

pub use npy::{NPY_HEADER_BYTES, NpyHeader};
#[cfg(feature = "serve")]
pub use serve::{Server, get_object, is_kept_object, keep_objects, main, put_object};
pub use wire::{
    Array, Block, Contents, Format, Framing, Group, Kind, Layout, NO_DATE, NO_TEXT, Reply, Request, Shape, Source,
    read_reply, read_request, write_reply, write_request,
};

/// The version of requests and replies, which is Ferrotune's version.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Whether a name is the address of an object in a store, or of a file on a web server, and not a path.
pub fn is_remote(name: &str) -> bool {
    let scheme = name.split_once("://").map(|(scheme, _)| scheme);
    scheme.is_some_and(|scheme| matches!(scheme, "abfs" | "abfss" | "az" | "gs" | "http" | "https" | "s3" | "s3a"))
}

/// Whether new objects can be put at an address: into a store, or into a folder that is given as `file:///FOLDER`.
pub fn takes_objects(address: &str) -> bool {
    let is_web = address.starts_with("http://") || address.starts_with("https://");
    is_remote(address) && !is_web || address.starts_with("file:///")
}

/// This process' environment variables with the access and the credentials for the store of an address.
pub fn store_variables(address: &str) -> Vec<(String, String)> {
    let prefixes: &[&str] = match address.split_once("://").map_or("", |(scheme, _)| scheme) {
        "s3" | "s3a" => &["AWS_"],
        "gs" => &["GOOGLE_", "STORAGE_EMULATOR_HOST"],
        "abfs" | "abfss" | "az" => &["AZURE_"],
        _ => &[],
    };
    let is_meant = |name: &str| prefixes.iter().any(|prefix| name.starts_with(prefix));
    // A variable that is not UTF-8 is not for a store.
    let variables =
        std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    variables.filter(|(name, _)| is_meant(name)).collect()
}

/// The subcommand that runs the program as a reader.
pub const SUBCOMMAND: &str = "reader";
