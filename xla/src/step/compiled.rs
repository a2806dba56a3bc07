//! A compiled step, which collects its arguments, donates the values of its variables, and sets their new values.

use super::tensor;
use crate::backend::{Backend, by_result, launch_or_return};
use crate::checks::{self, Check};
use crate::graph::{Array as _, Form, Node};
use crate::random::state;
use crate::value::Value;
use crate::work::Executable;
use candle_core::external::Slot;
use candle_core::{Device, Error, Result, Tensor, bail};
use ferrotune_devices::runtime::{self, Buffer};
use std::sync::Arc;

/// A step that is compiled for arguments of certain shapes.
pub(super) struct Compiled {
    pub(super) executable: Arc<Executable>,
    pub(super) arguments: Vec<From>,
    pub(super) states: Vec<State>,
    pub(super) results: Vec<Form>,
    /// The checks of indexes that the program makes. If it makes any, its variables keep their old values, in memory of their own, until
    /// the results of the checks have been read.
    pub(super) checks: Vec<(usize, Check)>,
    /// The number of keys for random numbers that the function requests.
    pub(super) keys: u64,
}

/// The source of a program's argument when the step runs.
pub(super) enum From {
    /// An argument of the step, by its index.
    Given(usize),
    /// A variable that the step changes, by its index.
    State(usize),
    /// A tensor from outside that the step uses: the present value of its storage, in this form.
    Captured(Arc<Slot>, Form),
    /// A tensor from outside to which nothing referred any more after the step was traced.
    Kept(Arc<Node>),
    /// A number in a formula.
    Constant(Vec<Buffer>),
    /// A key for random numbers, by its index among the keys that the function requests.
    Key(u64),
}

/// A variable that the step changes.
pub(super) struct State {
    pub(super) slot: Arc<Slot>,
    /// The form in which the program takes and returns the variable.
    pub(super) form: Form,
}

impl Compiled {
    /// Runs the step with these arrays as arguments, and the random numbers of the keys from `draw` on.
    pub(super) fn run(
        &self,
        backend: &Backend,
        device: &Device,
        arguments: &[Arc<Node>],
        draw: u64,
    ) -> Result<Vec<Tensor>> {
        // Operations that can fail before the run come before the variables are donated.
        let given = arguments.iter().map(|node| computed(backend, node, &node.form())).collect::<Result<Vec<_>>>()?;
        let captured = self.arguments.iter().map(|from| self.captured(backend, from)).collect::<Result<Vec<_>>>()?;
        let keys = self.keys(backend, draw)?;
        self.states.iter().try_for_each(|state| state.compute(backend))?;
        let take = if self.checks.is_empty() { State::take } else { State::lend };
        let taken = self.states.iter().map(take).collect::<Result<Vec<_>>>()?;
        let (own, lent): (Vec<_>, Vec<_>) = taken.into_iter().unzip();
        let outputs = self.launch(backend, &given, &captured, keys, own, &lent);
        let outputs = outputs.and_then(|outputs| self.checked(outputs)).inspect_err(|_| {
            for (state, node) in self.states.iter().zip(&lent) {
                if let Some(node) = node {
                    state.put(node.clone());
                }
            }
        })?;
        let mut outputs = outputs.into_iter();
        let results = self.results.iter().zip(outputs.by_ref());
        let results = results.map(|(form, value)| tensor(device, &Node::data(value, form))).collect();
        for (state, value) in self.states.iter().zip(outputs) {
            state.put(Node::data(value, &state.form));
        }
        results
    }

    /// The outputs without the results of the checks, if the checks have found no fault.
    fn checked(&self, mut outputs: Vec<Vec<Buffer>>) -> Result<Vec<Vec<Buffer>>> {
        let found = outputs.split_off(self.results.len() + self.states.len()).pop();
        match checks::faults(&self.checks, found)?.first() {
            Some((_, fault)) => fault.error(),
            None => Ok(outputs),
        }
    }

    fn captured(&self, backend: &Backend, from: &From) -> Result<Option<Arc<Node>>> {
        match from {
            From::Captured(slot, form) => computed(backend, &Value::node_in(slot)?, form).map(Some),
            From::Kept(node) => computed(backend, node, &node.form()).map(Some),
            _ => Ok(None),
        }
    }

    /// The keys of this run.
    fn keys(&self, backend: &Backend, draw: u64) -> Result<Vec<Vec<Buffer>>> {
        let seed = backend.generator().seed();
        let places =
            self.arguments.iter().filter_map(|from| if let From::Key(place) = from { Some(place) } else { None });
        places.map(|place| backend.upload_key(state(seed, draw + place))).collect()
    }

    fn launch(
        &self,
        backend: &Backend,
        given: &[Arc<Node>],
        captured: &[Option<Arc<Node>>],
        keys: Vec<Vec<Buffer>>,
        mut own: Vec<Option<Vec<Buffer>>>,
        lent: &[Option<Arc<Node>>],
    ) -> Result<Vec<Vec<Buffer>>> {
        let mut rows: Vec<Vec<runtime::Input<'_>>> = Vec::new();
        rows.resize_with(backend.here(), Vec::new);
        let mut keys = keys.into_iter();
        for (from, captured) in self.arguments.iter().zip(captured) {
            match from {
                From::Given(index) => keep(&mut rows, given[*index].value()),
                From::Constant(buffers) => keep(&mut rows, Some(buffers)),
                From::Captured(..) | From::Kept(_) => keep(&mut rows, captured.as_ref().and_then(|node| node.value())),
                From::Key(_) => donate(&mut rows, keys.next().unwrap_or_default()),
                From::State(index) => match own[*index].take() {
                    Some(buffers) => donate(&mut rows, buffers),
                    None => keep(&mut rows, lent[*index].as_ref().and_then(|node| node.value())),
                },
            }
        }
        match launch_or_return(&self.executable, rows) {
            Ok(outputs) => Ok(by_result(outputs)),
            Err(runtime::Refused { error, inputs }) => {
                self.put_back(inputs);
                Err(Error::wrap(error))
            }
        }
    }

    /// Gives the variables their old values back after a run that was not started, if the plugin has not consumed them.
    fn put_back(&self, inputs: Vec<Vec<runtime::Input<'_>>>) {
        let mut rows: Vec<_> = inputs.into_iter().map(Vec::into_iter).collect();
        for from in &self.arguments {
            let inputs = rows.iter_mut().filter_map(Iterator::next);
            let donated = inputs.map(|input| match input {
                runtime::Input::Donate(buffer) if matches!(buffer.is_deleted(), Ok(false)) => Some(buffer),
                _ => None,
            });
            let donated: Vec<Option<Buffer>> = donated.collect();
            let buffers: Option<Vec<Buffer>> = donated.into_iter().collect();
            if let (From::State(index), Some(buffers)) = (from, buffers) {
                let state = &self.states[*index];
                state.put(Node::data(buffers, &state.form));
            }
        }
    }
}

/// The value of a variable for one run: its buffers, whose memory the new value reuses, or its node, if something else refers to the
/// node, such as a copy that is not computed yet.
type Taken = (Option<Vec<Buffer>>, Option<Arc<Node>>);

impl State {
    /// Makes sure that the variable has a value in the shape and sharding in which the program takes it.
    fn compute(&self, backend: &Backend) -> Result<()> {
        let node = Value::node_in(&self.slot)?;
        let ready = computed(backend, &node, &self.form)?;
        if !Arc::ptr_eq(&ready, &node) {
            self.put(ready);
        }
        Ok(())
    }

    fn take(&self) -> Result<Taken> {
        let nothing = Arc::new(Value::Node(Node::described(&self.form)));
        let value = self.slot.replace(nothing);
        let Ok(value) = Arc::downcast::<Value>(value) else { bail!("a variable of the step is of another device") };
        let node = match Arc::try_unwrap(value) {
            Ok(value) => value.into_node(),
            Err(shared) => shared.node(),
        };
        Ok(node.into_value().map_or_else(|node| (None, Some(node)), |buffers| (Some(buffers), None)))
    }

    /// The value of the variable, which keeps it.
    fn lend(&self) -> Result<Taken> {
        Ok((None, Some(Value::node_in(&self.slot)?)))
    }

    fn put(&self, node: Arc<Node>) {
        self.slot.replace(Arc::new(Value::Node(node)));
    }
}

fn keep<'a>(rows: &mut [Vec<runtime::Input<'a>>], buffers: Option<&'a [Buffer]>) {
    for (row, buffer) in rows.iter_mut().zip(buffers.unwrap_or_default()) {
        row.push(runtime::Input::Keep(buffer));
    }
}

fn donate(rows: &mut [Vec<runtime::Input<'_>>], buffers: Vec<Buffer>) {
    for (row, buffer) in rows.iter_mut().zip(buffers) {
        row.push(runtime::Input::Donate(buffer));
    }
}

/// The node in this form, with a computed value.
pub(crate) fn computed(backend: &Backend, node: &Arc<Node>, form: &Form) -> Result<Arc<Node>> {
    let node = node.reshape(&form.dims).spread_as(form.sharding.as_ref());
    if node.value().is_none() {
        backend.compute(std::slice::from_ref(&node))?;
    }
    node.sound()?;
    Ok(node)
}

#[cfg(test)]
mod tests {
    use crate::plugin;
    use crate::view::node_of;
    use crate::{Step, open};
    use candle_core::{DType, Result, Tensor, Var};

    #[test]
    fn a_run_that_is_not_started_leaves_the_variables() -> Result<()> {
        let device = open(&plugin::path()?)?;
        let weights = Var::zeros(3, DType::F32, &device)?;
        let mut step = Step::new(&device, |arguments: &[Tensor]| {
            weights.set(&(weights.as_tensor() + &arguments[0])?)?;
            Ok(vec![weights.sum_all()?])
        });
        let batch = || Tensor::new(&[1f32, 2., 3.], &candle_core::Device::Cpu)?.to_device(&device);
        step.run(&[batch()?])?;
        let gone = batch()?;
        for buffer in node_of(&gone)?.value().unwrap_or_default() {
            buffer.delete().map_err(candle_core::Error::wrap)?;
        }
        assert!(step.run(&[gone]).is_err());
        assert_eq!(weights.to_vec1::<f32>()?, [1., 2., 3.]);
        assert_eq!(step.run(&[batch()?])?[0].to_scalar::<f32>()?, 12.);
        Ok(())
    }
}
