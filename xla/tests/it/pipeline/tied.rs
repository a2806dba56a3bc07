//! Tests of variables that two stages use.

use crate::plugin;
use candle_core::{DType, Device, Result, Tensor, Var};
use ferrotune_xla::{Pipeline, Stage};

#[test]
fn a_variable_of_another_stage_is_refused() -> Result<()> {
    for device in [Device::Cpu, plugin::open()?] {
        let var = || Var::ones((2, 2), DType::F32, &device);
        let (first, second) = (var()?, var()?);
        let (own, tied) = (first.clone(), first.clone());
        let last = second.clone();
        let stages = vec![
            Stage::new(vec![first], move |x| x.matmul(&own), |_| Ok(())),
            Stage::new(vec![second], move |x| x.matmul(&last)?.matmul(&tied.t()?), |_| Ok(())),
        ];
        let mut pipeline = Pipeline::new(stages, |output, _| output.mean_all(), 1)?;
        let x = Tensor::ones((2, 2), DType::F32, &device)?;
        let error = pipeline.run(&x, &x).err().map_or(String::new(), |error| error.to_string());
        assert!(error.starts_with("stage 2 of the pipeline uses a variable of stage 1"), "{error}");
    }
    Ok(())
}
