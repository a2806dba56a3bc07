//! Dispatches magics: each action of `magics/` is one call here. Shows the bundles that they return.

use super::evaluator::EXECUTION;
use super::{Engine, devices, studies};
use crate::execution::{Output, Stream};
use crate::failure::{ErrorName, Failure};
use anyhow::{Context, Result};
use ferrotune_display::Bundle;
use ferrotune_machine::format::duration;
use ferrotune_magics::{Action, Study, Time, TpuCheck};
use std::path::Path;
use std::time::{Duration, Instant};

impl Engine {
    /// Carries out a magic; `cell` is the source of the whole cell.
    pub(super) fn act(&mut self, cell: &str, action: Action) -> Result<(), Failure> {
        match action {
            Action::TpuConnect(request) => self.run_generated(&devices::connect(&request)),
            Action::TpuCheck(request) => self.tpu_check(&request),
            Action::Device => self.run_generated("ferrotune::device::describe();"),
            Action::DeviceReport => self.run_generated("ferrotune::device::report();"),
            Action::Devices => self.run_generated("ferrotune::device::list();"),
            Action::Tune(tune) => self.tune(cell, &tune),
            Action::Resume(request) => self.resume(&request),
            Action::Search(request) => self.act_on_search(&request),
            Action::Trials(request) => self.show_study(&request.study, |folder| studies::trials(folder, &request)),
            Action::Best(request) => self.show_study(&request.study, |folder| studies::best(folder, &request)),
            Action::Space(study) => self.show_study(&study, studies::space),
            Action::Plot(request) => self.show_study(&request.study, |folder| studies::plot(folder, &request)),
            Action::Export(request) => self.show_study(&request.study, |folder| studies::export(folder, &request)),
            Action::Studies { directory } => {
                self.show_result(studies::overview(&self.notebook.directory(directory.as_deref())))
            }
            Action::Undo { count } => self.undo(count),
            Action::Checkpoint { name } => self.checkpoint(&name),
            Action::Restore { name } => self.restore_checkpoint(&name),
            Action::Checkpoints => self.checkpoints(),
            Action::Memory(memory) => self.memory(memory),
            Action::Gc { all } => self.gc(all),
            Action::Lsmagic => {
                self.show_text(ferrotune_magics::lsmagic());
                Ok(())
            }
            Action::Help { name } => {
                let help = ferrotune_magics::help(&name).with_context(|| format!("there is no magic {name}"));
                self.show_result(help.map(Bundle::text))
            }
            Action::Time(Time { source, first_line }) => self.time(&source, first_line),
        }
    }

    /// `%tpu_check`
    fn tpu_check(&mut self, request: &TpuCheck) -> Result<(), Failure> {
        let source = devices::check(request, &self.evaluator.variables());
        let result = self.evaluate(&source);
        self.conclude(result, |errors| devices::explain(request, errors)).map(drop)
    }

    pub(super) fn show(&self, bundle: Bundle) {
        self.link.emit(Output::display(bundle));
    }

    pub(super) fn show_text(&self, text: impl Into<String>) {
        self.show(Bundle::text(text));
    }

    fn show_result(&self, result: Result<Bundle>) -> Result<(), Failure> {
        let bundle = result.map_err(|error| Failure::from_error(ErrorName::MagicError, &error))?;
        self.show(bundle);
        Ok(())
    }

    fn show_study(&self, study: &Study, bundle: impl FnOnce(&Path) -> Result<Bundle>) -> Result<(), Failure> {
        self.show_result(bundle(&self.notebook.folder_of(study)?))
    }

    /// `%time`
    fn time(&mut self, source: &str, first_line: usize) -> Result<(), Failure> {
        let started = Instant::now();
        let outputs = self.run_user_code(source, first_line)?;
        let total = started.elapsed();
        let phases = outputs.phases.iter().filter(|phase| phase.name == EXECUTION);
        let run: Duration = phases.map(|phase| phase.duration).sum();
        let text = format!("Wall time: {} (and {} to compile)\n", duration(run), duration(total.saturating_sub(run)));
        self.link.emit(Output::Stream(Stream::Stdout, text));
        Ok(())
    }
}
