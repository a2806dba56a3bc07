//! Gradients of operations that move, repeat or sum elements.
use crate::{DType, Result, Tensor};

/// The sum of `tensor` over the dimensions that were broadcast from `dims`.
pub(crate) fn sum_to(tensor: &Tensor, dims: &[usize]) -> Result<Tensor> {
    let left = tensor.rank() - dims.len();
    let sum_dims: Vec<usize> = (0..tensor.rank())
        .filter(|&dim| dim < left || tensor.dims()[dim] != dims[dim - left])
        .collect();
    tensor.sum_keepdim(sum_dims)?.reshape(dims)
}

/// The product of `lhs` and `rhs` with the memory order of `like`: the gradient of a transposed weight is the weight's
/// own gradient without a copy.
pub(crate) fn matmul_like(like: &Tensor, lhs: &Tensor, rhs: &Tensor) -> Result<Tensor> {
    if !like.is_contiguous() && like.t()?.is_contiguous() {
        rhs.t()?.matmul(&lhs.t()?)?.t()
    } else {
        lhs.matmul(rhs)
    }
}

/// The gradient of the source of a scatter: where several elements were written to one place, the last one remains there,
/// and it alone has a gradient.
pub(crate) fn scatter(grad: &Tensor, indexes: &Tensor, dim: usize) -> Result<Tensor> {
    let device = grad.device();
    let count = indexes.elem_count() as u32;
    let ids = Tensor::arange(1, count + 1, device)?.reshape(indexes.dims())?;
    let written = Tensor::zeros(grad.dims(), DType::U32, device)?.scatter(indexes, &ids, dim)?;
    let mask = written.gather(indexes, dim)?.eq(&ids)?;
    let source_grad = grad.gather(indexes, dim)?;
    mask.where_cond(&source_grad, &source_grad.zeros_like()?)
}

/// The gradient of the nearest-neighbour upsampling of dimension `dim`, which had `size` elements.
pub(crate) fn upsample_nearest(grad: &Tensor, dim: usize, size: usize) -> Result<Tensor> {
    let target_size = grad.dim(dim)?;
    if target_size == size {
        return Ok(grad.clone());
    }
    let scale = size as f64 / target_size as f64;
    let sources: Vec<u32> = (0..target_size)
        .map(|target| usize::min(size - 1, (target as f64 * scale) as usize) as u32)
        .collect();
    let sources = Tensor::new(sources, grad.device())?;
    let mut dims = grad.dims().to_vec();
    dims[dim] = size;
    Tensor::zeros(dims, grad.dtype(), grad.device())?.index_add(&sources, grad, dim)
}
