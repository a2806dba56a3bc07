//! Tests of mixed precision.

use crate::plugin;
use candle_core::{DType, Device, Result, Tensor, Var};
use ferrotune_xla::{Step, autocast};

/// The nearest number of type `bf16`, as `f32`.
fn rounded(x: &Tensor) -> Result<Tensor> {
    x.to_dtype(DType::BF16)?.to_dtype(DType::F32)
}

fn difference(x: &Tensor, y: &Tensor) -> Result<f32> {
    (x.to_device(&Device::Cpu)? - y.to_device(&Device::Cpu)?)?.abs()?.max_all()?.to_scalar()
}

#[test]
fn products_multiply_in_bf16_and_add_in_f32() -> Result<()> {
    let device = plugin::open()?;
    let cpu = Device::Cpu;
    let (x, y) = (Tensor::randn(0f32, 1., (3, 300), &cpu)?, Tensor::randn(0f32, 1., (300, 5), &cpu)?);
    let (image, kernel) = (Tensor::randn(0f32, 1., (2, 3, 7, 6), &cpu)?, Tensor::randn(0f32, 1., (4, 3, 3, 3), &cpu)?);
    let products = |x: &Tensor, y: &Tensor, image: &Tensor, kernel: &Tensor| {
        let transposed = image.conv_transpose2d(&kernel.transpose(0, 1)?.contiguous()?, 1, 0, 2, 1)?;
        Ok([x.matmul(y)?, image.conv2d(kernel, 1, 1, 1, 1)?, transposed])
    };
    let wanted = products(&rounded(&x)?, &rounded(&y)?, &rounded(&image)?, &rounded(&kernel)?)?;
    let there = [x, y, image, kernel].map(|tensor| tensor.to_device(&device));
    let [x, y, image, kernel] = there;
    let [x, y, image, kernel] = [x?, y?, image?, kernel?];
    let mixed = autocast(&device, DType::BF16, || products(&x, &y, &image, &kernel))?;
    let full = autocast(&device, DType::F32, || products(&x, &y, &image, &kernel))?;
    for ((wanted, mixed), full) in wanted.iter().zip(&mixed).zip(&full) {
        assert_eq!(mixed.dtype(), DType::F32);
        // Sums of 300 numbers in `bf16` would differ by far more.
        assert!(difference(wanted, mixed)? < 2e-5, "{}", difference(wanted, mixed)?);
        assert!(difference(wanted, full)? > 1e-3, "the factors were rounded without `autocast`");
    }
    Ok(())
}

#[test]
fn gradients_in_a_compiled_step_multiply_in_bf16_too() -> Result<()> {
    let device = plugin::open()?;
    let x = Tensor::randn(0f32, 1., (8, 16), &Device::Cpu)?;
    let weights = Tensor::randn(0f32, 1., (16, 4), &Device::Cpu)?;
    // The gradient of the sum is the same number for each output, which `bf16` has exactly.
    let wanted = rounded(&x)?.t()?.matmul(&Tensor::ones((8, 4), DType::F32, &Device::Cpu)?)?;
    let var = Var::from_tensor(&weights.to_device(&device)?)?;
    let mut step = Step::new(&device, |arguments: &[Tensor]| {
        autocast(arguments[0].device(), DType::BF16, || {
            let grads = arguments[0].matmul(&var)?.sum_all()?.backward()?;
            Ok(vec![grads.get(&var).expect("a gradient").clone()])
        })
    });
    let gradient = step.run(&[x.to_device(&device)?])?.swap_remove(0);
    assert!(difference(&wanted, &gradient)? < 1e-5);
    Ok(())
}

#[test]
fn the_earlier_precision_returns_after_a_panic_and_wrong_types_are_refused() -> Result<()> {
    let device = plugin::open()?;
    let x = Tensor::full(1.001_f32, (1, 1), &device)?;
    let panic = || autocast(&device, DType::BF16, || -> Result<()> { panic!("a panic of the user's") });
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(panic)).is_err());
    let product = x.matmul(&x)?.flatten_all()?.to_vec1::<f32>()?[0];
    assert_eq!(product, 1.001_f32 * 1.001);
    let refused = autocast(&Device::Cpu, DType::BF16, || Ok(())).expect_err("the CPU has no compiler").to_string();
    assert!(
        refused.contains("needs a device with a compiler") && refused.contains("choose DType::F32 here"),
        "{refused}"
    );
    let refused = autocast(&device, DType::F16, || Ok(())).expect_err("no such precision").to_string();
    assert!(refused.contains("in bf16, not in f16"), "{refused}");
    Ok(())
}
