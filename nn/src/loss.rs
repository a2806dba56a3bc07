//! Losses that candle-nn does not have.

use candle_core::{D, DType, Error, Result, Tensor, bail};

/// The mean cross-entropy of the rows whose label is not `ignore_index`, such as the padding of a text.
///
/// `logits` has shape (…, classes) and a floating-point type, `labels` has shape (…) and an integer type. The result has no
/// dimensions and the type of the logits; sums of 16-bit floats are computed in `f32`. If all rows are ignored, the result is NaN.
/// The gradient of an ignored row is 0. This is PyTorch's
/// [`cross_entropy`](https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.cross_entropy.html) with
/// `ignore_index`, except that there the classes are the second dimension.
///
/// # Errors
/// If the shapes do not match, or if another label is not a class. On a plugin's device the second error comes when the loss is read.
///
/// ```
/// use candle_core::{Device, Tensor};
/// use ferrotune_nn::loss::cross_entropy;
/// let logits = Tensor::new(&[[0_f32, 0.0], [2.0, 1.0]], &Device::Cpu)?;
/// let labels = Tensor::new(&[1_i64, -100], &Device::Cpu)?;
/// let loss = cross_entropy(&logits, &labels, -100)?.to_scalar::<f32>()?;
/// assert!((loss - 2_f32.ln()).abs() < 1e-6);
/// # Ok::<(), candle_core::Error>(())
/// ```
pub fn cross_entropy(logits: &Tensor, labels: &Tensor, ignore_index: i64) -> Result<Tensor> {
    let Some((classes, rows)) = logits.dims().split_last() else {
        bail!("the logits of a cross-entropy have no classes")
    };
    if labels.dims() != rows {
        bail!("logits of shape {:?} have labels of shape {rows:?}, not {:?}", logits.dims(), labels.dims());
    }
    let logits = logits.reshape(((), *classes))?;
    let labels = labels.to_dtype(DType::I64)?.flatten_all()?;
    let is_ignored = labels.eq(ignore_index)?;
    // In an ignored row any class will do, and its logits may be NaN or infinite.
    let places = is_ignored.where_cond(&labels.zeros_like()?, &labels)?.unsqueeze(1)?;
    let is_ignored_row = is_ignored.unsqueeze(1)?.broadcast_as(logits.shape())?;
    let logits = is_ignored_row.where_cond(&logits.zeros_like()?, &logits)?;
    logits.in_f32(|logits| {
        let log_probabilities = candle_nn::ops::log_softmax(logits, D::Minus1)?;
        let of_labels = log_probabilities.gather(&places, 1).map_err(no_class)?.squeeze(1)?;
        let of_labels = is_ignored.where_cond(&of_labels.zeros_like()?, &of_labels)?;
        let count = is_ignored.eq(0_u8)?.sum_all()?.to_dtype(of_labels.dtype())?;
        of_labels.sum_all()?.neg()?.div(&count)
    })
}

fn no_class(error: Error) -> Error {
    error.context("a label of the cross-entropy is no class and not the one that is left out")
}

#[cfg(test)]
mod tests {
    use super::*;
    use candle_core::{Device, Var};

    #[test]
    fn rows_that_are_left_out_count_neither_in_the_loss_nor_in_the_gradient() -> Result<()> {
        let numbers = [[[0.5_f32, -1.0, 2.0], [f32::NAN, 0.0, 0.0]], [[1.0, 1.0, 1.0], [3.0, -2.0, 0.0]]];
        let logits = Var::new(&numbers, &Device::Cpu)?;
        for ignored in [-100_i64, 4_294_967_295] {
            let labels = Tensor::new(&[[2_i64, ignored], [0, 1]], &Device::Cpu)?;
            let loss = cross_entropy(&logits, &labels, ignored)?;
            let counted = logits.flatten_to(1)?.index_select(&Tensor::new(&[0_u32, 2, 3], &Device::Cpu)?, 0)?;
            let expected = candle_nn::loss::cross_entropy(&counted, &Tensor::new(&[2_u32, 0, 1], &Device::Cpu)?)?;
            assert_eq!(loss.to_scalar::<f32>()?, expected.to_scalar::<f32>()?);
            let gradients = loss.backward()?;
            let gradient = gradients.get(&logits).expect("a variable has a gradient").to_vec3::<f32>()?;
            assert_eq!(gradient[0][1], [0.0; 3]);
            let sum: f32 = gradient[0][0].iter().chain(&gradient[1][0]).chain(&gradient[1][1]).sum();
            assert!(sum.abs() < 1e-6, "{gradient:?}");
        }
        Ok(())
    }

    #[test]
    fn no_row_at_all_is_nan_and_another_label_an_error() -> Result<()> {
        let logits = Tensor::zeros((1, 3), DType::F32, &Device::Cpu)?;
        let label = |label: i64| Tensor::new(&[label], &Device::Cpu);
        assert!(cross_entropy(&logits, &label(-1)?, -1)?.to_scalar::<f32>()?.is_nan());
        let error = cross_entropy(&logits, &label(-2)?, -1).expect_err("-2 is no class").to_string();
        assert!(error.contains("invalid index -2") && error.contains("a label of the cross-entropy"), "{error}");
        let error = cross_entropy(&logits, &Tensor::zeros((1, 1), DType::I64, &Device::Cpu)?, -1);
        assert!(error.expect_err("the shapes differ").to_string().contains("have labels of shape [1], not [1, 1]"));
        Ok(())
    }
}
