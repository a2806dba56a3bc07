//! Finds the first operation whose result has a NaN or an infinity that its inputs had not.
//!
//! While this is on, the result of each operation is looked at when it is made, and the operation that is found panics with
//! an [`Anomaly`] as its message: a result cannot be an error everywhere where tensors are made. Tensors that are made from
//! values, such as a mask with infinities, are inputs, and never found.

mod look;

use crate::gradients::Rule;
use crate::op::Op;
use crate::{DType, Shape, Storage, Tensor};
use look::{Kinds, Place};
use std::backtrace::Backtrace;
use std::cell::RefCell;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

static ON: AtomicBool = AtomicBool::new(false);

static FOUND: Mutex<Option<Anomaly>> = Mutex::new(None);

thread_local! {
    /// The operation whose result is made next on this thread.
    static NOTED: RefCell<Option<Op>> = const { RefCell::new(None) };
    /// The operation whose gradient is computed on this thread.
    static GRADIENT_OF: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Begins or ends to look at the result of each operation, on all threads.
pub fn detect(on: bool) {
    ON.store(on, Ordering::Relaxed);
}

#[inline]
pub fn is_on() -> bool {
    ON.load(Ordering::Relaxed)
}

/// The last operation that was found, once: the panic has its text, and this has where it was called, too.
pub fn take() -> Option<Anomaly> {
    FOUND.lock().unwrap_or_else(PoisonError::into_inner).take()
}

/// An operation whose result has a NaN or an infinity that its inputs had not.
#[derive(Debug)]
pub struct Anomaly {
    text: String,
    backtrace: Backtrace,
}

impl Anomaly {
    /// Where the operation was called.
    pub fn backtrace(&self) -> &Backtrace {
        &self.backtrace
    }
}

impl fmt::Display for Anomaly {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Notes which operation makes the next result.
#[inline]
pub(crate) fn note(op: impl FnOnce() -> Op) {
    if is_on() {
        keep(op);
    }
}

#[cold]
#[inline(never)]
fn keep(op: impl FnOnce() -> Op) {
    NOTED.replace(Some(op()));
}

/// The next result is made by no operation.
#[inline]
pub(crate) fn forget() {
    if is_on() {
        forget_noted();
    }
}

#[cold]
#[inline(never)]
fn forget_noted() {
    NOTED.take();
}

/// Looks at the result of the operation that was noted.
#[cold]
#[inline(never)]
pub(crate) fn look_at(storage: &Storage, shape: &Shape) {
    let Some(op) = NOTED.take() else { return };
    let Some(result) = Kinds::of_result(storage, shape) else { return };
    if !result.is_any() {
        return;
    }
    let (name, inputs) = parts(&op);
    let given = inputs.iter().filter_map(|input| Kinds::of(input)).fold(Kinds::of_numbers(&op), Kinds::and);
    let Some((what, place)) = result.that_are_not_in(&given) else { return };
    let within = GRADIENT_OF.with_borrow(|of| of.as_ref().map(|of| format!("in the gradient of {of}: ")));
    let call = call(&name, &inputs);
    let result = described(storage.dtype(), shape);
    let text = format!(
        "{}{call} has made {what}, which its inputs had not: {} of the result {result}",
        within.unwrap_or_default(),
        Place(place, shape)
    );
    let backtrace = Backtrace::force_capture();
    *FOUND.lock().unwrap_or_else(PoisonError::into_inner) = Some(Anomaly { text: text.clone(), backtrace });
    std::panic::panic_any(text);
}

/// While this is alive, results on this thread belong to the gradient of an operation.
pub(crate) struct Gradient;

pub(crate) fn gradient_of(node: &Tensor) -> Option<Gradient> {
    if !is_on() {
        return None;
    }
    let (name, inputs) = parts(node.op().as_ref()?);
    GRADIENT_OF.replace(Some(call(&name, &inputs)));
    Some(Gradient)
}

impl Drop for Gradient {
    fn drop(&mut self) {
        GRADIENT_OF.take();
    }
}

fn call(name: &str, inputs: &[&Tensor]) -> String {
    let inputs: Vec<String> = inputs.iter().map(|input| described(input.dtype(), input.shape())).collect();
    format!("{name}({})", inputs.join(", "))
}

fn described(dtype: DType, shape: &Shape) -> String {
    format!("{}{:?}", dtype.as_str(), shape.dims())
}

/// The name of an operation, and its inputs.
fn parts(op: &Op) -> (String, Vec<&Tensor>) {
    let (name, inputs) = match op {
        Op::Binary(a, b, op) => return (snake(&format!("{op:?}")), vec![a, b]),
        Op::Unary(a, op) => return (snake(&format!("{op:?}")), vec![a]),
        Op::Reduce(a, op, _) => return (snake(&format!("{op:?}")), vec![a]),
        Op::Cmp(a, op) => return (snake(&format!("{op:?}")), vec![a]),
        Op::Matmul(a, b) => ("matmul", vec![a, b]),
        Op::Gather(a, b, _) => ("gather", vec![a, b]),
        Op::Scatter(a, b, c, _) => ("scatter", vec![a, b, c]),
        Op::ScatterAdd(a, b, c, _) => ("scatter_add", vec![a, b, c]),
        Op::IndexSelect(a, b, _) => ("index_select", vec![a, b]),
        Op::IndexAdd(a, b, c, _) => ("index_add", vec![a, b, c]),
        Op::WhereCond(a, b, c) => ("where_cond", vec![a, b, c]),
        Op::Conv1D { arg, kernel, .. } => ("conv1d", vec![arg, kernel]),
        Op::ConvTranspose1D { arg, kernel, .. } => ("conv_transpose1d", vec![arg, kernel]),
        Op::Conv2D { arg, kernel, .. } => ("conv2d", vec![arg, kernel]),
        Op::ConvTranspose2D { arg, kernel, .. } => ("conv_transpose2d", vec![arg, kernel]),
        Op::AvgPool2D { arg, .. } => ("avg_pool2d", vec![arg]),
        Op::MaxPool2D { arg, .. } => ("max_pool2d", vec![arg]),
        Op::UpsampleNearest1D { arg, .. } => ("upsample_nearest1d", vec![arg]),
        Op::UpsampleNearest2D { arg, .. } => ("upsample_nearest2d", vec![arg]),
        Op::UpsampleBilinear2D { arg, .. } => ("upsample_bilinear2d", vec![arg]),
        Op::Cat(args, _) => ("cat", args.iter().collect()),
        Op::Affine { arg, .. } => ("affine", vec![arg]),
        Op::ToDType(a) => ("to_dtype", vec![a]),
        Op::Copy(a) => ("copy", vec![a]),
        Op::Broadcast(a) => ("broadcast_as", vec![a]),
        Op::Narrow(a, ..) => ("narrow", vec![a]),
        Op::SliceScatter0(a, b, _) => ("slice_scatter", vec![a, b]),
        Op::Reshape(a) => ("reshape", vec![a]),
        Op::ToDevice(a) => ("to_device", vec![a]),
        Op::Transpose(a, ..) => ("transpose", vec![a]),
        Op::Permute(a, _) => ("permute", vec![a]),
        Op::Elu(a, _) => ("elu", vec![a]),
        Op::Powf(a, _) => ("powf", vec![a]),
        Op::CustomOp1(a, op) => (op.name(), vec![a]),
        Op::CustomOp2(a, b, op) => (op.name(), vec![a, b]),
        Op::CustomOp3(a, b, c, op) => (op.name(), vec![a, b, c]),
        Op::Fused(args, rule) => (fused(rule), args.iter().collect()),
    };
    (name.to_owned(), inputs)
}

fn fused(rule: &Rule) -> &'static str {
    match rule {
        Rule::SoftmaxLastDim => "softmax_last_dim",
        Rule::RmsNorm { .. } => "rms_norm",
        Rule::LayerNorm { .. } => "layer_norm",
        Rule::Rotary(_) => "rope",
        Rule::Pow => "pow",
        Rule::CumSum(_) => "cumsum",
        Rule::Unknown { name } => name,
    }
}

/// `GeluErf` as `gelu_erf`.
fn snake(name: &str) -> String {
    let mut snake = String::new();
    for letter in name.chars() {
        if letter.is_uppercase() && !snake.is_empty() {
            snake.push('_');
        }
        snake.extend(letter.to_lowercase());
    }
    snake
}
