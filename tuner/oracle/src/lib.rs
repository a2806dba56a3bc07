//! Samplers, pruners and terminators of hyper-parameter searches, and analyses of parameters from records of trials.
//!
//! The crate consists of functions from the records of trials to proposals and figures: it reads and writes nothing, starts no
//! process and runs no objective. The caller keeps the records. An [`Oracle`] has only a cache as its state: its
//! answers follow from the records, the search's settings and its seed.
//!
//! [`create`] makes an oracle from the description of a search. [`Oracle::next`] decides whether a trial begins,
//! [`Oracle::suggest`] chooses the value of a parameter, and the oracle learns from the record of the ended trial:
//!
//! ```
//! use ferrotune_oracle::{Next, create};
//! use ferrotune_space::objective::{Direction, Objective};
//! use ferrotune_space::record::{Ending, TrialRecord, study_best};
//! use ferrotune_space::spec::StudySpec;
//! use ferrotune_space::{Distribution, Parameter, Scale, Value};
//!
//! let objectives = vec![Objective::new("loss", Direction::Min)];
//! let search = StudySpec { max_trials: 20, seed: Some(7), ..StudySpec::new("parabola", objectives) };
//! let range = Distribution::Float { low: -10.0, high: 10.0, step: None, scale: Scale::Linear };
//!
//! let mut oracle = create(&search)?;
//! let mut trials = Vec::new();
//! while oracle.next(&trials, &[]) == Next::New {
//!     let mut trial = TrialRecord::new(trials.len() as u64);
//!     let value = oracle.suggest(trial.number, "x", &range, &trials);
//!     let Value::Float(x) = value else { unreachable!("the range is of floats") };
//!     trial.parameters.insert("x".to_owned(), Parameter { distribution: range.clone(), value });
//!     (trial.values, trial.ending) = (vec![(x - 2.0).powi(2)], Some(Ending::Finished));
//!     trials.push(trial);
//! }
//! let best = study_best(&trials, Direction::Min).and_then(TrialRecord::value);
//! assert_eq!(trials.len(), 20);
//! assert!(best.is_some_and(|loss| loss < 0.01), "{best:?}");
//! # Ok::<(), ferrotune_oracle::OracleError>(())
//! ```
//!
//! [`names`] lists the oracles, and `StudySpec::oracle` is a name with settings, such as `hyperband:factor=4`. A pruner
//! ([`pruner::Pruner`]) ends a trial because of its reports, and a terminator ([`terminator::Terminator`]) ends a search that
//! no longer improves; [`create`] adds both to the oracle if the search names them. [`analysis`] ranks trials, and
//! [`importance`](mod@importance) shows which parameters determine the values.

pub mod analysis;
mod curve;
mod forecast;
pub mod importance;
pub mod inferred;
mod normal;
mod oracle;
pub mod pruner;
pub mod sampling;
mod student;
pub mod terminator;

pub use oracle::{
    Judgement, Next, Oracle, OracleError, SettingError, Settings, Source, create, judgements, names, parameters_in,
};
pub use pruner::EarlyEnd;
