//! What columns of tables become: which ones are asked for, and the arrays that their values go to.

use crate::wire::{Array, Group, Kind, Shape};
use anyhow::{Result, bail};
use std::collections::HashMap;

/// A group whose columns are places in the table.
pub(super) struct Wanted {
    pub(super) columns: Vec<usize>,
    pub(super) kind: Kind,
    classes: HashMap<String, u32>,
}

/// The groups of a table that has these columns. Fails if one is missing, or named twice.
pub(super) fn wanted(file: &str, names: &[String], groups: &[Group]) -> Result<Vec<Wanted>> {
    let place = |name: &String| match names.iter().position(|other| other == name) {
        Some(place) => Ok(place),
        None => bail!("{file} has no column `{name}`; it has {}", listed(names)),
    };
    let named: Vec<&String> = groups.iter().flat_map(|group| &group.columns).collect();
    groups
        .iter()
        .map(|group| {
            let columns: Vec<usize> = match group.columns.as_slice() {
                [] => (0..names.len()).filter(|place| !named.contains(&&names[*place])).collect(),
                columns => columns.iter().map(place).collect::<Result<_>>()?,
            };
            if columns.is_empty() {
                bail!("{file} has no column that is not a label; it has {}", listed(names));
            }
            let classes = match &group.kind {
                Kind::Classes(classes) => classes.iter().cloned().zip(0..).collect(),
                Kind::Matrix | Kind::Numbers => HashMap::new(),
            };
            Ok(Wanted { columns, kind: group.kind.clone(), classes })
        })
        .collect()
}

fn listed(names: &[String]) -> String {
    let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    names.join(", ")
}

impl Wanted {
    /// The class that a text stands for.
    pub(super) fn class(&self, text: &str) -> Result<u32> {
        if self.classes.is_empty() {
            return match text.parse() {
                Ok(class) => Ok(class),
                Err(_) => bail!("`{text}` is no class: not a whole number from 0 on; list the classes' names"),
            };
        }
        match self.classes.get(text) {
            Some(class) => Ok(*class),
            None => bail!("`{text}` is not among the listed classes"),
        }
    }

    /// The class that a whole number stands for.
    pub(super) fn class_of_number(&self, number: i64) -> Result<u32> {
        if self.classes.is_empty()
            && let Ok(class) = u32::try_from(number)
        {
            Ok(class)
        } else {
            self.class(&number.to_string())
        }
    }

    /// An array without rows.
    pub(super) fn values(&self) -> Values {
        match self.kind {
            Kind::Matrix => Values::Numbers { numbers: Vec::new(), width: Some(self.columns.len()) },
            Kind::Numbers => Values::Numbers { numbers: Vec::new(), width: None },
            Kind::Classes(_) => Values::Classes(Vec::new()),
        }
    }
}

/// The values of some rows.
pub(super) enum Values {
    /// Row after row; a matrix has a width.
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
