//! Models, losses and metrics in compiled steps on XLA:CPU: they read nothing, and their numbers are those of the CPU.

use candle_core::{DType, Device, Result, Tensor, bail};
use candle_nn::{Optimizer, SGD};
use ferrotune_nn::loss::{BinaryCrossEntropy, BinaryFocal, CrossEntropy, Focal, Huber, Loss, Mae, Mse, custom};
use ferrotune_nn::metrics::{self, Meter, Metric};
use ferrotune_nn::{self as nn, Model};
use ferrotune_xla::Step;
use std::path::{Path, PathBuf};

const CPU: Device = Device::Cpu;
const ROWS: usize = 12;

/// Opens XLA:CPU, whose plugin `cargo xtask` installs for the tests.
fn xla() -> Result<Device> {
    if let Some(path) = std::env::var_os("FERROTUNE_XLA_CPU") {
        return ferrotune_xla::open(Path::new(&path));
    }
    let libraries = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/venv/lib");
    let plugin = |python: std::fs::DirEntry| -> PathBuf {
        python.path().join("site-packages/fastatomstruct_xla_cpu/libpjrt_cpu.so")
    };
    let pythons = std::fs::read_dir(&libraries).into_iter().flatten().flatten();
    match pythons.map(plugin).find(|path| path.is_file()) {
        Some(path) => ferrotune_xla::open(&path),
        None => bail!("there is no fastatomstruct-xla-cpu in {}; `cargo xtask test` installs it", libraries.display()),
    }
}

/// Outputs of three classes, labels of which the last three are padding, and the mask.
fn rows(device: &Device) -> Result<[Tensor; 3]> {
    let wave = |count: usize, by: f64| Tensor::arange(0_f32, count as f32, &CPU)?.affine(by, 0.4)?.sin();
    let mut labels: Vec<u32> = (0..ROWS as u32).map(|row| row * 5 % 3).collect();
    labels[ROWS - 3..].fill(7);
    let mask = (0..ROWS).map(|row| if row < ROWS - 3 { 1_f32 } else { 0.0 }).collect::<Vec<_>>();
    let outputs = (wave(ROWS * 3, 1.7)? * 3.0)?.reshape((ROWS, 3))?;
    let tensors = [outputs, Tensor::new(labels, &CPU)?, Tensor::new(mask, &CPU)?];
    let [one, two, three] = tensors.map(|tensor| tensor.to_device(device));
    Ok([one?, two?, three?])
}

fn flat(tensor: &Tensor) -> Vec<f64> {
    tensor.to_device(&CPU).unwrap().to_dtype(DType::F64).unwrap().flatten_all().unwrap().to_vec1().unwrap()
}

fn assert_close(name: &str, found: &Tensor, expected: &Tensor) {
    for (found, expected) in flat(found).iter().zip(flat(expected)) {
        let is_close = (found - expected).abs() <= 1e-5 * expected.abs().max(1.0);
        assert!(is_close || (found.is_nan() && expected.is_nan()), "{name}: {found} instead of {expected}");
    }
}

#[test]
fn losses_and_metrics_in_a_step_are_those_of_the_cpu() -> Result<()> {
    let device = xla()?;
    let squares = |outputs: &Tensor, targets: &Tensor| (outputs.sum(1)? - targets.to_dtype(outputs.dtype())?)?.sqr();
    let class_weights = Some(vec![1.0, 0.5, 2.0]);
    let classifiers: Vec<Box<dyn Loss>> = vec![
        Box::new(CrossEntropy { ignore_index: Some(1), class_weights: class_weights.clone(), label_smoothing: 0.1 }),
        Box::new(Focal { class_weights, ..Focal::default() }),
        Box::new(custom(squares)),
    ];
    let numbers: Vec<Box<dyn Loss>> = vec![
        Box::new(BinaryCrossEntropy { pos_weight: Some(vec![2.0]) }),
        Box::new(BinaryFocal::default()),
        Box::new(Mse),
        Box::new(Mae),
        Box::new(Huber::default()),
    ];
    let of_classes: Vec<Box<dyn Metric>> = vec![
        Box::new(*metrics::accuracy().metric()),
        Box::new(*metrics::top_k(2).metric()),
        Box::new(*metrics::f1().metric()),
        Box::new(*metrics::auc().metric()),
        Box::new(*metrics::confusion_matrix().metric()),
        Box::new(*metrics::mean(squares).metric()),
    ];
    let of_numbers: Vec<Box<dyn Metric>> = vec![
        Box::new(*metrics::mae().metric()),
        Box::new(*metrics::rmse().metric()),
        Box::new(*metrics::r2().metric()),
        Box::new(*metrics::f1().metric()),
    ];
    let all = |arguments: &[Tensor]| -> Result<Vec<Tensor>> {
        let [outputs, labels, mask] = arguments else { bail!("three arguments") };
        let logit = outputs.narrow(1, 1, 1)?;
        let is_one = labels.eq(1_u32)?;
        let mut results = Vec::new();
        for loss in &classifiers {
            let var = candle_core::Var::from_tensor(outputs)?;
            let loss = loss.weighted(&var, labels, mask)?;
            results.push(loss.clone());
            results.extend(loss.backward()?.get(&var).cloned());
        }
        for loss in &numbers {
            results.push(loss.weighted(&logit, &is_one, mask)?);
        }
        for metric in &of_classes {
            results.push(metric.measure(outputs, labels, Some(mask))?);
        }
        for metric in &of_numbers {
            results.push(metric.measure(&logit, &is_one, Some(mask))?);
        }
        Ok(results)
    };
    let expected = all(&rows(&CPU)?)?;
    let found = Step::new(&device, all).run(&rows(&device)?)?;
    assert_eq!(found.len(), expected.len());
    for (place, (found, expected)) in found.iter().zip(&expected).enumerate() {
        assert_eq!(found.dims(), expected.dims());
        assert_close(&format!("result {place}"), found, expected);
    }
    Ok(())
}

/// Trains on the device for some epochs by one compiled step with a padded batch, and returns the losses and the F1 of the last epoch.
fn train(device: &Device, model: &nn::Sequential) -> Result<(Vec<f64>, f64)> {
    let mut optimizer = SGD::new(model.trainable(), 0.3)?;
    let mut f1: Meter<_> = metrics::f1();
    let metric = *f1.metric();
    let mut step = Step::new(device, |arguments: &[Tensor]| {
        let outputs = model.forward(&arguments[0], true)?;
        let loss = CrossEntropy::default().weighted(&outputs, &arguments[1], &arguments[2])?;
        optimizer.backward_step(&loss)?;
        Ok(vec![loss, metric.measure(&outputs, &arguments[1], Some(&arguments[2]))?])
    });
    let mut losses = Vec::new();
    for _ in 0..15 {
        f1.reset();
        let results = step.run(&rows(device)?)?;
        losses.push(flat(&results[0])[0]);
        f1.add(results[1].clone())?;
    }
    Ok((losses, f1.value()?))
}

#[test]
fn a_model_trains_in_a_compiled_step_and_its_file_moves_between_devices() -> Result<()> {
    let device = xla()?;
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("model.safetensors");
    let build = |device: &Device| nn::mlp(3, &[8], 3).batch_norm().build(device);
    let (near, far) = (build(&CPU)?, build(&device)?);
    near.save(&file)?;
    far.load(&file)?;
    let ((losses, f1), (expected, expected_f1)) = (train(&device, &far)?, train(&CPU, &near)?);
    losses.iter().zip(&expected).for_each(|(one, other)| assert!((one - other).abs() < 1e-3, "{one} and {other}"));
    assert!(losses[14] < losses[0] * 0.8, "{losses:?}");
    assert!((f1 - expected_f1).abs() < 1e-6, "{f1} and {expected_f1}");
    let [outputs, ..] = rows(&CPU)?;
    let before = flat(&far.predict(&outputs)?);
    assert_close("other batches", &far.predict_in_batches(&outputs, 5)?, &Tensor::new(before.clone(), &CPU)?);
    far.save(&file)?;
    near.load(&file)?;
    assert_close("the loaded model", &near.predict_in_batches(&outputs, 5)?, &Tensor::new(before, &CPU)?);
    assert_eq!(far.summary()?, near.summary()?);
    assert_eq!(nn::describe(&far), nn::describe(&near));
    let opened = nn::open(&file, &device)?;
    assert!(opened.device().is_some_and(|other| other.same_device(&device)));
    assert_eq!(flat(&opened.predict(&outputs)?), flat(&far.predict(&outputs)?));
    let built = nn::build(&nn::describe(&far).map_err(candle_core::Error::msg)?, &device)?;
    let (losses, _) = train(&device, &built)?;
    assert!(losses[14] < losses[0] * 0.8, "{losses:?}");
    Ok(())
}

#[test]
fn a_loop_without_a_step_measures_on_the_device() -> Result<()> {
    let values = |device: &Device| -> Result<Vec<f64>> {
        let [outputs, labels, mask] = rows(device)?;
        let meters: [Meter<Box<dyn Metric>>; 4] =
            [metrics::accuracy().boxed(), metrics::f1().boxed(), metrics::auc().boxed(), metrics::top_k(2).boxed()];
        let value = |mut meter: Meter<Box<dyn Metric>>| {
            for (start, len) in [(0, 5), (5, 5), (10, 2)] {
                let part = |tensor: &Tensor| tensor.narrow(0, start, len);
                meter.update_weighted(&part(&outputs)?, &part(&labels)?, &part(&mask)?)?;
            }
            meter.value()
        };
        meters.into_iter().map(value).collect()
    };
    for (found, expected) in values(&xla()?)?.into_iter().zip(values(&CPU)?) {
        assert!((found - expected).abs() < 1e-6, "{found} instead of {expected}");
    }
    Ok(())
}

#[test]
fn dropout_draws_anew_in_each_run() -> Result<()> {
    let device = xla()?;
    let model = nn::cnn([1, 4, 4], &[2], 2).activation(candle_nn::Activation::Gelu).dropout(0.5).build(&device)?;
    let images = Tensor::ones((3, 1, 4, 4), DType::F32, &device)?;
    let mut step = Step::new(&device, |arguments: &[Tensor]| Ok(vec![model.forward(&arguments[0], true)?]));
    let mut drawn = Vec::new();
    for _ in 0..8 {
        drawn.push(flat(&step.run(std::slice::from_ref(&images))?[0]));
    }
    assert!(drawn.iter().any(|outputs| *outputs != drawn[0]), "{drawn:?}");
    Ok(())
}
