//! `%export`: a study as a file that other programs read. Returns bytes, and the caller writes them.

mod csv;
mod fields;
mod folder;
mod html;
mod json;
mod model;
mod parquet;

pub use folder::{FILES, TRIAL_FILE, folder};
pub use model::model;

use crate::ResultsError;
use ferrotune_journal::Study;

/// The format of an exported file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// A CSV file with a row for each trial, by [RFC 4180](https://www.rfc-editor.org/rfc/rfc4180).
    Csv,
    /// A JSON file with all data of the journal, including every reported metric.
    Json,
    /// A Parquet file with the columns of [`Format::Csv`], with types.
    Parquet,
    /// An HTML page with the table of trials and the plots, which needs no other files.
    Html,
}

impl Format {
    /// All formats, by name.
    const ALL: [(&str, Format); 4] =
        [("csv", Format::Csv), ("json", Format::Json), ("parquet", Format::Parquet), ("html", Format::Html)];

    /// Names of the formats.
    pub fn names() -> impl Iterator<Item = &'static str> {
        Format::ALL.iter().map(|(name, _)| *name)
    }

    /// The format of this name.
    ///
    /// ```
    /// use ferrotune_results::export::Format;
    /// assert_eq!(Format::named("csv")?, Format::Csv);
    /// # Ok::<(), ferrotune_results::ResultsError>(())
    /// ```
    pub fn named(name: &str) -> Result<Format, ResultsError> {
        let known = Format::ALL.iter().find(|(known, _)| *known == name).map(|(_, format)| *format);
        known.ok_or_else(|| ResultsError::UnknownFormat {
            name: name.to_owned(),
            formats: format!("{}, model, tensorboard", Format::ALL.map(|(known, _)| known).join(", ")),
        })
    }

    /// The bytes of a file with the study in this format. Fails if Parquet refuses the study.
    pub fn bytes(self, study: &Study) -> Result<Vec<u8>, ResultsError> {
        match self {
            Format::Csv => Ok(csv::text(study).into_bytes()),
            Format::Json => Ok(json::text(study).into_bytes()),
            Format::Parquet => parquet::bytes(study),
            Format::Html => Ok(html::page(study).into_bytes()),
        }
    }
}
