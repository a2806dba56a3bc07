//! The processes that compute together, as a list of addresses that all of them have, and the index of this process.

use super::StrategyError;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::time::Duration;

/// The environment variable in which TensorFlow, and programs that start its workers, describe the workers.
const VARIABLE: &str = "TF_CONFIG";
/// The default time until all workers are connected: they start at different times, on hosts that may be busy.
const CONNECT_TIMEOUT_S: u64 = 120;
/// The default time for a step: a step of a large model may take minutes, and the first one compiles.
const STEP_TIMEOUT_S: u64 = 600;
/// The longest timeout, which is a year.
const LONGEST_TIMEOUT_S: u64 = 365 * 24 * 3600;

/// A cluster of processes, on one host or several, and this process' index among them.
///
/// ```
/// use ferrotune_devices::Cluster;
///
/// let text = r#"{"cluster": {"worker": ["10.0.0.1:4000", "10.0.0.2:4000"]}, "task": {"type": "worker", "index": 1}}"#;
/// let cluster = Cluster::from_tf_config(text)?;
/// assert_eq!((cluster.workers().len(), cluster.index()), (2, 1));
/// # Ok::<(), ferrotune_devices::StrategyError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Described")]
pub struct Cluster {
    workers: Vec<String>,
    index: usize,
    connect_timeout_s: u64,
    step_timeout_s: u64,
}

/// A cluster as it was serialized, before its checks.
#[derive(Deserialize)]
struct Described {
    workers: Vec<String>,
    index: usize,
    connect_timeout_s: u64,
    step_timeout_s: u64,
}

impl TryFrom<Described> for Cluster {
    type Error = StrategyError;

    fn try_from(described: Described) -> Result<Cluster, StrategyError> {
        let Described { workers, index, connect_timeout_s, step_timeout_s } = described;
        Ok(Cluster::new(workers, index)?.with_timeouts(connect_timeout_s, step_timeout_s))
    }
}

impl Cluster {
    /// A cluster of workers by `host:port`, in the same order in each process, and the index of this process.
    ///
    /// # Errors
    /// If there is no worker with this index, or an address occurs twice or has no port.
    pub fn new<W: Into<String>>(workers: impl IntoIterator<Item = W>, index: usize) -> Result<Cluster, StrategyError> {
        let workers: Vec<String> = workers.into_iter().map(Into::into).collect();
        let refuse = |reason| Err(StrategyError::Cluster { reason });
        if index >= workers.len() {
            return refuse(format!("there is no worker {index} among {}", workers.len()));
        }
        if let Some(worker) = workers.iter().find(|worker| !worker.contains(':')) {
            return refuse(format!("`{worker}` has no port"));
        }
        if let Some((place, worker)) = workers.iter().enumerate().find(|(place, one)| workers[..*place].contains(one)) {
            return refuse(format!("worker {place} has the address {worker} of an earlier one"));
        }
        Ok(Cluster { workers, index, connect_timeout_s: CONNECT_TIMEOUT_S, step_timeout_s: STEP_TIMEOUT_S })
    }

    /// The cluster in the text of TensorFlow's variable `TF_CONFIG`: a `cluster` with the lists `chief`, which may be missing and comes
    /// first, and `worker`; and the `task` of this process, with `type` and `index`.
    /// See <https://www.tensorflow.org/guide/distributed_training#TF_CONFIG>.
    ///
    /// # Errors
    /// If the text has another form, or if this task takes no part in training, such as a parameter server or an evaluator.
    pub fn from_tf_config(text: &str) -> Result<Cluster, StrategyError> {
        let refuse = |reason: String| StrategyError::Cluster { reason: format!("{VARIABLE}: {reason}") };
        let config: Value = serde_json::from_str(text).map_err(|error| refuse(format!("it is not JSON: {error}")))?;
        let listed = |role: &str| -> Result<Vec<String>, StrategyError> {
            let list = config["cluster"][role].clone();
            if list.is_null() {
                return Ok(Vec::new());
            }
            serde_json::from_value(list)
                .map_err(|error| refuse(format!("cluster.{role} is not a list of strings: {error}")))
        };
        let (chiefs, workers) = (listed("chief")?, listed("worker")?);
        let index = &config["task"]["index"];
        // TensorFlow accepts a number in quotes, too.
        let number =
            index.as_u64().or_else(|| index.as_str()?.parse().ok()).and_then(|index| usize::try_from(index).ok());
        let number = number.ok_or_else(|| refuse(format!("task.index is {index}, not a number")))?;
        let (first, count) = match config["task"]["type"].as_str() {
            Some("chief") => (0, chiefs.len()),
            Some("worker") => (chiefs.len(), workers.len()),
            _ => return Err(refuse(format!("task.type is {}, not worker or chief", config["task"]["type"]))),
        };
        if number >= count {
            return Err(refuse(format!("task.index is {number}, and there are {count} of its type")));
        }
        Cluster::new(chiefs.into_iter().chain(workers), first + number)
    }

    /// The cluster in this process' variable `TF_CONFIG`.
    ///
    /// # Errors
    /// If the variable is not set, and the errors of [`Cluster::from_tf_config`].
    pub fn from_environment() -> Result<Cluster, StrategyError> {
        let text = std::env::var(VARIABLE)
            .map_err(|error| StrategyError::Cluster { reason: format!("{VARIABLE}: {error}") })?;
        Cluster::from_tf_config(&text)
    }

    /// The same cluster with other timeouts, in seconds: the time until all workers are connected, and the time until all reach a
    /// step. The defaults are 120 and 600.
    #[must_use]
    pub fn with_timeouts(self, connect_timeout_s: u64, step_timeout_s: u64) -> Cluster {
        let [connect_timeout_s, step_timeout_s] =
            [connect_timeout_s, step_timeout_s].map(|seconds| seconds.min(LONGEST_TIMEOUT_S));
        Cluster { connect_timeout_s, step_timeout_s, ..self }
    }

    /// The addresses of all workers.
    pub fn workers(&self) -> &[String] {
        &self.workers
    }

    /// This process' index among the workers.
    pub fn index(&self) -> usize {
        self.index
    }

    pub(super) fn address(&self, worker: usize) -> String {
        self.workers[worker].clone()
    }

    pub(super) fn connect_timeout(&self) -> Duration {
        Duration::from_secs(self.connect_timeout_s)
    }

    pub(super) fn step_timeout(&self) -> Duration {
        Duration::from_secs(self.step_timeout_s)
    }
}
