//! Strided views as dense arrays: slices, transposes and broadcasts, which the compiler fuses into the operations that read them.
//!
//! A layout that cannot be written with slices, such as one whose rows overlap, is read by indices.

use crate::graph::{Array as _, Binary, Node, Op};
use crate::value::Value;
use candle_core::external::Input;
use candle_core::{Layout, Result, Storage, Tensor, bail};
use ferrotune_devices::pjrt::Element;
use std::cmp::Reverse;
use std::sync::Arc;

/// The node of a tensor on a plugin's device, in the order of the tensor's layout.
pub(crate) fn node_of(tensor: &Tensor) -> Result<Arc<Node>> {
    let (storage, layout) = tensor.storage_and_layout();
    let Storage::Metal(storage) = &*storage else {
        bail!("a tensor on {:?} is no plugin's; move it with `to_device`", tensor.device().location())
    };
    dense(&Input { storage, layout })
}

/// The elements of an input, in the order of its layout.
pub(crate) fn dense(input: &Input<'_>) -> Result<Arc<Node>> {
    let value = input.storage.slot().value();
    Ok(strided(&Value::of(&value)?.node(), input.layout))
}

/// The elements of a dense array that a layout contains, in the layout's order.
pub(crate) fn strided(array: &Arc<Node>, layout: &Layout) -> Arc<Node> {
    let (dims, offset) = (layout.dims(), layout.start_offset());
    let count = layout.shape().elem_count();
    if count == 0 {
        return Node::constant(0.0, dims, array.element);
    }
    if offset == 0 && layout.is_contiguous() && count == array.count() {
        return array.reshape(dims);
    }
    let view = View::new(layout);
    view.sliced(array, offset).or_else(|| view.window(array, offset)).unwrap_or_else(|| by_indices(array, layout))
}

/// A strided view: the dimensions and strides with which a layout reads the storage.
struct View<'a> {
    dims: &'a [usize],
    strides: &'a [usize],
    /// The dimensions with more than one element that are not broadcast, by falling stride.
    read: Vec<usize>,
}

impl View<'_> {
    fn new(layout: &Layout) -> View<'_> {
        let (dims, strides) = (layout.dims(), layout.stride());
        let mut read: Vec<usize> = (0..dims.len()).filter(|dim| dims[*dim] > 1 && strides[*dim] > 0).collect();
        read.sort_by_key(|dim| Reverse(strides[*dim]));
        View { dims, strides, read }
    }

    /// The view as a slice of the array, whose dimensions have the strides of the view; none if a stride does not divide the
    /// next greater one, or if the view crosses the end of a dimension.
    fn sliced(&self, array: &Arc<Node>, offset: usize) -> Option<Arc<Node>> {
        let (mut full, mut start, mut end) = (Vec::new(), Vec::new(), Vec::new());
        let (mut outer, mut rest) = (array.count(), offset);
        for dim in &self.read {
            let stride = self.strides[*dim];
            if !outer.is_multiple_of(stride) {
                return None;
            }
            full.push(outer / stride);
            start.push(rest / stride);
            end.push(rest / stride + self.dims[*dim]);
            (outer, rest) = (stride, rest % stride);
        }
        if outer > 1 {
            // Within the least stride, only one element is read.
            full.push(outer);
            start.push(rest);
            end.push(rest + 1);
        }
        let is_within = end.iter().zip(&full).all(|(end, full)| end <= full);
        is_within.then(|| self.arranged(&array.reshape(&full).slice(&start, &end)))
    }

    /// The view as a slice of the elements from the offset on; none if they do not form one.
    fn window(&self, array: &Arc<Node>, offset: usize) -> Option<Arc<Node>> {
        let outermost = *self.read.first()?;
        let end = offset + self.dims[outermost] * self.strides[outermost];
        let count = array.count();
        (end <= count).then(|| array.reshape(&[count]).slice(&[offset], &[end])).and_then(|part| self.sliced(&part, 0))
    }

    /// The slice with its dimensions in the layout's order, and with the other dimensions added.
    fn arranged(&self, slice: &Arc<Node>) -> Arc<Node> {
        let sizes: Vec<usize> = self.read.iter().map(|dim| self.dims[*dim]).collect();
        let mut order: Vec<usize> = (0..self.read.len()).collect();
        order.sort_by_key(|place| self.read[*place]);
        let ordered = slice.reshape(&sizes).transpose(&order);
        if ordered.count() == self.dims.iter().product::<usize>() {
            return ordered.reshape(self.dims);
        }
        let mut at = self.read.clone();
        at.sort_unstable();
        ordered.broadcast(&at, self.dims)
    }
}

fn by_indices(array: &Arc<Node>, layout: &Layout) -> Arc<Node> {
    let (count, places) = (array.count(), places(layout, array.count()));
    let flat = places.reshape(&[places.count()]);
    let inputs = vec![array.reshape(&[count]), flat];
    Node::new(Op::Take(0), inputs, &[places.count()], array.element).reshape(layout.dims())
}

/// The indices of a layout's elements in an array of so many elements.
pub(crate) fn places(layout: &Layout, count: usize) -> Arc<Node> {
    let dims = layout.dims();
    let element = if u32::try_from(count).is_ok() { Element::U32 } else { Element::S64 };
    let start = Node::constant(layout.start_offset() as f64, dims, element);
    let strides = layout.stride().iter().enumerate().filter(|(_, stride)| **stride > 0);
    strides.fold(start, |places, (dim, stride)| {
        let steps = Node::iota(dim, dims, element).binary_number(Binary::Multiply, *stride as f64);
        places.binary(Binary::Add, &steps)
    })
}
