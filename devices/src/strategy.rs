//! Strategies to spread a computation over devices, in the terms of TensorFlow's strategies: replicas of one model, each with its
//! part of a batch, average their gradients after every step.
//!
//! A [`Strategy`] is a description that any process can use. It does not depend on models: gradients are slices.

mod cluster;
mod error;
mod mesh;
mod round;
mod store;
mod values;
mod wire;

use crate::names::DeviceName;
pub use cluster::Cluster;
pub use error::StrategyError;
use round::Round;
use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicU64, Ordering};
pub use store::{Store, StoreError};
pub use values::Reduce;

/// The devices that compute together, and the precision of the computation.
///
/// ```
/// use ferrotune_devices::Strategy;
///
/// let strategy = Strategy::mirrored(["cpu", "cpu"])?;
/// assert_eq!(strategy.global_batch_size(32), 64);
/// // Each replica has the gradient of its own part; all continue with the mean.
/// let gradients = strategy.scope(|replica| {
///     let mut gradient = [replica.index() as f32, 1.0];
///     replica.all_reduce_mean(&mut gradient).map(|()| gradient)
/// });
/// assert_eq!(gradients, [Ok([0.5, 1.0]), Ok([0.5, 1.0])]);
/// # Ok::<(), ferrotune_devices::StrategyError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Strategy {
    devices: Devices,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cluster: Option<Cluster>,
    precision: Precision,
}

/// The devices of a strategy in this process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "strategy", rename_all = "snake_case")]
enum Devices {
    Default {
        device: String,
    },
    Mirrored {
        devices: Vec<String>,
    },
    /// The cores of one plugin, which compute as one device.
    Tpu {
        device: String,
        cores: usize,
    },
}

/// The number type in which a model computes. Its variables stay in single precision.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Precision {
    /// Single precision.
    #[default]
    F32,
    /// 16 bits with the exponent range of single precision.
    Bf16,
}

impl Strategy {
    /// A strategy for one device by its name, such as `cpu` or `cuda`: TensorFlow's default strategy.
    pub fn on(device: impl Into<String>) -> Strategy {
        Devices::Default { device: device.into() }.into()
    }

    /// A strategy with a replica on each of several devices of this machine: TensorFlow's `MirroredStrategy`. A device may be named
    /// more than once; each replica then computes in a thread of its own.
    ///
    /// The first cards of a plugin (`cuda:0`, `cuda:1`, …, each once) are [`Strategy::cores`]: the plugin exchanges their gradients.
    ///
    /// # Errors
    /// If there is no device.
    pub fn mirrored<D: Into<String>>(devices: impl IntoIterator<Item = D>) -> Result<Strategy, StrategyError> {
        let devices: Vec<String> = devices.into_iter().map(Into::into).collect();
        if devices.is_empty() {
            return Err(StrategyError::NoDevice);
        }
        if let Some(plugin) = plugin_of_first_cards(&devices) {
            return Strategy::cores(plugin, devices.len());
        }
        Ok(Devices::Mirrored { devices }.into())
    }

    /// A strategy for the first cores of a plugin (`tpu`, `cuda`, `xla:cpu`) as one device, over which a batch is spread. A scope runs its closure
    /// once, with the whole batch: the compiler divides the work. [`Replica::count`] is 1 there, since the program itself divides
    /// nothing, and [`Strategy::num_replicas_in_sync`] is the number of cores.
    ///
    /// ```
    /// use ferrotune_devices::Strategy;
    ///
    /// let strategy = Strategy::cores("tpu", 8)?;
    /// assert_eq!(strategy.global_batch_size(16), 128);
    /// assert_eq!(strategy.scope(|replica| (replica.index(), replica.count())), [(0, 1)]);
    /// # Ok::<(), ferrotune_devices::StrategyError>(())
    /// ```
    ///
    /// # Errors
    /// If there are no cores.
    pub fn cores(device: impl Into<String>, cores: usize) -> Result<Strategy, StrategyError> {
        match cores {
            0 => Err(StrategyError::NoDevice),
            cores => Ok(Devices::Tpu { device: device.into(), cores }.into()),
        }
    }

    /// A strategy with a replica on the CPU of each of several processes, by the `host:port` at which each listens, in the same order
    /// in all of them: TensorFlow's `MultiWorkerMirroredStrategy`. `index` is this process' index in that list.
    ///
    /// # Errors
    /// The errors of [`Cluster::new`].
    pub fn multi_worker<W: Into<String>>(
        workers: impl IntoIterator<Item = W>,
        index: usize,
    ) -> Result<Strategy, StrategyError> {
        Ok(Strategy::on("cpu").across(Cluster::new(workers, index)?))
    }

    /// The strategy with the same devices in each process of a cluster. All processes must run the same scopes, with as many devices each.
    ///
    /// The cores of a plugin become one device of all processes: each process opens the plugin together with the others, has the same
    /// batch, and computes the same in the same order. A process that has already opened the plugin alone cannot join the others.
    #[must_use]
    pub fn across(self, cluster: Cluster) -> Strategy {
        Strategy { cluster: Some(cluster), ..self }
    }

    /// The strategy with the same devices and another precision.
    #[must_use]
    pub fn with_precision(self, precision: Precision) -> Strategy {
        Strategy { precision, ..self }
    }

    /// The number type in which models compute.
    pub fn precision(&self) -> Precision {
        self.precision
    }

    /// The names of this process' devices, one for each call of a scope's closure.
    pub fn devices(&self) -> &[String] {
        match &self.devices {
            Devices::Default { device } | Devices::Tpu { device, .. } => std::slice::from_ref(device),
            Devices::Mirrored { devices } => devices,
        }
    }

    /// The number of a plugin's cores in each process that compute as one device; none unless this is [`Strategy::cores`].
    pub fn spread(&self) -> Option<usize> {
        match &self.devices {
            Devices::Tpu { cores, .. } => Some(*cores),
            _ => None,
        }
    }

    /// The cluster of processes that compute together; none if this process computes alone.
    pub fn cluster(&self) -> Option<&Cluster> {
        self.cluster.as_ref()
    }

    /// The number of replicas, or of a plugin's cores, that take a step together, in all processes; at least 1.
    pub fn num_replicas_in_sync(&self) -> usize {
        match &self.devices {
            Devices::Tpu { cores, .. } => cores * self.processes(),
            _ => self.parts(),
        }
    }

    fn processes(&self) -> usize {
        self.cluster.as_ref().map_or(1, |cluster| cluster.workers().len())
    }

    /// The number of parts into which the program divides a batch. Over cores, the compiler divides the batch, in all processes.
    fn parts(&self) -> usize {
        self.devices().len() * self.reducing().map_or(1, |cluster| cluster.workers().len())
    }

    /// The cluster over which gradients are averaged; none for cores, which need no averaging.
    fn reducing(&self) -> Option<&Cluster> {
        self.cluster.as_ref().filter(|_| self.spread().is_none())
    }

    /// The number of examples of one step over all replicas.
    pub fn global_batch_size(&self, per_replica: usize) -> usize {
        per_replica * self.num_replicas_in_sync()
    }

    /// Runs a computation once for each replica of this process, at the same time, and returns the results. With one
    /// replica, the computation runs on the calling thread. Other processes are contacted when values are first reduced.
    ///
    /// # Panics
    /// If one of the replicas panics, after all have ended.
    pub fn scope<T: Send>(&self, compute: impl Fn(&Replica<'_>) -> T + Sync) -> Vec<T> {
        let count = self.devices().len();
        let round = Round::new(count, self.reducing());
        let scope = SCOPES.fetch_add(1, Ordering::Relaxed);
        let run = |place: usize| {
            let replica = Replica { place, scope, strategy: self, round: &round };
            let _leaving = round.leave_at_end();
            compute(&replica)
        };
        if count == 1 {
            return vec![run(0)];
        }
        let run = &run;
        std::thread::scope(|threads| {
            let running: Vec<_> = (0..count).map(|place| threads.spawn(move || run(place))).collect();
            let ended: Vec<_> = running.into_iter().map(std::thread::ScopedJoinHandle::join).collect();
            let result = |ended: std::thread::Result<T>| ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            ended.into_iter().map(result).collect()
        })
    }
}

/// The number of scopes that have begun.
static SCOPES: AtomicU64 = AtomicU64::new(0);

/// Resets [`Replica::scope`] to 0. The code that sets a seed calls this, since the scope's number decides what its replicas draw.
pub fn count_scopes_anew() {
    SCOPES.store(0, Ordering::Relaxed);
}

/// The name of the plugin whose first cards these are, several of them and in their order; none for other devices.
fn plugin_of_first_cards(devices: &[String]) -> Option<String> {
    let names: Vec<DeviceName> = devices.iter().map(|device| DeviceName::parse(device)).collect::<Option<_>>()?;
    let first = names.first().filter(|first| names.len() > 1 && first.is_card())?;
    let is_in_order = names.iter().enumerate().all(|(number, name)| *name == first.with_number(number));
    is_in_order.then(|| first.to_string())
}

impl From<Devices> for Strategy {
    fn from(devices: Devices) -> Strategy {
        Strategy { devices, cluster: None, precision: Precision::default() }
    }
}

/// A replica, one of several that compute together.
#[derive(Debug)]
pub struct Replica<'a> {
    /// The replica's index in this process.
    place: usize,
    scope: u64,
    strategy: &'a Strategy,
    round: &'a Round<'a>,
}

impl Replica<'_> {
    /// The replica's index among the replicas of all processes, from 0; always 0 over the cores of a plugin.
    pub fn index(&self) -> usize {
        self.place + self.strategy.reducing().map_or(0, Cluster::index) * self.strategy.devices().len()
    }

    /// The number of scopes that began before the replica's own, in this process and since [`count_scopes_anew`].
    pub fn scope(&self) -> u64 {
        self.scope
    }

    /// The name of the replica's device.
    pub fn device(&self) -> &str {
        &self.strategy.devices()[self.place]
    }

    /// The number of parts into which the program itself divides a batch: the number of replicas in all processes. It is 1 over the
    /// cores of a plugin, in one process or several.
    pub fn count(&self) -> usize {
        self.strategy.parts()
    }

    /// The strategy that the replica belongs to.
    pub fn strategy(&self) -> &Strategy {
        self.strategy
    }

    /// Replaces values, `f32` or `f64`, by their mean over all replicas, for which the replica waits for all others. The mean is the
    /// same in every bit on each replica, and from run to run.
    ///
    /// # Errors
    /// If another replica has ended, or has another number of values; and if another process is missing, dies or hangs,
    /// which ends all replicas with an error that names the process. The values have no meaning then.
    pub fn all_reduce_mean<R: Reduce>(&self, values: &mut [R]) -> Result<(), StrategyError> {
        self.round.mean(self.place, values)
    }
}
