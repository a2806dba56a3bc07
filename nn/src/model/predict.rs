//! Predictions in batches of bounded size, without what training needs.

use super::Model;
use candle_core::{Result, Tensor, bail};

pub(super) fn in_batches<M: Model + ?Sized>(model: &M, rows: &Tensor, batch: usize) -> Result<Tensor> {
    let Some(&count) = rows.dims().first() else {
        bail!("a scalar has no rows to predict; give it a first dimension with `unsqueeze(0)`")
    };
    if batch == 0 {
        bail!("predictions in batches of 0 rows never end; take 1 or more")
    }
    if count == 0 {
        // No layer is asked for an empty batch, which some refuse. One row tells the shape and type of the outputs.
        let mut dims = rows.dims().to_vec();
        dims[0] = 1;
        let row = Tensor::zeros(dims, rows.dtype(), rows.device())?;
        return without_gradients(model, &row)?.narrow(0, 0, 0);
    }
    if count <= batch {
        return outputs_of(model, rows, 0, count);
    }
    let mut outputs = Vec::new();
    for start in (0..count).step_by(batch) {
        let of_batch = outputs_of(model, rows, start, batch.min(count - start))?;
        // A device that computes when values are needed would otherwise compute all batches at once, with the memory for all.
        of_batch.device().synchronize()?;
        outputs.push(of_batch);
    }
    Tensor::cat(&outputs, 0)
}

fn outputs_of<M: Model + ?Sized>(model: &M, rows: &Tensor, start: usize, len: usize) -> Result<Tensor> {
    let outputs = without_gradients(model, &rows.narrow(0, start, len)?.contiguous()?)?;
    if outputs.dims().first() != Some(&len) {
        bail!("the model makes outputs of shape {:?} from {len} rows; give each row its own output", outputs.dims())
    }
    Ok(outputs)
}

/// The outputs in evaluation, on the model's device, without the intermediate values that a gradient needs.
pub(super) fn without_gradients<M: Model + ?Sized>(model: &M, rows: &Tensor) -> Result<Tensor> {
    let rows = match model.device() {
        Some(device) if !device.same_device(rows.device()) => rows.to_device(&device)?,
        _ => rows.clone(),
    };
    Ok(model.forward(&rows.detach(), false)?.detach())
}
