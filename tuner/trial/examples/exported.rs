//! The program of `docs/tables.md` that reads a model of `ferrotune export` with candle alone; `tests/test_fit.py` runs it.
#![expect(clippy::print_stdout, reason = "the program prints its prediction")]

use candle_core::{DType, Device, Result, Tensor};
use candle_nn::{Activation, Module, VarBuilder, linear, seq};

fn main() -> Result<()> {
    let weights = std::fs::read("model/model.safetensors")?;
    let vb = VarBuilder::from_buffered_safetensors(weights, DType::F32, &Device::Cpu)?;
    let model = seq().add(linear(3, 8, vb.pp("0"))?).add(Activation::Relu).add(linear(8, 1, vb.pp("2"))?);
    let row = Tensor::new(&[[0.5f32, -1.0, 2.0]], &Device::Cpu)?;
    println!("{}", model.forward(&row)?.to_vec2::<f32>()?[0][0]);
    Ok(())
}
