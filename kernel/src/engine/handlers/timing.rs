//! `%time`, `%timeit` and `%memit`. `%timeit` and `%memit` become a call of `ferrotune::cell` with the user's Rust in closures. The
//! user's Rust keeps its lines and columns in the cell.

use crate::engine::Engine;
use crate::engine::evaluate::insertions::Insertions;
use crate::engine::evaluate::report;
use crate::execution::{Output, Stream};
use crate::failure::{ErrorName, Failure};
use ferrotune_machine::format::duration;
use ferrotune_magics::{Measure, Time, Timeit};
use proc_macro2::LineColumn;
use std::time::Instant;

/// The type that evcxr gives to errors at a `?`.
const RESULT: &str = "::std::result::Result<(), EvcxrUserCodeError>";

impl Engine {
    /// Carries out `%time`.
    pub(in crate::engine) fn time(&mut self, Time { source, first_line }: &Time) -> Result<(), Failure> {
        let started = Instant::now();
        let run = self.run_user_code(source, *first_line)?.run_time.unwrap_or_default();
        let total = started.elapsed();
        let text = format!("Wall time: {} (and {} to compile)\n", duration(run), duration(total.saturating_sub(run)));
        self.link.emit(Output::Stream(Stream::Stdout, text));
        Ok(())
    }

    /// Carries out `%timeit` and `%memit`.
    pub(in crate::engine) fn timeit(&mut self, request: &Timeit) -> Result<(), Failure> {
        let (own, source, insertions) = expanded(request);
        self.link.will_run(self.notebook.count, &own, &source);
        let result = self.evaluate(&source);
        let is_users = |line| line <= own.lines().count();
        self.conclude(result, |errors| report::compilation(errors, &source, is_users, &insertions))?;
        if self.link.is_interrupted() {
            return Err(Failure::new(ErrorName::Interrupted, "the measurement was interrupted; no variable is lost"));
        }
        Ok(())
    }
}

/// The user's lines, the generated cell, and the insertions into the user's lines.
fn expanded(request: &Timeit) -> (String, String, Insertions) {
    let Timeit { measure, setup, source, first_line } = request;
    let (above, lines) = match setup {
        Some(setup) => (first_line.saturating_sub(2), format!("{setup}\n{source}")),
        None => (first_line - 1, source.clone()),
    };
    let padded = format!("{}{lines}", "\n".repeat(above));
    let (call, run) = match measure {
        Measure::Time { loops, runs } => {
            (format!("timing::measure(::std::option::Option::{loops:?}, {runs}, "), "time")
        }
        Measure::Memory => ("memory::measure(".to_owned(), "run"),
    };
    let measure = format!("{{ ::ferrotune::cell::{call}|ferrotune_measurement| -> {RESULT} {{ ");
    let time = format!("ferrotune_measurement.{run}(|| -> {RESULT} {{ ::std::hint::black_box({{ ");
    let at = |line| LineColumn { line, column: 0 };
    let texts = match setup {
        Some(_) => vec![(at(first_line - 1), measure), (at(*first_line), format!("; {time}"))],
        None => vec![(at(*first_line), measure + &time)],
    };
    let (source, insertions) = Insertions::into(&padded, texts);
    (padded, format!("{source}\n}}); Ok(()) }}) }})?; }};"), insertions)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timeit(cell: &str) -> String {
        match ferrotune_magics::parse(cell).unwrap().remove(0) {
            ferrotune_magics::Step::Action(ferrotune_magics::Action::Timeit(request)) => {
                let (own, source, insertions) = expanded(&request);
                let lines = insertions.original_lines(&source).into_iter().take(own.lines().count());
                lines.map(|line| line + "\n").collect()
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_users_lines_and_columns_stay() {
        assert_eq!(timeit("%timeit -r 3 a.len() // all"), "             a.len() // all\n");
        assert_eq!(timeit("%%timeit let b = a;\n\nb.len()"), "         let b = a;\n\nb.len()\n");
        assert_eq!(timeit("\n%%timeit\na\n"), "\n\na\n");
    }
}
