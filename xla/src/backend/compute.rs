//! Computes nodes by one program, and reports the faults that its checks have found.

use super::Backend;
use crate::checks::{self, Checking};
use crate::graph::Node;
use crate::program::{Argument, Program};
use crate::value::Value;
use candle_core::{Error, Result, bail};
use ferrotune_devices::pjrt::{self, Buffer, LoadedExecutable, Transfer};
use ferrotune_profile as profile;
use std::collections::HashSet;
use std::sync::{Arc, Weak};
use std::time::Instant;

impl Backend {
    /// Computes `nodes`, and the nodes that storages refer to since the last computation.
    pub(crate) fn compute(&self, nodes: &[Arc<Node>]) -> Result<()> {
        self.compute_and_read(nodes, None).map(drop)
    }

    /// Computes nodes like [`Backend::compute`], and starts to copy one of them to the host early if that saves time.
    pub(super) fn compute_and_read(&self, nodes: &[Arc<Node>], read: Option<&Arc<Node>>) -> Result<Option<Transfer>> {
        let changed = std::mem::take(&mut *self.changed());
        let (mut wanted, mut known): (Vec<Arc<Node>>, _) = (Vec::new(), HashSet::new());
        let slots = changed.iter().filter_map(Weak::upgrade);
        let assigned = slots.map(|slot| Value::node_in(&slot)).collect::<Result<Vec<_>>>()?;
        for node in assigned.into_iter().chain(nodes.iter().cloned()) {
            if node.value().is_none() && known.insert(node.id) {
                wanted.push(node);
            }
        }
        let done = self.compute_only(&wanted, read);
        if done.is_err() {
            self.changed().extend(changed);
        }
        done
    }

    pub(super) fn compute_only(&self, nodes: &[Arc<Node>], read: Option<&Arc<Node>>) -> Result<Option<Transfer>> {
        if nodes.is_empty() {
            return Ok(None);
        }
        if !self.is_complete() {
            let (here, count) = (self.here(), self.cores.count());
            bail!(
                "a device of {count} cores that was opened ahead of time runs nothing on {here}; use Step::stablehlo"
            );
        }
        let program = Program::new(nodes, &[], &[], &self.cores, Checking::chosen()?.of_lazy_code());
        let executable = self.executable(&program)?;
        let fresh = program.arguments.iter().map(|argument| self.fresh(argument)).collect::<Result<Vec<_>>>()?;
        let rows = (0..self.here()).map(|place| row(&program.arguments, &fresh, place)).collect::<Result<_>>()?;
        let mut results = by_result(launch(&executable, rows)?);
        let found = results.split_off(nodes.len()).pop();
        let place =
            read.filter(|_| found.is_some()).and_then(|read| nodes.iter().position(|node| Arc::ptr_eq(node, read)));
        let reading = place.map(|place| results[place][0].download().map_err(Error::wrap)).transpose()?;
        let found = checks::faults(&program.checks, found);
        if found.is_err() {
            // The transfer fails with the program's own error, which is the one to return.
            reading.map(Transfer::wait).transpose().map_err(Error::wrap)?;
            return found.map(|_| None);
        }
        let faults = program.faults_of_results(&found?);
        for ((node, value), fault) in nodes.iter().zip(results).zip(faults) {
            match fault {
                Some(fault) => node.set_faulty(value, fault),
                None => node.set_value(value),
            }
        }
        Ok(reading)
    }
}

/// Starts a program, and returns its outputs on each device. The run is recorded in a profile.
fn launch(executable: &LoadedExecutable, rows: Vec<Vec<pjrt::Input<'_>>>) -> Result<Vec<Vec<Buffer>>> {
    launch_or_return(executable, rows).map_err(|refused| Error::wrap(refused.error))
}

/// Starts a program like [`launch`], and returns the inputs if the program is not started.
pub(crate) fn launch_or_return<'a>(
    executable: &LoadedExecutable,
    rows: Vec<Vec<pjrt::Input<'a>>>,
) -> std::result::Result<Vec<Vec<Buffer>>, pjrt::Refused<'a>> {
    let begin = Instant::now();
    let pjrt::Launch { outputs, done } = executable.launch_or_return(rows)?;
    if profile::is_recording() {
        // An error of the program is reported to the readers of its outputs.
        profile::ran(begin, move || done.iter().for_each(|end| drop(end.wait())));
    }
    Ok(outputs)
}

/// The inputs of the device with this index.
fn row<'a>(arguments: &'a [Argument], fresh: &'a [Option<Vec<Buffer>>], place: usize) -> Result<Vec<pjrt::Input<'a>>> {
    let input = |(argument, fresh): (&'a Argument, &'a Option<Vec<Buffer>>)| match (argument, fresh) {
        (_, Some(buffers)) => Ok(pjrt::Input::Keep(&buffers[place])),
        (Argument::Node(node), None) => match node.value() {
            Some(buffers) => Ok(pjrt::Input::Keep(&buffers[place])),
            None => bail!(
                "an array has no value: it was made while a step was traced, or a step that changes it has failed; return it \
                 from the step, keep state in a `Var`, or load a checkpoint"
            ),
        },
        (_, None) => bail!("an argument of the program has no value; please report this"),
    };
    arguments.iter().zip(fresh).map(input).collect()
}

/// The outputs of all devices, grouped by result instead of by device.
pub(crate) fn by_result(outputs: Vec<Vec<Buffer>>) -> Vec<Vec<Buffer>> {
    let mut results: Vec<Vec<Buffer>> = Vec::new();
    for row in outputs {
        results.resize_with(row.len(), Vec::new);
        for (result, buffer) in results.iter_mut().zip(row) {
            result.push(buffer);
        }
    }
    results
}
