//! Tests that the operation which makes the first NaN or infinity is found: on the CPU, lazily on a plugin, and in compiled steps.
//!
//! The test runs in a process of its own, because anomaly detection examines all operations of a process.

use crate::plugin;
use candle_core::{DType, Device, Result, Tensor, Var, anomaly};
use ferrotune_xla::Step;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::Command;

#[test]
fn anomalies_are_found() -> Result<()> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["--ignored", "--exact", "--test-threads=1", "anomaly::on_all_devices"]);
    let output = command.output()?;
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("running 1 test"), "{said}");
    Ok(())
}

/// The text of the anomaly that a computation panics with; empty if there is none.
fn found(compute: impl FnOnce() -> Result<()>) -> Result<String> {
    match catch_unwind(AssertUnwindSafe(compute)) {
        Ok(result) => result.map(|()| String::new()),
        Err(payload) => {
            let text = payload.downcast_ref::<String>().expect("a text").clone();
            assert_eq!(anomaly::take().map(|found| found.to_string()), Some(text.clone()));
            Ok(text)
        }
    }
}

#[test]
#[ignore = "needs a process of its own"]
fn on_all_devices() -> Result<()> {
    anomaly::detect(true);
    for device in [Device::Cpu, plugin::open()?] {
        forward(&device)?;
        backward(&device)?;
        masks(&device)?;
        compiled(&device)?;
    }
    anomaly::detect(false);
    assert_eq!(found(|| Tensor::zeros(2, DType::F32, &Device::Cpu)?.log().map(drop))?, "");
    Ok(())
}

fn forward(device: &Device) -> Result<()> {
    let x = Tensor::new(&[[1f32, 2.], [0., 3.]], device)?;
    let log = "log(f32[2, 2]) has made -inf, which its inputs had not: element [1, 0] of the result f32[2, 2]";
    assert_eq!(found(|| x.log().map(drop))?, log);
    let div =
        "div(f32[2, 2], f32[2, 2]) has made inf, which its inputs had not: element [1, 0] of the result f32[2, 2]";
    assert_eq!(found(|| x.ones_like()?.div(&x).map(drop))?, div);
    assert!(found(|| x.div(&x).map(drop))?.contains(" has made NaN, "));
    assert!(
        found(|| (x.clone() * 1e38)?.matmul(&(x.clone() * 1e38)?).map(drop))?
            .starts_with("matmul(f32[2, 2], f32[2, 2])")
    );
    assert!(
        found(|| (x.clone() * 1e20)?.to_dtype(DType::F16).map(drop))?.starts_with("to_dtype(f32[2, 2]) has made inf")
    );
    let custom =
        found(|| candle_nn::ops::softmax_last_dim(&Tensor::full(f32::NEG_INFINITY, (1, 3), device)?).map(drop))?;
    assert!(custom.starts_with("softmax_last_dim(f32[1, 3]) has made NaN"), "{custom}");
    Ok(())
}

fn backward(device: &Device) -> Result<()> {
    let x = Var::new(&[4f32, 0.], device)?;
    let expected = "in the gradient of sqrt(f32[2]): div(f32[2], f32[2]) has made inf, which its inputs had not: element [1] of \
                    the result f32[2]";
    assert_eq!(found(|| x.sqrt()?.sum_all()?.backward().map(drop))?, expected);
    Ok(())
}

/// Checks that infinities which the user makes are no anomaly, and neither are values that follow from them.
fn masks(device: &Device) -> Result<()> {
    let calm = || {
        let x = Var::new(&[[1f32, 2.], [3., 4.]], device)?;
        let mask = Tensor::new(&[[0u8, 1], [0, 0]], device)?;
        let least = Tensor::new(f32::NEG_INFINITY, device)?.broadcast_as((2, 2))?;
        let scores = mask.where_cond(&least, &x)?;
        let added = x.add(&Tensor::new(&[[0f32, f32::NEG_INFINITY], [0., 0.]], device)?)?;
        let loss = (candle_nn::ops::softmax_last_dim(&scores)? + candle_nn::ops::softmax(&added, 1)?)?.sum_all()?;
        loss.backward()?;
        (x.as_tensor() + f64::NEG_INFINITY)?;
        x.clamp(f64::NEG_INFINITY, 2.)?;
        Tensor::from_vec(vec![f32::NAN], 1, device)?.sqr().map(drop)
    };
    assert_eq!(found(calm)?, "");
    Ok(())
}

/// Checks that a compiled step finds the operation too, and that its variables keep their values from before the run.
fn compiled(device: &Device) -> Result<()> {
    let weight = Var::ones(2, DType::F32, device)?;
    let mut step = Step::new(device, |x: &[Tensor]| {
        let noise = x[0].randn_like(0., 1.)?;
        let loss = (x[0].log()? * weight.as_tensor())?.add(&noise)?.sum_all()?;
        weight.set(&(weight.as_tensor() + 1.)?)?;
        Ok(vec![loss])
    });
    let good = Tensor::new(&[1f32, 2.], device)?;
    let bad = Tensor::new(&[1f32, 0.], device)?;
    assert_eq!(found(|| step.run(std::slice::from_ref(&good)).map(drop))?, "");
    let expected = "log(f32[2]) has made -inf, which its inputs had not: element [1] of the result f32[2]";
    assert_eq!(found(|| step.run(std::slice::from_ref(&bad)).map(drop))?, expected);
    assert_eq!(weight.to_vec1::<f32>()?, [2., 2.]);
    assert_eq!(found(|| step.run(std::slice::from_ref(&good)).map(drop))?, "");
    assert_eq!(weight.to_vec1::<f32>()?, [3., 3.]);
    Ok(())
}
