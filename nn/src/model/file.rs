//! The file of a model: its variables as safetensors. A save replaces the file as a whole, and a load compares everything before it
//! changes a variable.

use super::{Model, description, named};
use crate::architecture::Variables;
use crate::sequential::Sequential;
use candle_core::safetensors::BufferedSafetensors;
use candle_core::{DType, Device, Error, Result, Tensor, Var, bail};
use candle_nn::VarMap;
use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// What PyTorch's batch norm counts, and candle's does not.
const NOT_LOADED: &str = "num_batches_tracked";
/// The number of names that an error lists.
const LISTED_NAMES: usize = 8;

pub(super) fn save(model: &impl Model, path: &Path) -> Result<()> {
    let on_cpu = |(name, var): (String, Var)| Ok((name, var.to_device(&Device::Cpu)?.contiguous()?));
    let tensors = named(model.vars()).into_iter().map(on_cpu).collect::<Result<BTreeMap<String, Tensor>>>()?;
    // Other readers of safetensors look for the order of the dimensions there; candle's is PyTorch's.
    let format = HashMap::from([("format".to_owned(), "pt".to_owned())]);
    let description = description::of(model)?;
    let bytes = safetensors::serialize(&tensors, Some(format))?;
    replace(path, &bytes)?;
    replace(&description::beside(path), description.as_bytes())
}

/// Replaces a file as a whole: the bytes are on disk under another name before the file gets its own.
fn replace(path: &Path, bytes: &[u8]) -> Result<()> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    // Processes in containers that share a folder may have one number, and a process that was killed may have left its file.
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos());
    let Some(name) = path.file_name() else {
        bail!("{} is no name of a file; save the model as `model.safetensors`", path.display())
    };
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let partial = folder.join(format!(".{}.{}-{number}-{now}.partial", name.to_string_lossy(), process::id()));
    put(&partial, bytes, path, folder).map_err(|error| {
        // The first error is reported. The part that was written is of no use, and a second error would say no more.
        drop(fs::remove_file(&partial));
        Error::msg(format!("cannot save {}: {error}; choose a folder that exists, with free space", path.display()))
    })
}

fn put(partial: &PathBuf, bytes: &[u8], path: &Path, folder: &Path) -> io::Result<()> {
    let mut file = File::options().write(true).create_new(true).open(partial)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(partial, path)?;
    File::open(folder)?.sync_all()
}

pub(super) fn load(vars: &VarMap, path: &Path) -> Result<()> {
    let saved = Saved::open(path)?;
    let vars: BTreeMap<String, Var> = named(vars).into_iter().collect();
    if let Some(missing) = vars.keys().find(|name| !saved.has.contains_key(*name)) {
        bail!(
            "{} has no variable `{missing}`; its variables are {}; build the model that was saved, or load what both have with \
             `load_common`",
            path.display(),
            listed(saved.has.keys())
        )
    }
    if let Some(other) = saved.has.keys().find(|name| !vars.contains_key(*name)) {
        bail!(
            "the model has no variable `{other}`, which {} has; the model's variables are {}; build the model that was saved, or \
             load what both have with `load_common`",
            path.display(),
            listed(vars.keys())
        )
    }
    saved.fill(&vars)
}

pub(super) fn load_common(vars: &VarMap, path: &Path) -> Result<Vec<String>> {
    let saved = Saved::open(path)?;
    let (common, others): (BTreeMap<String, Var>, BTreeMap<String, Var>) =
        named(vars).into_iter().partition(|(name, _)| saved.has.contains_key(name));
    if common.is_empty() {
        bail!(
            "{} has none of the model's variables; it has {}, and the model {}; rename the variables in one of them",
            path.display(),
            listed(saved.has.keys()),
            listed(others.keys())
        )
    }
    saved.fill(&common)?;
    Ok(others.into_keys().collect())
}

/// Builds a model that [`Model::save`] saved, from the safetensors and the description beside them, on this device.
///
/// Its layers, names and predictions are those of the saved model, its frozen variables are frozen, and it trains on. The outputs of
/// `predict` have shape (rows, …) as before. The description has candle's layers that give away their sizes, the layers of this crate, and
/// models made of them. A model with a closure or a type of your own is built by your own function; [`Model::load`] then gives it the
/// saved variables.
///
/// # Errors
/// If a file is missing, damaged or of a later version, if the description has no architecture, as of a model with a closure, or its
/// names, shapes and types are not those in the file; and the errors of the device. All this is known before a layer is made.
///
/// ```
/// use candle_core::{DType, Device, Tensor};
/// use ferrotune_nn::{self as nn, Model as _};
/// let folder = tempfile::tempdir()?;
/// let file = folder.path().join("model.safetensors");
/// let model = nn::mlp(4, &[16, 8], 3).batch_norm().dropout(0.2).build(&Device::Cpu)?;
/// model.save(&file)?;
/// let opened = nn::open(&file, &Device::Cpu)?;
/// let rows = Tensor::ones((5, 4), DType::F32, &Device::Cpu)?;
/// assert_eq!(opened.predict(&rows)?.dims(), [5, 3]);
/// assert_eq!(opened.predict(&rows)?.to_vec2::<f32>()?, model.predict(&rows)?.to_vec2::<f32>()?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn open(path: impl AsRef<Path>, device: &Device) -> Result<Sequential> {
    let path = path.as_ref();
    let saved = Saved::open(path)?;
    let architecture = description::architecture(path)?;
    saved.compare(&architecture.variables().map_err(Error::msg)?)?;
    let vars = VarMap::new();
    for name in saved.has.keys() {
        let var = Var::from_tensor(&saved.tensors.load(name, device)?)?;
        vars.data().lock().unwrap_or_else(PoisonError::into_inner).insert(name.clone(), var);
    }
    architecture.with_variables(&vars, device)
}

/// A file of safetensors, with the type and shape of each variable in it.
struct Saved<'a> {
    path: &'a Path,
    tensors: BufferedSafetensors,
    has: BTreeMap<String, (DType, Vec<usize>)>,
}

impl Saved<'_> {
    fn open(path: &Path) -> Result<Saved<'_>> {
        let bytes = match fs::read(path) {
            Ok(bytes) => bytes,
            Err(error) => bail!("cannot read the model {}: {error}", path.display()),
        };
        description::check(path)?;
        let unreadable = |error: Error| {
            Error::msg(format!("{} is not whole safetensors: {error}; save the model again", path.display()))
        };
        let tensors = BufferedSafetensors::new(bytes).map_err(unreadable)?;
        let mut has = BTreeMap::new();
        for (name, view) in tensors.tensors() {
            if name.rsplit('.').next() == Some(NOT_LOADED) {
                continue;
            }
            let dtype = view.dtype().try_into().map_err(|_| {
                Error::msg(format!("`{name}` in {} is {:?}, which candle does not have", path.display(), view.dtype()))
            })?;
            has.insert(name, (dtype, view.shape().to_vec()));
        }
        Ok(Saved { path, tensors, has })
    }

    /// Fails unless these are exactly the variables of the file.
    fn compare(&self, described: &Variables) -> Result<()> {
        let path = self.path.display();
        let cure = "save the model again, or build it with your own function and call `load`";
        if let Some(other) = self.has.keys().find(|name| !described.contains_key(*name)) {
            bail!("{path} has a variable `{other}`, which the description beside it does not have; {cure}")
        }
        for (name, (dtype, shape)) in described {
            let Some((saved_dtype, saved_shape)) = self.has.get(name) else {
                bail!("{path} has no variable `{name}`, which the description beside it has; {cure}")
            };
            if shape != saved_shape {
                bail!("`{name}` has shape {shape:?} in the description and {saved_shape:?} in {path}; {cure}")
            }
            if dtype != saved_dtype {
                bail!(
                    "`{name}` is {} in the description and {} in {path}; {cure}",
                    dtype.as_str(),
                    saved_dtype.as_str()
                )
            }
        }
        Ok(())
    }

    /// Sets these variables, all of which the file has, once all are known to fit.
    fn fill(&self, vars: &BTreeMap<String, Var>) -> Result<()> {
        let path = self.path.display();
        for (name, var) in vars {
            let Some((dtype, shape)) = self.has.get(name) else { bail!("{path} has no variable `{name}`") };
            if var.dims() != shape {
                bail!(
                    "`{name}` has shape {:?} in the model and {shape:?} in {path}; build the model with the sizes that were saved",
                    var.dims()
                )
            }
            if var.dtype() != *dtype {
                let (has, saved) = (var.dtype().as_str(), dtype.as_str());
                bail!(
                    "`{name}` is {has} in the model and {saved} in {path}; build the model with type {saved}, or convert the file"
                )
            }
        }
        let values = vars.iter().map(|(name, var)| self.tensors.load(name, var.device()));
        let values = values.collect::<Result<Vec<_>>>()?;
        vars.values().zip(values).try_for_each(|(var, value)| var.set(&value))
    }
}

/// The first of some names, for an error.
fn listed<'a>(names: impl ExactSizeIterator<Item = &'a String>) -> String {
    let count = names.len();
    let mut list = names.take(LISTED_NAMES).map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
    if count == 0 {
        return "none".to_owned();
    }
    if count > LISTED_NAMES {
        list.push_str(&format!(" and {} more", count - LISTED_NAMES));
    }
    list
}
