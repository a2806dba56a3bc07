//! What a user says about the columns of a table before it is read.

use super::Table;
use super::infer::Ask;
use super::read::{Asked, read};
use crate::Result;
use crate::table::TableFiles;
use ferrotune_reader::Format;

/// Files of a table, and what is known about its columns. [`TableFiles`] has the same methods, so that this type has no constructor.
///
/// ```no_run
/// let houses = ferrotune_data::csv("houses.csv").category("zip").drop("id").gaps(["unknown"]).target("sold")?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct TableOptions {
    format: Format,
    files: String,
    asked: Asked,
}

impl TableOptions {
    pub(crate) fn new(format: Format, files: &str, has_missing: bool) -> TableOptions {
        TableOptions { format, files: files.to_owned(), asked: Asked { has_missing, ..Asked::default() } }
    }

    /// Takes a column as texts, also where it has numbers: each different text is a category.
    pub fn category(self, column: &str) -> TableOptions {
        self.ask(column, Ask::Category)
    }

    /// Takes a column as numbers. A text that is none, and no gap, is an error; zeros in front are allowed.
    pub fn number(self, column: &str) -> TableOptions {
        self.ask(column, Ask::Number)
    }

    /// Takes a column as dates of ISO 8601. A text that is none, and no gap, is an error.
    pub fn date(self, column: &str) -> TableOptions {
        self.ask(column, Ask::Date)
    }

    /// Leaves out a column, such as an identifier. All columns with this name are left out.
    pub fn drop(mut self, column: &str) -> TableOptions {
        self.asked.without.push(column.to_owned());
        self
    }

    /// Adds texts that mean a gap, in all columns. A text such as `-999` stands for that number, too.
    pub fn gaps<S: AsRef<str>>(mut self, texts: impl IntoIterator<Item = S>) -> TableOptions {
        self.asked.gaps.extend(texts.into_iter().map(|text| text.as_ref().to_owned()));
        self
    }

    /// Leaves out the rows that have a gap in this column.
    pub fn without_gaps(mut self, column: &str) -> TableOptions {
        self.asked.whole.push(column.to_owned());
        self
    }

    /// Reads the table, with the column to predict.
    ///
    /// Fails if a file cannot be read, if a column is not what was said about it, or like [`Table::with_target`].
    pub fn target(&self, column: &str) -> Result<Table> {
        self.table()?.with_target(column)
    }

    /// Reads the table without a column to predict. Fails if a file cannot be read, or if a column is not what was said about it.
    pub fn table(&self) -> Result<Table> {
        read(self.format, &self.files, &self.asked)
    }

    fn ask(mut self, column: &str, ask: Ask) -> TableOptions {
        self.asked.kinds.insert(column.to_owned(), ask);
        self
    }
}

/// The ways to a [`Table`] of numbers, texts and dates.
impl TableFiles<()> {
    /// Takes a column as texts: see [`TableOptions::category`].
    pub fn category(&self, column: &str) -> TableOptions {
        self.options().category(column)
    }

    /// Takes a column as numbers: see [`TableOptions::number`].
    pub fn number(&self, column: &str) -> TableOptions {
        self.options().number(column)
    }

    /// Takes a column as dates: see [`TableOptions::date`].
    pub fn date(&self, column: &str) -> TableOptions {
        self.options().date(column)
    }

    /// Leaves out a column: see [`TableOptions::drop`].
    pub fn drop(&self, column: &str) -> TableOptions {
        self.options().drop(column)
    }

    /// Adds texts that mean a gap: see [`TableOptions::gaps`].
    pub fn gaps<S: AsRef<str>>(&self, texts: impl IntoIterator<Item = S>) -> TableOptions {
        self.options().gaps(texts)
    }

    /// Leaves out the rows that have a gap in this column: see [`TableOptions::without_gaps`].
    pub fn without_gaps(&self, column: &str) -> TableOptions {
        self.options().without_gaps(column)
    }

    /// Reads all columns as a [`Table`], with the column to predict: see [`TableOptions::target`].
    pub fn target(&self, column: &str) -> Result<Table> {
        self.options().target(column)
    }

    /// Reads all columns as a [`Table`]: see [`TableOptions::table`].
    pub fn table(&self) -> Result<Table> {
        self.options().table()
    }
}
