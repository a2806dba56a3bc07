//! The graph of candle's operations: its nodes are dense arrays of known shape, computed or not.
//!
//! A node never changes. Once its value is computed, its inputs are freed, and programs take the node as an argument.

mod array;
mod follows;
mod lost;

use crate::checks::{Check, Fault};
use crate::element::{is_float, rounded};
use crate::mesh::Sharding;
pub(crate) use array::Array;
use candle_core::external::Slot;
use ferrotune_devices::pjrt::Element;
use ferrotune_devices::runtime::Buffer;
pub(crate) use follows::follows;
pub(crate) use lost::lost;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

/// The operation by which an array follows from its inputs. Unless noted otherwise, the names and rules are [StableHLO]'s.
///
/// [StableHLO]: https://openxla.org/stablehlo/spec
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Op {
    /// An array whose value exists from the start.
    Data,
    /// Data of which only shape and type are known: an argument of a step that is traced.
    Described,
    /// A number of [`Node::numbers`] in each element. It is an argument of the program, so that another number needs no other
    /// program.
    Number,
    /// An array of arbitrary elements: candle sets all of them before it reads one.
    Uninit,
    /// The number with these bits in each element: bits of an `f64`, or of an `i64` for integers.
    Constant(u64),
    /// An array of one dimension with these numbers, in the format of [`Op::Constant`].
    Table(Vec<u64>),
    Iota(usize),
    Reshape,
    Transpose(Vec<usize>),
    /// A broadcast: the dimension of the result for each dimension of the input.
    Broadcast(Vec<usize>),
    /// A slice: for each dimension the first element, the one after the last, and the stride.
    Slice {
        start: Vec<usize>,
        end: Vec<usize>,
        stride: Vec<usize>,
    },
    Concatenate(usize),
    /// The first input with zeros (the second input) before, after and between its elements.
    Pad {
        low: Vec<i64>,
        high: Vec<i64>,
        between: Vec<usize>,
    },
    Reverse(Vec<usize>),
    Unary(Unary),
    Binary(Binary),
    /// A comparison of two inputs; the result is a predicate.
    Compare(Compare),
    /// A choice by three inputs: a predicate, the value where it holds, and the value elsewhere.
    Select,
    Convert,
    /// A reduction that removes these dimensions.
    Reduce(Reduction, Vec<usize>),
    /// A matrix product over the last dimension of the left input and the first one after the batches of the right input.
    Dot {
        batches: usize,
    },
    Convolution(Convolution),
    /// A reduction of windows over the last two dimensions.
    Window {
        reduction: Reduction,
        size: (usize, usize),
        stride: (usize, usize),
    },
    /// A scatter of a source (the second input) that adds each element at the greatest element of its window in the first input.
    SelectAndScatter {
        size: (usize, usize),
        stride: (usize, usize),
    },
    /// A gather of slices of size 1 in this dimension, at indices (the second input, of one dimension).
    Take(usize),
    /// A scatter that adds or sets slices of size 1 in this dimension. The inputs are the old value, the indices and the source.
    Put(Update, usize),
    /// A gather of single elements: the last dimension of the second input has the indices in all dimensions.
    TakeEach,
    /// A scatter that adds or sets single elements. The inputs are the old value, the indices in all dimensions and the source.
    PutEach(Update),
    /// The indices that sort the elements along the last dimension, in `u32`.
    SortPlaces {
        ascending: bool,
    },
    /// A key for random bits: two numbers, an argument of the program that is new in each run.
    Key,
    /// Random bits from a key.
    Bits,
    /// The rows of an array that belong to this replica: the first replica has the first rows.
    Shard,
    /// The sum of an array over all replicas.
    AllReduce,
    /// The same array, spread over the mesh as [`Node::sharding`] says.
    Sharding,
    /// The greatest index that is out of range for a dimension of this size, or [`NONE_FOUND`](crate::checks::NONE_FOUND).
    OutOfRange(usize),
    /// The first input, with a check. The second input is a scalar: an index out of range, or [`NONE_FOUND`](crate::checks::NONE_FOUND).
    Checked(Check),
}

/// A function of one array. The names are StableHLO's; `Erf` is CHLO's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Unary {
    Abs,
    Ceil,
    Cosine,
    Erf,
    Exponential,
    ExponentialMinusOne,
    Floor,
    Log,
    LogPlusOne,
    Logistic,
    Negate,
    RoundNearestEven,
    Rsqrt,
    Sign,
    Sine,
    Sqrt,
    Tanh,
}

/// A function of two arrays of the same shape. The names are StableHLO's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Binary {
    Add,
    And,
    Divide,
    Maximum,
    Minimum,
    Multiply,
    Or,
    Power,
    ShiftRightLogical,
    Subtract,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Compare {
    Equal,
    NotEqual,
    LessOrEqual,
    GreaterOrEqual,
    Less,
    Greater,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Reduction {
    Sum,
    Maximum,
    Minimum,
}

/// The update of an element of the old value by an element of the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Update {
    Add,
    Set,
}

/// A convolution of batch × channels × space with output × input channels × space (input × output channels if `transposed`).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Convolution {
    pub(crate) spatial: usize,
    pub(crate) stride: usize,
    /// The padding before and after the elements, for each spatial dimension.
    pub(crate) padding: Vec<(i64, i64)>,
    pub(crate) input_dilation: usize,
    pub(crate) kernel_dilation: usize,
    pub(crate) transposed: bool,
}

/// The form of an array: its dimensions, element type and sharding.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Form {
    pub(crate) dims: Vec<usize>,
    pub(crate) element: Element,
    /// The sharding of the value over a mesh; without one, each core has the whole value.
    pub(crate) sharding: Option<Sharding>,
}

/// An array of the graph.
pub(crate) struct Node {
    /// The number of the node, greater than that of each node that was made earlier.
    pub(crate) id: u64,
    pub(crate) op: Op,
    pub(crate) dims: Vec<usize>,
    pub(crate) element: Element,
    /// The sharding of the value over a mesh, as in [`Form`].
    pub(crate) sharding: Option<Sharding>,
    /// The numbers for [`Op::Number`] and [`Op::Key`]; for [`Op::Data`] that a step has made, the hash of its bytes.
    pub(crate) numbers: Vec<f64>,
    /// The length of the longest chain of nodes from a computed one to this one.
    pub(crate) depth: usize,
    inputs: Mutex<Vec<Arc<Node>>>,
    /// The value, one buffer for each device: the whole value or a part.
    value: OnceLock<Vec<Buffer>>,
    /// The index out of range because of which the value cannot be read. It is set before the value.
    fault: OnceLock<Arc<Fault>>,
    /// The storage of candle that was given this node.
    storage: OnceLock<Weak<Slot>>,
}

/// The number of the next node.
pub(crate) fn next_id() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

impl Node {
    pub(crate) fn new(op: Op, inputs: Vec<Arc<Node>>, dims: &[usize], element: Element) -> Arc<Node> {
        Node::with_numbers(op, inputs, dims, element, Vec::new())
    }

    pub(crate) fn with_numbers(
        op: Op,
        inputs: Vec<Arc<Node>>,
        dims: &[usize],
        element: Element,
        numbers: Vec<f64>,
    ) -> Arc<Node> {
        let sharding = match (&op, inputs.first()) {
            (Op::Reshape, Some(input)) if input.dims == dims => input.sharding.clone(),
            _ => None,
        };
        Node::of_form(op, inputs, Form { dims: dims.to_vec(), element, sharding }, numbers)
    }

    fn of_form(op: Op, inputs: Vec<Arc<Node>>, form: Form, numbers: Vec<f64>) -> Arc<Node> {
        let depths = inputs.iter().filter(|input| input.value().is_none()).map(|input| input.depth + 1);
        let depth = depths.max().unwrap_or(0);
        let Form { dims, element, sharding } = form;
        let (inputs, value, fault, storage) = (Mutex::new(inputs), OnceLock::new(), OnceLock::new(), OnceLock::new());
        Arc::new(Node { id: next_id(), op, dims, element, sharding, numbers, depth, inputs, value, fault, storage })
    }

    /// A node of which only the form is known.
    pub(crate) fn described(form: &Form) -> Arc<Node> {
        Node::of_form(Op::Described, Vec::new(), form.clone(), Vec::new())
    }

    /// A node whose value exists: one buffer for each device.
    pub(crate) fn data(value: Vec<Buffer>, form: &Form) -> Arc<Node> {
        let node = Node::of_form(Op::Data, Vec::new(), form.clone(), Vec::new());
        node.set_value(value);
        node
    }

    /// A node for an uploaded array, with the hash of its bytes.
    pub(crate) fn hashed_data(value: Vec<Buffer>, dims: &[usize], element: Element, hash: Vec<f64>) -> Arc<Node> {
        let node = Node::with_numbers(Op::Data, Vec::new(), dims, element, hash);
        node.set_value(value);
        node
    }

    /// A node with `number` in each element, as a constant of the program.
    pub(crate) fn constant(number: f64, dims: &[usize], element: Element) -> Arc<Node> {
        let bits = if is_float(element) { number.to_bits() } else { (number as i64).cast_unsigned() };
        Node::new(Op::Constant(bits), Vec::new(), dims, element)
    }

    /// A node with `number` in each element, as an argument of the program. A 16-bit number passes through `f32` unchanged.
    pub(crate) fn number(number: f64, dims: &[usize], element: Element) -> Arc<Node> {
        Node::with_numbers(Op::Number, Vec::new(), dims, element, vec![rounded(number, element)])
    }

    /// A node with these numbers, by their bits as an `f64`, or as an `i64` for integers, as a constant of the program.
    pub(crate) fn table(numbers: Vec<u64>, element: Element) -> Arc<Node> {
        let count = numbers.len();
        Node::new(Op::Table(numbers), Vec::new(), &[count], element)
    }

    /// A node with the index of each element in a dimension.
    pub(crate) fn iota(dim: usize, dims: &[usize], element: Element) -> Arc<Node> {
        Node::new(Op::Iota(dim), Vec::new(), dims, element)
    }

    /// This array with another sharding.
    pub(crate) fn spread(self: &Arc<Self>, sharding: Sharding) -> Arc<Node> {
        let form = Form { sharding: Some(sharding), ..self.form() };
        Node::of_form(Op::Sharding, vec![self.clone()], form, Vec::new())
    }

    /// This array with the wanted sharding of its value; without a wanted sharding, each core has the whole value.
    pub(crate) fn spread_as(self: &Arc<Self>, wanted: Option<&Sharding>) -> Arc<Node> {
        if self.split() == wanted.filter(|wanted| wanted.is_split()) {
            return self.clone();
        }
        self.spread(wanted.cloned().unwrap_or_else(|| Sharding::whole(self.dims.len())))
    }

    /// The sharding of the value; none if each core has the whole value.
    fn split(&self) -> Option<&Sharding> {
        self.sharding.as_ref().filter(|sharding| sharding.is_split())
    }

    pub(crate) fn form(&self) -> Form {
        Form { dims: self.dims.clone(), element: self.element, sharding: self.sharding.clone() }
    }

    pub(crate) fn count(&self) -> usize {
        self.dims.iter().product()
    }

    pub(crate) fn inputs(&self) -> Vec<Arc<Node>> {
        self.lock().clone()
    }

    /// The value, one buffer for each device; none if it is not computed.
    pub(crate) fn value(&self) -> Option<&[Buffer]> {
        self.value.get().map(Vec::as_slice)
    }

    /// The index out of range on which the computed value depends, if there is one.
    pub(crate) fn fault(&self) -> Option<&Arc<Fault>> {
        self.fault.get()
    }

    /// The check that the node makes, if it is a checked node.
    pub(crate) fn check(&self) -> Option<&Check> {
        match &self.op {
            Op::Checked(check) => Some(check),
            _ => None,
        }
    }

    /// Returns the error of a read if the computed value has a fault.
    pub(crate) fn sound(&self) -> candle_core::Result<()> {
        self.fault().map_or(Ok(()), |fault| fault.error())
    }

    /// Keeps the computed value, which depends on an index out of range.
    pub(crate) fn set_faulty(&self, value: Vec<Buffer>, fault: Arc<Fault>) {
        self.fault.get_or_init(|| fault);
        self.set_value(value);
    }

    /// Keeps the computed value. If two threads compute the same node, the first value stays.
    pub(crate) fn set_value(&self, value: Vec<Buffer>) {
        if self.value.set(value).is_ok() {
            let inputs = std::mem::take(&mut *self.lock());
            free(inputs);
        }
    }

    /// Records the storage that refers to this node. Each storage has its own node.
    pub(crate) fn set_storage(&self, slot: &Arc<Slot>) {
        self.storage.get_or_init(|| Arc::downgrade(slot));
    }

    /// The storage that was given this node, if it still exists. It may refer to another node now.
    pub(crate) fn storage(&self) -> Option<Arc<Slot>> {
        self.storage.get().and_then(Weak::upgrade)
    }

    /// The value of a node that has no other owner; otherwise the node itself.
    pub(crate) fn into_value(self: Arc<Self>) -> Result<Vec<Buffer>, Arc<Node>> {
        if self.value.get().is_none() || Arc::strong_count(&self) > 1 {
            return Err(self);
        }
        let mut node = Arc::try_unwrap(self)?;
        node.value.take().ok_or_else(|| Arc::new(node))
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Arc<Node>>> {
        self.inputs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        free(std::mem::take(self.inputs.get_mut().unwrap_or_else(PoisonError::into_inner)));
    }
}

/// Frees nodes in a loop: a chain of many thousand nodes that free each other would need as many stack frames.
fn free(mut nodes: Vec<Arc<Node>>) {
    while let Some(node) = nodes.pop() {
        if let Ok(mut node) = Arc::try_unwrap(node) {
            nodes.append(node.inputs.get_mut().unwrap_or_else(PoisonError::into_inner));
        }
    }
}
