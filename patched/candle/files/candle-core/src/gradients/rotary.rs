//! Gradients of candle-nn's fused rotary embeddings.
use crate::{bail, Result, Tensor};

/// Where a rotary embedding finds the two elements of a pair, and the time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rotary {
    /// `(batch, head, time, element)`; a pair has one element of each half of the last dimension.
    Halves,
    /// `(batch, time, head, element)`; a pair has one element of each half of the last dimension.
    HalvesTimeFirst,
    /// `(batch, head, time, element)`; a pair is two neighbours.
    Neighbours,
}

impl Rotary {
    /// The gradients with respect to `x`, `cos` and `sin`, where `needed` says which.
    pub(super) fn gradients(
        self,
        x: &Tensor,
        cos: &Tensor,
        sin: &Tensor,
        grad: &Tensor,
        needed: &[bool],
    ) -> Result<Vec<Option<Tensor>>> {
        let batched = cos.rank() == 3 && sin.rank() == 3;
        let table_dims = self.table_dims(x.dims(), batched)?;
        let (first_grad, second_grad) = self.split(grad)?;
        let mut gradients = vec![None, None, None];
        if needed[0] {
            let (cos, sin) = (table(cos, &table_dims)?, table(sin, &table_dims)?);
            let first = first_grad
                .broadcast_mul(&cos)?
                .add(&second_grad.broadcast_mul(&sin)?)?;
            let second = second_grad
                .broadcast_mul(&cos)?
                .sub(&first_grad.broadcast_mul(&sin)?)?;
            gradients[0] = Some(self.join(&first, &second)?);
        }
        if needed[1] || needed[2] {
            let (first, second) = self.split(x)?;
            let along = first.mul(&first_grad)?.add(&second.mul(&second_grad)?)?;
            let across = first.mul(&second_grad)?.sub(&second.mul(&first_grad)?)?;
            gradients[1] = Some(table_grad(&along, &table_dims, cos)?);
            gradients[2] = Some(table_grad(&across, &table_dims, sin)?);
        }
        Ok(gradients)
    }

    /// The shape in which the used part of `cos` and `sin` is broadcast over pairs.
    fn table_dims(self, dims: &[usize], batched: bool) -> Result<[usize; 4]> {
        let &[batch, second, third, width] = dims else {
            bail!("a rotary embedding takes four dimensions, but got {dims:?}")
        };
        let batch = if batched { batch } else { 1 };
        Ok(match self {
            Self::Halves | Self::Neighbours => [batch, 1, third, width / 2],
            Self::HalvesTimeFirst => [batch, second, 1, width / 2],
        })
    }

    /// The first elements of all pairs, and the second ones.
    fn split(self, x: &Tensor) -> Result<(Tensor, Tensor)> {
        let (b, h, t, width) = x.dims4()?;
        match self {
            Self::Halves | Self::HalvesTimeFirst => Ok((
                x.narrow(3, 0, width / 2)?,
                x.narrow(3, width / 2, width / 2)?,
            )),
            Self::Neighbours => {
                let pairs = x.reshape((b, h, t, width / 2, 2))?;
                Ok((
                    pairs.narrow(4, 0, 1)?.squeeze(4)?,
                    pairs.narrow(4, 1, 1)?.squeeze(4)?,
                ))
            }
        }
    }

    fn join(self, first: &Tensor, second: &Tensor) -> Result<Tensor> {
        match self {
            Self::Halves | Self::HalvesTimeFirst => Tensor::cat(&[first, second], 3),
            Self::Neighbours => Tensor::stack(&[first, second], 4)?.flatten_from(3),
        }
    }
}

/// The elements of `cos` or `sin` that the kernels read: the first ones, in memory order.
fn table(source: &Tensor, dims: &[usize; 4]) -> Result<Tensor> {
    source
        .flatten_all()?
        .narrow(0, 0, dims.iter().product())?
        .reshape(dims.as_slice())
}

fn table_grad(pairs: &Tensor, dims: &[usize; 4], source: &Tensor) -> Result<Tensor> {
    let used = super::sum_to(pairs, dims)?.flatten_all()?;
    let unused = source.elem_count() - used.elem_count();
    used.pad_with_zeros(0, 0, unused)?.reshape(source.dims())
}
