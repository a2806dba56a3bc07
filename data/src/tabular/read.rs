//! Tables from files: the blocks of all files become columns, whose kinds are found over all rows.

use super::column::Column;
use super::infer::Ask;
use super::raw::{Keeps, NotAdded, Raw};
use super::{Table, near};
use crate::blocks::Arrays;
use crate::reader::Files;
use crate::{DataError, Result};
use ferrotune_reader::{Format, Source};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What the user has said about the columns of a table.
#[derive(Clone, Debug, Default)]
pub(crate) struct Asked {
    pub(crate) kinds: BTreeMap<String, Ask>,
    pub(crate) without: Vec<String>,
    pub(crate) gaps: Vec<String>,
    /// The columns in which a gap leaves out its row.
    pub(crate) whole: Vec<String>,
    /// Whether a number for gaps was given, which no table has.
    pub(crate) has_missing: bool,
}

/// Reads a table. Fails if a file cannot be read, or if a column is not what the user has said.
pub(crate) fn read(format: Format, files: &str, asked: &Asked) -> Result<Table> {
    if asked.has_missing {
        return Err(DataError::table(
            files,
            "`.missing` is for `.features`; a table keeps its gaps, and Prep fills them",
        ));
    }
    let source = Source::Columns { format, files: files.to_owned(), without: asked.without.clone() };
    let (opened, contents) = Files::open(source)?;
    let files = without_query(files);
    let names: Vec<String> = contents.columns.into_iter().filter(|name| !asked.without.contains(name)).collect();
    check_names(files, &names, asked)?;
    let is_typed = !matches!(format, Format::Csv { .. });
    let opened = Arc::new(opened);
    // The texts of numbers are not kept, unless they are needed.
    let needs_texts = |name: &String| is_typed || matches!(asked.kinds.get(name), Some(Ask::Category | Ask::Date));
    let mut keeps: Vec<Keeps> =
        names.iter().map(|name| if needs_texts(name) { Keeps::Texts } else { Keeps::Numbers }).collect();
    let columns = loop {
        if let Some(columns) = pass(&opened, files, &names, &mut keeps, &asked.gaps)? {
            break columns;
        }
    };
    if columns.first().map_or(0, Raw::len) == 0 {
        return Err(DataError::table(files, "it has no rows"));
    }
    let row_name = |row: usize| row_name(files, row);
    let column = |(name, raw): (&String, Raw)| raw.column(name, is_typed, asked, &row_name);
    let columns: Vec<Column> = names.iter().zip(columns).map(column).collect::<Result<_>>()?;
    let table = Table::of(files, columns)?;
    asked.whole.iter().try_fold(table, |table, name| table.without_gaps(name))
}

/// Reads all blocks. `None` if a column, all of whose texts were numbers, has another text in a later block: it keeps its texts in the
/// next pass.
fn pass(
    opened: &Arc<Files>,
    files: &str,
    names: &[String],
    keeps: &mut [Keeps],
    gaps: &[String],
) -> Result<Option<Vec<Raw>>> {
    let mut arrays = Arrays::new(opened);
    let mut columns: Vec<Raw> = names.iter().map(|_| Raw::Gaps(0)).collect();
    while let Some(block) = arrays.next()? {
        let (of_columns, rest) = block.as_chunks::<3>();
        if of_columns.len() != columns.len() || !rest.is_empty() {
            return Err(damaged(files));
        }
        let mut has_lost_texts = false;
        for (((column, arrays), name), keeps) in columns.iter_mut().zip(of_columns).zip(names).zip(&mut *keeps) {
            match column.add(arrays, *keeps, gaps).ok_or_else(|| damaged(files))? {
                Ok(()) => {}
                Err(NotAdded::LostTexts) => (*keeps, has_lost_texts) = (Keeps::Texts, true),
                Err(NotAdded::Types(reason)) => return Err(DataError::column(name, reason)),
            }
        }
        if has_lost_texts {
            return Ok(None);
        }
    }
    Ok(Some(columns))
}

/// The name of files in messages: an address of the web without its query, which may be a signature.
fn without_query(files: &str) -> &str {
    let is_web = files.starts_with("http://") || files.starts_with("https://");
    files.split_once('?').filter(|_| is_web).map_or(files, |(address, _)| address)
}

/// The name of a row in messages. Of several files, rows are counted over all of them.
pub(super) fn row_name(files: &str, row: usize) -> String {
    let is_pattern = files.contains(['*', '?', '[']);
    if is_pattern { format!("row {row}, counted over all of {files}") } else { format!("row {row} of {files}") }
}

fn check_names(files: &str, names: &[String], asked: &Asked) -> Result<()> {
    match asked.kinds.keys().chain(&asked.whole).find(|name| !names.contains(name)) {
        Some(unknown) => {
            Err(DataError::table(files, format!("there is no column `{unknown}`{}", near(unknown, names))))
        }
        None => Ok(()),
    }
}

pub(super) fn damaged(files: &str) -> DataError {
    DataError::Unread { reason: format!("the reader of {files} gave a block that does not fit its columns") }
}
