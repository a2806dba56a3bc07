//! The magics of devices, as Rust that the cell process runs. A device belongs to the process that computes on it, and the
//! environment of that process decides which devices it sees.
//!
//! `%tpu_check`: the cell process compiles a step of the notebook, a file, or the first step of a search's objective. A worker
//! writes that first step to a file.

use crate::engine::Engine;
use crate::engine::evaluate::report;
use crate::engine::handlers::files::expanded_text;
use crate::failure::{ErrorName, Failure};
use crate::search_process::SearchProcess;
use anyhow::{Context, Result, anyhow};
use evcxr::{CompilationError, Variable};
use ferrotune_display::Bundle;
use ferrotune_journal::{Journal, Study};
use ferrotune_magics::{CheckedProgram, DeviceChoice, TpuCheck, TpuConnect};
use ferrotune_oracle::analysis::ranking::ranked;
use ferrotune_space::given::{Given, Values};
use ferrotune_space::record::TrialRecord;
use ferrotune_space::spec::{StudySpec, Supervision};
use ferrotune_tuner::supervisor::spec_of;
use std::path::{Path, PathBuf};

/// The Rust of `%tpu_connect`.
pub(in crate::engine) fn connect(TpuConnect { choice, self_test }: &TpuConnect) -> String {
    let connect = match choice {
        DeviceChoice::Best { tpu, require } => format!("ferrotune::device::connect({tpu:?}, {require})"),
        DeviceChoice::Plugin(plugin) => {
            format!("ferrotune::device::connect_plugin({:?})", expanded_text(plugin))
        }
    };
    if *self_test { format!("if {connect} {{ ferrotune::device::self_test(); }}") } else { format!("{connect};") }
}

impl Engine {
    /// Carries out `%tpu_check`.
    pub(in crate::engine) fn tpu_check(&mut self, request: &TpuCheck) -> Result<(), Failure> {
        let tpu = &request.tpu;
        match &request.program {
            CheckedProgram::Named(name) => {
                let result = self.evaluate(&named(tpu, name, &self.evaluator.variables()));
                self.conclude(result, |errors| explain(name, errors)).map(drop)
            }
            CheckedProgram::Objective { study, trial } => {
                let folder = self.notebook.current_studies.folder_of(study)?;
                let directory = tempfile::tempdir_in(self.runtime.folder())
                    .map_err(|error| Failure::new(ErrorName::MagicError, format!("cannot make a folder: {error}")))?;
                let program = self.first_program(&folder, *trial, directory.path())?;
                self.run_generated(&check_file(tpu, &program.to_string_lossy()))
            }
        }
    }

    /// Runs a trial of the study up to its first compiled step, in a study of its own in `directory`, and returns the file with
    /// the step's program.
    fn first_program(&mut self, folder: &Path, trial: Option<u64>, directory: &Path) -> Result<PathBuf, Failure> {
        let program = directory.join("step.mlir");
        let (spec, what) = rehearsal(folder, trial, directory).map_err(Failure::of_magic)?;
        let rehearsed = directory.join(&spec.project);
        let search =
            SearchProcess::start_for_program(spec, &program, self.runtime.folder()).map_err(Failure::of_magic)?;
        let mut display = self.notebook.search_display();
        self.show_until_end(search, &mut display)?;
        self.link.emit(display.show(Bundle::text(format!("the first compiled step of {what}"))));
        if program.is_file() {
            return Ok(program);
        }
        Err(Failure::of_magic(Journal::read(&rehearsed).map_or_else(Into::into, |study| missing(&what, &study))))
    }
}

/// The Rust that checks the variable with this name, if the notebook has such a variable, or else the file with this name.
fn named(tpu: &str, program: &str, variables: &[Variable]) -> String {
    match variables.iter().find(|variable| variable.name == program) {
        Some(Variable { name, .. }) => format!("ferrotune::tpu_check::check({tpu:?}, {name:?}, &mut {name});"),
        None => check_file(tpu, &expanded_text(program)),
    }
}

fn check_file(tpu: &str, file: &str) -> String {
    format!("ferrotune::tpu_check::check_file({tpu:?}, {file:?});")
}

/// The failure of a check by name. The generated code compiles, unless the variable is declared with `let` and without `mut`.
fn explain(name: &str, errors: &[CompilationError]) -> Failure {
    if errors.iter().any(|error| error.code() == Some("E0596")) {
        let text = format!(
            "a compiled step that has run is a variable made with `let mut`, and {name} is made with `let`; a file of this \
             name is checked as ./{name}"
        );
        return Failure::new(ErrorName::MagicError, text);
    }
    report::generated(errors)
}

/// A search of one trial that has the parameters of the study's trial, and a description of the trial in words. XLA:CPU makes the
/// program: a step is the same program on each device.
fn rehearsal(folder: &Path, trial: Option<u64>, directory: &Path) -> Result<(StudySpec, String)> {
    let study = Journal::read(folder)?;
    let trial = chosen(&study, trial)?;
    let values: Values = trial.parameters.iter().map(|(name, asked)| (name.clone(), asked.value.clone())).collect();
    let written: Vec<String> = values.iter().map(|(name, value)| format!("{name} = {value}")).collect();
    let what = format!("trial {} of {} ({})", trial.number, study.spec.project, written.join(", "));
    let spec = spec_of(folder)?;
    let spec = StudySpec {
        directory: directory.to_path_buf(),
        overwrite: true,
        oracle: "random".to_owned(),
        pruner: None,
        terminator: None,
        given: Given { enqueued: vec![values], ..Given::default() },
        executions: 1,
        max_trials: 1,
        timeout_s: None,
        device: "xla:cpu".to_owned(),
        supervision: Supervision { concurrency: 1, retries: 0, mirror: None, tensorboard: None, ..spec.supervision },
        ..spec
    };
    Ok((spec, what))
}

/// The trial with the given number; without a number the best trial, or else the first trial.
fn chosen(study: &Study, number: Option<u64>) -> Result<&TrialRecord> {
    let (trials, name) = (&study.trials, &study.spec.project);
    if let Some(number) = number {
        let trial = trials.iter().find(|trial| trial.number == number);
        return trial.with_context(|| format!("study {name} has no trial {number}; it has {}", trials.len()));
    }
    let best = ranked(trials, &study.spec, 1).first().copied();
    best.or(trials.first()).with_context(|| format!("study {name} has no trial yet, and so no parameters"))
}

/// The error about a trial that has written no program.
fn missing(what: &str, rehearsed: &Study) -> anyhow::Error {
    let ending = rehearsed.trials.first().and_then(|trial| trial.ending.as_ref());
    let ending = ending.map_or_else(|| "it did not begin".to_owned(), ToString::to_string);
    anyhow!("{what} has run no compiled step: {ending}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use ferrotune_space::objective::{Direction, Objective, Summary};
    use ferrotune_space::record::Ending;
    use std::collections::BTreeMap;

    #[test]
    fn a_plugin_that_the_user_wrote_stays_text() {
        let quoted = "\"); panic!(\"".to_owned();
        let request = TpuConnect { choice: DeviceChoice::Plugin(quoted), self_test: true };
        let source = connect(&request);
        let expected = r#"if ferrotune::device::connect_plugin("\"); panic!(\"") { ferrotune::device::self_test(); }"#;
        assert_eq!(source, expected);
        let request = TpuConnect { choice: DeviceChoice::Best { tpu: None, require: true }, self_test: false };
        assert_eq!(connect(&request), "ferrotune::device::connect(None, true);");
    }

    #[test]
    fn a_program_that_the_user_wrote_stays_text() {
        let source = named("v5e:2x2", "\"); panic!(\"", &[]);
        assert_eq!(source, r#"ferrotune::tpu_check::check_file("v5e:2x2", "\"); panic!(\"");"#);
    }

    #[test]
    fn a_variable_is_checked_before_a_file_of_its_name() {
        let (name, type_name) = ("step".to_owned(), "ferrotune::Step<'static>".to_owned());
        let variables = [Variable { name, type_name, is_mut: true, borrows: BTreeMap::new() }];
        let source = |program| named("v5e:2x2", program, &variables);
        assert_eq!(source("step"), r#"ferrotune::tpu_check::check("v5e:2x2", "step", &mut step);"#);
        assert_eq!(source("./step"), r#"ferrotune::tpu_check::check_file("v5e:2x2", "./step");"#);
    }

    #[test]
    fn the_best_trial_is_checked_and_the_first_where_none_has_finished() {
        let loss = Objective { metric: "loss".to_owned(), direction: Direction::Min, summary: Summary::Best };
        let trials = (0..3).map(TrialRecord::new).collect();
        let spec = StudySpec::new("digits", vec![loss]);
        let mut study = Study { spec, trials, times: Vec::new(), defaults: BTreeMap::new() };
        let number =
            |study: &Study, number| chosen(study, number).map(|trial| trial.number).map_err(|error| error.to_string());
        assert_eq!(number(&study, None), Ok(0));
        study.trials[1] = TrialRecord { values: vec![0.5], ending: Some(Ending::Finished), ..TrialRecord::new(1) };
        assert_eq!(number(&study, None), Ok(1));
        assert_eq!(number(&study, Some(2)), Ok(2));
        assert_eq!(number(&study, Some(7)), Err("study digits has no trial 7; it has 3".to_owned()));
        study.trials.clear();
        assert_eq!(number(&study, None), Err("study digits has no trial yet, and so no parameters".to_owned()));
    }
}
