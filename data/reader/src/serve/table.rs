//! The requested columns of tables, and the arrays of their values.

use crate::wire::{Array, Group, Kind, Shape};
use anyhow::{Error, Result, bail};
use std::collections::{HashMap, HashSet};
use std::fmt::{self, Display, Formatter};
use std::hash::Hash;

/// The message for a row without a number or a class.
pub(super) const NO_VALUE: &str = "there is no value; of a number, say with `missing` what stands for it";

/// The name of a row of a file in messages. Rows are counted from 0 in each file, as elements are; a header is not a row.
pub(super) fn row_of(file: &str, row: u64) -> String {
    format!("row {row} of {file}")
}

/// A bad value in a format that reads column by column, with its row among the rows that are read together.
#[derive(Debug)]
pub(super) struct BadValue {
    pub(super) row: usize,
    pub(super) reason: Error,
}

impl Display for BadValue {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        write!(formatter, "row {}: {:#}", self.row, self.reason)
    }
}

impl std::error::Error for BadValue {}

/// Rows of a file that are read together.
pub(super) struct Part<'a> {
    pub(super) file: &'a str,
    /// The name of these rows in messages.
    pub(super) name: String,
    /// A function that counts the rows of the file before these rows, for messages.
    pub(super) before: &'a dyn Fn() -> Result<u64>,
}

impl Part<'_> {
    /// The error of a column. If one of its values is bad, the error names the row of the file.
    pub(super) fn named(&self, column: &str, error: Error) -> Error {
        match error.downcast::<BadValue>() {
            Ok(BadValue { row, reason }) => match (self.before)() {
                Ok(before) => {
                    let row = row_of(self.file, before.saturating_add(row as u64));
                    reason.context(format!("{row}, column `{column}`"))
                }
                Err(error) => error,
            },
            Err(error) => error.context(format!("column `{column}`")).context(self.name.clone()),
        }
    }
}

/// A group of columns, by their places in the table.
pub(super) struct Wanted {
    pub(super) columns: Vec<usize>,
    pub(super) kind: Kind,
    /// The number of each class, if the classes have names.
    classes: Option<HashMap<String, u32>>,
}

/// The columns that a source asks for.
#[derive(Clone)]
pub(super) enum Choice {
    /// Groups of columns, each of which becomes one array.
    Groups(Vec<Group>),
    /// All columns other than these, each for itself.
    AllBut(Vec<String>),
    /// Each of these columns for itself. A table has no other columns, except for those to leave out.
    Each { columns: Vec<String>, without: Vec<String> },
}

impl Choice {
    /// The choice for the next tables, after a table with these columns.
    pub(super) fn after(self, names: &[String]) -> Choice {
        match self {
            Choice::AllBut(without) => {
                let columns = names.iter().filter(|name| !without.contains(name)).cloned().collect();
                Choice::Each { columns, without }
            }
            choice @ (Choice::Groups(_) | Choice::Each { .. }) => choice,
        }
    }
}

/// The requested columns of a table with these columns. Fails if a column is missing or repeated.
pub(super) fn wanted(file: &str, names: &[String], choice: &Choice) -> Result<Vec<Wanted>> {
    let each = |places: Vec<usize>| {
        let single = |place| Wanted { columns: vec![place], kind: Kind::Numbers, classes: None };
        places.into_iter().map(single).collect()
    };
    match choice {
        Choice::Groups(groups) => wanted_groups(file, names, groups),
        Choice::AllBut(without) => all_but(file, names, without).map(each),
        Choice::Each { columns, without } => same(file, names, columns, without).map(each),
    }
}

/// The places of all columns other than `without`. Fails if one of those does not exist, or if a column that is left has no name or
/// the name of another column.
fn all_but(file: &str, names: &[String], without: &[String]) -> Result<Vec<usize>> {
    if names.is_empty() {
        bail!("{file} is empty: it has not even a header");
    }
    if let Some(unknown) = without.iter().find(|name| !names.contains(name)) {
        bail!("{file} has no column `{unknown}` to drop; it has {}", listed(names));
    }
    let places: Vec<usize> = (0..names.len()).filter(|place| !without.contains(&names[*place])).collect();
    let left: Vec<&String> = places.iter().map(|place| &names[*place]).collect();
    if let Some(place) = places.iter().find(|place| names[**place].is_empty()) {
        bail!("{file}: column {place}, counted from 0, has no name in the header; name it, or call `.drop(\"\")`");
    }
    if let Some(twice) = repeated(&left) {
        bail!(
            "{file} has several columns `{twice}`; rename them, or call `.drop(\"{twice}\")`, which drops all of them"
        );
    }
    if places.is_empty() {
        bail!("{file} has no column that is not dropped; it has {}", listed(names));
    }
    Ok(places)
}

/// The places of columns that an earlier table has. Fails if this table does not have the same columns.
fn same(file: &str, names: &[String], columns: &[String], without: &[String]) -> Result<Vec<usize>> {
    let is_other = |name: &&String| !columns.contains(name) && !without.contains(name);
    if let Some(other) = names.iter().find(is_other) {
        bail!(
            "{file} has a column `{other}`, which the first file does not have; remove it there, or read other files"
        );
    }
    let place = |name: &String| match names.iter().position(|other| other == name) {
        Some(place) if names[place + 1..].contains(name) => bail!("{file} has several columns `{name}`"),
        Some(place) => Ok(place),
        None => bail!("{file} has no column `{name}`, which the first file has; it has {}", listed(names)),
    };
    columns.iter().map(place).collect()
}

fn wanted_groups(file: &str, names: &[String], groups: &[Group]) -> Result<Vec<Wanted>> {
    let place = |name: &String| {
        let mut places = (0..names.len()).filter(|place| names[*place] == *name);
        match (places.next(), places.next()) {
            (Some(place), None) => Ok(place),
            (Some(_), Some(_)) => bail!("{file} has several columns `{name}`"),
            (None, _) => bail!("{file} has no column `{name}`; it has {}", listed(names)),
        }
    };
    let named: Vec<&String> = groups.iter().flat_map(|group| group.columns.iter().flatten()).collect();
    if let Some(twice) = repeated(&named) {
        bail!("the column `{twice}` is asked for twice");
    }
    let group = |group: &Group| {
        let columns: Vec<usize> = match &group.columns {
            None => (0..names.len()).filter(|place| !named.contains(&&names[*place])).collect(),
            Some(columns) => columns.iter().map(place).collect::<Result<_>>()?,
        };
        if columns.is_empty() && group.columns.is_some() {
            bail!("no column is named for the features; name some, or call `all_features`");
        }
        if columns.is_empty() {
            bail!("{file} has no column that is not a label; it has {}", listed(names));
        }
        let classes = match &group.kind {
            Kind::Classes(Some(classes)) => Some(numbered(classes)?),
            Kind::Classes(None) | Kind::Matrix | Kind::Numbers => None,
        };
        Ok(Wanted { columns, kind: group.kind.clone(), classes })
    };
    groups.iter().map(group).collect()
}

fn numbered(classes: &[String]) -> Result<HashMap<String, u32>> {
    if classes.is_empty() {
        bail!("no class is named; name them, or call `class` for whole numbers");
    }
    match repeated(classes) {
        Some(twice) => bail!("the class `{twice}` is named twice"),
        None => Ok(classes.iter().cloned().zip(0..).collect()),
    }
}

/// The table that contains a block, and the block's number in that table. The tables have these numbers of blocks and follow each
/// other. `None` after the last block.
pub(super) fn place_of(block: u64, blocks: impl IntoIterator<Item = usize>) -> Option<(usize, usize)> {
    let mut left = block;
    for (table, blocks) in blocks.into_iter().enumerate() {
        match left.checked_sub(blocks as u64) {
            Some(behind) => left = behind,
            None => return Some((table, left as usize)),
        }
    }
    None
}

/// The first name that equals an earlier name.
fn repeated<T: Eq + Hash>(names: &[T]) -> Option<&T> {
    let mut known = HashSet::new();
    names.iter().find(|name| !known.insert(*name))
}

fn listed(names: &[String]) -> String {
    let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    names.join(", ")
}

impl Wanted {
    /// The class of a text.
    pub(super) fn class(&self, text: &str) -> Result<u32> {
        let Some(classes) = &self.classes else {
            return match text.parse() {
                Ok(class) => Ok(class),
                Err(_) => bail!(
                    "`{}` is no class: not a whole number from 0 on; list the classes' names",
                    text.escape_debug()
                ),
            };
        };
        match classes.get(text) {
            Some(class) => Ok(*class),
            None => bail!("`{}` is not among the listed classes", text.escape_debug()),
        }
    }

    /// The class of a whole number.
    pub(super) fn class_of_number(&self, number: i128) -> Result<u32> {
        if self.classes.is_none()
            && let Ok(class) = u32::try_from(number)
        {
            Ok(class)
        } else {
            self.class(&number.to_string())
        }
    }

    /// An array without rows, to which values are added.
    pub(super) fn values(&self) -> Values {
        match self.kind {
            Kind::Matrix => Values::Numbers { numbers: Vec::new(), width: Some(self.columns.len()) },
            Kind::Numbers => Values::Numbers { numbers: Vec::new(), width: None },
            Kind::Classes(_) => Values::Classes(Vec::new()),
        }
    }

    /// The values of `rows` rows in a format that reads column by column. Each column is given by its place in the table.
    pub(super) fn gather(
        &self,
        rows: usize,
        numbers: impl Fn(usize) -> Result<Vec<f32>>,
        classes: impl Fn(usize) -> Result<Vec<u32>>,
    ) -> Result<Values> {
        let (mut values, width) = (self.values(), self.columns.len());
        for (offset, column) in self.columns.iter().enumerate() {
            match &mut values {
                Values::Classes(to) => *to = classes(*column)?,
                Values::Numbers { numbers: to, .. } if width == 1 => *to = numbers(*column)?,
                Values::Numbers { numbers: to, .. } => {
                    let read = numbers(*column)?;
                    to.resize(rows * width, 0.);
                    to.iter_mut().skip(offset).step_by(width).zip(read).for_each(|(place, number)| *place = number);
                }
            }
        }
        Ok(values)
    }
}

/// The values of some rows of a group.
pub(super) enum Values {
    /// Numbers, row after row; a matrix has a width.
    Numbers {
        numbers: Vec<f32>,
        width: Option<usize>,
    },
    Classes(Vec<u32>),
}

impl Values {
    pub(super) fn into_array(self) -> Array {
        let array = |dtype: &str, dims, bytes| Array { shape: Shape { dtype: dtype.to_owned(), dims }, bytes };
        match self {
            Values::Numbers { numbers, width } => {
                let dims = match width {
                    Some(width) => vec![numbers.len() / width, width],
                    None => vec![numbers.len()],
                };
                array("f32", dims, numbers.into_iter().flat_map(f32::to_le_bytes).collect())
            }
            Values::Classes(classes) => {
                array("u32", vec![classes.len()], classes.into_iter().flat_map(u32::to_le_bytes).collect())
            }
        }
    }
}
