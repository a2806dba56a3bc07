//! The errors of requests for results. Each error is one line that names the object and says what to do.

/// The reason why a request does not fit the study.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "a variant's fields are what its text names")]
pub enum ResultsError {
    /// The study has no column of this name.
    #[error("there is no column {name}; choose from {columns}")]
    UnknownColumn { name: String, columns: String },
    /// Several columns have this name.
    #[error("{name} is the name of several columns; write {columns}")]
    SeveralColumns { name: String, columns: String },
    /// The condition has no comparison.
    #[error(
        "{condition} is no condition; write COLUMN, a comparison and VALUE, as in val_accuracy>0.9 or state=failed"
    )]
    Condition { condition: String },
    /// The condition compares a value without a size by size.
    #[error("{column} can be compared by < and > with numbers only, and {value} is none; use = or !=")]
    NotANumber { column: String, value: String },
    /// The sort order is neither asc nor desc.
    #[error("the order {order} is neither asc nor desc; write COLUMN:asc or COLUMN:desc")]
    Order { order: String },
    /// The plot is unknown.
    #[error("there is no plot {name}; choose from {plots}")]
    UnknownPlot { name: String, plots: String },
    /// The evaluator of importance is unknown.
    #[error("there is no evaluator {name}; choose from {evaluators}")]
    UnknownEvaluator { name: String, evaluators: String },
    /// The request names an evaluator for a plot other than that of importance.
    #[error("--evaluator measures importance; leave it out, or use %plot importance")]
    NoEvaluator,
    /// The export format is unknown.
    #[error("there is no format {name}; choose from {formats}")]
    UnknownFormat { name: String, formats: String },
    /// No trial has asked for this parameter.
    #[error("study {study} has no parameter {name}; choose from {parameters}")]
    UnknownParameter { study: String, name: String, parameters: String },
    /// The metric is not an objective.
    #[error("study {study} has no objective {name}; choose from {objectives}")]
    UnknownObjective { study: String, name: String, objectives: String },
    /// No trial has reported this metric.
    #[error(
        "no trial of {study} has reported {name}; an objective reports by trial.report(step, [(\"{name}\", value)])"
    )]
    NeverReported { study: String, name: String },
    /// No trial has finished with a value.
    #[error("study {study} has no finished trial yet; %trials shows what became of the others")]
    NothingFinished { study: String },
    /// The study has no trials.
    #[error("study {study} has no trial yet; its search space shows with the first one")]
    NoTrial { study: String },
    /// The study has too few values for a plot.
    #[error("study {study} has too little for this plot: it needs {need}")]
    TooLittle { study: String, need: &'static str },
    /// The oracle refuses the study's search, so the search cannot be judged.
    #[error(transparent)]
    Oracle(#[from] ferrotune_oracle::OracleError),
    /// The checkpoint is not a valid safetensors file.
    #[error("the checkpoint of trial {trial} is damaged; resume the study, which makes another one")]
    Checkpoint { trial: u64 },
    /// The checkpoint has no model.
    #[error("the checkpoint of trial {trial} has no model; give trial.checkpoint a VarMap, first if there are several")]
    NoModel { trial: u64 },
    /// The Parquet file cannot be made.
    #[error("the Parquet file cannot be made: {source}")]
    Parquet {
        #[from]
        source: parquet::errors::ParquetError,
    },
}
