//! Sums, extremes and their places on the CPU.
//!
//! A sum is computed in parts: each part in a type that is as fast as the elements (f32 for the 16-bit floats), the parts
//! together in a type that loses nothing over many of them. An integer sum that its type does not have is an error. A NaN
//! is greater and less than every number, as in NumPy: it is the extreme of what it is in, and its place is the first NaN's.
use super::utils::{Map1, Map1Any};
use super::CpuStorage;
use crate::{Error, Layout, Result, Shape, WithDType};

/// How many neighbouring elements, or rows, are a part of a sum.
const PART: usize = 512;
const PART_ROWS: usize = 32;

pub(super) struct ReduceSum<'a> {
    pub(super) dst_shape: &'a Shape,
    /// In ascending order, each with its size and the number of elements behind it.
    pub(super) reduce_dims: &'a [usize],
    pub(super) reduce_dims_and_stride: Vec<(usize, usize)>,
}

impl Map1 for ReduceSum<'_> {
    fn f<T: WithDType>(&self, src: &[T], src_l: &Layout) -> Result<Vec<T>> {
        let len = self.dst_shape.elem_count();
        if let Some((start, end)) = src_l.contiguous_offsets() {
            let src = &src[start..end];
            if src.is_empty() {
                return Ok(vec![T::zero(); len]);
            }
            let are_neighbours = self.reduce_dims.windows(2).all(|dims| dims[1] == dims[0] + 1);
            match self.reduce_dims_and_stride.last() {
                None => return Ok(src.to_vec()),
                Some((_, 1)) if are_neighbours => return sum_rows(src, src.len() / len),
                Some((_, row)) if are_neighbours => return sum_columns(src, src.len() / len, *row),
                Some(_) => {}
            }
            return self.sum_runs(src);
        }
        self.sum_each(src_l.strided_index().map(|index| src[index]))
    }
}

impl ReduceSum<'_> {
    /// Adds each element, in the order of the layout, to the sum that it belongs to.
    fn sum_each<T: WithDType>(&self, src: impl Iterator<Item = T>) -> Result<Vec<T>> {
        let mut totals = self.zeros::<T>();
        for (index, value) in src.enumerate() {
            T::add_total(&mut totals[self.sum_of(index)], T::total(value.part()));
        }
        totals.into_iter().map(finished).collect()
    }

    /// Adds runs of elements that follow each other: the elements of one sum, or one element of each of the sums that follow each other.
    fn sum_runs<T: WithDType>(&self, src: &[T]) -> Result<Vec<T>> {
        let mut totals = self.zeros::<T>();
        let last = self.reduce_dims_and_stride.last().map_or(1, |(_, stride)| *stride);
        if last > 1 {
            for (n, run) in src.chunks_exact(last).enumerate() {
                for (total, value) in totals[self.sum_of(n * last)..].iter_mut().zip(run) {
                    T::add_total(total, T::total(value.part()));
                }
            }
        } else {
            let mut run = 1;
            for (size, stride) in self.reduce_dims_and_stride.iter().rev() {
                if *stride == run {
                    run *= size;
                }
            }
            for (n, values) in src.chunks_exact(run).enumerate() {
                T::add_total(&mut totals[self.sum_of(n * run)], total(values));
            }
        }
        totals.into_iter().map(finished).collect()
    }

    fn zeros<T: WithDType>(&self) -> Vec<T::Total> {
        vec![T::total(T::Part::default()); self.dst_shape.elem_count()]
    }

    /// The sum that an element belongs to.
    fn sum_of(&self, mut index: usize) -> usize {
        // Set the reduce_dims indexes to 0.
        for &(dim, stride) in self.reduce_dims_and_stride.iter() {
            // The compiler is able to optimize the following in a single divmod op.
            let (pre, post) = (index / stride, index % stride);
            index = (pre / dim) * stride + post;
        }
        index
    }
}

/// The sum of each `size` neighbouring elements.
fn sum_rows<T: WithDType>(src: &[T], size: usize) -> Result<Vec<T>> {
    src.chunks_exact(size).map(|row| finished(total(row))).collect()
}

fn total<T: WithDType>(values: &[T]) -> T::Total {
    let mut total = T::total(T::Part::default());
    for part in values.chunks(PART) {
        T::add_total(&mut total, T::total(T::sum_part(part)));
    }
    total
}

/// The sum of floats, rounded once.
pub fn sum_of<T: WithDType + num_traits::Float>(values: &[T]) -> T {
    T::of_total(total(values)).unwrap_or_else(T::nan)
}

/// The sum of each `size` rows, which follow each other, element by element.
fn sum_columns<T: WithDType>(src: &[T], size: usize, row: usize) -> Result<Vec<T>> {
    let mut dst = Vec::with_capacity(src.len() / size);
    let mut part = vec![T::Part::default(); row];
    for block in src.chunks_exact(size * row) {
        let mut totals = vec![T::total(T::Part::default()); row];
        for rows in block.chunks(PART_ROWS * row) {
            part.fill(T::Part::default());
            for row in rows.chunks_exact(row) {
                T::add_parts(&mut part, row);
            }
            for (total, part) in totals.iter_mut().zip(&part) {
                T::add_total(total, T::total(*part));
            }
        }
        for total in totals {
            dst.push(finished(total)?);
        }
    }
    Ok(dst)
}

/// A sum in the type of its elements, which must have it.
pub(crate) fn finished<T: WithDType>(total: T::Total) -> Result<T> {
    match T::of_total(total) {
        Some(sum) => Ok(sum),
        None => {
            let dtype = T::DTYPE.as_str();
            crate::bail!(
                "a sum of {dtype} elements is {total:?}, which {dtype} does not have; convert the tensor with to_dtype"
            )
        }
    }
}

pub(super) struct ReduceIndex {
    pub(super) reduce_dim_index: usize,
    pub(super) use_min: bool,
    pub(super) return_index: bool,
}

impl Map1Any for ReduceIndex {
    fn f<T: WithDType, W: Fn(Vec<T>) -> CpuStorage>(
        &self,
        src: &[T],
        src_l: &Layout,
        wrap: W,
    ) -> Result<CpuStorage> {
        if src_l.dims()[self.reduce_dim_index] == 0 {
            Err(Error::EmptyTensor { op: "reduce" }.bt())?
        }
        let place = |_, place| place as u32;
        Ok(match (self.return_index, self.use_min) {
            (false, true) => wrap(self.values(src, src_l, |x, y| x > y)?),
            (false, false) => wrap(self.values(src, src_l, |x, y| x < y)?),
            (true, true) => CpuStorage::U32(self.fold(src, src_l, |x, y| x > y, place)?),
            (true, false) => CpuStorage::U32(self.fold(src, src_l, |x, y| x < y, place)?),
        })
    }
}

impl ReduceIndex {
    /// The extremes. `is_better` tells whether its second argument takes the place of its first one.
    #[inline(always)]
    fn values<T: WithDType>(
        &self,
        src: &[T],
        src_l: &Layout,
        is_better: impl Fn(T, T) -> bool,
    ) -> Result<Vec<T>> {
        let size = src_l.dims()[self.reduce_dim_index];
        match src_l.contiguous_offsets() {
            Some((start, end)) if src_l.stride()[self.reduce_dim_index] == 1 => {
                let rows = src[start..end].chunks_exact(size);
                Ok(rows.map(|row| extreme(row, &is_better)).collect())
            }
            _ => self.fold(src, src_l, is_better, |value, _| value),
        }
    }

    #[inline(always)]
    fn fold<T: WithDType, U>(
        &self,
        src: &[T],
        src_l: &Layout,
        is_better: impl Fn(T, T) -> bool,
        result: impl Fn(T, usize) -> U,
    ) -> Result<Vec<U>> {
        let size = src_l.dims()[self.reduce_dim_index];
        let stride = src_l.stride()[self.reduce_dim_index];
        let starts = src_l.narrow(self.reduce_dim_index, 0, 1)?;
        let extreme = |start: usize| {
            let (mut value, mut place) = (src[start], 0);
            for index in 1..size {
                let other = src[start + index * stride];
                if is_better(value, other) || (is_nan(other) && !is_nan(value)) {
                    (value, place) = (other, index);
                }
            }
            result(value, place)
        };
        Ok(starts.strided_index().map(extreme).collect())
    }
}

/// The extreme of a row that is not empty, in several lanes, which the compiler makes one instruction of.
#[inline(always)]
fn extreme<T: WithDType>(row: &[T], is_better: impl Fn(T, T) -> bool) -> T {
    const LANES: usize = 16;
    let better = |value: T, other: T| {
        if is_better(value, other) || is_nan(other) {
            other
        } else {
            value
        }
    };
    let mut lanes = [row[0]; LANES];
    let chunks = row.chunks_exact(LANES);
    let rest = chunks.remainder();
    for chunk in chunks {
        for (lane, &other) in lanes.iter_mut().zip(chunk) {
            *lane = better(*lane, other);
        }
    }
    lanes.iter().chain(rest).fold(row[0], |value, &other| better(value, other))
}

/// Whether a value is not a number, which no integer is.
#[inline(always)]
#[allow(clippy::eq_op)]
pub(super) fn is_nan<T: PartialEq + Copy>(value: T) -> bool {
    value != value
}
