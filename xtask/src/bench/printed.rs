//! The tables that examples of our crates measure. An example prints a line `WHAT: FIGURES` for each row; XLA:CPU is the tests' own.

use super::{Request, without_options};
use crate::environment::{Environment, build_program, cargo};
use crate::step;
use anyhow::{Context, Result};
use std::fmt::Write as _;

/// The path and the version of XLA:CPU, one on each line.
const PLUGIN: &str = "import importlib.metadata, pathlib, fastatomstruct_xla_cpu as plugin\n\
                      print(pathlib.Path(plugin.__file__).with_name('libpjrt_cpu.so'))\n\
                      print(importlib.metadata.version('fastatomstruct-xla-cpu'))";

/// What the device process costs, in the order in which the example prints it.
const GOALS: [&str; 7] = ["500 ms", "+5 µs", "+60 µs", "+5 µs", "+60 µs", "1.11 ×", "1.11 ×"];

/// `Fit` beside a loop by hand, on the CPU and on XLA:CPU.
pub(super) fn fit(request: &Request<'_>) -> Result<Option<String>> {
    text(request, ["ferrotune-fit", "epochs"], &[("the CPU, ", &[]), ("the plugin, ", &["PLUGIN"])], &[])
}

/// A compiled step beside its bare execution.
pub(super) fn compiled_step(request: &Request<'_>) -> Result<Option<String>> {
    text(request, ["ferrotune-xla", "steps"], &[("", &["PLUGIN"])], &[])
}

/// Loops that read a value in each step.
pub(super) fn reads(request: &Request<'_>) -> Result<Option<String>> {
    text(request, ["ferrotune-xla", "reads"], &[("", &["PLUGIN"])], &[])
}

/// A plugin in the process itself beside one in the device process.
pub(super) fn device_process(request: &Request<'_>) -> Result<Option<String>> {
    step::step("build", || build_program(request.root))?;
    text(request, ["ferrotune-xla", "process"], &[("", &["PLUGIN", "target/release/ferrotune"])], &GOALS)
}

/// Runs the example of a package once for each list of arguments, among which `PLUGIN` stands for XLA:CPU's path. The rows of a run
/// begin with its label.
fn text(
    request: &Request<'_>,
    [package, example]: [&str; 2],
    runs: &[(&str, &[&str])],
    goals: &[&str],
) -> Result<Option<String>> {
    without_options(request)?;
    let environment = step::step("tools", || Environment::prepare_for_tests(request.root))?;
    let plugin = step::output(environment.python().args(["-c", PLUGIN]))?;
    let (path, version) = plugin.trim().split_once('\n').context("Python does not say where XLA:CPU is")?;
    let mut lines = Vec::new();
    for (label, arguments) in runs {
        let mut run = cargo(request.root);
        run.args(["run", "--quiet", "--release", "--locked", "--package", package, "--example", example, "--"]);
        run.args(arguments.iter().map(|argument| if *argument == "PLUGIN" { path } else { argument }));
        let printed = step::step(&format!("{label}{example}"), || step::output(&mut run))?;
        lines.extend(printed.lines().map(|line| format!("{label}{line}")));
    }
    let table = table(&lines, goals)?;
    Ok(Some(format!(
        "`cargo run --release -p {package} --example {example}`, with `fastatomstruct-xla-cpu` {version} as the plugin.\n\n{table}"
    )))
}

/// A row for each line, with its goal if there are goals.
fn table(lines: &[String], goals: &[&str]) -> Result<String> {
    let mut text = String::from("| | measured |");
    text += if goals.is_empty() { "\n|---|---|\n" } else { " goal |\n|---|---|---|\n" };
    for (index, line) in lines.iter().enumerate() {
        let (what, figures) =
            line.split_once(':').with_context(|| format!("the example prints `{line}`, which names nothing"))?;
        write!(text, "| {what} | {} |", figures.trim())?;
        let goal = goals.get(index).map(|goal| format!(" {goal} |")).unwrap_or_default();
        writeln!(text, "{goal}")?;
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_a_row() {
        let lines = ["a step: 4 µs, alone: 3 µs", "peak:\t12 kB"].map(str::to_owned);
        assert_eq!(
            table(&lines, &[]).unwrap(),
            "| | measured |\n|---|---|\n| a step | 4 µs, alone: 3 µs |\n| peak | 12 kB |\n"
        );
        assert_eq!(
            table(&lines, &["5 µs", "9 kB"]).unwrap(),
            "| | measured | goal |\n|---|---|---|\n| a step | 4 µs, alone: 3 µs | 5 µs |\n| peak | 12 kB | 9 kB |\n"
        );
        assert!(table(&["nothing".to_owned()], &[]).is_err());
    }
}
