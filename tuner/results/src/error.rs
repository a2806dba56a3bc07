//! Why results cannot be shown. Each error is one line that names the object and says what to do.

/// Why a request does not fit the study.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "a variant's fields are what its text names")]
pub enum ResultsError {
    /// A column that the study does not have.
    #[error("there is no column {name}; choose from {columns}")]
    UnknownColumn { name: String, columns: String },
    /// A name that several columns have.
    #[error("{name} is the name of several columns; write {columns}")]
    SeveralColumns { name: String, columns: String },
    /// A condition without a comparison.
    #[error(
        "{condition} is no condition; write COLUMN, a comparison and VALUE, as in val_accuracy>0.9 or state=failed"
    )]
    Condition { condition: String },
    /// A comparison by size with a value that has no size.
    #[error("{column} can be compared by < and > with numbers only, and {value} is none; use = or !=")]
    NotANumber { column: String, value: String },
    /// A sort order other than asc and desc.
    #[error("the order {order} is neither asc nor desc; write COLUMN:asc or COLUMN:desc")]
    Order { order: String },
    /// An unknown plot.
    #[error("there is no plot {name}; choose from {plots}")]
    UnknownPlot { name: String, plots: String },
    /// An unknown evaluator of importance.
    #[error("there is no evaluator {name}; choose from {evaluators}")]
    UnknownEvaluator { name: String, evaluators: String },
    /// An evaluator for another plot than that of importance.
    #[error("--evaluator measures importance; leave it out, or use %plot importance")]
    NoEvaluator,
    /// An unknown format.
    #[error("there is no format {name}; choose from {formats}")]
    UnknownFormat { name: String, formats: String },
    /// A parameter that no trial asked for.
    #[error("study {study} has no parameter {name}; choose from {parameters}")]
    UnknownParameter { study: String, name: String, parameters: String },
    /// A metric that is none of the objectives.
    #[error("study {study} has no objective {name}; choose from {objectives}")]
    UnknownObjective { study: String, name: String, objectives: String },
    /// A metric that was never reported.
    #[error(
        "no trial of {study} has reported {name}; an objective reports by trial.report(step, [(\"{name}\", value)])"
    )]
    NeverReported { study: String, name: String },
    /// No trial with a value.
    #[error("study {study} has no finished trial yet; %trials shows what became of the others")]
    NothingFinished { study: String },
    /// No trial at all.
    #[error("study {study} has no trial yet; its search space shows with the first one")]
    NoTrial { study: String },
    /// Not enough values for a plot.
    #[error("study {study} has too little for this plot: it needs {need}")]
    TooLittle { study: String, need: &'static str },
    /// The study's search cannot be judged.
    #[error(transparent)]
    Oracle(#[from] ferrotune_oracle::OracleError),
    /// A checkpoint that is no safetensors file.
    #[error("the checkpoint of trial {trial} is damaged; resume the study, which makes another one")]
    Checkpoint { trial: u64 },
    /// A checkpoint without a model.
    #[error("the checkpoint of trial {trial} has no model; give trial.checkpoint a VarMap, first if there are several")]
    NoModel { trial: u64 },
    /// A Parquet file cannot be made.
    #[error("the Parquet file cannot be made: {source}")]
    Parquet {
        #[from]
        source: parquet::errors::ParquetError,
    },
}
