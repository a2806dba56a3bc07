//! The architecture of a model as data: its layers with their sizes, and the names and types of their variables. It is in the
//! description beside a model's file, and travels as text. It has no values of variables.

mod assemble;
mod kind;

use crate::model::Model;
use crate::sequential::Sequential;
use candle_core::{DType, Device, Result, bail};
pub(crate) use kind::{Convolution, LayerKind, cudnn_name};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::result::Result as Checked;

/// The version of the architecture that this program writes, and the latest that it reads.
const VERSION: u32 = 1;
/// The greatest number of elements in a row of the input. A summary makes such a row.
const MOST_INPUTS: usize = i32::MAX as usize;

/// The layers of a model. The errors of its functions are fragments that say what is wrong with which layer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Architecture {
    version: u32,
    /// The shape of a row of the input, if the model knows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    input: Option<Vec<usize>>,
    /// The names of the variables that are not trained.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    frozen: Vec<String>,
    layers: Vec<LayerDescription>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct LayerDescription {
    pub(crate) name: String,
    pub(crate) layer: LayerKind,
    /// The variables by what they are for the layer, such as `weight`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) variables: BTreeMap<String, Variable>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Variable {
    pub(crate) name: String,
    pub(crate) dtype: String,
}

/// The part of an architecture that all versions have.
#[derive(Deserialize)]
struct Version {
    version: u32,
}

/// The type and shape of each variable, by name.
pub(crate) type Variables = BTreeMap<String, (DType, Vec<usize>)>;

/// The architecture of a model as JSON, from which [`build`] makes a new one: its layers, and the names and types of their variables.
///
/// # Errors
/// Why the model cannot be described, as a fragment such as `layer 3 is a closure`. A description has candle's layers that give away
/// their sizes, the layers of this crate, and models made of them. It has no closures and no types of your own.
///
/// ```
/// use candle_core::{Device, Tensor};
/// use ferrotune_nn::{self as nn, Model as _};
/// let model = nn::mlp(4, &[16], 3).dropout(0.1).build(&Device::Cpu)?;
/// let json = nn::describe(&model).map_err(candle_core::Error::msg)?;
/// let other = nn::build(&json, &Device::Cpu)?;
/// assert_eq!(other.summary()?, model.summary()?);
/// let own = nn::seq().add(|xs: &Tensor| xs * 0.5);
/// assert_eq!(nn::describe(&own), Err("layer 0 is a closure".to_owned()));
/// # Ok::<(), candle_core::Error>(())
/// ```
pub fn describe(model: &dyn Model) -> Checked<String, String> {
    serde_json::to_string(&Architecture::of(model)?).map_err(|error| error.to_string())
}

/// A new model with the architecture that [`describe`] returned. Its variables have new first values on this device, as candle's
/// functions for these layers give them, and the frozen ones are frozen.
///
/// # Errors
/// If the text is damaged or of a later version, if this machine has no memory for the variables, and the errors of the device.
///
/// ```
/// use candle_core::{DType, Device, Tensor};
/// use ferrotune_nn::{self as nn, Model as _};
/// let model = nn::cnn([1, 8, 8], &[2], 3).build(&Device::Cpu)?;
/// let json = nn::describe(&model).map_err(candle_core::Error::msg)?;
/// let other = nn::build(&json, &Device::Cpu)?;
/// let images = Tensor::zeros((5, 1, 8, 8), DType::F32, &Device::Cpu)?;
/// assert_eq!(other.predict(&images)?.dims(), [5, 3]);
/// # Ok::<(), candle_core::Error>(())
/// ```
pub fn build(json: &str, device: &Device) -> Result<Sequential> {
    let damaged = |error| format!("its architecture is damaged ({error})");
    let architecture = serde_json::from_str(json).map_err(damaged).and_then(Architecture::of_value);
    match architecture {
        Ok(architecture) => architecture.with_new_variables(device),
        Err(reason) => {
            bail!("the text describes no model that can be built: {reason}; take the text that `describe` returned")
        }
    }
}

impl Architecture {
    pub(crate) fn of(model: &dyn Model) -> Checked<Architecture, String> {
        let Some(model) = model.as_sequential() else {
            return Err("the model has a type of your own, which a description does not know".to_owned());
        };
        let architecture = model.architecture()?;
        // What is written can be built again.
        architecture.variables()?;
        Ok(architecture)
    }

    pub(crate) fn new(input: Option<Vec<usize>>, frozen: Vec<String>, layers: Vec<LayerDescription>) -> Architecture {
        Architecture { version: VERSION, input, frozen, layers }
    }

    /// Reads an architecture, which is then known to be whole.
    pub(crate) fn of_value(value: Value) -> Checked<Architecture, String> {
        let reason = |error: serde_json::Error| format!("its architecture is damaged ({error})");
        let Version { version } = Version::deserialize(&value).map_err(reason)?;
        if version > VERSION {
            return Err(format!(
                "its architecture has version {version}, and this program reads up to {VERSION} (update ferrotune)"
            ));
        }
        let architecture: Architecture = serde_json::from_value(value).map_err(reason)?;
        architecture.variables()?;
        Ok(architecture)
    }

    /// The variables of all layers, without making one. Fails if the layers contradict each other, or one is impossible.
    pub(crate) fn variables(&self) -> Checked<Variables, String> {
        // candle multiplies the other sizes beside a zero too, and their product may be too large.
        let elements = |row: &Vec<usize>| row.iter().try_fold(1_usize, |count, size| count.checked_mul((*size).max(1)));
        if let Some(row) = self.input.as_ref().filter(|row| elements(row).is_none_or(|count| count > MOST_INPUTS)) {
            return Err(format!("a row of its input has shape {row:?}, which is more than {MOST_INPUTS} elements"));
        }
        let mut variables = Variables::new();
        self.layers.iter().try_for_each(|layer| layer.collect("", &mut variables))?;
        match self.frozen.iter().find(|name| !variables.contains_key(*name)) {
            Some(name) => Err(format!("the frozen variable `{name}` belongs to no layer")),
            None => Ok(variables),
        }
    }
}

impl LayerDescription {
    fn collect(&self, prefix: &str, variables: &mut Variables) -> Checked<(), String> {
        let name = format!("{prefix}{}", self.name);
        if let LayerKind::Sequential(layers) = &self.layer {
            let prefix = format!("{name}.");
            return layers.iter().try_for_each(|layer| layer.collect(&prefix, variables));
        }
        self.layer.check().map_err(|reason| format!("layer {name} {reason}"))?;
        let shapes = self.layer.shapes();
        if let Some(unknown) = self.variables.keys().find(|role| shapes.iter().all(|(known, _)| known != role)) {
            return Err(format!("layer {name} has a variable `{unknown}`, which such a layer does not have"));
        }
        for (role, shape) in shapes {
            let Some(variable) = self.variables.get(role) else {
                return Err(format!("layer {name} has no variable for its `{role}`"));
            };
            let Ok(dtype) = variable.dtype.parse::<DType>() else {
                return Err(format!("`{}` has the type {}, which candle does not have", variable.name, variable.dtype));
            };
            let new = (dtype, shape);
            match variables.get(&variable.name) {
                Some(other) if *other != new => {
                    return Err(format!(
                        "layer {name} has the variable `{}` with another shape or type",
                        variable.name
                    ));
                }
                _ => drop(variables.insert(variable.name.clone(), new)),
            }
        }
        Ok(())
    }
}
