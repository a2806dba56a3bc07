//! Samplers, pruners and terminators of hyper-parameter searches, and analyses of parameters from records of trials.
//!
//! The crate consists of functions from the records of trials to proposals and figures: it reads and writes nothing, starts no
//! process and runs no objective. The caller keeps the records. An [`Oracle`] has only a cache as its state: its
//! answers follow from the records, the search's settings and its seed.
//!
//! [`Search`] is a whole search by ask and tell, with the records in memory:
//!
//! ```
//! use ferrotune_oracle::Search;
//! use ferrotune_oracle::space::objective::{Direction, Objective};
//! use ferrotune_oracle::space::spec::StudySpec;
//!
//! let objectives = vec![Objective::new("loss", Direction::Min)];
//! let mut search = Search::new(&StudySpec { max_trials: 20, seed: Some(7), ..StudySpec::new("parabola", objectives) })?;
//! while let Some(trial) = search.ask() {
//!     let x = search.float(trial, "x", -10.0..=10.0)?;
//!     search.tell(trial, &[(x - 2.0).powi(2)])?;
//! }
//! let best = search.best().and_then(|trial| trial.value());
//! assert!(best.is_some_and(|loss| loss < 0.01), "{best:?}");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A program that has records of its own uses what is below it: [`create`] makes an oracle from the description of a search,
//! [`Oracle::next`] decides whether a trial begins, [`Oracle::suggest`] chooses the value of a parameter, and the oracle learns from the
//! record of the ended trial.
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
mod search;
mod student;
pub mod terminator;

/// Plain data of searches: objectives, descriptions of searches, ranges, and records of trials.
pub use ferrotune_space as space;
pub use oracle::{
    Belief, Expected, Judgement, Next, Oracle, OracleError, SettingError, Settings, Slice, Source, belief, create,
    judgements, names, parameters_in,
};
pub use pruner::EarlyEnd;
pub use search::{AskError, Search};
