//! `ferrotune export STUDY --to FOLDER`: the model of a study's best trial, for programs without a notebook.

use crate::engine::{export_folder, folder_named};
use anyhow::{Context as _, Result};
use clap::Args;
use std::io::Write as _;
use std::path::PathBuf;

/// The study, and the folder for the model.
#[derive(Args)]
pub(crate) struct Export {
    /// The name of a project in the folder `studies`, or the path of a study's folder, such as ./digits.
    study: PathBuf,
    /// A new or empty folder, or one of an earlier export, whose files are replaced.
    #[arg(long, value_name = "FOLDER")]
    to: PathBuf,
}

/// Writes the files, and prints a line for each.
pub(crate) fn run(Export { study, to }: &Export) -> Result<()> {
    let lines = export_folder(&folder_named(study), to)?;
    writeln!(std::io::stdout(), "{}", lines.join("\n")).context("cannot print the names of the files")
}
