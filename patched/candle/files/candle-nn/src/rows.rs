//! Kernels over the rows of a contiguous array on the CPU. They compute 16-bit floats in f32.
use candle::cpu_backend::sum_of;
use candle::{Layout, Result, WithDType};
use half::{bf16, f16};
use num_traits::Float;
use rayon::prelude::*;

/// How many elements one thread takes at a time.
const ELEMENTS: usize = 4096;

/// A float, and the one that it is computed in.
pub(crate) trait Narrow: WithDType {
    type Wide: WithDType + Float;
    fn widened(self) -> Self::Wide;
    fn narrowed(wide: Self::Wide) -> Self;
}

macro_rules! narrow {
    ($narrow:ty, $wide:ty, $widened:expr, $narrowed:expr) => {
        impl Narrow for $narrow {
            type Wide = $wide;

            #[inline(always)]
            fn widened(self) -> $wide {
                $widened(self)
            }

            #[inline(always)]
            fn narrowed(wide: $wide) -> Self {
                $narrowed(wide)
            }
        }
    };
}

narrow!(bf16, f32, bf16::to_f32, bf16::from_f32);
narrow!(f16, f32, f16::to_f32, f16::from_f32);
narrow!(f32, f32, |value| value, |value| value);
narrow!(f64, f64, |value| value, |value| value);

/// The elements of a contiguous layout.
pub(crate) fn dense<'a, T>(src: &'a [T], layout: &Layout, name: &str) -> Result<&'a [T]> {
    match layout.contiguous_offsets() {
        Some((start, end)) => Ok(&src[start..end]),
        None => candle::bail!("{name} has to be contiguous"),
    }
}

/// What `compute` makes of each row in place, with a vector for what it keeps meanwhile.
pub(crate) fn map<T: Narrow>(
    src: &[T],
    size: usize,
    compute: impl Fn(&mut [T::Wide], &mut Vec<T::Wide>) + Sync,
) -> Vec<T> {
    let mut dst = vec![T::zero(); src.len()];
    if src.is_empty() {
        return dst;
    }
    let several = size * (ELEMENTS / size).max(1);
    src.par_chunks(several)
        .zip(dst.par_chunks_mut(several))
        .with_min_len(candle::utils::least_pieces())
        .for_each(|(src, dst)| {
            let (mut row, mut scratch) = (vec![T::Wide::from_f64(0.); size], Vec::with_capacity(size));
            for (src, dst) in src.chunks_exact(size).zip(dst.chunks_exact_mut(size)) {
                for (wide, &narrow) in row.iter_mut().zip(src) {
                    *wide = narrow.widened()
                }
                compute(&mut row, &mut scratch);
                for (narrow, &wide) in dst.iter_mut().zip(&row) {
                    *narrow = T::narrowed(wide)
                }
            }
        });
    dst
}

pub(crate) fn widened<T: Narrow>(src: &[T]) -> Vec<T::Wide> {
    src.iter().map(|&value| value.widened()).collect()
}

pub(crate) fn softmax<F: WithDType + Float>(row: &mut [F], _: &mut Vec<F>) {
    let greatest = row.iter().fold(F::neg_infinity(), |max, &value| if value > max { value } else { max });
    for value in row.iter_mut() {
        *value = (*value - greatest).exp()
    }
    let sum = sum_of(row);
    for value in row.iter_mut() {
        *value /= sum
    }
}

/// Divides by the root of the mean square.
pub(crate) fn rms_norm<F: WithDType + Float>(row: &mut [F], squares: &mut Vec<F>, eps: F) {
    squares.clear();
    squares.extend(row.iter().map(|&value| value * value));
    let mean = sum_of(squares) / F::from_f64(row.len() as f64);
    let scale = (mean + eps).sqrt();
    for value in row.iter_mut() {
        *value /= scale
    }
}

/// Subtracts the mean before it divides by the root of the mean square: the difference of the mean square and the squared
/// mean has no digits left where the mean is large.
pub(crate) fn layer_norm<F: WithDType + Float>(row: &mut [F], squares: &mut Vec<F>, eps: F) {
    let mean = sum_of(row) / F::from_f64(row.len() as f64);
    for value in row.iter_mut() {
        *value -= mean
    }
    rms_norm(row, squares, eps)
}
