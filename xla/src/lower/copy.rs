//! Changes of a part of an array: copies into the array, and numbers that are set in it.

use crate::element::{element_of, is_float};
use crate::graph::{Array as _, Node, Op, Update};
use crate::value::{Place, Value};
use crate::view;
use candle_core::external::{Input, Rows};
use candle_core::scalar::Scalar;
use candle_core::{Layout, Result, bail};
use ferrotune_devices::pjrt::Element;
use std::sync::Arc;

/// The old value with the source's elements from `offset` on.
pub(super) fn elements(old: &Input<'_>, source: &Input<'_>, offset: usize) -> Result<Value> {
    let source = view::dense(source)?;
    let count = source.count();
    if offset == 0 && count == old.storage.count() {
        return Ok(Value::Node(source));
    }
    filled(old, &source.reshape(&[1, count]), Target { rows: 1, columns: count, offset, stride: count })
}

/// Whether an input is its whole storage, as one dimension.
pub(super) fn is_whole(input: &Input<'_>) -> bool {
    input.layout.dims() == [input.storage.count()] && input.layout.start_offset() == 0 && input.layout.is_contiguous()
}

/// The old value with rows of the source.
pub(super) fn rows(
    old: &Input<'_>,
    source: &Input<'_>,
    rows: usize,
    columns: usize,
    from: Rows,
    to: Rows,
) -> Result<Value> {
    let value = source.storage.slot().value();
    let layout = Layout::new((rows, columns).into(), vec![from.stride, 1], from.offset);
    let matrix = view::strided(&Value::of(&value)?.node(), &layout);
    filled(old, &matrix, Target { rows, columns, offset: to.offset, stride: to.stride })
}

/// The block of a flat array into which the rows of a matrix are copied.
#[derive(Clone, Copy)]
struct Target {
    rows: usize,
    columns: usize,
    offset: usize,
    stride: usize,
}

impl Target {
    /// The number of elements from the first one to the last one.
    fn span(&self) -> usize {
        (self.rows - 1) * self.stride + self.columns
    }

    /// The target as a range of columns in all rows of an array with so many elements; none if it is another block.
    fn place(&self, count: usize) -> Option<Place> {
        let Target { rows, columns, offset: column, stride } = *self;
        if rows == 1 || columns == stride {
            return Some(Place { rows: 1, width: count, column });
        }
        (rows * stride == count && column + columns <= stride).then_some(Place { rows, width: stride, column })
    }
}

fn filled(old: &Input<'_>, source: &Arc<Node>, target: Target) -> Result<Value> {
    let (value, count) = (old.storage.slot().value(), old.storage.count());
    let value = Value::of(&value)?;
    if source.count() == 0 {
        return Ok(Value::Node(value.node()));
    }
    if target.offset + target.span() > count {
        bail!("a copy of {} elements does not fit into {count} elements", source.count());
    }
    if source.count() == count {
        return Ok(Value::Node(source.clone()));
    }
    if let Some(place) = target.place(count) {
        return Ok(value.with(place, &source.reshape(&[place.rows, source.count() / place.rows])));
    }
    let old = value.node();
    Ok(Value::Node(some_rows(&old, source, target).unwrap_or_else(|| by_indices(&old, source, target))))
}

/// The old value with a block of whole or partial rows in the middle of its matrix; none if the target is not such a block.
fn some_rows(old: &Arc<Node>, source: &Arc<Node>, target: Target) -> Option<Arc<Node>> {
    let Target { rows, columns, offset, stride } = target;
    let (row, column) = (offset / stride, offset % stride);
    if !old.count().is_multiple_of(stride) || column + columns > stride {
        return None;
    }
    let height = old.count() / stride;
    let matrix = old.reshape(&[height, stride]);
    let columns_of = |start: usize, end: usize| matrix.slice(&[row, start], &[row + rows, end]);
    let middle = joined(1, &[columns_of(0, column), source.clone(), columns_of(column + columns, stride)]);
    let whole = |start: usize, end: usize| matrix.slice(&[start, 0], &[end, stride]);
    Some(joined(0, &[whole(0, row), middle, whole(row + rows, height)]))
}

/// The concatenation of matrices; matrices without elements are left out.
fn joined(dim: usize, matrices: &[Arc<Node>]) -> Arc<Node> {
    let pieces: Vec<_> = matrices.iter().filter(|matrix| matrix.count() > 0).cloned().collect();
    let mut dims = matrices[0].dims.clone();
    dims[dim] = matrices.iter().map(|matrix| matrix.dims[dim]).sum();
    Node::new(Op::Concatenate(dim), pieces, &dims, matrices[0].element)
}

fn by_indices(old: &Arc<Node>, source: &Arc<Node>, target: Target) -> Arc<Node> {
    let dims = (target.rows, target.columns).into();
    put(old, source, &Layout::new(dims, vec![target.stride, 1], target.offset))
}

/// The old value with the source's elements at the positions of a layout.
fn put(old: &Arc<Node>, source: &Arc<Node>, layout: &Layout) -> Arc<Node> {
    let (places, count) = (view::places(layout, old.count()), source.count());
    let inputs = vec![old.reshape(&[old.count()]), places.reshape(&[count]), source.reshape(&[count])];
    Node::new(Op::Put(Update::Set, 0), inputs, &[old.count()], old.element)
}

/// The old value with a number at the positions of a layout.
pub(super) fn set(old: &Input<'_>, number: Scalar) -> Result<Value> {
    let (dtype, count) = (number.dtype(), old.storage.count());
    let element = element_of(dtype)?;
    let value = old.storage.slot().value();
    let before = Value::of(&value)?.node();
    if before.element != element {
        bail!("a number of type {} is put among elements of another type", dtype.as_str());
    }
    if old.layout.shape().elem_count() == count && old.layout.is_contiguous() {
        return Ok(Value::Node(constant(number, &[count], element)));
    }
    if old.layout.shape().elem_count() == 0 {
        return Ok(Value::Node(before));
    }
    Ok(Value::Node(put(&before, &constant(number, old.layout.dims(), element), old.layout)))
}

/// An array with a number in each element. A float other than 0 and 1 is an argument of the program: it may change from run to run.
fn constant(number: Scalar, dims: &[usize], element: Element) -> Arc<Node> {
    let whole = |number: i64| Node::new(Op::Constant(number.cast_unsigned()), Vec::new(), dims, element);
    match number {
        Scalar::U8(number) => whole(number.into()),
        Scalar::U32(number) => whole(number.into()),
        Scalar::I16(number) => whole(number.into()),
        Scalar::I32(number) => whole(number.into()),
        Scalar::I64(number) => whole(number),
        float => match float.to_f64() {
            number if is_float(element) && number != 0.0 && number != 1.0 => Node::number(number, dims, element),
            number => Node::constant(number, dims, element),
        },
    }
}
