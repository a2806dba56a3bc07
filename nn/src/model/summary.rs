//! The summary of a model: its layers with shapes and parameters, as a table.

use super::{is_statistic, named};
use candle_core::{Tensor, Var};
use candle_nn::VarMap;
use ferrotune_display::{Bundle, Show, table};
use serde::{Deserialize, Serialize};
use std::fmt;

/// The layers of a model, with the shapes of their outputs and their parameters. A cell shows it as a table, and `{}` prints the table.
///
/// ```
/// # use candle_core::Device;
/// use ferrotune_nn::{self as nn, Model as _};
/// let model = nn::mlp(784, &[128], 10).build(&Device::Cpu)?;
/// assert_eq!(
///     model.summary()?.to_string(),
///     "\
/// layer                 output    parameters
///     0  Linear         (n, 128)      100480
///     1  Relu           (n, 128)           0
///     2  Linear         (n, 10)         1290
///        trainable                    101770
///        not trainable                     0"
/// );
/// # Ok::<(), candle_core::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    /// The layers in their order.
    pub layers: Vec<LayerSummary>,
    /// The shape of the model's outputs, if it is known, without the first dimension, which is the rows.
    pub output: Option<Vec<usize>>,
    /// The number of elements of the variables that an optimiser changes.
    pub trainable: usize,
    /// The number of elements of the other variables: statistics of batch norms, and frozen layers.
    pub fixed: usize,
}

/// One layer in a [`Summary`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LayerSummary {
    /// The layer's name: its place in a [`Sequential`](crate::Sequential), or what its variables' names have in common.
    pub name: String,
    /// The layer's type, such as `Linear`.
    pub kind: String,
    /// The shape of the layer's outputs, if it is known, without the first dimension, which is the rows.
    pub output: Option<Vec<usize>>,
    /// The number of elements of the layer's variables, trainable or not. A variable that layers share counts in the first of them.
    pub parameters: usize,
}

impl Summary {
    /// The summary of variables alone: a line for each group of names that differ in the last part only.
    pub(crate) fn of_vars(vars: &VarMap, trainable: &[Var]) -> Summary {
        let mut layers: Vec<LayerSummary> = Vec::new();
        for (name, var) in named(vars) {
            let name = name.rsplit_once('.').map_or(name.as_str(), |(group, _)| group);
            match layers.last_mut().filter(|layer| layer.name == name) {
                Some(layer) => layer.parameters += var.elem_count(),
                None => layers.push(LayerSummary {
                    name: name.to_owned(),
                    kind: String::new(),
                    output: None,
                    parameters: var.elem_count(),
                }),
            }
        }
        Summary::of_layers(layers, vars, trainable)
    }

    pub(crate) fn of_layers(layers: Vec<LayerSummary>, vars: &VarMap, trainable: &[Var]) -> Summary {
        let all: usize = named(vars).iter().map(|(_, var)| var.elem_count()).sum();
        let trainable: usize = trainable.iter().map(|var| var.elem_count()).sum();
        let output = layers.last().and_then(|layer| layer.output.clone());
        Summary { layers, output, trainable, fixed: all.saturating_sub(trainable) }
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.bundle().text_of("text/plain"))
    }
}

impl Show for Summary {
    fn bundle(&self) -> Bundle {
        let row = |layer: &LayerSummary| {
            let output = layer.output.as_deref().map(shape).unwrap_or_default();
            vec![layer.name.clone(), layer.kind.clone(), output, layer.parameters.to_string()]
        };
        let sum = |name: &str, count: usize| vec![String::new(), name.to_owned(), String::new(), count.to_string()];
        let mut rows: Vec<Vec<String>> = self.layers.iter().map(row).collect();
        rows.extend([sum("trainable", self.trainable), sum("not trainable", self.fixed)]);
        table(&["layer", "", "output", "parameters"], &rows)
    }
}

/// The dimensions of a row of this batch.
pub(crate) fn row_shape(batch: &Tensor) -> Vec<usize> {
    batch.dims().get(1..).unwrap_or_default().to_vec()
}

fn shape(row: &[usize]) -> String {
    let dims: Vec<String> = std::iter::once("n".to_owned()).chain(row.iter().map(usize::to_string)).collect();
    match dims.as_slice() {
        [rows] => format!("({rows},)"),
        dims => format!("({})", dims.join(", ")),
    }
}

/// Whether a name belongs to the same layer as another: all but the last part are equal. Statistics belong to the layer of a weight.
pub(crate) fn is_of_layer(statistic: &str, weight: &str) -> bool {
    let group = |name: &str| name.rsplit_once('.').map(|(group, _)| group.to_owned()).unwrap_or_default();
    is_statistic(statistic) && group(statistic) == group(weight)
}
