//! Why replicas cannot compute together.

/// Why replicas cannot compute together. Workers are named by their number and address.
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
    /// Another replica ended, or failed, during this one's step.
    #[error(
        "replica {replica} waits for gradients of a replica that has ended; all replicas must take the same number of steps"
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
    /// The replicas do not have the same types.
    #[error(
        "the replicas reduce numbers of different types; they must have the same model, and all of them a CUDA device or none of them"
    )]
    Types,
    /// This worker cannot be reached by others.
    #[error("worker {worker} cannot listen on {address}: {reason}; it must be a free port of this host")]
    Listen {
        /// This worker.
        worker: usize,
        /// Its address.
        address: String,
        /// The system's reason.
        reason: String,
    },
    /// Another worker was not there in time.
    #[error("worker {worker} ({address}) did not come within {seconds} s: {reason}; start all workers")]
    Missing {
        /// The other worker.
        worker: usize,
        /// Its address.
        address: String,
        /// The time that it had.
        seconds: u64,
        /// The last answer from it, or that there was none.
        reason: String,
    },
    /// Another worker belongs to another computation.
    #[error(
        "worker {worker} ({address}) does not belong to this cluster: {reason}; start all workers with the same description"
    )]
    Stranger {
        /// The other worker.
        worker: usize,
        /// Its address.
        address: String,
        /// How it differs.
        reason: String,
    },
    /// A worker has died, failed or left.
    #[error("worker {worker} ({address}) is gone: {reason}; the others cannot go on without it")]
    Gone {
        /// The worker that was lost first.
        worker: usize,
        /// Its address.
        address: String,
        /// How it was lost.
        reason: String,
    },
    /// Other workers do not reach a step. One of them hangs; the others may be waiting for it.
    #[error("these workers did not reach this step within {seconds} s: {workers}; does one of them hang?")]
    Silent {
        /// Who is missing, with addresses.
        workers: String,
        /// The time that they had.
        seconds: u64,
    },
}
