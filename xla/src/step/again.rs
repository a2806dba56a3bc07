//! Repeats a run of a compiled step, one operation after the other, if its program has made a NaN or an infinity: candle then finds
//! the operation, which panics (`candle_core::anomaly`). After the panic, the variables have their values from before the run.

use super::compiled::{Compiled, State};
use crate::backend::Backend;
use crate::element::is_float;
use crate::graph::{Array as _, Compare, Node, Op, Reduction, Unary};
use crate::value::Value;
use crate::view::node_of;
use candle_core::external::Slot;
use candle_core::{Error, Result, Tensor};
use ferrotune_devices::pjrt::Element;
use std::sync::Arc;

/// The variables that a step changes, with their present values.
pub(super) struct Variables(Vec<(Arc<Slot>, Arc<Node>)>);

impl Variables {
    pub(super) fn of(compiled: &Compiled) -> Result<Variables> {
        let variable = |state: &State| Ok((state.slot.clone(), Value::node_in(&state.slot)?));
        compiled.states.iter().map(variable).collect::<Result<_>>().map(Variables)
    }

    pub(super) fn put_back(&self) {
        for (slot, node) in &self.0 {
            slot.replace(Arc::new(Value::Node(node.clone())));
        }
    }

    /// Whether the variables and the tensors are finite.
    pub(super) fn are_finite_with(&self, backend: &Backend, tensors: &[Tensor]) -> Result<bool> {
        let results = tensors.iter().map(node_of).collect::<Result<Vec<_>>>()?;
        let nodes = self.0.iter().map(|(_, node)| node).chain(&results);
        let finite: Vec<Arc<Node>> =
            nodes.filter(|node| is_float(node.element) && node.count() > 0).map(is_finite).collect();
        let all = match finite.as_slice() {
            [] => return Ok(true),
            [only] => only.clone(),
            _ => {
                let count = finite.len();
                Node::new(Op::Concatenate(0), finite, &[count], Element::S32)
            }
        };
        backend.compute(std::slice::from_ref(&all))?;
        let mut are_finite = true;
        for buffer in all.value().unwrap_or_default() {
            let literal = buffer.download().and_then(|transfer| transfer.wait()).map_err(Error::wrap)?;
            are_finite &=
                literal.bytes().chunks_exact(size_of::<i32>()).all(|number| number.iter().any(|byte| *byte != 0));
        }
        Ok(are_finite)
    }
}

/// A number that is 1 if each element is finite, and 0 otherwise.
fn is_finite(node: &Arc<Node>) -> Arc<Node> {
    let (wide, greatest) = match node.element {
        Element::F64 => (node.clone(), f64::MAX),
        _ => (node.convert(Element::F32), f64::from(f32::MAX)),
    };
    let size = wide.unary(Unary::Abs);
    let is_finite = size.compare(Compare::LessOrEqual, &size.like(greatest)).convert(Element::S32);
    let all: Vec<usize> = (0..node.dims.len()).collect();
    is_finite.reduce(Reduction::Minimum, &all).reshape(&[1])
}

/// A repeated run of a step, one operation after the other. When the repetition ends, even by a panic, the variables have their values
/// from before the first run, and the random numbers continue as if there had been no repetition.
pub(super) struct Again<'a> {
    backend: &'a Backend,
    variables: &'a Variables,
    next_draw: u64,
}

impl Again<'_> {
    /// Gives the variables these values, and makes the next random numbers those of the run that began at this draw.
    pub(super) fn begin<'a>(backend: &'a Backend, variables: &'a Variables, draw: u64) -> Again<'a> {
        variables.put_back();
        Again { backend, variables, next_draw: backend.generator().go_to(draw) }
    }
}

impl Drop for Again<'_> {
    fn drop(&mut self) {
        self.variables.put_back();
        self.backend.generator().go_to(self.next_draw);
    }
}
