//! The columns of a table of text as they are: all values are texts, also numbers, and an empty value is a text, too.

use super::{Current, ROWS};
use crate::serve::columns::{Column, Texts, block};
use crate::serve::table::row_of;
use crate::wire::Block;
use anyhow::{Context as _, Result, bail};
use csv::ByteRecord;

impl Current {
    /// The next rows as texts; `None` after the last row.
    pub(super) fn read_raw(&mut self) -> Result<Option<Block>> {
        self.check_delimiter()?;
        let mut columns: Vec<Texts> = self.wanted.iter().map(|_| Texts::default()).collect();
        let mut record = ByteRecord::new();
        let mut rows = 0;
        while rows < ROWS && self.next_row(&mut record)? {
            for (wanted, texts) in self.wanted.iter().zip(&mut columns) {
                let column = wanted.columns[0];
                let value = record.get(column).unwrap_or_default();
                let text = str::from_utf8(value).with_context(|| {
                    let row = row_of(&self.name, self.rows);
                    format!("{row}, column `{}`: the value is not UTF-8; save the file as UTF-8", self.columns[column])
                })?;
                texts.push(text.trim());
            }
            (self.rows, rows) = (self.rows + 1, rows + 1);
        }
        Ok((rows > 0).then(|| block(columns.into_iter().map(Column::Texts))))
    }

    /// Fails if the header is a single name with a character that separates the values of many files.
    fn check_delimiter(&self) -> Result<()> {
        if let [only] = self.columns.as_slice()
            && let Some(found) = only.chars().find(|character| ";\t|,".contains(*character))
        {
            let file = &self.name;
            bail!(
                "{file} has a single column `{only}`; if `{}` is between its values, call `.delimiter(b{found:?})`",
                found.escape_default()
            );
        }
        Ok(())
    }
}
