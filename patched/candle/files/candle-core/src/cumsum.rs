//! Sums of all elements up to each one.
use crate::cpu::kernels::VecOps;
use crate::cpu_backend::{finished, Map1};
use crate::{CpuStorage, CustomOp1, Layout, Result, Shape, Tensor, WithDType};

/// The sums along `dim`.
pub(crate) fn cumsum(tensor: &Tensor, dim: usize) -> Result<Tensor> {
    CumSum { dim, from_end: false }.apply(tensor)
}

/// Sums along a dimension, of all elements up to each one, or from each one on. The gradient of the one is the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CumSum {
    dim: usize,
    from_end: bool,
}

impl CumSum {
    /// Reads what [`CustomOp1::attributes`] says.
    pub(crate) fn of(attributes: &[f64]) -> Option<Self> {
        let [dim, from_end] = attributes else {
            return None;
        };
        Some(Self { dim: *dim as usize, from_end: *from_end != 0. })
    }

    pub(crate) fn gradient(self, grad: &Tensor) -> Result<Tensor> {
        Self { from_end: !self.from_end, ..self }.apply(grad)
    }

    fn apply(self, tensor: &Tensor) -> Result<Tensor> {
        if tensor.elem_count() == 0 {
            return Ok(tensor.clone());
        }
        if tensor.device().is_cuda() {
            return self.by_matmul(tensor);
        }
        tensor.contiguous()?.apply_op1_no_bwd(&self)
    }

    /// With candle's own kernels, for a device that has none for this.
    fn by_matmul(self, tensor: &Tensor) -> Result<Tensor> {
        let (last, size) = (tensor.rank() - 1, tensor.dim(self.dim)?);
        let ones = match self.from_end {
            false => Tensor::triu2(size, tensor.dtype(), tensor.device())?,
            true => Tensor::tril2(size, tensor.dtype(), tensor.device())?,
        };
        if last == 0 {
            return tensor.unsqueeze(0)?.matmul(&ones)?.squeeze(0);
        }
        let sums = tensor.transpose(self.dim, last)?.broadcast_matmul(&ones)?;
        sums.transpose(self.dim, last)
    }
}

impl CustomOp1 for CumSum {
    fn name(&self) -> &'static str {
        "cumsum"
    }

    fn attributes(&self) -> Result<Vec<f64>> {
        Ok(vec![self.dim as f64, f64::from(u8::from(self.from_end))])
    }

    fn cpu_fwd(&self, storage: &CpuStorage, layout: &Layout) -> Result<(CpuStorage, Shape)> {
        Ok((self.map(storage, layout)?, layout.shape().clone()))
    }
}

impl Map1 for CumSum {
    fn f<T: WithDType>(&self, src: &[T], layout: &Layout) -> Result<Vec<T>> {
        let Some((start, end)) = layout.contiguous_offsets() else {
            crate::bail!("cumsum of a tensor that is not contiguous")
        };
        let (size, row) = (layout.dims()[self.dim], layout.stride()[self.dim]);
        let mut sums = src[start..end].to_vec();
        let mut totals = vec![T::total(T::Part::default()); row];
        for block in sums.chunks_exact_mut(size * row) {
            totals.fill(T::total(T::Part::default()));
            for index in 0..size {
                let index = if self.from_end { size - 1 - index } else { index };
                for (total, sum) in totals.iter_mut().zip(&mut block[index * row..][..row]) {
                    <T as VecOps>::add_total(total, T::total(sum.part()));
                    *sum = finished(*total)?;
                }
            }
        }
        Ok(sums)
    }
}
