//! The cells that have run, which map a place in a generated source to a place in the notebook: `In [3] line 2`.

use crate::compile::generated_source;
use crate::engine::evaluate::place::{Place, SplitCell};
use ferrotune_space::spec::ItemLines;
use std::collections::HashMap;

/// The cells of a notebook in the order in which they ran.
#[derive(Debug, Default)]
pub(in crate::engine) struct Places {
    cells: Vec<Ran>,
    /// The number of cells that are earlier than the running cell.
    earlier: usize,
    /// A cache of found places, since a loop may ask for the same place in each round.
    found: HashMap<String, Option<Found>>,
}

#[derive(Debug)]
struct Ran {
    number: Option<u32>,
    split: SplitCell,
    lines: Vec<String>,
}

/// A place in the notebook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::engine) struct Found {
    /// The place's name for users, as in `In [3] line 2`.
    pub(in crate::engine) name: String,
    /// The text of the user's line.
    pub(in crate::engine) line: String,
}

impl Places {
    /// Begins a cell: all cells so far become earlier cells.
    pub(in crate::engine) fn begin_cell(&mut self) {
        self.earlier = self.cells.len();
        self.found.clear();
    }

    /// Adds lines of the running cell before they run: the user's lines, and the prepared lines for evcxr.
    pub(in crate::engine) fn add(&mut self, number: Option<u32>, cell: &str, prepared: &str) {
        let lines: Vec<String> = cell.lines().map(str::to_owned).collect();
        // A cell that runs again replaces its earlier entry.
        self.earlier -= self.cells[..self.earlier].iter().filter(|ran| ran.lines == lines).count();
        self.cells.retain(|ran| ran.lines != lines);
        self.cells.push(Ran { number, split: SplitCell::of(prepared), lines });
        self.found.clear();
    }

    /// The place in the notebook of a location, `file:line:column`; none if the location is not in a line of a cell.
    pub(in crate::engine) fn find(&mut self, location: &str) -> Option<Found> {
        if let Some(found) = self.found.get(location) {
            return found.clone();
        }
        let found = generated_source(location).and_then(|(source, line)| self.find_line(&source, line));
        self.found.insert(location.to_owned(), found.clone());
        found
    }

    /// The lines of earlier cells' items in a generated source. `location`, `file:line:column`, is in that source, behind the items.
    pub(in crate::engine) fn items(&self, location: &str) -> Vec<ItemLines> {
        let Some((source, end)) = generated_source(location) else { return Vec::new() };
        let generated: Vec<&str> = source.lines().collect();
        let mut items: Vec<ItemLines> = Vec::new();
        for line in 1..end {
            let Some((_, cell, place)) = self.cell_of(&generated, line) else { continue };
            let number = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
            let (line, cell_line) = (number(line), number(place.line));
            match items.last_mut() {
                Some(last)
                    if last.cell == cell.number
                        && last.line + last.count == line
                        && last.cell_line + last.count == cell_line =>
                {
                    last.count += 1;
                }
                _ => items.push(ItemLines { line, count: 1, cell: cell.number, cell_line }),
            }
        }
        items
    }

    /// The last cell that has a line of a generated source, with the cell's index and the place in the cell.
    fn cell_of(&self, generated: &[&str], line: usize) -> Option<(usize, &Ran, Place)> {
        let cells = self.cells.iter().enumerate().rev();
        cells.filter_map(|(at, cell)| Some((at, cell, cell.split.place(generated, line)?))).next()
    }

    fn find_line(&self, source: &str, line: usize) -> Option<Found> {
        let generated: Vec<&str> = source.lines().collect();
        let (at, cell, place) = self.cell_of(&generated, line)?;
        let name = match cell.number {
            _ if at >= self.earlier => format!("line {} of the cell", place.line),
            Some(number) => format!("In [{number}] line {}", place.line),
            None => format!("line {} of a cell without a number", place.line),
        };
        Some(Found { name, line: cell.lines.get(place.line - 1)?.clone() })
    }

    /// A location as text for users: the place in the notebook, none for a generated line, and a location in another file unchanged.
    pub(in crate::engine) fn text(&mut self, location: &str) -> Option<String> {
        match self.find(location) {
            Some(found) => Some(found.name),
            None => generated_source(location).is_none().then(|| location.to_owned()),
        }
    }
}
