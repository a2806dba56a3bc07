//! Checkpoints of a model in the trial's folder: safetensors, whole or absent, the previous one kept. Holds no
//! optimiser state.

use super::Trial;
use crate::error::{Result, TrialError};
use candle_core::{Device, Tensor, Var};
use candle_nn::VarMap;
use ferrotune_tuner::wire::Request;
use std::collections::{BTreeMap, HashMap};
use std::error::Error;
use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::sync::PoisonError;

/// How many checkpoints a trial keeps.
const KEPT: usize = 2;

impl Trial {
    /// Writes the model's variables to disk, for the step that the objective has come to.
    ///
    /// When this returns, the checkpoint survives a crash of the machine. The trial resumes from it only if the
    /// objective calls [`Trial::restore`].
    pub fn checkpoint(&self, vars: &VarMap) -> Result<()> {
        let step = self.step.get().ok_or(TrialError::NoStep)?;
        let folder = self.folder();
        let file = file_name(step);
        let path = folder.join(&file);
        write(vars, step, &path).map_err(|source| failure("write", &path, source))?;
        self.tell(&Request::Checkpoint { step, file })?;
        remove_old(folder, step).map_err(|source| failure("clear up after", &path, source.into()))?;
        Ok(())
    }

    /// Loads the trial's last good checkpoint into the model's variables; `false` if there is none.
    ///
    /// Call it once the model is built and before [`Trial::epochs`], which then goes on after the checkpoint. Fails
    /// where the checkpoint is of another model.
    pub fn restore(&self, vars: &VarMap) -> Result<bool> {
        let Some(last) = self.assignment.checkpoint.as_deref().and_then(step_of) else {
            return Ok(false);
        };
        let folder = self.folder();
        let steps = steps(folder).map_err(|source| failure("look for", folder, source.into()))?;
        for step in steps.into_iter().rev().filter(|step| *step <= last) {
            let path = folder.join(file_name(step));
            match candle_core::safetensors::load(&path, &Device::Cpu) {
                Ok(tensors) => {
                    set(vars, &tensors, &path)?;
                    self.resume_at.set(step + 1);
                    return Ok(true);
                }
                // The one before it is kept for this.
                Err(error) => eprintln!("ferrotune: the checkpoint {} is damaged: {error}", path.display()),
            }
        }
        Ok(false)
    }
}

fn failure(what: &'static str, path: &Path, source: Box<dyn Error + Send + Sync>) -> TrialError {
    TrialError::Checkpoint { what, path: path.to_path_buf(), source }
}

fn variables(vars: &VarMap) -> BTreeMap<String, Var> {
    // A panic while the map was locked leaves a map of whole variables all the same.
    let data = vars.data().lock().unwrap_or_else(PoisonError::into_inner);
    data.iter().map(|(name, var)| (name.clone(), var.clone())).collect()
}

/// Written elsewhere, flushed and renamed: a crash at any point leaves the old state or the new one.
fn write(vars: &VarMap, step: u64, path: &Path) -> Result<()> {
    let partial = path.with_extension("partial");
    let variables = variables(vars);
    let tensors = variables.iter().map(|(name, var)| (name.as_str(), var.as_tensor()));
    let facts = HashMap::from([("step".to_owned(), step.to_string())]);
    safetensors::serialize_to_file(tensors, Some(facts), &partial)?;
    File::open(&partial)?.sync_all()?;
    fs::rename(&partial, path)?;
    let folder = path.parent().ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
    File::open(folder)?.sync_all()?;
    Ok(())
}

fn set(vars: &VarMap, tensors: &HashMap<String, Tensor>, path: &Path) -> Result<()> {
    let misfit = |mismatch| TrialError::Model { path: path.to_path_buf(), mismatch };
    let variables = variables(vars);
    for (name, var) in &variables {
        let tensor = tensors.get(name).ok_or_else(|| misfit(format!("it has no `{name}`")))?;
        if tensor.shape() != var.shape() || tensor.dtype() != var.dtype() {
            return Err(misfit(format!(
                "`{name}` is {:?} {:?} in it and {:?} {:?} in the model",
                tensor.dtype(),
                tensor.dims(),
                var.dtype(),
                var.dims()
            ))
            .into());
        }
    }
    if let Some(name) = tensors.keys().find(|name| !variables.contains_key(*name)) {
        return Err(misfit(format!("the model has no `{name}`; build it before trial.restore")).into());
    }
    for (name, var) in &variables {
        var.set(&tensors[name].to_device(var.device())?)?;
    }
    Ok(())
}

/// Removes what neither this checkpoint nor the one before it is, and what a crash left half-written.
fn remove_old(folder: &Path, step: u64) -> io::Result<()> {
    let steps = steps(folder)?;
    let older = steps.iter().rev().filter(|other| **other <= step).skip(KEPT);
    // Later steps are of a training that was begun again since.
    let later = steps.iter().filter(|other| **other > step);
    for other in older.chain(later) {
        fs::remove_file(folder.join(file_name(*other)))?;
    }
    Ok(())
}

/// The steps of which the folder has a checkpoint, in order.
fn steps(folder: &Path) -> io::Result<Vec<u64>> {
    let mut steps = Vec::new();
    for entry in fs::read_dir(folder)? {
        steps.extend(entry?.file_name().to_str().and_then(step_of));
    }
    steps.sort_unstable();
    Ok(steps)
}

fn file_name(step: u64) -> String {
    format!("step-{step:06}.safetensors")
}

fn step_of(file: &str) -> Option<u64> {
    file.strip_prefix("step-")?.strip_suffix(".safetensors")?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use candle_core::DType;
    use candle_nn::VarBuilder;

    fn model(units: usize) -> Result<VarMap> {
        let vars = VarMap::new();
        let builder = VarBuilder::from_varmap(&vars, DType::F32, &Device::Cpu);
        candle_nn::linear(4, units, builder.pp("l1"))?;
        Ok(vars)
    }

    fn weights(vars: &VarMap) -> Result<Vec<Vec<f32>>> {
        Ok(variables(vars)["l1.weight"].to_vec2()?)
    }

    #[test]
    fn checkpoint_gives_the_same_weights_back() -> Result<()> {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join(file_name(3));
        let (written, read) = (model(5)?, model(5)?);
        write(&written, 3, &path)?;
        let tensors = candle_core::safetensors::load(&path, &Device::Cpu)?;
        assert_ne!(weights(&written)?, weights(&read)?);
        set(&read, &tensors, &path)?;
        assert_eq!(weights(&written)?, weights(&read)?);
        let error =
            set(&model(6)?, &tensors, Path::new("x")).map_or_else(|error| error.to_string(), |()| "it fits".to_owned());
        assert!(error.starts_with("the checkpoint x does not fit the model: `l1."), "{error}");
        Ok(())
    }

    #[test]
    fn last_two_checkpoints_are_kept() -> Result<()> {
        let folder = tempfile::tempdir()?;
        for step in [9, 0, 1, 2, 3] {
            write(&model(2)?, step, &folder.path().join(file_name(step)))?;
            remove_old(folder.path(), step)?;
        }
        assert_eq!(steps(folder.path())?, [2, 3]);
        assert_eq!(fs::read_dir(folder.path())?.count(), 2);
        Ok(())
    }
}
