//! `%history` and `%reset`. The server keeps the cells of the session; the engine asks the server for the cells.

use crate::disk::write_whole;
use crate::engine::Engine;
use crate::engine::handlers::files;
use crate::execution::Output;
use crate::failure::{ErrorName, Failure};
use anyhow::{Context, Result, bail};
use ferrotune_magics::{History, Lines};
use std::ops::RangeInclusive;
use tokio::sync::oneshot;

impl Engine {
    pub(in crate::engine) fn history(&mut self, History { cells, numbered, file }: &History) -> Result<(), Failure> {
        let (reply, found) = oneshot::channel();
        self.link.emit(Output::History { range: range(*cells), reply });
        let found = found.blocking_recv().context("there is no history here").map_err(Failure::of_magic)?;
        if found.is_empty() {
            let text = "no cell of this session has such a number; %history -n shows the numbers";
            return Err(Failure::new(ErrorName::MagicError, text));
        }
        let shown: Vec<String> = found
            .iter()
            .map(|(number, source)| if *numbered { with_number(*number, source) } else { source.clone() })
            .collect();
        match file {
            None => self.show_text(shown.join("\n")),
            Some(file) => self.show_text(write(file, &(shown.join("\n\n") + "\n")).map_err(Failure::of_magic)?),
        }
        Ok(())
    }

    /// Carries out `%reset`.
    pub(in crate::engine) fn reset(&mut self) -> Result<(), Failure> {
        self.clear()?;
        self.show_text("all variables, definitions and crates are forgotten; %undo brings them back");
        Ok(())
    }
}

fn range(cells: Option<Lines>) -> RangeInclusive<u32> {
    let bounded = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
    let Lines { first, last } = cells.unwrap_or(Lines { first: 1, last: None });
    bounded(first)..=last.map_or(u32::MAX, bounded)
}

/// A cell's source with its number before the first line, and blanks of the same width before the other lines.
fn with_number(number: u32, source: &str) -> String {
    let lines = source.lines().enumerate();
    let lines =
        lines.map(|(index, line)| if index == 0 { format!("{number:4}: {line}") } else { format!("      {line}") });
    lines.collect::<Vec<_>>().join("\n")
}

fn write(file: &str, text: &str) -> Result<String> {
    let path = files::expanded(file)?;
    if path.exists() {
        bail!("{file} exists; delete it, or name another file");
    }
    write_whole(&path, text.as_bytes()).with_context(|| format!("cannot write {file}"))?;
    Ok(format!("Writing {file}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_below_the_first_stand_under_it() {
        assert_eq!(with_number(12, "fn f() {\n    1\n}"), "  12: fn f() {\n          1\n      }");
    }
}
