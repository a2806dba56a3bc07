//! How a computation is spread over devices, in the terms of TensorFlow's strategies: replicas of one model, each with its
//! part of a batch, average their gradients after every step.
//!
//! A [`Strategy`] is a description that any process can use. It knows nothing about models: gradients are slices.

mod cluster;
mod error;
mod mesh;
mod round;
mod store;
mod values;
mod wire;

use crate::opened::Opened;
pub use cluster::Cluster;
pub use error::StrategyError;
use round::Round;
use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicU64, Ordering};
pub use store::{Store, StoreError};
pub use values::Reduce;

/// Which devices compute together, and how precisely.
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

/// The devices of this process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "strategy", rename_all = "snake_case")]
enum Devices {
    Default {
        device: String,
    },
    Mirrored {
        devices: Vec<String>,
    },
    /// Cores of one plugin, which compute as one device.
    Tpu {
        device: String,
        cores: usize,
    },
}

/// The type in which a model computes. Its variables stay in single precision.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Precision {
    /// Single precision.
    #[default]
    F32,
    /// 16 bits with the range of single precision.
    Bf16,
}

impl Strategy {
    /// One device by its name, `cpu` or `cuda:0`: TensorFlow's default strategy.
    pub fn on(device: impl Into<String>) -> Strategy {
        Devices::Default { device: device.into() }.into()
    }

    /// A replica on each of several devices of this machine: TensorFlow's `MirroredStrategy`. A device may be named more
    /// than once; each replica then computes in a thread of its own.
    ///
    /// # Errors
    /// If there is no device.
    pub fn mirrored<D: Into<String>>(devices: impl IntoIterator<Item = D>) -> Result<Strategy, StrategyError> {
        let devices: Vec<String> = devices.into_iter().map(Into::into).collect();
        if devices.is_empty() {
            return Err(StrategyError::NoDevice);
        }
        Ok(Devices::Mirrored { devices }.into())
    }

    /// All cores of a TPU that was opened: TensorFlow's `TPUStrategy`. See [`Strategy::cores`].
    ///
    /// # Errors
    /// If the opened platform is not a TPU, or has no cores.
    pub fn tpu(opened: &Opened) -> Result<Strategy, StrategyError> {
        match opened.platform.as_str() {
            "tpu" => Strategy::cores("tpu", opened.devices.len()),
            platform => Err(StrategyError::NoTpu { platform: platform.to_owned() }),
        }
    }

    /// The first cores of a plugin (`tpu`, `xla:cpu`) as one device, over which a batch is spread. A scope runs its closure
    /// once, with the whole batch: the compiler divides the work. [`Replica::count`] is 1 there, since a program has nothing
    /// to divide, and [`Strategy::num_replicas_in_sync`] is the number of cores.
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

    /// A replica on the CPU of each of several processes, by the `host:port` at which each listens, in the same order
    /// in all of them: TensorFlow's `MultiWorkerMirroredStrategy`. `index` is this process' index in that list.
    ///
    /// # Errors
    /// Those of [`Cluster::new`].
    pub fn multi_worker<W: Into<String>>(
        workers: impl IntoIterator<Item = W>,
        index: usize,
    ) -> Result<Strategy, StrategyError> {
        Ok(Strategy::on("cpu").across(Cluster::new(workers, index)?))
    }

    /// The same devices in each process of a cluster. All of them must run the same scopes, with as many devices each.
    ///
    /// The cores of a plugin become one device of all processes: each opens the plugin together with the others, has the same batch,
    /// and computes the same in the same order. Where a process has opened the plugin alone, it cannot join the others any more.
    #[must_use]
    pub fn across(self, cluster: Cluster) -> Strategy {
        Strategy { cluster: Some(cluster), ..self }
    }

    /// The same devices with another precision.
    #[must_use]
    pub fn with_precision(self, precision: Precision) -> Strategy {
        Strategy { precision, ..self }
    }

    /// The type in which models compute.
    pub fn precision(&self) -> Precision {
        self.precision
    }

    /// The device of each call of a scope's closure in this process.
    pub fn devices(&self) -> &[String] {
        match &self.devices {
            Devices::Default { device } | Devices::Tpu { device, .. } => std::slice::from_ref(device),
            Devices::Mirrored { devices } => devices,
        }
    }

    /// How many cores of a plugin compute as one device, in each process, if this is [`Strategy::cores`].
    pub fn spread(&self) -> Option<usize> {
        match &self.devices {
            Devices::Tpu { cores, .. } => Some(*cores),
            _ => None,
        }
    }

    /// The processes that compute together, if there is more than this one.
    pub fn cluster(&self) -> Option<&Cluster> {
        self.cluster.as_ref()
    }

    /// How many replicas, or cores of a plugin, take a step together, in all processes, at least 1.
    pub fn num_replicas_in_sync(&self) -> usize {
        match &self.devices {
            Devices::Tpu { cores, .. } => cores * self.processes(),
            _ => self.parts(),
        }
    }

    fn processes(&self) -> usize {
        self.cluster.as_ref().map_or(1, |cluster| cluster.workers().len())
    }

    /// Into how many parts the program divides a batch. Over cores it is the compiler that does so, in all processes.
    fn parts(&self) -> usize {
        self.devices().len() * self.reducing().map_or(1, |cluster| cluster.workers().len())
    }

    /// The processes with which gradients are averaged. Over cores there is nothing to average.
    fn reducing(&self) -> Option<&Cluster> {
        self.cluster.as_ref().filter(|_| self.spread().is_none())
    }

    /// Examples of one step over all replicas.
    pub fn global_batch_size(&self, per_replica: usize) -> usize {
        per_replica * self.num_replicas_in_sync()
    }

    /// Runs a computation once for each replica of this process, at the same time, and returns their results. With one
    /// replica it runs on the calling thread. Other processes are contacted when values are first reduced.
    ///
    /// # Panics
    /// If one of the replicas panics, once all have ended.
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

/// The scopes that have begun.
static SCOPES: AtomicU64 = AtomicU64::new(0);

/// Lets [`Replica::scope`] begin with 0 again. A seed does so, which decides what the replicas of each scope draw.
pub fn count_scopes_anew() {
    SCOPES.store(0, Ordering::Relaxed);
}

impl From<Devices> for Strategy {
    fn from(devices: Devices) -> Strategy {
        Strategy { devices, cluster: None, precision: Precision::default() }
    }
}

/// One of the replicas that compute together.
#[derive(Debug)]
pub struct Replica<'a> {
    /// Its number among those of this process.
    place: usize,
    scope: u64,
    strategy: &'a Strategy,
    round: &'a Round<'a>,
}

impl Replica<'_> {
    /// Its number among the replicas of all processes, from 0; always 0 over the cores of a plugin.
    pub fn index(&self) -> usize {
        self.place + self.strategy.reducing().map_or(0, Cluster::index) * self.strategy.devices().len()
    }

    /// How many scopes began before its own, in this process and since [`count_scopes_anew`].
    pub fn scope(&self) -> u64 {
        self.scope
    }

    /// The name of its device.
    pub fn device(&self) -> &str {
        &self.strategy.devices()[self.place]
    }

    /// Into how many parts the program itself divides a batch: the replicas of all processes. 1 over the cores of a plugin, in one
    /// process or several.
    pub fn count(&self) -> usize {
        self.strategy.parts()
    }

    /// The strategy that it belongs to.
    pub fn strategy(&self) -> &Strategy {
        self.strategy
    }

    /// Replaces values, `f32` or `f64`, by their mean over all replicas, for which it waits for all of them. The mean is the
    /// same in every bit on each of them, and from run to run.
    ///
    /// # Errors
    /// If another replica has ended, or has another number of values; and if another process is missing, dies or hangs,
    /// which ends all replicas with an error that names it. The values have no meaning then.
    pub fn all_reduce_mean<R: Reduce>(&self, values: &mut [R]) -> Result<(), StrategyError> {
        self.round.mean(self.place, values)
    }
}
