//! Convolutions of two dimensions on the CPU as products of matrices.
//!
//! A matrix has the values of an image that meet each element of the kernel. Its parts fit into a core's cache, and are shared by the threads.
//! No value depends on the number of threads.

use crate::conv::{ParamsConv2D, ParamsConvTranspose2D};
use crate::shape::dims4;
use crate::{DType, Layout, Result, WithDType};
use rayon::prelude::*;
use std::borrow::Cow;
use std::ops::Range;

/// The number of elements of a part of the matrix.
const PART: usize = 64 << 10;

/// A part has at least so many columns, so that a product reads its kernel often enough for each time that it loads it.
const LEAST_COLUMNS: usize = 128;

/// The number of sums into which the gradient of a kernel is split.
const SUMS: usize = 16;

/// Whether products of matrices exist for this type.
pub(super) fn multiplies(dtype: DType) -> bool {
    matches!(dtype, DType::F16 | DType::F32 | DType::F64)
}

/// Whether the kernel is larger than the output, and sums of its products can be kept in this type.
pub(super) fn has_large_kernel(p: &ParamsConv2D, dtype: DType) -> bool {
    matches!(dtype, DType::F32 | DType::F64) && p.k_h * p.k_w > p.out_h() * p.out_w()
}

/// The convolution of each image with a kernel, of the shapes `(b_size, c_in, i_h, i_w)` and `(c_out, c_in, k_h, k_w)`.
pub(super) fn conv2d<T: WithDType>(
    p: &ParamsConv2D,
    images: &[T],
    images_l: &Layout,
    kernel: &[T],
    kernel_l: &Layout,
) -> Result<Vec<T>> {
    let (out_h, out_w) = (p.out_h(), p.out_w());
    let pixels = out_h * out_w;
    let windows = Windows { p, images: Planes::new(images, images_l)?, kernel: dense(kernel, kernel_l) };
    let mut dst = vec![T::zero(); p.b_size * p.c_out * pixels];
    if dst.is_empty() {
        return Ok(dst);
    }
    let columns = (PART / windows.depth().max(1)).max(LEAST_COLUMNS);
    if 2 * pixels <= columns {
        // One product has several images.
        let group = columns / pixels;
        dst.par_chunks_mut(group * p.c_out * pixels).enumerate().for_each_init(Vec::new, |matrix, (n, dst)| {
            let count = dst.len() / (p.c_out * pixels);
            let product = windows.product(matrix, n * group..n * group + count, 0..out_h);
            for (place, image) in dst.chunks_exact_mut(p.c_out * pixels).enumerate() {
                for (plane, row) in image.chunks_exact_mut(pixels).zip(product.chunks_exact(count * pixels)) {
                    plane.copy_from_slice(&row[place * pixels..][..pixels]);
                }
            }
        });
        return Ok(dst);
    }
    let height = (columns / out_w).clamp(1, out_h);
    let parts = out_h.div_ceil(height);
    let product = |matrix: &mut Vec<T>, n: usize| {
        let (image, top) = (n / parts, n % parts * height);
        windows.product(matrix, image..image + 1, top..out_h.min(top + height))
    };
    let products: Vec<Vec<T>> = (0..p.b_size * parts).into_par_iter().map_init(Vec::new, product).collect();
    dst.par_chunks_mut(pixels).enumerate().for_each(|(plane, dst)| {
        let (image, c) = (plane / p.c_out, plane % p.c_out);
        for (dst, product) in dst.chunks_mut(height * out_w).zip(&products[image * parts..]) {
            dst.copy_from_slice(&product[c * dst.len()..][..dst.len()]);
        }
    });
    Ok(dst)
}

/// What a convolution computes with.
struct Windows<'a, T: WithDType> {
    p: &'a ParamsConv2D,
    images: Planes<'a, T>,
    /// The rows are the output's channels.
    kernel: Cow<'a, [T]>,
}

impl<T: WithDType> Windows<'_, T> {
    /// The number of values that a value of the output is made of.
    fn depth(&self) -> usize {
        self.p.c_in * self.p.k_h * self.p.k_w
    }

    /// These rows of the output for these images: a row for each channel, which has the pixels of one image after another.
    fn product(&self, matrix: &mut Vec<T>, images: Range<usize>, rows: Range<usize>) -> Vec<T> {
        let (p, depth) = (self.p, self.depth());
        let pixels = rows.len() * p.out_w();
        let width = images.len() * pixels;
        matrix.resize(depth * width, T::zero());
        for (place, image) in images.enumerate() {
            for (c, (k_y, k_x)) in (0..p.c_in).flat_map(|c| pairs(p.k_h, p.k_w).map(move |at| (c, at))) {
                let places = Places {
                    top: signed(k_y * p.dilation + rows.start * p.stride) - signed(p.padding),
                    left: signed(k_x * p.dilation) - signed(p.padding),
                    step: p.stride,
                    height: rows.len(),
                    width: p.out_w(),
                };
                let line = (c * p.k_h + k_y) * p.k_w + k_x;
                places.read(self.images.plane(image, c), &mut matrix[line * width + place * pixels..][..pixels]);
            }
        }
        let mut product = vec![T::zero(); p.c_out * width];
        let sides = (Side::rows(&self.kernel, depth), Side::rows(matrix, width));
        multiply((p.c_out, width, depth), &mut product, false, sides);
        product
    }
}

/// The same convolution where the kernel is larger than the output, as in the gradient of a kernel: a sum of products over the channels.
pub(super) fn conv2d_of_large_kernel<T: WithDType>(
    p: &ParamsConv2D,
    images: &[T],
    images_l: &Layout,
    kernel: &[T],
    kernel_l: &Layout,
) -> Result<Vec<T>> {
    let (out_h, out_w) = (p.out_h(), p.out_w());
    let (pixels, depth) = (out_h * out_w, p.k_h * p.k_w);
    let width = p.b_size * pixels;
    let images = Planes::new(images, images_l)?;
    let kernels = Planes::new(kernel, kernel_l)?;
    let mut dst = vec![T::zero(); p.c_out * width];
    if dst.is_empty() || p.c_in == 0 {
        return Ok(dst);
    }
    let whole = Places { top: 0, left: 0, step: 1, height: p.k_h, width: p.k_w };
    let each = p.c_in.div_ceil(SUMS);
    let sums: Vec<Vec<T>> = (0..p.c_in.div_ceil(each))
        .into_par_iter()
        .map(|part| {
            let mut sum = vec![T::zero(); dst.len()];
            let mut matrix = vec![T::zero(); width * depth];
            let mut own_kernel = vec![T::zero(); if kernels.are_dense() { 0 } else { p.c_out * depth }];
            for c in part * each..p.c_in.min((part + 1) * each) {
                for (n, (y, x)) in (0..p.b_size).flat_map(|n| pairs(out_h, out_w).map(move |place| (n, place))) {
                    let places = Places {
                        top: signed(y * p.stride) - signed(p.padding),
                        left: signed(x * p.stride) - signed(p.padding),
                        step: p.dilation,
                        ..whole
                    };
                    let line = n * pixels + y * out_w + x;
                    places.read(images.plane(n, c), &mut matrix[line * depth..][..depth]);
                }
                for (c_out, line) in own_kernel.chunks_exact_mut(depth).enumerate() {
                    whole.read(kernels.plane(c_out, c), line);
                }
                let kernel = if kernels.are_dense() {
                    Side { values: kernels.plane(0, c).values, row: kernels.strides.0, column: 1 }
                } else {
                    Side::rows(&own_kernel, depth)
                };
                let sides = (kernel, Side { values: &matrix, row: 1, column: depth });
                multiply((p.c_out, width, depth), &mut sum, true, sides);
            }
            sum
        })
        .collect();
    for (at, plane) in dst.chunks_exact_mut(pixels).enumerate() {
        let (n, c_out) = (at / p.c_out, at % p.c_out);
        let from = c_out * width + n * pixels;
        for sum in &sums {
            for (value, other) in plane.iter_mut().zip(&sum[from..]) {
                *value += *other;
            }
        }
    }
    Ok(dst)
}

/// The transposed convolution of images `(b_size, c_in, i_h, i_w)` with a kernel `(c_in, c_out, k_h, k_w)`, as in the gradient of an input.
pub(super) fn conv_transpose2d<T: WithDType>(
    p: &ParamsConvTranspose2D,
    images: &[T],
    images_l: &Layout,
    kernel: &[T],
    kernel_l: &Layout,
) -> Result<Vec<T>> {
    let (out_h, out_w) = (p.out_h(), p.out_w());
    let (pixels, window) = (p.i_h * p.i_w, p.k_h * p.k_w);
    let images = dense(images, images_l);
    let kernel = dense(kernel, kernel_l);
    let mut dst = vec![T::zero(); p.b_size * p.c_out * out_h * out_w];
    if dst.is_empty() || pixels == 0 || p.c_in == 0 {
        return Ok(dst);
    }
    let group = (PART / (pixels * window)).clamp(1, p.c_out);
    let mut parts: Vec<(usize, usize, &mut [T])> = Vec::new();
    for (image, dst) in dst.chunks_exact_mut(p.c_out * out_h * out_w).enumerate() {
        let groups = dst.chunks_mut(group * out_h * out_w).enumerate();
        parts.extend(groups.map(|(n, dst)| (image, n * group, dst)));
    }
    parts.into_par_iter().for_each_init(Vec::new, |matrix, (image, c_out, dst)| {
        let lines = dst.len() / (out_h * out_w) * window;
        matrix.resize(lines * pixels, T::zero());
        let kernel = Side { values: &kernel[c_out * window..], row: 1, column: p.c_out * window };
        let sides = (kernel, Side::rows(&images[image * p.c_in * pixels..], pixels));
        multiply((lines, pixels, p.c_in), matrix, false, sides);
        for (plane, matrix) in dst.chunks_exact_mut(out_h * out_w).zip(matrix.chunks_exact(window * pixels)) {
            for ((k_y, k_x), line) in pairs(p.k_h, p.k_w).zip(matrix.chunks_exact(pixels)) {
                let places = Places {
                    top: signed(k_y * p.dilation) - signed(p.padding),
                    left: signed(k_x * p.dilation) - signed(p.padding),
                    step: p.stride,
                    height: p.i_h,
                    width: p.i_w,
                };
                places.add_to(plane, (out_h, out_w), line);
            }
        }
    });
    Ok(dst)
}

fn pairs(height: usize, width: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..height).flat_map(move |y| (0..width).map(move |x| (y, x)))
}

fn signed(value: usize) -> isize {
    value as isize
}

/// The values of a tensor in the order of its elements.
fn dense<'a, T: WithDType>(values: &'a [T], layout: &Layout) -> Cow<'a, [T]> {
    match layout.contiguous_offsets() {
        Some((start, end)) => Cow::Borrowed(&values[start..end]),
        None => {
            let mut own = vec![T::zero(); layout.shape().elem_count()];
            super::copy_strided_src_(values, &mut own, 0, layout);
            Cow::Owned(own)
        }
    }
}

/// The planes of a tensor with four dimensions.
struct Planes<'a, T> {
    values: &'a [T],
    strides: (usize, usize, usize, usize),
    height: usize,
    width: usize,
}

/// A plane: its values from the first one on, and how far rows and columns are apart.
#[derive(Clone, Copy)]
struct Plane<'a, T> {
    values: &'a [T],
    row: usize,
    column: usize,
    height: usize,
    width: usize,
}

impl<'a, T: WithDType> Planes<'a, T> {
    fn new(values: &'a [T], layout: &Layout) -> Result<Planes<'a, T>> {
        let (_, _, height, width) = dims4(layout.dims())?;
        Ok(Planes { values: &values[layout.start_offset()..], strides: dims4(layout.stride())?, height, width })
    }

    fn plane(&self, first: usize, second: usize) -> Plane<'a, T> {
        let (stride_0, stride_1, row, column) = self.strides;
        let values = &self.values[first * stride_0 + second * stride_1..];
        Plane { values, row, column, height: self.height, width: self.width }
    }

    /// Whether the values of a plane follow each other.
    fn are_dense(&self) -> bool {
        self.strides.3 == 1 && self.strides.2 == self.width
    }
}

/// Places of a plane, `step` apart in both directions. The first ones, and the last ones, may lie outside of the plane.
#[derive(Clone, Copy)]
struct Places {
    top: isize,
    left: isize,
    step: usize,
    height: usize,
    width: usize,
}

impl Places {
    /// The numbers of the places that are within `size`, where the first place is at `first`.
    fn inside(first: isize, step: usize, count: usize, size: usize) -> Range<usize> {
        let start = first.min(0).unsigned_abs().div_ceil(step).min(count);
        let end = (signed(size) - first).max(0).unsigned_abs().div_ceil(step).min(count);
        start..end.max(start)
    }

    /// The rows that are inside of a plane with their numbers, and the columns that are.
    fn within(&self, height: usize, width: usize) -> (Range<usize>, Range<usize>) {
        let rows = Places::inside(self.top, self.step, self.height, height);
        (rows, Places::inside(self.left, self.step, self.width, width))
    }

    /// The position of a place along one direction.
    fn at(&self, first: isize, n: usize) -> usize {
        (first + signed(n * self.step)).unsigned_abs()
    }

    /// Writes the values of the places, and zeros for those outside.
    fn read<T: WithDType>(&self, plane: Plane<'_, T>, line: &mut [T]) {
        let (rows, columns) = self.within(plane.height, plane.width);
        for (y, line) in line.chunks_exact_mut(self.width).enumerate() {
            if !rows.contains(&y) || columns.is_empty() {
                line.fill(T::zero());
                continue;
            }
            line[..columns.start].fill(T::zero());
            line[columns.end..].fill(T::zero());
            let from = self.at(self.top, y) * plane.row + self.at(self.left, columns.start) * plane.column;
            let (line, values) = (&mut line[columns.clone()], &plane.values[from..]);
            match self.step * plane.column {
                0 => line.fill(values[0]),
                1 => line.copy_from_slice(&values[..line.len()]),
                apart => line.iter_mut().zip(values.iter().step_by(apart)).for_each(|(value, source)| *value = *source),
            }
        }
    }

    /// Adds the values of a line to the places of a dense plane; those outside are left out.
    fn add_to<T: WithDType>(&self, plane: &mut [T], (height, width): (usize, usize), line: &[T]) {
        let (rows, columns) = self.within(height, width);
        if columns.is_empty() {
            return;
        }
        for y in rows {
            let from = self.at(self.top, y) * width + self.at(self.left, columns.start);
            let line = &line[y * self.width..][columns.clone()];
            if self.step == 1 {
                for (sum, value) in plane[from..][..line.len()].iter_mut().zip(line) {
                    *sum += *value;
                }
            } else {
                for (sum, value) in plane[from..].iter_mut().step_by(self.step).zip(line) {
                    *sum += *value;
                }
            }
        }
    }
}

/// A side of a product of matrices, and how far its rows and columns are apart.
struct Side<'a, T> {
    values: &'a [T],
    row: usize,
    column: usize,
}

impl<'a, T> Side<'a, T> {
    /// A matrix whose rows have so many values.
    fn rows(values: &'a [T], row: usize) -> Side<'a, T> {
        Side { values, row, column: 1 }
    }

    /// Whether all elements of a matrix with so many rows and columns are among the values.
    fn holds(&self, rows: usize, columns: usize) -> bool {
        rows == 0 || columns == 0 || (rows - 1) * self.row + (columns - 1) * self.column < self.values.len()
    }
}

/// Writes the product of a matrix `(m, k)` and a matrix `(k, n)`, or adds it to what is there. Uses this thread alone.
fn multiply<T: WithDType>(
    (m, n, k): (usize, usize, usize),
    dst: &mut [T],
    adds: bool,
    (left, right): (Side<'_, T>, Side<'_, T>),
) {
    assert!(left.holds(m, k) && right.holds(k, n) && m * n <= dst.len(), "a matrix of a convolution is too small");
    // SAFETY: all elements of the three matrices are within their slices, and `dst` is borrowed for writing.
    unsafe {
        gemm::gemm(
            m,
            n,
            k,
            dst.as_mut_ptr(),
            1,
            n as isize,
            adds,
            left.values.as_ptr(),
            left.column as isize,
            left.row as isize,
            right.values.as_ptr(),
            right.column as isize,
            right.row as isize,
            T::one(),
            T::one(),
            false,
            false,
            false,
            gemm::Parallelism::None,
        );
    }
}
