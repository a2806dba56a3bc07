//! Which gradient belongs to a custom operation that brings none of its own.
use super::{compute_dtype, norm, rotary};
use crate::{CustomOp1, CustomOp2, CustomOp3, Result, Tensor, D};

/// The gradient of a custom operation that was applied with `apply_op1_no_bwd` and its like. The fused operations of
/// candle-nn are known by name; their parameters are private, and are found by probing the operation.
#[derive(Clone, Debug)]
pub enum Rule {
    SoftmaxLastDim,
    RmsNorm { epsilon: f32 },
    LayerNorm { epsilon: f32 },
    Rotary(rotary::Rotary),
    Unknown { reason: String },
}

impl Rule {
    pub(crate) fn of1(op: &dyn CustomOp1) -> Self {
        match op.name() {
            "softmax-last-dim" => Self::SoftmaxLastDim,
            name => Self::unknown(name),
        }
    }

    pub(crate) fn of2(op: &dyn CustomOp2) -> Self {
        match op.name() {
            "rms-norm" => {
                Self::or_reason(norm::rms_norm_epsilon(op).map(|epsilon| Self::RmsNorm { epsilon }))
            }
            name => Self::unknown(name),
        }
    }

    pub(crate) fn of3(op: &dyn CustomOp3) -> Self {
        match op.name() {
            "layer-norm" => Self::or_reason(
                norm::layer_norm_epsilon(op).map(|epsilon| Self::LayerNorm { epsilon }),
            ),
            "rotary-emb" | "rotary-emb-int" => {
                Self::or_reason(rotary::Rotary::of(op).map(Self::Rotary))
            }
            name => Self::unknown(name),
        }
    }

    /// The numbers that define the operation beside its inputs, for a device that knows it by its name alone.
    pub fn attributes(&self) -> Vec<f64> {
        match self {
            Self::RmsNorm { epsilon } | Self::LayerNorm { epsilon } => vec![f64::from(*epsilon)],
            Self::Rotary(rotary::Rotary::HalvesTimeFirst) => vec![1.],
            Self::Rotary(_) => vec![0.],
            Self::SoftmaxLastDim | Self::Unknown { .. } => vec![],
        }
    }

    fn unknown(name: &str) -> Self {
        let reason = format!(
            "backward is not supported for {name}; detach its arguments if they need no gradient"
        );
        Self::Unknown { reason }
    }

    /// The forward pass goes on without a rule; the backward pass fails with the reason.
    fn or_reason(rule: Result<Self>) -> Self {
        rule.unwrap_or_else(|error| Self::Unknown {
            reason: error.to_string(),
        })
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
                norm::rms_norm(x, weight, grad, *epsilon as f64, &needed)?
            }
            (Self::LayerNorm { epsilon }, [x, weight, _bias]) => {
                norm::layer_norm(x, weight, grad, *epsilon as f64, &needed)?
            }
            (Self::Rotary(rotary), [x, cos, sin]) => {
                rotary.gradients(x, cos, sin, grad, &needed)?
            }
            (Self::Unknown { reason }, _) => crate::bail!("{reason}"),
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
