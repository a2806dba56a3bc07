//! `ferrotune-numbers`: computes cases of candle's operations for the suite of differences (`tests/numbers`), on the CPU or on a
//! plugin. Knows no right values, and judges nothing.
//!
//! `ferrotune-numbers texts FILE` writes the operations with their Rust text; `ferrotune-numbers cpu|lazy|compiled FOLDER [PLUGIN [CACHE]]` computes
//! the cases of a folder.

mod batch;
mod case;
mod numbers;
mod operations;
mod outcome;
mod run;
mod view;

use anyhow::{Context as _, Result, bail};
use rustix::process::{Resource, Rlimit, setrlimit};
use std::collections::BTreeMap;
use std::path::Path;

/// A case that never ends fills this, and then the process ends.
const MOST_MEMORY_BYTES: u64 = 3 << 30;

fn main() -> Result<()> {
    setrlimit(Resource::Data, Rlimit { current: Some(MOST_MEMORY_BYTES), maximum: Some(MOST_MEMORY_BYTES) })?;
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments.as_slice() {
        ["texts", file] => write_texts(Path::new(file)),
        ["cpu", folder] => run::on_cpu(Path::new(folder)),
        ["lazy", folder, plugin, cache] => {
            batch::on_plugin(Path::new(folder), Path::new(plugin), Path::new(cache), batch::Mode::Lazy)
        }
        ["compiled", folder, plugin, cache] => {
            batch::on_plugin(Path::new(folder), Path::new(plugin), Path::new(cache), batch::Mode::Compiled)
        }
        _ => bail!("usage: ferrotune-numbers texts FILE | cpu FOLDER | lazy|compiled FOLDER PLUGIN CACHE"),
    }
}

/// The Rust text of each operation, as the suite prints it.
fn write_texts(file: &Path) -> Result<()> {
    let texts: BTreeMap<&str, &str> =
        operations::all().iter().map(|operation| (operation.name, operation.text)).collect();
    std::fs::write(file, serde_json::to_vec(&texts)?).with_context(|| format!("cannot write {}", file.display()))
}
