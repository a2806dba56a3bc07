//! `%%profile` and `%profile`: the time that the steps of a cell or of a trial spend in each part.

mod flame;
mod view;

use crate::disk::write_whole;
use crate::engine::Engine;
use crate::engine::evaluate::link::CellOutcome;
use crate::engine::handlers::files::expanded;
use crate::failure::Failure;
use anyhow::{Context, Result, anyhow, bail};
use chrono::Local;
use ferrotune_display::Bundle;
use ferrotune_journal::study_folder;
use ferrotune_journal::{Journal, host};
use ferrotune_link::SupervisorRequest;
use ferrotune_magics::Profile as Request;
use ferrotune_oracle::analysis::ranking::ranked;
use ferrotune_profile::Profile;
use ferrotune_sampler::Flame;
use ferrotune_space::wire::PROFILE_FILE;
use ferrotune_tuner::supervisor::refuse_links_of_trial;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// The CPU time of a thread between two samples of its stack. It is short enough for a cell of one second, and sampling costs at
/// most 2 % of the cell's time.
const SAMPLE_MS: u64 = 10;

/// The first statement of a recorded cell. If there is a file, the cell's device also records into that file.
fn begin(steps: u64, file: Option<&Path>) -> String {
    let device = file.map(|file| format!("::ferrotune::cell::profile_device({:?})?; ", file.to_string_lossy()));
    // A line that begins with a colon would be a command.
    format!("{{ {}::ferrotune::cell::profile({steps}); }} ", device.unwrap_or_default())
}

/// The file of this host's profile in TensorBoard's folder. Each run of a cell is one run in TensorBoard
/// (<https://github.com/tensorflow/profiler>).
fn file_of_run(folder: &str) -> Result<PathBuf> {
    let folder = std::path::absolute(expanded(folder)?)?;
    let run = Local::now().format("%Y_%m_%d_%H_%M_%S").to_string();
    Ok(folder.join("plugins/profile").join(run).join(format!("{}.xplane.pb", host())))
}

impl Engine {
    /// Carries out `%%profile`.
    pub(in crate::engine) fn profile(&mut self, request: &Request) -> Result<(), Failure> {
        let file = request.tensorboard.as_deref().map(file_of_run).transpose().map_err(Failure::of_magic)?;
        if request.flame {
            self.supervisor.ask(SupervisorRequest::Sample { period_ms: Some(SAMPLE_MS) })?;
        }
        self.notebook.recording = Some(begin(request.steps, file.as_deref()));
        let result = self.run_user_code(&request.source, request.first_line);
        self.notebook.recording = None;
        let outcome = self.link.sync();
        let flame = if request.flame {
            self.supervisor.ask(SupervisorRequest::Sample { period_ms: None })?;
            self.show_flame(&outcome)
        } else {
            Ok(false)
        };
        let recorded = outcome.profile.as_deref().map(Profile::from_trace).transpose();
        let shown = match recorded {
            // The flame graph is enough for a cell without steps.
            Ok(Some(profile)) if profile.steps.is_empty() && matches!(flame, Ok(true)) => Ok(()),
            // The recorded steps of a failed or stopped cell are shown too.
            Ok(Some(profile)) if result.is_ok() || !profile.steps.is_empty() => {
                self.show_profile(profile, request.trace.as_deref())
            }
            Ok(Some(_)) => Ok(()),
            Ok(None) => Err(anyhow!("%%profile: nothing was recorded, since the cell has not run to its end")),
            Err(error) => Err(error.into()),
        };
        let device = match (&outcome.device_profile, &request.tensorboard, file) {
            (Some(Ok(())), Some(folder), Some(file)) => {
                self.show_text(format!("wrote {}; tensorboard --logdir {folder} shows it", file.display()));
                Ok(())
            }
            (Some(Err(reason)), ..) => Err(anyhow!("%%profile: the device's profile is lost: {reason}")),
            _ => Ok(()),
        };
        result.and(shown.and(flame.map(drop)).and(device).map_err(Failure::of_magic))
    }

    /// Shows the flame graph. Returns false if the cell has no samples.
    fn show_flame(&self, outcome: &CellOutcome) -> Result<bool> {
        if let Some(reason) = &outcome.unsampled {
            bail!("%%profile: the cell was not sampled: {reason}");
        }
        if outcome.samples.is_empty() {
            return Ok(false); // it was not compiled, or its process has died
        }
        let mut flame = Flame::default();
        for samples in &outcome.samples {
            let samples = serde_json::from_str(samples).context("cannot read the samples")?;
            flame.add(&samples, |location| {
                let found = self.link.places(&[location.to_owned()]).pop()?;
                Some((found.name, found.line))
            });
        }
        self.show(flame::of(&flame));
        Ok(true)
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

/// The profile of the given trial of a study, or of the study's best trial that has a profile.
pub(in crate::engine) fn of_trial(study_folder: &Path, trial: Option<u64>) -> Result<Vec<Bundle>> {
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
