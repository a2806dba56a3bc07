//! `%%tune`, `%resume` and `%tune status|wait|stop`, which begin searches and follow them.

mod spec;

use crate::chain;
use crate::engine::Engine;
use crate::engine::evaluate::insertions::Insertions;
use crate::engine::handlers::objective::Objective;
use crate::engine::handlers::watch;
use crate::execution::LiveDisplay;
use crate::failure::{ErrorName, Failure};
use crate::search_process::{SearchProcess, progress, trust};
use ferrotune_display::Bundle;
use ferrotune_link::Answer;
use ferrotune_magics::{Resume, Search, SearchVerb, Tune};
use ferrotune_tuner::supervisor::Origin;
use std::path::PathBuf;
use std::sync::mpsc;

impl Engine {
    /// Carries out `%%tune`: runs the objective's cell, which requests a search while it runs, and follows that search. `cell` is the
    /// source of the whole cell.
    pub(in crate::engine) fn tune(&mut self, cell: &str, tune: &Tune) -> Result<(), Failure> {
        let objective = Objective::expand(tune, &self.evaluator.variables())?;
        let (sender, searches) = mpsc::channel();
        let search = Objective::search(tune, &self.undo.now.items())?;
        let (description, runtime_folder) = (search.clone(), self.runtime.folder().to_owned());
        self.link.set_tuner(Some(Box::new(move |request| {
            let spec = spec::spec(description.clone(), request);
            match spec.and_then(|spec| SearchProcess::start(spec, &trust(Origin::User), &runtime_folder)) {
                Ok(search) => match sender.send(search) {
                    Ok(()) => Answer::Done,
                    Err(_) => Answer::Refused { reason: "the kernel is ending".to_owned() },
                },
                Err(error) => Answer::Refused { reason: chain::in_one_line(&error) },
            }
        })));
        let mut display = self.notebook.search_display();
        self.link.emit(display.show(progress::compiling(&search.project)));
        let result = self.evaluate(&objective.source);
        self.link.set_tuner(None);
        let concluded = self.conclude(result, |errors| objective.explain(errors));
        self.show_warnings(cell, &objective.source, &Insertions::default());
        let ended = |_| Failure::new(ErrorName::TuneError, "the cell ended before the search began");
        match concluded.and_then(|_| searches.try_recv().map_err(ended)) {
            Ok(process) => self.follow(process, display),
            Err(failure) => {
                self.link.emit(display.end(Bundle::text(format!("{}: did not begin", search.project))));
                Err(failure)
            }
        }
    }

    /// Carries out `%resume`.
    pub(in crate::engine) fn resume(&mut self, request: &Resume) -> Result<(), Failure> {
        let folder = self.notebook.current_studies.folder_of(&request.study)?;
        let origin = if request.trust { Origin::User } else { Origin::Study };
        let search = spec::resumed(&folder, request)
            .and_then(|spec| SearchProcess::start(spec, &trust(origin), self.runtime.folder()))
            .map_err(|error| Failure::from_error(ErrorName::TuneError, &error))?;
        let display = self.notebook.search_display();
        self.follow(search, display)
    }

    /// Carries out `%tune status|wait|stop`.
    pub(in crate::engine) fn act_on_search(&mut self, request: &Search) -> Result<(), Failure> {
        let mut folders = vec![self.notebook.current_studies.folder_of(&request.study)?];
        if request.study.project.is_none() {
            let running = watch::running_of(&self.notebook.current_studies.begun);
            if running.len() > 1 && request.verb != SearchVerb::Status {
                return Err(several(&running));
            }
            folders = if running.is_empty() { folders } else { running };
        }
        for folder in folders {
            watch::act(request.verb, &folder, &mut self.notebook.search_display(), &self.link)?;
            self.notebook.current_studies.remember_study(folder);
        }
        Ok(())
    }

    /// Shows a search until it ends. If the search runs in the background, the cell ends at once and its display continues to change.
    fn follow(&mut self, mut search: SearchProcess, mut display: LiveDisplay) -> Result<(), Failure> {
        self.notebook.current_studies.begin(search.folder().to_owned());
        self.inspector.set_current_studies(self.notebook.current_studies.clone());
        let outputs = self.link.outputs();
        if let Some(outputs) = &outputs {
            search.show_stop_button(outputs.clone());
        }
        if search.is_in_background() {
            return search.detach(&|output| self.link.emit(output), display, move |output| {
                if outputs.as_ref().is_some_and(|outputs| outputs.send(output).is_err()) {
                    tracing::debug!("the front end of a search in the background has gone");
                }
            });
        }
        self.show_until_end(search, &mut display)
    }

    /// Shows a search until it ends. Until then the user's interrupts go to the search.
    pub(in crate::engine) fn show_until_end(
        &mut self,
        search: SearchProcess,
        display: &mut LiveDisplay,
    ) -> Result<(), Failure> {
        self.interrupts.begin_search(search.pid());
        if self.link.is_interrupted() {
            self.interrupts.repeat(); // the user interrupted while the search was starting
        }
        let result = search.follow(display, &|output| self.link.emit(output));
        self.interrupts.end_search();
        result
    }
}

/// The failure of a verb that needs one search, when several searches of the notebook run.
fn several(running: &[PathBuf]) -> Failure {
    let names = running.iter().map(|folder| folder.file_name().unwrap_or_default().to_string_lossy());
    let names = names.collect::<Vec<_>>().join(", ");
    let text = format!("{} searches of this notebook run: {names}; name one with --project", running.len());
    Failure::new(ErrorName::MagicError, text)
}
