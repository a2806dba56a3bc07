//! The dispatch of magics: each action of `magics/` is one call in this file. Shows the bundles that magics return.

use crate::engine::Engine;
use crate::engine::handlers::{devices, read_only, studies};
use crate::execution::{Output, Payload};
use crate::failure::Failure;
use anyhow::Result;
use ferrotune_display::Bundle;
use ferrotune_magics::{Action, Study};
use std::path::Path;

impl Engine {
    /// Carries out a magic; `cell` is the source of the whole cell.
    pub(in crate::engine) fn act(&mut self, cell: &str, action: Action) -> Result<(), Failure> {
        match action {
            Action::Trials(_)
            | Action::TrialProfile(_)
            | Action::Best(_)
            | Action::Space(_)
            | Action::Plot(_)
            | Action::Studies { .. }
            | Action::Lsmagic { .. }
            | Action::Help { .. } => self.look_up(&action),
            Action::TpuConnect(request) => self.run_generated(&devices::connect(&request)),
            Action::TpuCheck(request) => self.tpu_check(&request),
            Action::Device => self.run_generated("ferrotune::device::describe();"),
            Action::DeviceClose => self.run_generated("ferrotune::device::close();"),
            Action::DeviceReport => self.run_generated("ferrotune::device::report();"),
            Action::Devices => self.run_generated("ferrotune::device::list();"),
            Action::Tune(tune) => self.tune(cell, &tune),
            Action::Resume(request) => self.resume(&request),
            Action::Search(request) => self.act_on_search(&request),
            Action::Export(request) => self.show_study(&request.study, |folder| studies::export(folder, &request)),
            Action::Undo { count } => self.undo(count),
            Action::Checkpoint { name } => self.checkpoint(&name),
            Action::Restore { name } => self.restore_checkpoint(&name),
            Action::Checkpoints => self.checkpoints(),
            Action::Memory(memory) => self.memory(memory),
            Action::Gc { all } => self.gc(all),
            Action::Time(request) => self.time(&request),
            Action::Profile(request) => self.profile(&request),
            Action::Timeit(request) => self.timeit(&request),
            Action::Who(request) => self.who(&request),
            Action::WriteFile(request) => self.write_file(&request),
            Action::Load(request) => self.load(&request),
            Action::Run { path } => self.run_file(&path),
            Action::Cd(folder) => self.change_folder(&folder),
            Action::Env(request) => self.environment(&request),
            Action::History(request) => self.history(&request),
            Action::Reset => self.reset(),
            Action::Dep(request) => self.add_crate(&request),
            Action::Opt { level } => self.run_user_code(&format!(":opt {level}"), 1).map(drop),
            Action::Doc { name } => self.document(&name),
            Action::Inspect(request) => self.answer(&request),
            Action::Show { mime_type, text } => {
                self.show(Bundle::text(text.as_str()).with(mime_type, text));
                Ok(())
            }
            Action::Shell(shell) => self.run_shell(&shell),
        }
    }

    pub(in crate::engine) fn show(&self, bundle: Bundle) {
        self.link.emit(Output::display(bundle));
    }

    pub(in crate::engine) fn show_text(&self, text: impl Into<String>) {
        self.show(Bundle::text(text));
    }

    pub(in crate::engine) fn show_result(&self, result: Result<Bundle>) -> Result<(), Failure> {
        let bundle = result.map_err(Failure::of_magic)?;
        self.show(bundle);
        Ok(())
    }

    /// Carries out a read-only magic.
    fn look_up(&self, action: &Action) -> Result<(), Failure> {
        let look = read_only::look(action).expect("`act` gives only magics that look");
        look(&self.notebook.current_studies)?.into_iter().for_each(|output| self.link.emit(output));
        Ok(())
    }

    fn show_study(&self, study: &Study, bundle: impl FnOnce(&Path) -> Result<Bundle>) -> Result<(), Failure> {
        self.show_result(bundle(&self.notebook.current_studies.folder_of(study)?))
    }

    /// Shows a text in the front end's pager.
    pub(in crate::engine) fn page(&self, result: Result<Bundle>) -> Result<(), Failure> {
        let bundle = result.map_err(Failure::of_magic)?;
        self.link.emit(Output::Payload(Payload::Page(bundle.data)));
        Ok(())
    }
}
