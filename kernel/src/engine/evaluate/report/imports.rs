//! The `use` line that imports a name of candle or of Ferrotune. rustc suggests no import from a crate that the notebook never names.

use crate::diagnostic;
use evcxr::CompilationError;

/// The `use` line that imports all that a notebook needs for training.
pub(super) const PRELUDE: &str = "use ferrotune::prelude::*;";

/// Names that notebooks use, grouped by the path that contains them.
const NAMES: [(&str, &[&str]); 7] = [
    ("candle_core", &["D", "DType", "Device", "IndexOp", "Shape", "Tensor", "Var", "WithDType"]),
    (
        "candle_nn",
        &[
            "Activation",
            "BatchNorm",
            "Conv1d",
            "Conv1dConfig",
            "Conv2d",
            "Conv2dConfig",
            "Dropout",
            "Embedding",
            "Func",
            "GRU",
            "GroupNorm",
            "Init",
            "LSTM",
            "LayerNorm",
            "Linear",
            "Module",
            "ModuleT",
            "Optimizer",
            "ParamsAdamW",
            "RNN",
            "RmsNorm",
            "SGD",
            "Sequential",
            "VarBuilder",
            "VarMap",
            "batch_norm",
            "conv1d",
            "conv2d",
            "embedding",
            "func",
            "group_norm",
            "gru",
            "init",
            "layer_norm",
            "linear",
            "linear_no_bias",
            "loss",
            "lstm",
            "ops",
            "rms_norm",
            "seq",
        ],
    ),
    (
        "ferrotune",
        &[
            "AdamW", "Fit", "Result", "Trial", "compile", "data", "device", "display", "nn", "optim", "progress",
            "strategy", "widget", "xla",
        ],
    ),
    ("ferrotune::data", &["Dataset", "DatePart", "Fill", "Iter", "Prep", "Scale", "StandardScaler", "one_hot"]),
    (
        "ferrotune::fit",
        &["Batch", "Callback", "Control", "CsvLog", "Logs", "ModelCheckpoint", "ReduceOnPlateau", "TensorBoard"],
    ),
    ("ferrotune::strategy", &["Strategy"]),
    ("ferrotune::nn", &["metrics"]),
];

/// The codes of errors about a name that nothing declares.
const UNKNOWN_NAME: [&str; 7] = ["E0405", "E0412", "E0422", "E0425", "E0433", "E0531", "E0574"];
/// The code of the error about a wrong number of generic arguments: the standard library's `Result` has two.
const ARGUMENTS: &str = "E0107";

/// The `use` line that resolves an error of the compiler, if the error is about one of [`NAMES`].
pub(super) fn wanted(error: &CompilationError) -> Option<String> {
    let code = error.code()?;
    let message = error.message();
    let name = if UNKNOWN_NAME.contains(&code) && message.contains("` in this scope") {
        message.split('`').nth(1)?.to_owned()
    } else if code == ARGUMENTS && message.starts_with("enum takes 2 generic arguments") {
        let span = diagnostic::primary_span(&error.json)?;
        diagnostic::highlighted(&span["text"][0]).filter(|name| name == "Result")?
    } else {
        return None;
    };
    let (path, _) = NAMES.iter().find(|(_, names)| names.contains(&name.as_str()))?;
    Some(format!("use {path}::{name};"))
}
