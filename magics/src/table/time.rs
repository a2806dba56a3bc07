//! The magics that measure the time or the memory of Rust.

use crate::action::{Action, Measure, Time, Timeit};
use crate::arguments::Arguments;
use crate::call;
use crate::error::{MagicError, Problem};
use crate::magic::{Invocation, Magic, MagicOption};
use crate::values::count;

pub(super) const TIME: Magic = Magic {
    forms: &["%time", "%%time"],
    usage: "%time STATEMENT, or %%time on the first line of a cell",
    summary: "run a statement or a cell and say how long it took",
    help: "%time runs the rest of its line; %%time runs the cell below it. Compiling is not counted.\n\
           \n\
           Example\n  %time data.sum_all()?\n\n  %%time\n  for epoch in 0..10 {\n      fit(&mut model)?;\n  }",
    arguments: &[],
    options: &[],
    runs_line: true,
    build: time,
};

/// The default number of measurements, as in IPython.
const RUNS: u64 = 7;

const LOOPS_OPTION: MagicOption =
    MagicOption::new("-n", "N", "how often one measurement runs it; without it as often as takes 0.2 s");
const RUNS_OPTION: MagicOption = MagicOption::new("-r", "N", "how many measurements").or(|| RUNS.to_string());

pub(super) const TIMEIT: Magic = Magic {
    forms: &["%timeit", "%%timeit"],
    usage: "%timeit {options} STATEMENT, or %%timeit {options} [SETUP] on the first line of a cell",
    summary: "run a statement or a cell many times and say how long one run takes",
    help: "Shows mean and standard deviation of several measurements, and the best of them. The Rust is compiled once,\n\
           as optimised as any cell, into a closure that borrows the notebook's variables; its value goes into\n\
           std::hint::black_box, and it is called in a way that the compiler cannot look through, which costs a few\n\
           nanoseconds. It runs a few times first, which is not counted. What it defines is gone afterwards.\n\
           The SETUP of %%timeit runs before each measurement, which does not count it.\n\
           \n\
           Example\n  %timeit data.iter().sum::<f64>()\n\n  %%timeit -r 3 let mut numbers = data.clone();\n  numbers.sort();",
    arguments: &[],
    options: &[LOOPS_OPTION, RUNS_OPTION],
    runs_line: true,
    build: timeit,
};

pub(super) const MEMIT: Magic = Magic {
    forms: &["%memit", "%%memit"],
    usage: "%memit STATEMENT, or %%memit [SETUP] on the first line of a cell",
    summary: "run a statement or a cell and say how much memory it takes at its peak",
    help: "Shows the most memory that the process of the cells held while the Rust ran, and by how much that exceeds what it\n\
           held before. The Rust runs once, borrows the notebook's variables, and its value counts. The numbers are exact to\n\
           about a MiB, and memory of accelerators is not in them. The SETUP of %%memit runs before and does not count.\n\
           \n\
           Example\n  %memit data.clone()\n\n  %%memit let copies = 3;\n  vec![data.clone(); copies]",
    arguments: &[],
    options: &[],
    runs_line: true,
    build: memit,
};

fn time(invocation: &Invocation<'_>) -> Result<Action, MagicError> {
    match invocation.body {
        Some(_) if !invocation.rest.trim().is_empty() => Err(invocation.unexpected(invocation.rest.trim())),
        _ => timed(invocation).map(Action::Time),
    }
}

/// The Rust to time: the body of the cell, or the rest of the line.
fn timed(invocation: &Invocation<'_>) -> Result<Time, MagicError> {
    let (source, first_line) = match invocation.body {
        Some(body) => (body.to_owned(), invocation.line + 1),
        None => (in_column(invocation.column, invocation.rest), invocation.line),
    };
    if invocation.body.is_none() {
        whole(invocation, &source, first_line)?;
    } else if call::body(invocation, &source, first_line)?.is_blank {
        return Err(invocation.nothing_to_run());
    }
    Ok(Time { source, first_line })
}

/// Refuses Rust of one line that is blank, or that continues below the line.
fn whole(invocation: &Invocation<'_>, source: &str, line: usize) -> Result<(), MagicError> {
    let body = call::body(invocation, source, line)?;
    if body.is_blank {
        return Err(invocation.nothing_to_run());
    }
    if body.is_open {
        let problem = Problem::Unfinished { magic: invocation.magic.forms[0] };
        return Err(MagicError { line: invocation.line, problem, usage: None });
    }
    Ok(())
}

fn in_column(column: usize, rest: &str) -> String {
    format!("{}{rest}", " ".repeat(column))
}

fn memit(invocation: &Invocation<'_>) -> Result<Action, MagicError> {
    measured(invocation, "", invocation.rest, Measure::Memory)
}

fn timeit(invocation: &Invocation<'_>) -> Result<Action, MagicError> {
    let (options, rust) = invocation.rest.split_at(options_end(invocation.rest));
    let arguments = Invocation { rest: options, ..*invocation };
    let arguments = Arguments::read(&arguments)?;
    let loops = arguments.option(&LOOPS_OPTION, count)?;
    let runs = arguments.option(&RUNS_OPTION, count)?.unwrap_or(RUNS);
    measured(invocation, options, rust, Measure::Time { loops, runs })
}

/// The action that measures Rust. `rust` is the text behind the options: the Rust of a line magic, or the setup of a cell magic.
fn measured(invocation: &Invocation<'_>, options: &str, rust: &str, measure: Measure) -> Result<Action, MagicError> {
    let column = invocation.column + options.chars().count();
    let Time { source, first_line } = timed(&Invocation { rest: rust, column, ..*invocation })?;
    let is_setup = invocation.body.is_some() && !rust.trim().is_empty();
    let setup = is_setup.then(|| in_column(column, rust));
    if let Some(setup) = &setup {
        whole(invocation, setup, invocation.line)?;
    }
    Ok(Action::Timeit(Timeit { measure, setup, source, first_line }))
}

/// The end of the options behind a magic's name, where the Rust begins. `-n` is an option if a number follows, and otherwise Rust.
pub(crate) fn options_end(rest: &str) -> usize {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let mut end = 0;
    loop {
        let (word, behind) = first_word(&rest[end..]);
        let is_long = word.strip_prefix("--").is_some_and(|name| name.starts_with(char::is_alphabetic));
        let is_short = |option: &MagicOption| word.strip_prefix(option.name);
        let short = is_short(&LOOPS_OPTION).or_else(|| is_short(&RUNS_OPTION));
        let value = short.filter(|value| value.is_empty()).map(|_| first_word(&rest[end + behind..]));
        end += match value {
            Some((value, length)) if is_number(value) => behind + length,
            None if is_long || short.is_some_and(is_number) => behind,
            _ => return end,
        };
    }
}

/// The first word of a text, and the offset of its end.
fn first_word(text: &str) -> (&str, usize) {
    let word = text.split_whitespace().next().unwrap_or_default();
    let start = text.len() - text.trim_start().len();
    (word, start + word.len())
}
