//! Reads and writes of elements and slices at indices, each with a check that no index is out of range.

use super::no_lowering;
use crate::checks::Check;
use crate::element::is_float;
use crate::graph::{Array as _, Binary, Compare, Node, Op, Reduction, Update};
use candle_core::{Result, bail};
use ferrotune_devices::pjrt::Element;
use std::sync::Arc;

const SCATTER_ADD: &str = "scatter_add";

/// Selects slices of size 1 of a dimension.
pub(super) fn select(x: &Arc<Node>, indices: &Arc<Node>, dim: usize) -> Result<Arc<Node>> {
    let indices = Indices::new(&indices.reshape(&[indices.count()]), x.dims[dim])?;
    let mut dims = x.dims.clone();
    dims[dim] = indices.places.count();
    let taken = Node::new(Op::Take(dim), vec![x.clone(), indices.places.clone()], &dims, x.element);
    Ok(indices.checked("index_select", x, dim, &indices.read(&taken, |mask| mask.broadcast(&[dim], &dims))))
}

/// Adds slices of size 1 to slices of a dimension.
pub(super) fn add(old: &Arc<Node>, indices: &Arc<Node>, source: &Arc<Node>, dim: usize) -> Result<Arc<Node>> {
    if indices.count() == 0 {
        return Ok(old.clone());
    }
    let indices = Indices::new(&indices.reshape(&[indices.count()]), old.dims[dim])?;
    let inputs = vec![old.clone(), indices.places.clone(), source.clone()];
    let added = Node::new(Op::Put(Update::Add, dim), inputs, &old.dims, old.element);
    Ok(indices.checked("index_add", old, dim, &added))
}

/// Gathers single elements: an index replaces the element's own index in one dimension.
pub(super) fn gather(x: &Arc<Node>, indices: &Arc<Node>, dim: usize) -> Result<Arc<Node>> {
    let dims = &indices.dims;
    let indices = Indices::new(indices, x.dims[dim])?;
    let taken = if is_one_for_each_row(x, dims, dim) {
        let hit = indices.one_hot(dim, &x.dims);
        hit.select(x, &x.like(0.0)).reduce(Reduction::Sum, &[dim]).reshape(dims)
    } else {
        Node::new(Op::TakeEach, vec![x.clone(), indices.in_all_dimensions(dim)], dims, x.element)
    };
    Ok(indices.checked("gather", x, dim, &indices.read(&taken, Arc::clone)))
}

pub(super) fn scatter_add(old: &Arc<Node>, indices: &Arc<Node>, source: &Arc<Node>, dim: usize) -> Result<Arc<Node>> {
    if is_one_for_each_row(old, &indices.dims, dim) && source.dims == indices.dims {
        let wide = repeated(source, dim, &old.dims);
        let indices = Indices::new(indices, old.dims[dim])?;
        let hit = indices.one_hot(dim, &old.dims);
        let added = old.binary(Binary::Add, &hit.select(&wide, &wide.like(0.0)));
        return Ok(indices.checked(SCATTER_ADD, old, dim, &added));
    }
    put((SCATTER_ADD, Update::Add), old, indices, source, dim)
}

pub(super) fn scatter(old: &Arc<Node>, indices: &Arc<Node>, source: &Arc<Node>, dim: usize) -> Result<Arc<Node>> {
    put(("scatter", Update::Set), old, indices, source, dim)
}

fn put(
    (operation, update): (&'static str, Update),
    old: &Arc<Node>,
    indices: &Arc<Node>,
    source: &Arc<Node>,
    dim: usize,
) -> Result<Arc<Node>> {
    if indices.count() == 0 {
        return Ok(old.clone());
    }
    let indices = Indices::new(indices, old.dims[dim])?;
    let inputs = vec![old.clone(), indices.in_all_dimensions(dim), source.clone()];
    Ok(indices.checked(operation, old, dim, &Node::new(Op::PutEach(update), inputs, &old.dims, old.element)))
}

/// Whether there is one index for each row, so that a comparison with a range can select the element. Unlike a gather or a scatter,
/// the comparison fuses with its neighbours.
fn is_one_for_each_row(x: &Arc<Node>, indices: &[usize], dim: usize) -> bool {
    let mut rows = x.dims.clone();
    rows[dim] = 1;
    rows == indices
}

/// An array whose dimension of size 1 is repeated.
fn repeated(x: &Arc<Node>, dim: usize, dims: &[usize]) -> Arc<Node> {
    let others: Vec<usize> = (0..dims.len()).filter(|other| *other != dim).collect();
    let kept: Vec<usize> = others.iter().map(|other| dims[*other]).collect();
    x.reshape(&kept).broadcast(&others, dims)
}

/// Indices into a dimension of an array.
struct Indices {
    given: Arc<Node>,
    /// The indices, in a signed type; an index out of range is moved to just before or just after the dimension.
    places: Arc<Node>,
    size: usize,
}

impl Indices {
    fn new(given: &Arc<Node>, size: usize) -> Result<Indices> {
        if size == 0 {
            bail!("there are indices into a dimension without elements");
        }
        let signed = if i32::try_from(size).is_ok() { Element::S32 } else { Element::S64 };
        let places = match given.element {
            Element::U8 | Element::S16 | Element::S32 => bounded(&given.convert(signed), size),
            Element::U32 | Element::S64 => bounded(given, size).convert(signed),
            other => return no_lowering("indexing by indices", other),
        };
        let greatest = greatest(given.element);
        let places = match size as f64 > greatest {
            true => given.compare(Compare::Equal, &given.like(greatest)).select(&places.like(size as f64), &places),
            false => places,
        };
        Ok(Indices { given: given.clone(), places, size })
    }

    /// The elements that were read where the index is in range; 0 at the greatest index of the type; elsewhere a NaN, or 0 for integers.
    fn read(&self, taken: &Arc<Node>, spread: impl Fn(&Arc<Node>) -> Arc<Node>) -> Arc<Node> {
        let places = &self.places;
        let is_low = places.compare(Compare::GreaterOrEqual, &places.like(0.0));
        let is_high = places.compare(Compare::Less, &places.like(self.size as f64));
        let is_within = spread(&is_low.binary(Binary::And, &is_high));
        if !is_float(taken.element) {
            return is_within.select(taken, &taken.like(0.0));
        }
        let is_padding = spread(&self.given.compare(Compare::Equal, &self.given.like(greatest(self.given.element))));
        is_within.select(taken, &is_padding.select(&taken.like(0.0), &taken.like(f64::NAN)))
    }

    /// The result of an operation on `tensor` at these indices, together with the greatest index that is out of range.
    fn checked(&self, operation: &'static str, tensor: &Arc<Node>, dim: usize, result: &Arc<Node>) -> Arc<Node> {
        let found = Node::new(Op::OutOfRange(self.size), vec![self.given.clone()], &[], Element::S64);
        let check = Check { operation, dim, dims: tensor.dims.clone(), indexes: self.given.dims.clone() };
        Node::new(Op::Checked(check), vec![result.clone(), found], &result.dims, result.element)
    }

    /// A predicate that holds where an element's own index in a dimension equals the index given for its row.
    fn one_hot(&self, dim: usize, dims: &[usize]) -> Arc<Node> {
        let iota = Node::iota(dim, dims, self.places.element);
        repeated(&self.places, dim, dims).compare(Compare::Equal, &iota)
    }

    /// For each index, the indices of its element in all dimensions, along a new last dimension.
    fn in_all_dimensions(&self, dim: usize) -> Arc<Node> {
        let (dims, element, rank) = (&self.places.dims, self.places.element, self.places.dims.len());
        let column = [&dims[..], &[1]].concat();
        let place = |other: usize| if other == dim { self.places.clone() } else { Node::iota(other, dims, element) };
        let columns: Vec<_> = (0..rank).map(|other| place(other).reshape(&column)).collect();
        match columns.as_slice() {
            [only] => only.clone(),
            _ => Node::new(Op::Concatenate(rank), columns, &[&dims[..], &[rank]].concat(), element),
        }
    }
}

/// The indices, limited to one before and one after a dimension of this size.
fn bounded(indices: &Arc<Node>, size: usize) -> Arc<Node> {
    let upper = indices.binary_number(Binary::Minimum, (size as f64).min(greatest(indices.element)));
    if indices.element == Element::U32 { upper } else { upper.binary_number(Binary::Maximum, -1.0) }
}

/// The greatest number of an integer type; for `i64` the power of two above, because an `f64` cannot hold the greatest `i64`.
fn greatest(element: Element) -> f64 {
    let (_, above) = crate::element::bounds(element);
    if element == Element::S64 { above } else { above - 1.0 }
}
