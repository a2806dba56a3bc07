//! The graph of what candle has asked for: nodes are dense arrays of known shape, computed or not.
//!
//! A node never changes. Once its value is computed, it forgets how: its inputs are freed, and programs take it as an argument.

mod array;

use crate::checks::{Check, Fault};
use crate::element::rounded;
use crate::mesh::Sharding;
pub(crate) use array::Array;
use ferrotune_devices::pjrt::{Buffer, Element};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// How an array follows from its inputs. Without another word, the names and rules are [StableHLO]'s.
///
/// [StableHLO]: https://openxla.org/stablehlo/spec
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Op {
    /// Its value is there since it was made.
    Data,
    /// Data of which only shape and type are known: an argument of a step that is traced.
    Described,
    /// A number of [`Node::numbers`] in each element: an argument of the program, so that another number needs no other
    /// program.
    Number,
    /// Any elements: candle sets all of them before it reads one.
    Uninit,
    /// The number with these bits (of an `f64`; of an `i64` for integers) in each element.
    Constant(u64),
    /// These numbers, as [`Op::Constant`] has them, in the one dimension.
    Table(Vec<u64>),
    Iota(usize),
    Reshape,
    Transpose(Vec<usize>),
    /// Where each dimension of the input is in the result.
    Broadcast(Vec<usize>),
    /// First element and the one after the last, for each dimension, and how far apart the elements are.
    Slice {
        start: Vec<usize>,
        end: Vec<usize>,
        stride: Vec<usize>,
    },
    Concatenate(usize),
    /// Zeros (the second input) before, after and between the elements of the first.
    Pad {
        low: Vec<i64>,
        high: Vec<i64>,
        between: Vec<usize>,
    },
    Reverse(Vec<usize>),
    Unary(Unary),
    Binary(Binary),
    /// Two inputs; the result is a predicate.
    Compare(Compare),
    /// Predicate, value where it holds, value elsewhere.
    Select,
    Convert,
    /// Removes these dimensions.
    Reduce(Reduction, Vec<usize>),
    /// How many leading dimensions are batches; the last of the left one and the first other of the right one are summed.
    Dot {
        batches: usize,
    },
    Convolution(Convolution),
    /// Reduces windows of the last two dimensions.
    Window {
        reduction: Reduction,
        size: (usize, usize),
        stride: (usize, usize),
    },
    /// Operand, source: adds each element of the source to where its window has the greatest element.
    SelectAndScatter {
        size: (usize, usize),
        stride: (usize, usize),
    },
    /// Slices of size 1 in this dimension at indices (the second input, of one dimension).
    Take(usize),
    /// Slices of size 1 in this dimension are added or put at indices: old value, indices, source.
    Put(Update, usize),
    /// Single elements at places: indices of all dimensions are in the last dimension of the second input.
    TakeEach,
    /// Single elements are added or put at places: old value, places, source.
    PutEach(Update),
    /// The places that the elements have in order along the last dimension, in `u32`.
    SortPlaces {
        ascending: bool,
    },
    /// A key for random bits: two numbers, an argument of the program that is new in each run.
    Key,
    /// Random bits by a key.
    Bits,
    /// The rows of an array that belong to this replica: the first replica has the first ones.
    Shard,
    /// The sum over all replicas.
    AllReduce,
    /// The same array, spread as [`Node::sharding`] tells.
    Sharding,
    /// The greatest of some indexes that is out of a dimension of this size, or [`NONE_FOUND`](crate::checks::NONE_FOUND).
    OutOfRange(usize),
    /// The first input. The second one is a scalar: an index out of range, or [`NONE_FOUND`](crate::checks::NONE_FOUND).
    Checked(Check),
}

/// A function of one array. StableHLO's names; `Erf` is CHLO's.
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

/// A function of two arrays of the same shape. StableHLO's names.
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

/// What becomes of an element of the old value where one of the source is put.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Update {
    Add,
    Set,
}

/// A convolution of batch × channels × space with output × input channels × space (the reverse if `transposed`).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Convolution {
    pub(crate) spatial: usize,
    pub(crate) stride: usize,
    /// Before and after the elements, for each spatial dimension.
    pub(crate) padding: Vec<(i64, i64)>,
    pub(crate) input_dilation: usize,
    pub(crate) kernel_dilation: usize,
    pub(crate) transposed: bool,
}

/// What is known of an array without its value.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Form {
    pub(crate) dims: Vec<usize>,
    pub(crate) element: Element,
    /// How its value is spread over a mesh, if that was said: each core has all of it otherwise.
    pub(crate) sharding: Option<Sharding>,
}

/// An array.
pub(crate) struct Node {
    /// Greater than that of each node that was made earlier.
    pub(crate) id: u64,
    pub(crate) op: Op,
    pub(crate) dims: Vec<usize>,
    pub(crate) element: Element,
    /// As in [`Form`].
    pub(crate) sharding: Option<Sharding>,
    /// Arguments of [`Op::Number`] and [`Op::Key`]; the hash of the bytes of [`Op::Data`] that a step has made.
    pub(crate) numbers: Vec<f64>,
    /// How many nodes follow one another from one that is computed to this one.
    pub(crate) depth: usize,
    inputs: Mutex<Vec<Arc<Node>>>,
    /// The value, once for each device: whole or a part.
    value: OnceLock<Vec<Buffer>>,
    /// Why the value cannot be read. Known before the value is there.
    fault: OnceLock<Arc<Fault>>,
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
        let depth =
            inputs.iter().filter(|input| input.value().is_none()).map(|input| input.depth + 1).max().unwrap_or(0);
        let Form { dims, element, sharding } = form;
        let (inputs, value, fault) = (Mutex::new(inputs), OnceLock::new(), OnceLock::new());
        Arc::new(Node { id: next_id(), op, dims, element, sharding, numbers, depth, inputs, value, fault })
    }

    /// An array of which only this is known.
    pub(crate) fn described(form: &Form) -> Arc<Node> {
        Node::of_form(Op::Described, Vec::new(), form.clone(), Vec::new())
    }

    /// An array whose value is there: one buffer for each device.
    pub(crate) fn data(value: Vec<Buffer>, form: &Form) -> Arc<Node> {
        let node = Node::of_form(Op::Data, Vec::new(), form.clone(), Vec::new());
        node.set_value(value);
        node
    }

    /// An uploaded array with the hash of its bytes.
    pub(crate) fn hashed_data(value: Vec<Buffer>, dims: &[usize], element: Element, hash: Vec<f64>) -> Arc<Node> {
        let node = Node::with_numbers(Op::Data, Vec::new(), dims, element, hash);
        node.set_value(value);
        node
    }

    /// `number` in each element, as a part of the program.
    pub(crate) fn constant(number: f64, dims: &[usize], element: Element) -> Arc<Node> {
        let bits = if is_float(element) { number.to_bits() } else { (number as i64).cast_unsigned() };
        Node::new(Op::Constant(bits), Vec::new(), dims, element)
    }

    /// `number` in each element, as an argument of the program: on its way there through `f32`, a 16-bit number stays as it is.
    pub(crate) fn number(number: f64, dims: &[usize], element: Element) -> Arc<Node> {
        Node::with_numbers(Op::Number, Vec::new(), dims, element, vec![rounded(number, element)])
    }

    /// Numbers as bits of an `f64`, or of an `i64` for integers, as a part of the program.
    pub(crate) fn table(numbers: Vec<u64>, element: Element) -> Arc<Node> {
        let count = numbers.len();
        Node::new(Op::Table(numbers), Vec::new(), &[count], element)
    }

    /// The place of each element in a dimension.
    pub(crate) fn iota(dim: usize, dims: &[usize], element: Element) -> Arc<Node> {
        Node::new(Op::Iota(dim), Vec::new(), dims, element)
    }

    /// This array, spread in this way.
    pub(crate) fn spread(self: &Arc<Self>, sharding: Sharding) -> Arc<Node> {
        let form = Form { sharding: Some(sharding), ..self.form() };
        Node::of_form(Op::Sharding, vec![self.clone()], form, Vec::new())
    }

    /// This array with its value spread in this way, or whole.
    pub(crate) fn spread_as(self: &Arc<Self>, wanted: Option<&Sharding>) -> Arc<Node> {
        if self.split() == wanted.filter(|wanted| wanted.is_split()) {
            return self.clone();
        }
        self.spread(wanted.cloned().unwrap_or_else(|| Sharding::whole(self.dims.len())))
    }

    /// How its value is spread; none if each core has all of it.
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

    /// The value, once for each device, if it is computed.
    pub(crate) fn value(&self) -> Option<&[Buffer]> {
        self.value.get().map(Vec::as_slice)
    }

    /// An index out of range on which the computed value depends.
    pub(crate) fn fault(&self) -> Option<&Arc<Fault>> {
        self.fault.get()
    }

    /// The error of a read, if the computed value has a fault.
    pub(crate) fn sound(&self) -> candle_core::Result<()> {
        self.fault().map_or(Ok(()), |fault| fault.error())
    }

    /// Keeps the computed value, which depends on an index out of range.
    pub(crate) fn set_faulty(&self, value: Vec<Buffer>, fault: Arc<Fault>) {
        self.fault.get_or_init(|| fault);
        self.set_value(value);
    }

    /// Keeps the computed value. The first one stays, should two threads compute the same node.
    pub(crate) fn set_value(&self, value: Vec<Buffer>) {
        if self.value.set(value).is_ok() {
            let inputs = std::mem::take(&mut *self.lock());
            free(inputs);
        }
    }

    /// The value of a node that nobody else has; otherwise the node itself.
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

/// Frees nodes one after the other: a chain of many thousands, freed by each other, would need as many stack frames.
fn free(mut nodes: Vec<Arc<Node>>) {
    while let Some(node) = nodes.pop() {
        if let Ok(mut node) = Arc::try_unwrap(node) {
            nodes.append(node.inputs.get_mut().unwrap_or_else(PoisonError::into_inner));
        }
    }
}

pub(crate) fn is_float(element: Element) -> bool {
    matches!(element, Element::F16 | Element::Bf16 | Element::F32 | Element::F64)
}
