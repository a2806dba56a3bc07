//! The update of a variable and its moments in one pass: in place, on all threads of the pool.

use super::Rule;
use crate::plugins::least_pieces;
use candle_core::backend::BackendStorage as _;
use candle_core::{CpuStorage, InplaceOp1, InplaceOp2, Layout, Result, Tensor, WithDType, bail};
use half::{bf16, f16};
use num_traits::Float;
use rayon::iter::{IndexedParallelIterator as _, IntoParallelIterator as _, ParallelIterator as _};
use std::cell::RefCell;

/// The number of elements that one thread updates at a time. Their memory fits into a core's second-level cache.
const ELEMENTS: usize = 1 << 14;

/// Updates `value` and `moments` by `rule`. All tensors are on the CPU and have the same floating-point dtype and shape. No two of
/// them share memory.
pub(super) fn update<const N: usize, R: Rule<N>>(
    value: &Tensor,
    gradient: &Tensor,
    moments: &[Tensor; N],
    rule: &R,
    scalars: &R::Scalars<f64>,
) -> Result<()> {
    value.inplace_op2(gradient, &Update { moments, rule, scalars })
}

struct Update<'a, const N: usize, R: Rule<N>> {
    moments: &'a [Tensor; N],
    rule: &'a R,
    scalars: &'a R::Scalars<f64>,
}

impl<const N: usize, R: Rule<N>> InplaceOp2 for Update<'_, N, R> {
    fn name(&self) -> &'static str {
        "optimiser step"
    }

    fn cpu_fwd(&self, value: &mut CpuStorage, at: &Layout, gradient: &CpuStorage, from: &Layout) -> Result<()> {
        match value {
            CpuStorage::F32(_) => self.pass::<f32>(value, at, gradient, from),
            CpuStorage::F64(_) => self.pass::<f64>(value, at, gradient, from),
            CpuStorage::BF16(_) => self.pass::<bf16>(value, at, gradient, from),
            CpuStorage::F16(_) => self.pass::<f16>(value, at, gradient, from),
            _ => bail!("an optimiser changes variables of f32, f64, bf16 or f16; convert this one with to_dtype"),
        }
    }
}

impl<const N: usize, R: Rule<N>> Update<'_, N, R> {
    fn pass<T: Element>(
        &self,
        value: &mut CpuStorage,
        at: &Layout,
        gradient: &CpuStorage,
        from: &Layout,
    ) -> Result<()> {
        let (value, gradient) = (elements::<T>(value, at)?, T::cpu_storage_as_slice(gradient)?);
        let gradient = &gradient[range(from)?];
        open(self.moments, &mut [], &mut |moments| {
            let moments: [&mut [T]; N] = std::array::from_fn(|index| std::mem::take(&mut moments[index]));
            let chunks = chunks(value, gradient, moments).into_par_iter().with_min_len(least_pieces());
            chunks.for_each(|chunk| chunk.update(self.rule, self.scalars));
        })
    }
}

/// Calls `run` with the elements of the tensors in `opened` and of all `tensors`.
fn open<T: Element>(tensors: &[Tensor], opened: &mut [&mut [T]], run: &mut dyn FnMut(&mut [&mut [T]])) -> Result<()> {
    let Some((first, others)) = tensors.split_first() else {
        run(opened);
        return Ok(());
    };
    first.inplace_op1(&Open(RefCell::new(|storage: &mut CpuStorage, layout: &Layout| {
        let mut opened: Vec<&mut [T]> = opened.iter_mut().map(|elements| &mut **elements).collect();
        opened.push(elements(storage, layout)?);
        open(others, &mut opened, run)
    })))
}

/// An operation of candle that passes a tensor's memory to a closure.
struct Open<F>(RefCell<F>);

impl<F: FnMut(&mut CpuStorage, &Layout) -> Result<()>> InplaceOp1 for Open<F> {
    fn name(&self) -> &'static str {
        "optimiser step"
    }

    fn cpu_fwd(&self, storage: &mut CpuStorage, layout: &Layout) -> Result<()> {
        self.0.borrow_mut()(storage, layout)
    }
}

fn elements<'a, T: Element>(storage: &'a mut CpuStorage, layout: &Layout) -> Result<&'a mut [T]> {
    let (range, dtype) = (range(layout)?, storage.dtype());
    match T::elements(storage) {
        Some(elements) => Ok(&mut elements[range]),
        None => bail!("a variable of {:?} has moments of {dtype:?}; make a new optimiser for it", T::DTYPE),
    }
}

fn range(layout: &Layout) -> Result<std::ops::Range<usize>> {
    match layout.contiguous_offsets() {
        Some((start, end)) => Ok(start..end),
        None => bail!("the tensor {:?} is not contiguous; call contiguous() on it", layout.shape()),
    }
}

/// The part of a variable that one thread updates.
struct Chunk<'a, T, const N: usize> {
    value: &'a mut [T],
    gradient: &'a [T],
    moments: [&'a mut [T]; N],
}

fn chunks<'a, T: Element, const N: usize>(
    value: &'a mut [T],
    gradient: &'a [T],
    moments: [&'a mut [T]; N],
) -> Vec<Chunk<'a, T, N>> {
    let mut moments = moments.map(|moment| moment.chunks_mut(ELEMENTS));
    let parts = value.chunks_mut(ELEMENTS).zip(gradient.chunks(ELEMENTS));
    let with_moments = parts.map(|(value, gradient)| {
        let moments = moments.each_mut().map(|moment| moment.next().expect("moments have their variable's shape"));
        Chunk { value, gradient, moments }
    });
    with_moments.collect()
}

impl<T: Element, const N: usize> Chunk<'_, T, N> {
    fn update<R: Rule<N>>(self, rule: &R, scalars: &R::Scalars<f64>) {
        let length = self.value.len();
        // Slices of one known length, so that the loop is compiled to vector instructions.
        let (value, gradient) = (&mut self.value[..length], &self.gradient[..length]);
        let moments = self.moments.map(|moment| &mut moment[..length]);
        for index in 0..length {
            let old = std::array::from_fn(|moment| moments[moment][index].widen());
            let (new, kept) = rule.element(scalars, value[index].widen(), gradient[index].widen(), old);
            value[index] = T::narrow(new);
            for moment in 0..N {
                moments[moment][index] = T::narrow(kept[moment]);
            }
        }
    }
}

/// A dtype of variables. Numbers of 16 bits are computed in 32 bits.
trait Element: WithDType {
    type Wide: Float;

    fn elements(storage: &mut CpuStorage) -> Option<&mut [Self]>;
    fn widen(self) -> Self::Wide;
    fn narrow(wide: Self::Wide) -> Self;
}

macro_rules! element {
    ($dtype:ty, $wide:ty, $storage:ident, $widen:expr, $narrow:expr) => {
        impl Element for $dtype {
            type Wide = $wide;

            fn elements(storage: &mut CpuStorage) -> Option<&mut [Self]> {
                match storage {
                    CpuStorage::$storage(elements) => Some(elements),
                    _ => None,
                }
            }

            fn widen(self) -> $wide {
                $widen(self)
            }

            fn narrow(wide: $wide) -> Self {
                $narrow(wide)
            }
        }
    };
}

element!(f32, f32, F32, std::convert::identity, std::convert::identity);
element!(f64, f64, F64, std::convert::identity, std::convert::identity);
element!(bf16, f32, BF16, bf16::to_f32, bf16::from_f32);
element!(f16, f32, F16, f16::to_f32, f16::from_f32);
