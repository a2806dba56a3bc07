//! How a computation is spread over devices, as TensorFlow's strategies say it: replicas of one model, each with its part
//! of a batch, that agree on their gradients after every step.
//!
//! A [`Strategy`] is a description that any process can open. It refuses to know what a model is: gradients are slices.

mod round;

use round::Round;
use serde::{Deserialize, Serialize};

/// Which devices compute together, and how precisely.
///
/// ```
/// use ferrotune_devices::Strategy;
///
/// let strategy = Strategy::mirrored(["cpu", "cpu"])?;
/// assert_eq!(strategy.global_batch_size(32), 64);
/// // Each replica has the gradient of its own part; all go on with the mean.
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
    precision: Precision,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "strategy", rename_all = "snake_case")]
enum Devices {
    Default { device: String },
    Mirrored { devices: Vec<String> },
}

/// The type in which a model computes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Precision {
    /// Single precision.
    #[default]
    F32,
    /// 16 bits with the range of single precision.
    Bf16,
}

/// Why replicas cannot compute together.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StrategyError {
    /// There is no device to mirror.
    #[error("a mirrored strategy needs at least one device")]
    NoDevice,
    /// Another replica ended, or failed, before this one's step was over.
    #[error(
        "replica {replica} waits for gradients of another one that has ended; all replicas must take the same steps"
    )]
    Alone {
        /// The one that waits.
        replica: usize,
    },
    /// The replicas do not have the same model.
    #[error("the replicas reduce {first} and {other} values; they must have the same model")]
    Lengths {
        /// Values of one replica.
        first: usize,
        /// Values of another one.
        other: usize,
    },
}

impl Strategy {
    /// One device by its name, `cpu` or `cuda:0`: TensorFlow's default strategy.
    pub fn on(device: impl Into<String>) -> Strategy {
        Strategy { devices: Devices::Default { device: device.into() }, precision: Precision::default() }
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
        Ok(Strategy { devices: Devices::Mirrored { devices }, precision: Precision::default() })
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

    /// The device of each replica.
    pub fn devices(&self) -> &[String] {
        match &self.devices {
            Devices::Default { device } => std::slice::from_ref(device),
            Devices::Mirrored { devices } => devices,
        }
    }

    /// How many replicas take a step together, at least 1.
    pub fn num_replicas_in_sync(&self) -> usize {
        self.devices().len()
    }

    /// Examples of one step over all replicas.
    pub fn global_batch_size(&self, per_replica: usize) -> usize {
        per_replica * self.num_replicas_in_sync()
    }

    /// Runs a computation once for each replica, at the same time, and gives what each one made. With one replica it runs
    /// on the calling thread.
    ///
    /// # Panics
    /// If one of them does, once all have ended.
    pub fn scope<T: Send>(&self, compute: impl Fn(&Replica<'_>) -> T + Sync) -> Vec<T> {
        let count = self.num_replicas_in_sync();
        let round = Round::new(count);
        let run = |index: usize| {
            let replica = Replica { index, device: &self.devices()[index], round: &round };
            let _leaving = round.leave_at_end();
            compute(&replica)
        };
        if count == 1 {
            return vec![run(0)];
        }
        let run = &run;
        std::thread::scope(|threads| {
            let running: Vec<_> = (0..count).map(|index| threads.spawn(move || run(index))).collect();
            let ended: Vec<_> = running.into_iter().map(std::thread::ScopedJoinHandle::join).collect();
            let give = |ended: std::thread::Result<T>| ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            ended.into_iter().map(give).collect()
        })
    }
}

/// One of the replicas that compute together.
#[derive(Debug)]
pub struct Replica<'a> {
    index: usize,
    device: &'a str,
    round: &'a Round,
}

impl Replica<'_> {
    /// Its number, from 0.
    pub fn index(&self) -> usize {
        self.index
    }

    /// The name of its device.
    pub fn device(&self) -> &str {
        self.device
    }

    /// How many replicas there are.
    pub fn count(&self) -> usize {
        self.round.count()
    }

    /// Replaces values by their mean over all replicas, and waits for all of them to that end. The mean is the same in
    /// every bit on each of them, and from run to run.
    ///
    /// # Errors
    /// If another replica has ended, or has another number of values.
    pub fn all_reduce_mean(&self, values: &mut [f32]) -> Result<(), StrategyError> {
        self.round.mean(self.index, values)
    }
}
