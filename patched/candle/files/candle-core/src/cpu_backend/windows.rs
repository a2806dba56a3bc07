//! Convolutions of two dimensions on the CPU as products of matrices.
//!
//! A matrix has the values of an image that meet each element of the kernel. It is made in parts, most of which fit into a core's cache. Where
//! there are many images, each thread computes some of them, otherwise all threads compute each product together. No value depends on the number
//! of threads: the parts are the same.

mod places;
mod product;

use crate::conv::{ParamsConv2D, ParamsConvTranspose2D};
use crate::utils::{get_num_threads, least_pieces};
use crate::{DType, Layout, Result, WithDType};
use places::{pairs, tiles, Planes, Tile};
use product::{multiply, Side};
use rayon::prelude::*;
use std::borrow::Cow;
use std::ops::Range;

/// The number of elements of a part of the matrix.
const PART: usize = 64 << 10;

/// A part has at least so many columns, so that a product reads its kernel often enough for each time that it loads it.
const LEAST_COLUMNS: usize = 128;

/// The greatest number of elements of a part with more columns than fit into [`PART`].
const LARGEST_PART: usize = 4 << 20;

/// The number of parts into which work is split, if there is enough of it.
const PARTS: usize = 32;

/// With fewer groups of images than these, all threads compute each product together, which then has so many times as many columns.
const FEW: usize = 8;
const WIDER: usize = 16;

/// A plane of a kernel with fewer elements than these is too short for a product of its own for each channel.
const LEAST_DEPTH: usize = 32;

/// Whether products of matrices exist for this type.
pub(super) fn multiplies(dtype: DType) -> bool {
    matches!(dtype, DType::F16 | DType::F32 | DType::F64)
}

/// Whether the kernel is larger than the output, and sums of its products can be kept in this type.
pub(super) fn has_large_kernel(p: &ParamsConv2D, dtype: DType) -> bool {
    let (size, pixels) = (p.k_h * p.k_w, p.out_h() * p.out_w());
    matches!(dtype, DType::F32 | DType::F64) && size > pixels && size >= LEAST_DEPTH && p.dilation > 0
}

/// The convolution of each image with a kernel, of the shapes `(b_size, c_in, i_h, i_w)` and `(c_out, c_in, k_h, k_w)`.
pub(super) fn conv2d<T: WithDType>(
    p: &ParamsConv2D,
    images: &[T],
    images_l: &Layout,
    kernel: &[T],
    kernel_l: &Layout,
) -> Result<Vec<T>> {
    let pixels = p.out_h() * p.out_w();
    let windows = Windows { p, images: Planes::new(images, images_l)?, kernel: dense(kernel, kernel_l) };
    let mut dst = vec![T::zero(); p.b_size * p.c_out * pixels];
    if dst.is_empty() {
        return Ok(dst);
    }
    // A product has several small images, or a part of a large one.
    let (fitting, depth) = (columns(windows.depth()), windows.depth().max(1));
    let group = (fitting / pixels).clamp(1, p.b_size.div_ceil(PARTS));
    let is_together = p.b_size.div_ceil(group) < FEW;
    let (columns, group, threads) = if is_together {
        let wide = (fitting * WIDER).min(LARGEST_PART / depth).max(fitting);
        (wide, (wide / pixels).clamp(1, p.b_size), get_num_threads())
    } else {
        (fitting, group, 1)
    };
    let tiles = tiles((p.out_h(), p.out_w()), columns);
    let compute = |matrix: &mut Vec<T>, (n, dst): (usize, &mut [T])| {
        let count = dst.len() / (p.c_out * pixels);
        for tile in &tiles {
            let product = windows.product(matrix, n * group..n * group + count, tile, threads);
            let (start, size) = (tile.start(p.out_w()), tile.size());
            for (place, image) in dst.chunks_exact_mut(p.c_out * pixels).enumerate() {
                for (plane, row) in image.chunks_exact_mut(pixels).zip(product.chunks_exact(count * size)) {
                    plane[start..start + size].copy_from_slice(&row[place * size..][..size]);
                }
            }
        }
    };
    let size = group * p.c_out * pixels;
    if is_together {
        let mut matrix = Vec::new();
        dst.chunks_mut(size).enumerate().for_each(|group| compute(&mut matrix, group));
    } else {
        dst.par_chunks_mut(size).enumerate().with_min_len(least_pieces()).for_each_init(Vec::new, compute);
    }
    Ok(dst)
}

/// The number of columns of a part of a matrix with so many rows.
fn columns(depth: usize) -> usize {
    let depth = depth.max(1);
    (PART / depth).max(LEAST_COLUMNS.min(LARGEST_PART / depth)).max(1)
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

    /// A part of the output for these images: a row for each channel, which has the pixels of one image after another.
    fn product(&self, matrix: &mut Vec<T>, images: Range<usize>, tile: &Tile, threads: usize) -> Vec<T> {
        let (p, depth) = (self.p, self.depth());
        let width = images.len() * tile.size();
        matrix.resize(depth * width, T::zero());
        let write = |(n, line): (usize, &mut [T])| {
            let (c, k_y, k_x) = (n / (p.k_h * p.k_w), n / p.k_w % p.k_h, n % p.k_w);
            let places = tile.places((k_y * p.dilation, k_x * p.dilation), p.stride, p.padding);
            for (image, line) in images.clone().zip(line.chunks_exact_mut(tile.size())) {
                places.read(self.images.plane(image, c), line);
            }
        };
        if threads > 1 {
            matrix.par_chunks_mut(width).enumerate().for_each(write);
        } else {
            matrix.chunks_mut(width).enumerate().for_each(write);
        }
        let mut product = vec![T::zero(); p.c_out * width];
        let sides = (Side::rows(&self.kernel, depth), Side::rows(matrix, width));
        multiply((p.c_out, width, depth), &mut product, false, sides, threads);
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
    let pixels = p.out_h() * p.out_w();
    let (images, kernels) = (Planes::new(images, images_l)?, Planes::new(kernel, kernel_l)?);
    let mut dst = vec![T::zero(); p.b_size * p.c_out * pixels];
    if dst.is_empty() || p.c_in == 0 {
        return Ok(dst);
    }
    // Some images at a time; where these are few, the channels are split, and have a sum each.
    let most = (LARGEST_PART / (pixels * p.k_h * p.k_w)).min((p.b_size * p.c_in).div_ceil(PARTS)).max(1);
    let groups = p.b_size.div_ceil(LEAST_COLUMNS.div_ceil(pixels).min(most));
    let group = p.b_size.div_ceil(groups);
    let groups = p.b_size.div_ceil(group);
    let each = p.c_in.div_ceil((PARTS / groups).clamp(1, p.c_in));
    let count = p.c_in.div_ceil(each);
    let sum = |n: usize| {
        let (first, channel) = (n / count * group, n % count * each);
        let images_of_group = first..p.b_size.min(first + group);
        sum_of_products(p, (&images, &kernels), images_of_group, channel..p.c_in.min(channel + each))
    };
    let sums: Vec<Vec<T>> = (0..groups * count).into_par_iter().with_min_len(least_pieces()).map(sum).collect();
    let parts = dst.par_chunks_mut(group * p.c_out * pixels).zip(sums.par_chunks(count));
    parts.with_min_len(least_pieces()).for_each(|(dst, sums)| {
        let width = dst.len() / p.c_out;
        for (at, plane) in dst.chunks_exact_mut(pixels).enumerate() {
            let from = at % p.c_out * width + at / p.c_out * pixels;
            for sum in sums {
                for (value, other) in plane.iter_mut().zip(&sum[from..]) {
                    *value += *other;
                }
            }
        }
    });
    Ok(dst)
}

/// The sum over these channels: a row for each channel of the output, which has the pixels of one image after another.
fn sum_of_products<T: WithDType>(
    p: &ParamsConv2D,
    (images, kernels): (&Planes<'_, T>, &Planes<'_, T>),
    images_of_group: Range<usize>,
    channels: Range<usize>,
) -> Vec<T> {
    let (pixels, depth) = (p.out_h() * p.out_w(), p.k_h * p.k_w);
    let width = images_of_group.len() * pixels;
    let whole = Tile { rows: 0..p.k_h, columns: 0..p.k_w };
    let mut sum = vec![T::zero(); p.c_out * width];
    let mut matrix = vec![T::zero(); width * depth];
    let mut own_kernel = vec![T::zero(); if kernels.are_dense() { 0 } else { p.c_out * depth }];
    for c in channels {
        for (image, lines) in images_of_group.clone().zip(matrix.chunks_exact_mut(pixels * depth)) {
            for ((y, x), line) in pairs(p.out_h(), p.out_w()).zip(lines.chunks_exact_mut(depth)) {
                let places = whole.places((y * p.stride, x * p.stride), p.dilation, p.padding);
                places.read(images.plane(image, c), line);
            }
        }
        for (c_out, line) in own_kernel.chunks_exact_mut(depth).enumerate() {
            whole.places((0, 0), 1, 0).read(kernels.plane(c_out, c), line);
        }
        let kernel = if kernels.are_dense() {
            Side { values: kernels.plane(0, c).values, row: kernels.strides.0, column: 1 }
        } else {
            Side::rows(&own_kernel, depth)
        };
        let sides = (kernel, Side { values: &matrix, row: 1, column: depth });
        multiply((p.c_out, width, depth), &mut sum, true, sides, 1);
    }
    sum
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
    let tiles = tiles((p.i_h, p.i_w), columns(window));
    let largest = tiles.iter().map(Tile::size).max().unwrap_or(1);
    let group = (PART / (largest * window)).clamp(1, (p.b_size * p.c_out).div_ceil(PARTS)).min(p.c_out);
    let mut parts: Vec<(usize, usize, &mut [T])> = Vec::new();
    for (image, dst) in dst.chunks_exact_mut(p.c_out * out_h * out_w).enumerate() {
        let groups = dst.chunks_mut(group * out_h * out_w).enumerate();
        parts.extend(groups.map(|(n, dst)| (image, n * group, dst)));
    }
    parts.into_par_iter().with_min_len(least_pieces()).for_each_init(Vec::new, |matrix, (image, c_out, dst)| {
        let lines = dst.len() / (out_h * out_w) * window;
        for tile in &tiles {
            let size = tile.size();
            matrix.resize(lines * size, T::zero());
            let kernel = Side { values: &kernel[c_out * window..], row: 1, column: p.c_out * window };
            let image = &images[image * p.c_in * pixels + tile.start(p.i_w)..];
            multiply((lines, size, p.c_in), matrix, false, (kernel, Side::rows(image, pixels)), 1);
            for (plane, matrix) in dst.chunks_exact_mut(out_h * out_w).zip(matrix.chunks_exact(window * size)) {
                for ((k_y, k_x), line) in pairs(p.k_h, p.k_w).zip(matrix.chunks_exact(size)) {
                    let places = tile.places((k_y * p.dilation, k_x * p.dilation), p.stride, p.padding);
                    places.add_to(plane, (out_h, out_w), line);
                }
            }
        }
    });
    Ok(dst)
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
