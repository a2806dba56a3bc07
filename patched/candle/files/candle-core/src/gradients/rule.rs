//! Which gradient belongs to a custom operation that brings none of its own.
use super::{compute_dtype, norm, rotary};
use crate::cumsum::CumSum;
use crate::{pow, Result, Tensor, D};

/// The gradient of a custom operation that was applied with `apply_op1_no_bwd` and its like. The fused operations of
/// candle-nn are known by their names and attributes.
#[derive(Clone, Debug)]
pub enum Rule {
    SoftmaxLastDim,
    RmsNorm { epsilon: f64 },
    LayerNorm { epsilon: f64 },
    Rotary(rotary::Rotary),
    Pow,
    CumSum(CumSum),
    Unknown { name: &'static str },
}

impl Rule {
    pub(crate) fn of(name: &'static str, attributes: &[f64]) -> Self {
        match (name, attributes) {
            ("softmax-last-dim", []) => Self::SoftmaxLastDim,
            ("rms-norm", [epsilon]) => Self::RmsNorm { epsilon: *epsilon },
            ("layer-norm", [epsilon]) => Self::LayerNorm { epsilon: *epsilon },
            ("rotary-emb", [0.]) => Self::Rotary(rotary::Rotary::Halves),
            ("rotary-emb", [1.]) => Self::Rotary(rotary::Rotary::HalvesTimeFirst),
            ("rotary-emb-int", []) => Self::Rotary(rotary::Rotary::Neighbours),
            ("pow", []) => Self::Pow,
            ("cumsum", attributes) => match CumSum::of(attributes) {
                Some(cumsum) => Self::CumSum(cumsum),
                None => Self::Unknown { name },
            },
            (name, _) => Self::Unknown { name },
        }
    }

    /// The gradients of `args`, from the operation's result `node` and the gradient of that. An argument for which
    /// `needs` is false may have none.
    pub(crate) fn gradients(
        &self,
        args: &[Tensor],
        node: &Tensor,
        grad: &Tensor,
        needs: impl Fn(&Tensor) -> bool,
    ) -> Result<Vec<Option<Tensor>>> {
        let dtype = compute_dtype(node.dtype());
        let wide = |tensor: &Tensor| tensor.to_dtype(dtype);
        let grad = &wide(grad)?;
        let needed: Vec<bool> = args.iter().map(needs).collect();
        let args = args.iter().map(wide).collect::<Result<Vec<_>>>()?;
        let gradients = match (self, args.as_slice()) {
            (Self::SoftmaxLastDim, [_]) => vec![Some(softmax_last_dim(&wide(node)?, grad)?)],
            (Self::RmsNorm { epsilon }, [x, weight]) => {
                norm::rms_norm(x, weight, grad, *epsilon, &needed)?
            }
            (Self::LayerNorm { epsilon }, [x, weight, _bias]) => {
                norm::layer_norm(x, weight, grad, *epsilon, &needed)?
            }
            (Self::Rotary(rotary), [x, cos, sin]) => {
                rotary.gradients(x, cos, sin, grad, &needed)?
            }
            (Self::Pow, [base, exponent]) => pow::gradients(base, exponent, &wide(node)?, grad, &needed)?,
            (Self::CumSum(cumsum), [_]) => vec![Some(cumsum.gradient(grad)?)],
            (Self::Unknown { name }, _) => crate::bail!(
                "backward is not supported for {name}; detach its arguments if they need no gradient"
            ),
            (rule, args) => crate::bail!("{rule:?} does not take {} arguments", args.len()),
        };
        gradients
            .into_iter()
            .map(|gradient| {
                gradient
                    .map(|gradient| gradient.to_dtype(node.dtype()))
                    .transpose()
            })
            .collect()
    }
}

fn softmax_last_dim(softmax: &Tensor, grad: &Tensor) -> Result<Tensor> {
    let weighted = grad.mul(softmax)?;
    let sum = weighted.sum_keepdim(D::Minus1)?;
    weighted.sub(&softmax.broadcast_mul(&sum)?)
}
