//! `%%profile` and `%profile`: what the steps of a cell or of a trial spend their time on.

mod view;

use super::Engine;
use super::files::{expanded, write_whole};
use crate::failure::Failure;
use anyhow::{Context, Result, anyhow, bail};
use ferrotune_display::Bundle;
use ferrotune_magics::Profile as Request;
use ferrotune_profile::Profile;
use ferrotune_tuner::analysis::ranking::ranked;
use ferrotune_tuner::journal::Journal;
use ferrotune_tuner::study_folder;
use ferrotune_tuner::supervisor::refuse_links_of_trial;
use ferrotune_tuner::wire::PROFILE_FILE;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;

/// The first statement of a cell that is recorded.
pub(super) fn begin(steps: u64) -> String {
    // A line that begins with a colon would be a command.
    format!("{{ ::ferrotune::cell::profile({steps}); }} ")
}

impl Engine {
    /// `%%profile`
    pub(super) fn profile(&mut self, request: &Request) -> Result<(), Failure> {
        self.notebook.profiled_steps = Some(request.steps);
        let result = self.run_user_code(&request.source, request.first_line);
        self.notebook.profiled_steps = None;
        let recorded = self.link.sync().profile.map(|trace| Profile::from_trace(&trace)).transpose();
        let shown = match recorded {
            // What a cell has recorded that failed or was stopped is worth to be seen, too.
            Ok(Some(profile)) if result.is_ok() || !profile.steps.is_empty() => {
                self.show_profile(profile, request.trace.as_deref())
            }
            Ok(Some(_)) => Ok(()),
            Ok(None) => Err(anyhow!("%%profile: nothing was recorded, since the cell has not run to its end")),
            Err(error) => Err(error.into()),
        };
        result.and(shown.map_err(Failure::of_magic))
    }

    fn show_profile(&self, mut profile: Profile, file: Option<&str>) -> Result<()> {
        for of in &mut profile.loops {
            of.place =
                self.link.place(&of.place).unwrap_or_else(|| "a line that the notebook has generated".to_owned());
        }
        view::of(&profile).into_iter().for_each(|bundle| self.show(bundle));
        let Some(file) = file else { return Ok(()) };
        let file = expanded(file)?;
        let bytes = profile.trace().to_string();
        write_whole(&file, bytes.as_bytes()).with_context(|| format!("cannot write {}", file.display()))?;
        self.show_text(format!("wrote {}; https://ui.perfetto.dev opens it", file.display()));
        Ok(())
    }
}

/// The profile of a trial of the study in a folder: of this one, or of the best one that has a profile.
pub(super) fn of_trial(study_folder: &Path, trial: Option<u64>) -> Result<Vec<Bundle>> {
    let study = Journal::read(study_folder)?;
    let candidates = match trial {
        Some(number) => vec![number],
        None => {
            let ranked = ranked(&study.trials, &study.spec, study.trials.len());
            ranked.into_iter().chain(&study.trials).map(|trial| trial.number).collect()
        }
    };
    for number in candidates {
        let folder = study_folder::of_trial(study_folder, number);
        refuse_links_of_trial(&folder)?;
        let path = folder.join(PROFILE_FILE);
        let text = match fs::read_to_string(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            read => read.with_context(|| format!("cannot read {}", path.display()))?,
        };
        let profile = Profile::from_trace(&text).with_context(|| format!("cannot read {}", path.display()))?;
        let mut bundles = view::of(&profile);
        bundles.push(Bundle::text(format!("trial {number}; https://ui.perfetto.dev opens {}", path.display())));
        return Ok(bundles);
    }
    let (study, cure) = (study.spec.project, "run the search with %%tune --profile N");
    match trial {
        Some(number) => bail!("trial {number} of {study} has no profile; {cure}"),
        None => bail!("no trial of {study} has a profile; {cure}"),
    }
}
