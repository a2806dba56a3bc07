//! Computes nodes by one program, and reports the faults that its checks have found.

use super::{Backend, Changed};
use crate::checks::{self, Checking};
use crate::graph::{Node, follows, lost};
use crate::program::{Argument, Numbers, Program};
use crate::value::Value;
use crate::work::Executable;
use candle_core::{Error, Result, bail};
use ferrotune_devices::pjrt::Literal;
use ferrotune_devices::runtime::{self, Buffer, Transfer};
use ferrotune_profile as profile;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Instant;

impl Backend {
    /// Computes `nodes`, the variables and copies that have changed since the last computation, and every node on the way to them that
    /// the program holds, so that a loop which carries a tensor from read to read computes one program again and again. Copies such as
    /// the batches that `narrow` and `contiguous` cut are computed together: within the program of a step each would be at another place
    /// of the whole, and so another program.
    pub(crate) fn compute(&self, nodes: &[Arc<Node>]) -> Result<()> {
        self.compute_and_read(nodes, None).map(drop)
    }

    /// Computes nodes like [`Backend::compute`], and reads one of them, unless it was computed before. If the read fails, no node has
    /// a value.
    pub(super) fn compute_and_read(&self, nodes: &[Arc<Node>], read: Option<&Arc<Node>>) -> Result<Option<Literal>> {
        let changed = std::mem::take(&mut *self.changed());
        let (mut wanted, mut known): (Vec<Arc<Node>>, _) = (Vec::new(), HashSet::new());
        let assigned = changed.iter().map(Changed::wanted).collect::<Result<Vec<_>>>()?;
        for node in assigned.iter().flatten().chain(nodes) {
            if node.value().is_none() && known.insert(node.id) {
                wanted.push(node.clone());
            }
        }
        let done = self.compute_only(&wanted, read);
        if done.is_ok() {
            return done;
        }
        // The processes of a joint device run the same programs, and a program that fails in one of them is not tried again.
        if self.elsewhere > 0 {
            self.changed().extend(changed);
            return done;
        }
        // What is lost keeps no other value from being computed, now or later.
        let lost = lost(&wanted);
        let is_lost = |node: &Arc<Node>| lost.contains(&node.id);
        let left = changed.into_iter().zip(&assigned).filter(|(_, node)| !node.as_ref().is_some_and(is_lost));
        self.changed().extend(left.map(|(changed, _)| changed));
        if nodes.iter().any(is_lost) {
            return done;
        }
        let rest = wanted.iter().filter(|node| !is_lost(node)).cloned().collect();
        let alone = nodes.iter().filter(|node| node.value().is_none()).cloned().collect();
        let (mut done, mut tried) = (done, wanted.len());
        for fewer in [rest, alone] as [Vec<Arc<Node>>; 2] {
            if done.is_err() && fewer.len() < tried {
                tried = fewer.len();
                done = self.compute_only(&fewer, read);
            }
        }
        done
    }

    pub(super) fn compute_only(&self, nodes: &[Arc<Node>], read: Option<&Arc<Node>>) -> Result<Option<Literal>> {
        if nodes.is_empty() {
            return Ok(None);
        }
        if !self.is_complete() {
            let (here, count) = (self.here(), self.cores.count());
            bail!(
                "a device of {count} cores that was opened ahead of time runs nothing on {here}; use Step::stablehlo"
            );
        }
        let mut program =
            Program::new(nodes, &[], &[], &self.cores, Checking::chosen()?.of_lazy_code(), Numbers::Apart);
        program.move_slices();
        // The processes of a joint device make the same program, and each may hold other tensors.
        if self.elsewhere == 0 {
            program.return_held(is_held)?;
        }
        let mut executable = self.executable(&program)?;
        let mut outputs = self.run(&program, &executable);
        // A device process that has ended has taken its programs with it, and it may be that nothing else of them was needed.
        if outputs.is_err() && !executable.is_loaded() {
            executable = self.executable(&program)?;
            outputs = self.run(&program, &executable);
        }
        let (mut results, returned) = (by_result(outputs?), program.returned());
        let found = results.split_off(returned.len()).pop();
        let place = read.and_then(|read| returned.iter().position(|node| Arc::ptr_eq(node, read)));
        let reading = place.map(|place| results[place][0].download().map_err(Error::wrap)).transpose()?;
        let found = checks::faults(&program.checks, found);
        // Where the program fails, the read has its own error, which is the one to return.
        let literal = reading.map(Transfer::wait).transpose().map_err(Error::wrap)?;
        let faults = program.faults_of_results(&found?);
        for ((node, value), fault) in returned.iter().zip(results).zip(faults) {
            match fault {
                Some(fault) => node.set_faulty(value, fault),
                None => node.set_value(value),
            }
        }
        Ok(literal)
    }
}

impl Backend {
    /// Starts a program, and returns its outputs on each device.
    fn run(&self, program: &Program, executable: &Executable) -> Result<Vec<Vec<Buffer>>> {
        let fresh = program.arguments.iter().map(|argument| self.fresh(argument)).collect::<Result<Vec<_>>>()?;
        let rows = (0..self.here()).map(|place| row(&program.arguments, &fresh, place)).collect::<Result<_>>()?;
        launch(executable, rows)
    }
}

impl Changed {
    /// The node to compute, if the storage still exists. A copy that is needed for `backward` alone, or follows from another value without
    /// computation, waits until it is needed.
    fn wanted(&self) -> Result<Option<Arc<Node>>> {
        let Some(slot) = self.slot.upgrade() else { return Ok(None) };
        let node = Value::node_in(&slot)?;
        let waits = self.is_copy && (slot.is_kept_for_backward_alone() || follows(&node));
        Ok((!waits).then_some(node))
    }
}

/// Whether the program may still read a node: it has a tensor whose storage refers to the node. A storage that only candle keeps, for
/// `backward`, does not count, since the activations of a training step would fill the memory.
fn is_held(node: &Arc<Node>) -> Result<bool> {
    let Some(slot) = node.storage() else { return Ok(false) };
    Ok(Arc::ptr_eq(&Value::node_in(&slot)?, node) && !slot.is_kept_for_backward_alone())
}

/// Starts a program, and returns its outputs on each device. The run is recorded in a profile.
fn launch(executable: &Executable, rows: Vec<Vec<runtime::Input<'_>>>) -> Result<Vec<Vec<Buffer>>> {
    launch_or_return(executable, rows).map_err(|refused| Error::wrap(refused.error))
}

/// Starts a program like [`launch`], and returns the inputs if the program is not started.
pub(crate) fn launch_or_return<'a>(
    executable: &Executable,
    rows: Vec<Vec<runtime::Input<'a>>>,
) -> std::result::Result<Vec<Vec<Buffer>>, runtime::Refused<'a>> {
    let begin = Instant::now();
    let runtime::Launch { outputs, done } = executable.launch_or_return(rows)?;
    executable.count_run();
    if profile::is_recording() {
        // An error of the program is reported to the readers of its outputs.
        profile::ran(begin, move || drop(done.wait()));
    }
    Ok(outputs)
}

/// The inputs of the device with this index.
fn row<'a>(
    arguments: &'a [Argument],
    fresh: &'a [Option<Vec<Buffer>>],
    place: usize,
) -> Result<Vec<runtime::Input<'a>>> {
    let input = |(argument, fresh): (&'a Argument, &'a Option<Vec<Buffer>>)| match (argument, fresh) {
        (_, Some(buffers)) => Ok(runtime::Input::Keep(&buffers[place])),
        (Argument::Node(node), None) => match node.value() {
            Some(buffers) => Ok(runtime::Input::Keep(&buffers[place])),
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

#[cfg(test)]
mod tests {
    use crate::backend::backend_of;
    use crate::graph::{Node, follows};
    use crate::open;
    use crate::plugin;
    use crate::view::node_of;
    use candle_core::{DType, Device, Error, Result, Tensor, Var};
    use std::sync::Arc;

    fn is_computed(node: &Arc<Node>) -> bool {
        node.value().is_some()
    }

    #[test]
    fn a_read_computes_what_is_held_on_the_way_and_nothing_else() -> Result<()> {
        let device = open(&plugin::path()?)?;
        let x = Tensor::new(&[1f32, 2.], &device)?;
        let held = (&x * 2.)?;
        let dropped = node_of(&held.exp()?)?;
        let (aside, end) = (held.sqr()?, held.exp()?.sin()?);
        end.sum_all()?.to_scalar::<f32>()?;
        let computed = [&node_of(&held)?, &node_of(&end)?, &node_of(&aside)?, &dropped].map(is_computed);
        assert_eq!(computed, [true, true, false, false]);
        Ok(())
    }

    #[test]
    fn a_copy_is_computed_with_the_next_read_if_the_program_holds_it() -> Result<()> {
        let device = open(&plugin::path()?)?;
        let rows = Tensor::new(&[[1f32, 2.], [3., 4.]], &Device::Cpu)?.exp()?.to_device(&device)?;
        let (batch, joined) = (rows.narrow(1, 1, 1)?.contiguous()?, Tensor::cat(&[&rows, &rows.t()?], 0)?);
        let dropped = node_of(&rows.t()?.contiguous()?)?;
        let aside = node_of(&rows.sqr()?)?;
        rows.exp()?.sum_all()?.to_scalar::<f32>()?;
        assert_eq!(
            [node_of(&batch)?, node_of(&joined)?, dropped, aside].map(|node| follows(&node)),
            [true, true, false, false]
        );
        assert_eq!(batch.to_vec2::<f32>()?, [[2f32.exp()], [4f32.exp()]]);
        Ok(())
    }

    #[test]
    fn an_activation_that_only_backward_needs_is_no_result() -> Result<()> {
        let device = open(&plugin::path()?)?;
        let weights = Var::from_tensor(&Tensor::new(&[1f32, 2.], &device)?)?;
        let activation = weights.exp()?;
        let hidden = node_of(&activation)?;
        let loss = activation.sin()?.sum_all()?;
        drop(activation);
        loss.to_scalar::<f32>()?;
        assert!(!is_computed(&hidden));
        let gradients = loss.backward()?;
        let gradient = gradients.get(&weights).expect("the gradient").to_vec1::<f32>()?;
        assert!((gradient[0] - 1f32.exp() * 1f32.exp().cos()).abs() < 1e-5, "{gradient:?}");
        // A view of an activation is a tensor of the program, though the activation itself is an operand alone.
        let activation = weights.exp()?;
        let (hidden, view) = (node_of(&activation)?, activation.unsqueeze(0)?);
        drop(activation);
        view.sin()?.sum_all()?.to_scalar::<f32>()?;
        assert!(is_computed(&hidden));
        Ok(())
    }

    #[test]
    fn numbers_and_copies_of_arrays_are_no_results() -> Result<()> {
        let device = open(&plugin::path()?)?;
        let x = Tensor::zeros((2, 3), DType::F32, &device)?;
        let number = Tensor::new(0.5f32, &device)?;
        let all = number.broadcast_as((2, 3))?.contiguous()?;
        (&x + &all)?.exp()?.to_vec2::<f32>()?;
        assert_eq!(
            [&x, &number, &all].map(|tensor| node_of(tensor).map(|node| is_computed(&node)).ok()),
            [Some(false); 3]
        );
        Ok(())
    }

    #[test]
    fn a_program_that_fails_leaves_all_nodes_as_they_were() -> Result<()> {
        let device = open(&plugin::path()?)?;
        let x = Tensor::new(&[1f32, 2.], &device)?.to_device(&Device::Cpu)?.to_device(&device)?;
        let variable = Var::zeros(2, DType::F32, &device)?;
        let held = (&x * 2.)?;
        variable.set(&held)?;
        let end = held.sum_all()?;
        for buffer in node_of(&x)?.value().unwrap_or_default() {
            buffer.delete().map_err(Error::wrap)?;
        }
        for _ in 0..2 {
            assert!(end.to_scalar::<f32>().is_err());
            assert!(![node_of(&held)?, node_of(&end)?, node_of(&variable)?].iter().any(is_computed));
        }
        assert_eq!(
            backend_of(&device).map(|backend| backend.changed().len()),
            Some(1),
            "the variable is still to be set"
        );
        Ok(())
    }
}
