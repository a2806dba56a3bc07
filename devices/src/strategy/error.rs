//! The errors of replicas that compute together.

/// The reason why replicas cannot compute together. Workers are identified by their number and address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StrategyError {
    /// There is no device to compute on.
    #[error("a strategy needs at least one device")]
    NoDevice,
    /// The description of the workers is wrong.
    #[error("{reason}; name every worker as host:port, and this process' index among them")]
    Cluster {
        /// What is wrong with the description.
        reason: String,
    },
    /// The opened platform is not a TPU.
    #[error("{platform} is not a TPU; use Strategy::on or Strategy::mirrored")]
    NoTpu {
        /// The platform's name.
        platform: String,
    },
    /// Another replica ended or failed during this replica's step.
    #[error(
        "replica {replica} waits for gradients of a replica that has ended; all replicas must take the same number of steps"
    )]
    Alone {
        /// The replica that waits.
        replica: usize,
    },
    /// The replicas reduce different numbers of values, so they have different models.
    #[error("the replicas reduce {first} and {other} values; they must have the same model")]
    Lengths {
        /// The number of values of one replica.
        first: usize,
        /// The number of values of another replica.
        other: usize,
    },
    /// The replicas reduce values of different types.
    #[error("the replicas reduce numbers of different types; they must have the same model")]
    Types,
    /// This worker cannot listen at its address.
    #[error("worker {worker} cannot listen on {address}: {reason}; it must be a free port of this host")]
    Listen {
        /// The number of this worker.
        worker: usize,
        /// The address of this worker.
        address: String,
        /// The system's reason.
        reason: String,
    },
    /// Another worker did not connect in time.
    #[error("worker {worker} ({address}) did not come within {seconds} s: {reason}; start all workers")]
    Missing {
        /// The number of the other worker.
        worker: usize,
        /// The address of the other worker.
        address: String,
        /// The time that the other worker had, in seconds.
        seconds: u64,
        /// The last answer of the other worker, or that there was none.
        reason: String,
    },
    /// Another worker belongs to another computation.
    #[error(
        "worker {worker} ({address}) does not belong to this cluster: {reason}; start all workers with the same description"
    )]
    Stranger {
        /// The number of the other worker.
        worker: usize,
        /// The address of the other worker.
        address: String,
        /// The difference between the other worker and this one.
        reason: String,
    },
    /// A worker has died, failed or left.
    #[error("worker {worker} ({address}) is gone: {reason}; the others cannot go on without it")]
    Gone {
        /// The worker that was lost first.
        worker: usize,
        /// The address of that worker.
        address: String,
        /// The way in which the worker was lost.
        reason: String,
    },
    /// Other workers do not reach a step. One of them hangs; the others may be waiting for it.
    #[error("these workers did not reach this step within {seconds} s: {workers}; does one of them hang?")]
    Silent {
        /// The missing workers, with their addresses.
        workers: String,
        /// The time that the workers had, in seconds.
        seconds: u64,
    },
}
