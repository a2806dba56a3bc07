//! Opens a plugin in several processes at once, so that programs run on the devices of all of them.

use crate::pjrt::{Client, PjrtError, Plugin, Value};
use crate::{Cluster, Store, StrategyError, fork};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The reason why a plugin cannot be opened together with other processes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum JointError {
    /// The processes cannot connect to each other.
    #[error(transparent)]
    Workers(#[from] StrategyError),
    /// The plugin does not load or open.
    #[error(transparent)]
    Plugin(#[from] PjrtError),
    /// The plugin has opened devices of a different number of processes than the cluster has.
    #[error(
        "{plugin} has opened devices of {found} processes for a cluster of {workers}; use a plugin that computes over several \
         processes, such as CUDA's, or replicas on the first core of each: Strategy::on(…).across(…)"
    )]
    Processes {
        /// The plugin's library.
        plugin: PathBuf,
        /// The number of processes that have devices.
        found: usize,
        /// The number of workers of the cluster.
        workers: usize,
    },
}

/// Loads a plugin and opens its devices together with the other workers of a cluster, which call this at the same time.
/// [`Client::all_devices`] are the devices of all workers, and [`Client::devices`] the devices of this process.
///
/// The first worker listens at its address for as long as the client lives, so it must end last, and no strategy that reduces values
/// over TCP can use this address meanwhile. libtpu finds the other processes by itself, from its environment, and gets no options.
///
/// # Errors
/// If a worker is missing, or the plugin does not open for so many processes.
pub fn open_jointly(plugin: &Path, cluster: &Cluster) -> Result<Client, JointError> {
    let loaded = Plugin::load(plugin)?;
    // The opening is recorded even if no client opens, because the plugin may have started threads.
    fork::opened();
    let store = Arc::new(Store::open(cluster)?);
    let workers = cluster.workers().len();
    let number = |number: usize| Value::Integer(i64::try_from(number).unwrap_or(i64::MAX));
    let numbered = [("node_id", number(cluster.index())), ("num_nodes", number(workers))];
    let options: &[(&str, Value)] = if is_libtpu(plugin) { &[] } else { &numbered };
    let client = loaded.client_across(options, store)?;
    let all = client.all_devices()?;
    let processes =
        all.iter().map(|device| Ok(device.description()?.process)).collect::<Result<BTreeSet<i32>, PjrtError>>()?;
    match processes.len() {
        found if found == workers => Ok(client),
        found => Err(JointError::Processes { plugin: plugin.to_owned(), found, workers }),
    }
}

/// Whether the plugin is libtpu, which refuses options that it does not know.
fn is_libtpu(plugin: &Path) -> bool {
    plugin.file_name().is_some_and(|name| name.to_string_lossy().starts_with("libtpu"))
}
