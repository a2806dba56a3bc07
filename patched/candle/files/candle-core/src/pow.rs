//! A tensor to the power of another one.
use crate::cpu_backend::binary_map;
use crate::backend::BackendStorage;
use crate::{CpuStorage, CustomOp2, Error, Layout, Result, Shape, Tensor};
use half::{bf16, f16};

/// `base` to the power of `exponent`, as C's `pow` has it: a negative base is defined where the exponent is a whole number.
pub(crate) fn pow(base: &Tensor, exponent: &Tensor) -> Result<Tensor> {
    if base.dtype().is_int() {
        return Err(crate::tensor::no_floats(base.dtype(), "pow"));
    }
    base.same_shape_binary_op(exponent, "pow")?;
    if base.device().is_cuda() {
        return exponent.mul(&base.log()?)?.exp();
    }
    base.apply_op2_no_bwd(exponent, &Pow)
}

/// The gradients of base and exponent, where each is needed.
pub(crate) fn gradients(
    base: &Tensor,
    exponent: &Tensor,
    power: &Tensor,
    grad: &Tensor,
    needed: &[bool],
) -> Result<Vec<Option<Tensor>>> {
    let of_base = || {
        // The power of zero is a constant, also at zero and infinity, where the rule gives 0 * inf.
        let is_constant = exponent.eq(&exponent.zeros_like()?)?;
        let lower = is_constant.where_cond(&exponent.ones_like()?, &exponent.affine(1., -1.)?)?;
        let of_base = exponent.mul(&pow(base, &lower)?)?;
        grad.mul(&is_constant.where_cond(&of_base.zeros_like()?, &of_base)?)
    };
    let of_exponent = || {
        // The powers of zero are zero around a positive exponent.
        let is_zero = base.eq(&base.zeros_like()?)?;
        let log = is_zero.where_cond(&base.ones_like()?, base)?.log()?;
        grad.mul(&power.mul(&log)?)
    };
    Ok(vec![
        needed[0].then(of_base).transpose()?,
        needed[1].then(of_exponent).transpose()?,
    ])
}

struct Pow;

impl CustomOp2 for Pow {
    fn name(&self) -> &'static str {
        "pow"
    }

    fn cpu_fwd(
        &self,
        s1: &CpuStorage,
        l1: &Layout,
        s2: &CpuStorage,
        l2: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        use CpuStorage as C;
        let storage = match (s1, s2) {
            (C::BF16(x), C::BF16(y)) => C::BF16(binary_map(l1, l2, x, y, |x, y| {
                bf16::from_f32(x.to_f32().powf(y.to_f32()))
            })),
            (C::F16(x), C::F16(y)) => C::F16(binary_map(l1, l2, x, y, |x, y| {
                f16::from_f32(x.to_f32().powf(y.to_f32()))
            })),
            (C::F32(x), C::F32(y)) => C::F32(binary_map(l1, l2, x, y, f32::powf)),
            (C::F64(x), C::F64(y)) => C::F64(binary_map(l1, l2, x, y, f64::powf)),
            (s1, s2) if s1.dtype() != s2.dtype() => Err(Error::DTypeMismatchBinaryOp {
                lhs: s1.dtype(),
                rhs: s2.dtype(),
                op: "pow",
            }
            .bt())?,
            (s1, _) => Err(Error::UnsupportedDTypeForOp(s1.dtype(), "pow").bt())?,
        };
        Ok((storage, l1.shape().clone()))
    }
}
