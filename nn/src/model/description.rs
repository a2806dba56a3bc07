//! The description beside a model's file: what the model is, for people and other programs. A load needs only its version, because the
//! safetensors themselves have the names, shapes and types. `open` builds the model from its architecture.

use super::{LayerSummary, Model, Summary, named};
use crate::architecture::Architecture;
use candle_core::{Result, bail};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::path::{Path, PathBuf};

/// The version of the description that this program writes, and the latest that it reads.
const VERSION: u32 = 1;

#[derive(Debug, Serialize)]
struct Description {
    ferrotune_model: u32,
    trainable_parameters: usize,
    other_parameters: usize,
    layers: Vec<LayerSummary>,
    variables: Vec<Variable>,
    #[serde(skip_serializing_if = "Option::is_none")]
    architecture: Option<Architecture>,
    /// Why there is no architecture.
    #[serde(skip_serializing_if = "Option::is_none")]
    not_described: Option<String>,
}

#[derive(Debug, Serialize)]
struct Variable {
    name: String,
    shape: Vec<usize>,
    dtype: String,
    is_trainable: bool,
}

/// The part of a description that all versions have.
#[derive(Deserialize)]
struct Version {
    ferrotune_model: u32,
}

/// The part of a description from which the model is built. The first programs wrote neither field.
#[derive(Deserialize)]
struct Layers {
    architecture: Option<Value>,
    not_described: Option<String>,
}

/// The path of the description: that of the model with `.json` after it.
pub(super) fn beside(model: &Path) -> PathBuf {
    let mut path = model.as_os_str().to_owned();
    path.push(".json");
    path.into()
}

pub(super) fn of(model: &dyn Model) -> Result<String> {
    serde_json::to_string_pretty(&described(model)?).map_err(candle_core::Error::wrap)
}

/// The description of a model as `save` writes it beside the file.
#[doc(hidden)]
pub fn description(model: &dyn Model) -> Result<Value> {
    serde_json::to_value(described(model)?).map_err(candle_core::Error::wrap)
}

fn described(model: &dyn Model) -> Result<Description> {
    let trainable: Vec<_> = model.trainable().iter().map(|var| var.id()).collect();
    let variable = |(name, var): (String, candle_core::Var)| Variable {
        name,
        shape: var.dims().to_vec(),
        dtype: var.dtype().as_str().to_owned(),
        is_trainable: trainable.contains(&var.id()),
    };
    // A model that does not take the input that it names can be saved nevertheless, without the shapes of its outputs.
    let summary = model.summary().unwrap_or_else(|_| Summary::of_vars(model.vars(), &model.trainable()));
    let (architecture, not_described) = match Architecture::of(model) {
        Ok(architecture) => (Some(architecture), None),
        Err(reason) => (None, Some(reason)),
    };
    Ok(Description {
        ferrotune_model: VERSION,
        trainable_parameters: summary.trainable,
        other_parameters: summary.fixed,
        layers: summary.layers,
        variables: named(model.vars()).into_iter().map(variable).collect(),
        architecture,
        not_described,
    })
}

/// Fails if the description is of a later version than this program knows. No description is as good as one.
pub(super) fn check(model: &Path) -> Result<()> {
    let path = beside(model);
    let text = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(error) => bail!("cannot read the description {}: {error}; the model loads without it", path.display()),
    };
    match serde_json::from_str(&text) {
        Ok(Version { ferrotune_model: ..=VERSION }) => Ok(()),
        Ok(Version { ferrotune_model: later }) => {
            bail!("{} has version {later}, and this program reads up to {VERSION}; update ferrotune", path.display())
        }
        Err(error) => bail!(
            "{} is no description of a model ({error}); move it away, and the model loads without it",
            path.display()
        ),
    }
}

/// The architecture of a saved model.
pub(super) fn architecture(model: &Path) -> Result<Architecture> {
    const CURE: &str = "build the model with your own function, then call `load`";
    check(model)?;
    let path = beside(model);
    let text = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            bail!("there is no description {} beside the model; {CURE}", path.display())
        }
        Err(error) => bail!("cannot read the description {}: {error}; {CURE}", path.display()),
    };
    let reason = match serde_json::from_str(&text) {
        Ok(Layers { architecture: Some(architecture), .. }) => match Architecture::of_value(architecture) {
            Ok(architecture) => return Ok(architecture),
            Err(reason) => reason,
        },
        Ok(Layers { not_described: Some(reason), .. }) => reason,
        Ok(_) => "it is of an earlier version, which wrote no architecture".to_owned(),
        Err(error) => format!("it is damaged ({error})"),
    };
    bail!("the description {} does not say how to build the model: {reason}; {CURE}", path.display())
}
