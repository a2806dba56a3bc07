//! Tables as lines of JSON, with an object for each row (<https://jsonlines.org>). A row may lack columns, and a column may begin at any
//! row, so that all lines are read at once.

use super::columns::{Column, Texts, block};
use super::files;
use super::table::{Choice, row_of};
use crate::wire::Block;
use anyhow::{Context as _, Error, Result, anyhow, bail};
use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::Value;
use std::collections::HashMap;
use std::fmt::{self, Formatter};
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};

/// An object, with its members in the order of the text.
struct Row(Vec<(String, Value)>);

impl<'de> Deserialize<'de> for Row {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Row, D::Error> {
        struct Members;

        impl<'de> Visitor<'de> for Members {
            type Value = Row;

            fn expecting(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
                formatter.write_str("an object such as {\"rooms\": 3}")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> std::result::Result<Row, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Row(members))
            }
        }

        deserializer.deserialize_map(Members)
    }
}

/// The rows that have been read.
#[derive(Default)]
struct Rows {
    names: Vec<String>,
    places: HashMap<String, usize>,
    columns: Vec<Values>,
    rows: usize,
}

/// The values of a column, and the row of the first value that decides their type.
#[derive(Default)]
struct Values {
    cells: Vec<Value>,
    first: Option<String>,
}

/// The names of the columns of files, and their values as one block; no block if there are no rows.
pub(super) fn read(files: &[PathBuf], choice: &Choice) -> Result<(Vec<String>, Option<Block>)> {
    let without = match choice {
        Choice::AllBut(without) | Choice::Each { without, .. } => without,
        Choice::Groups(groups) if groups.is_empty() => &Vec::new(),
        Choice::Groups(_) => bail!("lines of JSON become a table only; call `.target` or `.table`, and then `Prep`"),
    };
    let mut all = Rows::default();
    for path in files {
        all.read(path, without)?;
    }
    if let Some(unknown) = without.iter().find(|name| !all.places.contains_key(*name)) {
        bail!("{} has no column `{unknown}` to drop", files.first().map(|path| files::name(path)).unwrap_or_default());
    }
    let is_left = |name: &String| !without.contains(name);
    let left: Vec<Values> =
        all.names.iter().zip(all.columns).filter(|(name, _)| is_left(name)).map(|(_, values)| values).collect();
    let columns = left.into_iter().map(|values| column(values.cells, all.rows));
    Ok((all.names, (all.rows > 0).then(|| block(columns))))
}

impl Rows {
    fn read(&mut self, path: &Path, without: &[String]) -> Result<()> {
        let name = files::name(path);
        let lines = BufReader::new(files::open(path)?).lines();
        let mut row = 0;
        for line in lines {
            let line = line.map_err(|error| files::unread(&name, error))?;
            let line = line.trim_start_matches('\u{feff}').trim();
            if line.is_empty() {
                continue;
            }
            let here = row_of(&name, row);
            let Row(members) = serde_json::from_str(line).map_err(|error| not_an_object(&here, line, &error))?;
            for (column, value) in members {
                let rows = self.rows;
                let values = self.values(column.clone());
                if values.cells.len() > rows {
                    bail!("{here} has several values `{column}`");
                }
                values.cells.resize(rows, Value::Null);
                if !without.contains(&column) {
                    values.check(&value, &here).with_context(|| format!("{here}, column `{column}`"))?;
                }
                values.cells.push(value);
            }
            self.rows += 1;
            row += 1;
        }
        Ok(())
    }

    fn values(&mut self, column: String) -> &mut Values {
        let place = *self.places.entry(column).or_insert_with_key(|name| {
            self.names.push(name.clone());
            self.columns.push(Values::default());
            self.columns.len() - 1
        });
        &mut self.columns[place]
    }
}

impl Values {
    /// Fails if a value has another type than the values before it.
    fn check(&mut self, value: &Value, here: &str) -> Result<()> {
        let kind = match value {
            Value::Null => return Ok(()),
            Value::Array(_) | Value::Object(_) => {
                bail!("it has {}, and a table has none; call `.drop` with the column's name", kind(value));
            }
            other => kind(other),
        };
        let Some(first) = &self.first else {
            self.first = Some(format!("{kind} in {here}"));
            return Ok(());
        };
        if !first.starts_with(kind) {
            bail!("it has {kind} here and {first}; write one type, or call `.drop` with the column's name");
        }
        Ok(())
    }
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "nothing",
        Value::Bool(_) => "yes or no",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

fn not_an_object(here: &str, line: &str, error: &serde_json::Error) -> Error {
    if line.starts_with('[') {
        return anyhow!(
            "{here} is a list, or begins one; write an object on each line, as pandas' `to_json(orient=\"records\", lines=True)` does"
        );
    }
    if line.contains("NaN") || line.contains("Infinity") {
        return anyhow!("{here} is no JSON, which has neither NaN nor Infinity; write null: {error}");
    }
    anyhow!("{here} is no object of JSON on one line: {error}")
}

/// A column of values of one type.
fn column(mut cells: Vec<Value>, rows: usize) -> Column {
    cells.resize(rows, Value::Null);
    let is_whole = |cell: &Value| cell.is_i64() || cell.is_u64() || cell.is_null();
    let first = cells.iter().find(|cell| !cell.is_null());
    match first {
        Some(Value::Bool(_)) => Column::YesNo(cells.iter().map(|cell| cell.as_bool().map_or(2, u8::from)).collect()),
        Some(Value::String(_)) => {
            let mut texts = Texts::default();
            cells.iter().for_each(|cell| match cell.as_str() {
                Some(text) => texts.push(text),
                None => texts.push_gap(),
            });
            Column::Texts(texts)
        }
        Some(Value::Number(_)) if cells.iter().all(is_whole) => {
            let whole = |cell: &Value| cell.as_i64().map(i128::from).or_else(|| cell.as_u64().map(i128::from));
            Column::whole(cells.iter().map(whole))
        }
        _ => Column::Numbers(cells.iter().map(|cell| cell.as_f64().unwrap_or(f64::NAN)).collect()),
    }
}
