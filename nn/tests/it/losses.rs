//! Losses and their gradients against PyTorch, with masks and far logits, and what is refused.

use crate::golden::{GOLDEN, assert_near, number, numbers, tensor};
use candle_core::{DType, Device, Result, Tensor, Var};
use ferrotune_nn::loss::{
    BinaryCrossEntropy, BinaryFocal, CrossEntropy, Focal, Huber, Loss, Mae, Mse, cross_entropy, custom,
};
use serde_json::Value;

const CPU: Device = Device::Cpu;

fn option(value: &Value) -> Option<Vec<f64>> {
    (!value.is_null()).then(|| numbers(value))
}

fn flat(tensor: &Tensor) -> Vec<f64> {
    tensor.to_dtype(DType::F64).unwrap().flatten_all().unwrap().to_vec1().unwrap()
}

/// Rows between and after the given ones: NaN, and a wrong class, with weight 0.
fn padded(outputs: &Tensor, targets: &Tensor) -> [Tensor; 3] {
    let rows = outputs.dim(0).unwrap();
    let filled = |tensor: &Tensor, filler: f64| {
        let filler = Tensor::new(filler, &CPU).unwrap().to_dtype(tensor.dtype()).unwrap();
        let mut dims = tensor.dims().to_vec();
        dims[0] = 3;
        let filler = filler.broadcast_as(dims).unwrap();
        let (first, second) = (tensor.narrow(0, 0, 2).unwrap(), tensor.narrow(0, 2, rows - 2).unwrap());
        Tensor::cat(&[&first, &filler, &second, &filler], 0).unwrap()
    };
    let ones = Tensor::ones(rows, DType::F32, &CPU).unwrap();
    [filled(outputs, f64::NAN), filled(targets, 77.0), filled(&ones, 0.0)]
}

fn check(name: &str, loss: &dyn Loss, outputs: &Tensor, targets: &Tensor, expected: &Value) -> Result<()> {
    for (dtype, tolerance) in [(DType::F64, 1e-12), (DType::F32, 3e-6), (DType::BF16, 3e-2)] {
        let name = format!("{name} in {dtype:?}");
        let var = Var::from_tensor(&outputs.to_dtype(dtype)?)?;
        let value = loss.loss(&var, targets)?;
        assert_near(&name, flat(&value)[0], number(&expected["value"]), tolerance);
        let gradient = flat(value.backward()?.get(&var).unwrap());
        let wanted = flat(&tensor(&expected["gradient"]));
        gradient.iter().zip(&wanted).for_each(|(one, other)| assert_near(&name, *one, *other, tolerance));

        let [outputs, targets, mask] = padded(&var, targets);
        let var = Var::from_tensor(&outputs)?;
        let value = loss.weighted(&var, &targets, &mask)?;
        assert_near(&format!("{name}, padded"), flat(&value)[0], number(&expected["value"]), tolerance);
        let gradient = flat(value.backward()?.get(&var).unwrap());
        let [wanted, ..] = padded(
            &tensor(&expected["gradient"]),
            &targets.narrow(0, 0, expected["gradient"].as_array().unwrap().len())?,
        );
        for (one, other) in gradient.iter().zip(flat(&wanted)) {
            assert_near(&format!("{name}, padded"), *one, if other.is_nan() { 0.0 } else { other }, tolerance);
        }
    }
    Ok(())
}

#[test]
fn losses_and_gradients_are_those_of_pytorch() -> Result<()> {
    let golden = &GOLDEN["losses"];
    let (logits, inputs) = (tensor(&golden["logits"]), tensor(&golden["inputs"]));
    for case in golden["cross_entropy"].as_array().unwrap() {
        let loss = CrossEntropy {
            ignore_index: case["ignored"].as_i64(),
            class_weights: option(&case["weights"]),
            label_smoothing: number(&case["smoothing"]),
        };
        check(&format!("{loss:?}"), &loss, &logits, &tensor(&case["labels"]).to_dtype(DType::I64)?, case)?;
    }
    for case in golden["focal"].as_array().unwrap() {
        let loss = Focal { gamma: number(&case["gamma"]), class_weights: option(&case["weights"]), ..Focal::default() };
        check(&format!("{loss:?}"), &loss, &logits, &tensor(&case["labels"]).to_dtype(DType::U8)?, case)?;
    }
    for case in golden["binary"].as_array().unwrap() {
        let loss = BinaryCrossEntropy { pos_weight: option(&case["pos_weight"]) };
        check(&format!("{loss:?}"), &loss, &inputs, &tensor(&case["targets"]), case)?;
    }
    for case in golden["binary_focal"].as_array().unwrap() {
        let alpha = Some(number(&case["alpha"])).filter(|alpha| *alpha >= 0.0);
        let loss = BinaryFocal { alpha, gamma: number(&case["gamma"]) };
        check(&format!("{loss:?}"), &loss, &inputs, &tensor(&case["targets"]).to_dtype(DType::U32)?, case)?;
    }
    for case in golden["numbers"].as_array().unwrap() {
        let loss: Box<dyn Loss> = match case["kind"].as_str().unwrap() {
            "mse" => Box::new(Mse),
            "mae" => Box::new(Mae),
            _ => Box::new(Huber { delta: 1.5 }),
        };
        check(case["kind"].as_str().unwrap(), &loss, &inputs, &tensor(&case["targets"]), case)?;
    }
    Ok(())
}

fn classifiers() -> Vec<(&'static str, Box<dyn Loss>)> {
    vec![
        ("cross-entropy", Box::new(CrossEntropy::default())),
        ("smoothed", Box::new(CrossEntropy { label_smoothing: 0.1, ..CrossEntropy::default() })),
        ("focal", Box::new(Focal::default())),
        ("focal 0.5", Box::new(Focal { gamma: 0.5, ..Focal::default() })),
    ]
}

fn others() -> Vec<(&'static str, Box<dyn Loss>)> {
    vec![
        ("binary", Box::new(BinaryCrossEntropy::default())),
        ("binary focal", Box::new(BinaryFocal::default())),
        ("binary focal 0.5", Box::new(BinaryFocal { alpha: None, gamma: 0.5 })),
        ("mse", Box::new(Mse)),
        ("mae", Box::new(Mae)),
        ("huber", Box::new(Huber::default())),
    ]
}

#[test]
fn far_logits_have_finite_losses_and_gradients() -> Result<()> {
    let far = [0_f32, 1e4, -1e4, 30.0, -120.0, 1e30, -1e30];
    for (name, loss) in classifiers().into_iter().chain(others()) {
        for (one, other) in far.iter().flat_map(|one| far.iter().map(move |other| (*one, *other))) {
            if name == "mse" && (one.abs() > 1e9 || other.abs() > 1e9) {
                continue;
            }
            let is_classes = classifiers().iter().any(|(classifier, _)| *classifier == name);
            let outputs = if is_classes {
                Var::new(&[[one, other], [other, one]], &CPU)?
            } else {
                Var::new(&[one, other], &CPU)?
            };
            let loss = loss.loss(&outputs, &Tensor::new(&[0_u32, 1], &CPU)?)?;
            let gradients = flat(loss.backward()?.get(&outputs).unwrap());
            assert!(loss.to_scalar::<f32>()?.is_finite(), "{name}: {one}, {other}");
            assert!(gradients.iter().all(|gradient| gradient.is_finite()), "{name}: {one}, {other}: {gradients:?}");
        }
    }
    Ok(())
}

#[test]
fn one_logit_is_the_second_of_two_classes() -> Result<()> {
    let logits = Tensor::new(&[0.5_f32, -2.0, 3.0], &CPU)?;
    let labels = Tensor::new(&[1_u32, 0, 0], &CPU)?;
    let expected = flat(&BinaryCrossEntropy::default().loss(&logits, &labels)?)[0];
    for logits in [logits.clone(), logits.unsqueeze(1)?] {
        assert_near("one logit", flat(&CrossEntropy::default().loss(&logits, &labels)?)[0], expected, 1e-6);
    }
    Ok(())
}

#[test]
fn terms_of_batches_add_up() -> Result<()> {
    let logits = Tensor::randn(0_f64, 2.0, (10, 3), &CPU)?;
    let labels = Tensor::new(&[0_i64, 1, 2, 1, -100, 0, 2, 2, 1, 0], &CPU)?;
    let loss =
        CrossEntropy { ignore_index: Some(-100), class_weights: Some(vec![1.0, 2.0, 0.5]), label_smoothing: 0.2 };
    let (mut sum, mut divisor) = (0.0, 0.0);
    for (start, len) in [(0, 3), (3, 6), (9, 1)] {
        let terms = loss.terms(&logits.narrow(0, start, len)?, &labels.narrow(0, start, len)?, None)?;
        sum += flat(&terms.0)[0];
        divisor += flat(&terms.1)[0];
    }
    assert_near("terms", sum / divisor, flat(&loss.loss(&logits, &labels)?)[0], 1e-12);
    Ok(())
}

#[test]
fn no_row_is_not_a_number() -> Result<()> {
    let (logits, targets) = (Tensor::zeros((2, 2), DType::F32, &CPU)?, Tensor::zeros(2, DType::U32, &CPU)?);
    let none = Tensor::zeros(2, DType::F32, &CPU)?;
    for (name, loss) in classifiers() {
        assert!(loss.weighted(&logits, &targets, &none)?.to_scalar::<f32>()?.is_nan(), "{name}");
    }
    for (name, loss) in others() {
        assert!(loss.weighted(&none, &targets, &none)?.to_scalar::<f32>()?.is_nan(), "{name}");
    }
    Ok(())
}

#[test]
fn what_does_not_fit_is_refused() -> Result<()> {
    let zeros = |dims: &[usize], dtype| Tensor::zeros(dims, dtype, &CPU);
    for (name, loss) in others() {
        for (outputs, targets) in
            [(&[4_usize, 1][..], &[1_usize, 4][..]), (&[4], &[1, 4]), (&[4, 2], &[4]), (&[4], &[5]), (&[], &[])]
        {
            assert!(loss.loss(&zeros(outputs, DType::F32)?, &zeros(targets, DType::F32)?).is_err(), "{name}");
        }
    }
    let (logits, labels) = (zeros(&[2, 3], DType::F32)?, zeros(&[2], DType::U32)?);
    let refused = |loss: &dyn Loss, labels: &Tensor, text: &str| {
        let error = loss.loss(&logits, labels).unwrap_err().to_string();
        assert!(error.contains(text), "{error}");
    };
    let plain = CrossEntropy::default();
    refused(&plain, &zeros(&[2], DType::F32)?, "convert them with `to_dtype(DType::U32)`");
    refused(&plain, &Tensor::new(&[0_u32, 3], &CPU)?, "is no class");
    refused(&plain, &Tensor::new(&[0_i64, -100], &CPU)?, "is no class");
    refused(&plain, &Tensor::new(&[0_u32, u32::MAX], &CPU)?, "is no class");
    refused(&CrossEntropy { label_smoothing: 1.5, ..plain.clone() }, &labels, "label smoothing 1.5");
    refused(&CrossEntropy { class_weights: Some(vec![1.0; 2]), ..plain.clone() }, &labels, "2 weights for 3 classes");
    refused(&CrossEntropy { class_weights: Some(vec![f64::NAN; 3]), ..plain }, &labels, "the weight NaN");
    refused(&Focal { gamma: -1.0, ..Focal::default() }, &labels, "gamma -1");
    refused(&BinaryFocal { alpha: Some(2.0), gamma: 2.0 }, &labels, "alpha 2");
    refused(&Huber { delta: 0.0 }, &labels, "delta 0");
    refused(&custom(|outputs, _| outputs.sum_all()), &labels, "return a number for each row");
    assert!(cross_entropy(&Tensor::new(1_f32, &CPU)?, &labels, 0).is_err());
    Ok(())
}

#[test]
fn a_loss_of_ones_own_is_masked() -> Result<()> {
    let loss = custom(|outputs, targets| (outputs.log()? * targets)?.neg());
    let outputs = Var::new(&[2_f32, f32::NAN], &CPU)?;
    let targets = Tensor::new(&[1_f32, 0.0], &CPU)?;
    let mask = Tensor::new(&[1_f32, 0.0], &CPU)?;
    let value = loss.weighted(&outputs, &targets, &mask)?;
    assert_eq!(value.to_scalar::<f32>()?, -2_f32.ln());
    assert_eq!(flat(value.backward()?.get(&outputs).unwrap()), [-0.5, 0.0]);
    Ok(())
}
