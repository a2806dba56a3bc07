//! Gradients of pooling, for kernels and strides of any size, also where these do not divide the input.
use super::compute_dtype;
use crate::{bail, CpuStorage, CustomOp2, Layout, Result, Shape, Tensor, WithDType};
use num_traits::Float;
use rayon::prelude::*;

/// The gradient of the maximum of each window goes to the first element, row by row, that has it.
pub(crate) fn max_pool2d(
    arg: &Tensor,
    grad: &Tensor,
    kernel: (usize, usize),
    stride: (usize, usize),
) -> Result<Tensor> {
    apply(
        arg,
        grad,
        PoolGrad {
            of: Pool::Max,
            kernel,
            stride,
        },
    )
}

/// The gradient of the mean of each window goes to its elements in equal parts.
pub(crate) fn avg_pool2d(
    arg: &Tensor,
    grad: &Tensor,
    kernel: (usize, usize),
    stride: (usize, usize),
) -> Result<Tensor> {
    apply(
        arg,
        grad,
        PoolGrad {
            of: Pool::Avg,
            kernel,
            stride,
        },
    )
}

fn apply(arg: &Tensor, grad: &Tensor, op: PoolGrad) -> Result<Tensor> {
    let dtype = compute_dtype(arg.dtype());
    let wide = arg.to_dtype(dtype)?.contiguous()?;
    wide.apply_op2_no_bwd(&grad.to_dtype(dtype)?, &op)?
        .to_dtype(arg.dtype())
}

#[derive(Clone, Copy)]
enum Pool {
    Avg,
    Max,
}

/// The gradient of a pooling with respect to its argument, from that argument, `(batch, channel, height, width)`, and the
/// gradient of its result.
struct PoolGrad {
    of: Pool,
    kernel: (usize, usize),
    stride: (usize, usize),
}

impl CustomOp2 for PoolGrad {
    fn name(&self) -> &'static str {
        match self.of {
            Pool::Avg => "avg-pool2d-grad",
            Pool::Max => "max-pool2d-grad",
        }
    }

    /// The kernel's height and width, and the stride's.
    fn attributes(&self) -> Result<Vec<f64>> {
        let numbers = [self.kernel.0, self.kernel.1, self.stride.0, self.stride.1];
        Ok(numbers.map(|number| number as f64).to_vec())
    }

    fn cpu_fwd(
        &self,
        arg: &CpuStorage,
        arg_layout: &Layout,
        grad: &CpuStorage,
        grad_layout: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        let storage = match (arg, grad) {
            (CpuStorage::F32(arg), CpuStorage::F32(grad)) => {
                CpuStorage::F32(self.planes(arg, arg_layout, grad, grad_layout)?)
            }
            (CpuStorage::F64(arg), CpuStorage::F64(grad)) => {
                CpuStorage::F64(self.planes(arg, arg_layout, grad, grad_layout)?)
            }
            _ => bail!("{} takes f32 and f64 only", self.name()),
        };
        Ok((storage, arg_layout.shape().clone()))
    }
}

impl PoolGrad {
    fn planes<T: WithDType + Float>(
        &self,
        arg: &[T],
        arg_layout: &Layout,
        grad: &[T],
        grad_layout: &Layout,
    ) -> Result<Vec<T>> {
        let (_, _, height, width) = arg_layout.shape().dims4()?;
        let (_, _, grad_height, grad_width) = grad_layout.shape().dims4()?;
        let (Some(arg_range), Some(grad_range)) = (
            arg_layout.contiguous_offsets(),
            grad_layout.contiguous_offsets(),
        ) else {
            bail!("{} takes contiguous tensors only", self.name())
        };
        let arg = &arg[arg_range.0..arg_range.1];
        let grad = &grad[grad_range.0..grad_range.1];
        let mut sums = vec![T::zero(); arg.len()];
        if grad.is_empty() {
            return Ok(sums);
        }
        sums.par_chunks_mut(height * width)
            .zip(arg.par_chunks(height * width))
            .zip(grad.par_chunks(grad_height * grad_width))
            .with_min_len(crate::utils::least_pieces())
            .for_each(|((sums, arg), grad)| match self.of {
                Pool::Avg => self.avg_plane(sums, grad, width, grad_width),
                Pool::Max => self.max_plane(sums, arg, grad, width, grad_width),
            });
        Ok(sums)
    }

    fn avg_plane<T: WithDType + Float>(
        &self,
        sums: &mut [T],
        grad: &[T],
        width: usize,
        grad_width: usize,
    ) {
        let scale = T::from_f64(1. / (self.kernel.0 * self.kernel.1) as f64);
        for (index, &grad) in grad.iter().enumerate() {
            let start = self.window(index, width, grad_width);
            for row in 0..self.kernel.0 {
                let start = start + row * width;
                for sum in &mut sums[start..start + self.kernel.1] {
                    *sum += grad * scale;
                }
            }
        }
    }

    fn max_plane<T: WithDType + Float>(
        &self,
        sums: &mut [T],
        arg: &[T],
        grad: &[T],
        width: usize,
        grad_width: usize,
    ) {
        for (index, &grad) in grad.iter().enumerate() {
            let start = self.window(index, width, grad_width);
            let mut largest = start;
            for row in 0..self.kernel.0 {
                let start = start + row * width;
                for index in start..start + self.kernel.1 {
                    let is_greater = arg[largest] < arg[index];
                    if is_greater || (arg[index].is_nan() && !arg[largest].is_nan()) {
                        largest = index;
                    }
                }
            }
            sums[largest] += grad;
        }
    }

    /// The first element of the window of the result's element `index`, both in their planes.
    fn window(&self, index: usize, width: usize, grad_width: usize) -> usize {
        let (row, column) = (index / grad_width, index % grad_width);
        row * self.stride.0 * width + column * self.stride.1
    }
}
