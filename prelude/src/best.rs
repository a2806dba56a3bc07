//! The best trial of a study, for cells. The program reads the study; cells link nothing that knows one.

use ferrotune_fit::BestTrial;
use ferrotune_machine::own;
use ferrotune_trial::Result;
use std::path::Path;
use std::process::Command;

/// The best trial of a study: its parameters as a trial, its metrics, and its model with the weights of its best epoch. `study` is the name of a project in the folder `studies`, or the path of a study's folder.
///
/// ```ignore
/// let best = ferrotune::best("digits")?;
/// let model = best.model()?;           // or build(&best)?, then best.restore(model.vars())?
/// println!("trial {}: {}", best.trial, best.metrics["val_accuracy"]);
/// ```
///
/// # Errors
/// If there is no such study, none of its trials has a value, or a checkpoint cannot be read. While no trial has finished, it is a pruned
/// one, and `note` says so.
#[track_caller]
pub fn best(study: impl AsRef<Path>) -> Result<BestTrial> {
    ferrotune_trial::located(read(study.as_ref()).map_err(ferrotune_trial::Error::into_source))
}

fn read(study: &Path) -> Result<BestTrial> {
    let mut program = Command::new(own::PROGRAM);
    program.arg("best").arg("--").arg(study).env_remove("FERROTUNE_LOG");
    let told = program.output()?;
    if !told.status.success() {
        let error = String::from_utf8_lossy(&told.stderr);
        Err(error.trim_end().trim_start_matches("ferrotune: ").to_owned())?;
    }
    Ok(BestTrial::of_json(&told.stdout)?)
}
