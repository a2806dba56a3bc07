//! Metrics against scikit-learn, in batches of any size and with padding, and what is refused.

use crate::golden::{GOLDEN, assert_near, number, numbers, tensor, tensor_of};
use candle_core::{DType, Device, Result, Tensor};
use ferrotune_nn::metrics::{self, Average, Meter, Metric};
use serde_json::Value;

const CPU: Device = Device::Cpu;

/// Gives a meter the rows in one batch.
fn whole<M: Metric>(mut meter: Meter<M>, [outputs, targets]: [&Tensor; 2], weights: Option<&Tensor>) -> Meter<M> {
    meter.update_weighted(outputs, targets, weights).unwrap();
    meter
}

/// Gives a meter the rows in batches of different sizes, each padded to 16 rows with NaN of a wrong class.
fn padded<M: Metric>(mut meter: Meter<M>, [outputs, targets]: [&Tensor; 2], weights: Option<&Tensor>) -> Meter<M> {
    let rows = targets.dim(0).unwrap();
    let ones = Tensor::ones(rows, DType::F32, &CPU).unwrap();
    let weights = weights.unwrap_or(&ones).to_dtype(DType::F32).unwrap();
    let fill = |tensor: &Tensor, start: usize, len: usize, filler: f64| {
        let mut dims = tensor.dims().to_vec();
        dims[0] = 16 - len;
        let filler = Tensor::new(filler, &CPU).unwrap().to_dtype(tensor.dtype()).unwrap().broadcast_as(dims).unwrap();
        Tensor::cat(&[&tensor.narrow(0, start, len).unwrap(), &filler], 0).unwrap()
    };
    let nothing = |tensor: &Tensor| fill(tensor, 0, 0, 99.0);
    meter.update_weighted(&nothing(outputs), &nothing(targets), &fill(&weights, 0, 0, 0.0)).unwrap();
    let (mut start, mut size) = (0, 1);
    while start < rows {
        let len = size.min(rows - start).min(15);
        let batch =
            [fill(outputs, start, len, f64::NAN), fill(targets, start, len, 99.0), fill(&weights, start, len, 0.0)];
        meter.update_weighted(&batch[0], &batch[1], &batch[2]).unwrap();
        (start, size) = (start + len, size + 3);
    }
    meter
}

fn check_classifier<M: Metric>(
    case: &Value,
    name: &str,
    make: impl Fn() -> Meter<M>,
    look: impl Fn(Meter<M>, f64, &str),
) {
    let name = format!("{}: {name}", case["name"].as_str().unwrap());
    let weights = (!case["weights"].is_null()).then(|| tensor(&case["weights"]));
    let weights = weights.as_ref();
    let scores = tensor(&case["scores"]);
    for (dtype, labels) in
        [(DType::F32, DType::U32), (DType::F64, DType::I64), (DType::BF16, DType::U8), (DType::F16, DType::F32)]
    {
        let scores = scores.to_dtype(dtype).unwrap();
        let targets = tensor_of(&case["targets"], labels);
        let name = format!("{name}, {dtype:?} and {labels:?}");
        look(whole(make(), [&scores, &targets], weights), 1e-6, &name);
        look(padded(make(), [&scores, &targets], weights), 1e-6, &name);
        // The same rows in other forms: of a column, or not contiguous.
        let column = targets.unsqueeze(1).unwrap();
        let scores = match scores.rank() {
            1 => scores.unsqueeze(1).unwrap(),
            _ => scores.t().unwrap().contiguous().unwrap().t().unwrap(),
        };
        look(whole(make(), [&scores, &column], weights), 1e-6, &name);
        look(whole(make(), [&scores, &targets], weights), 1e-6, &name);
    }
}

fn classifiers() -> &'static Vec<Value> {
    GOLDEN["classifiers"].as_array().unwrap()
}

#[test]
fn accuracies_are_those_of_scikit_learn() {
    for case in classifiers() {
        check_classifier(case, "accuracy", metrics::accuracy, |mut meter, tolerance, name| {
            assert_near(name, meter.value().unwrap(), number(&case["accuracy"]), tolerance);
        });
        for (k, expected) in case["top"].as_object().unwrap() {
            let make = || metrics::top_k(k.parse().unwrap());
            check_classifier(case, &format!("top {k}"), make, |mut meter, tolerance, name| {
                assert_near(name, meter.value().unwrap(), number(expected), tolerance);
            });
        }
    }
}

#[test]
fn class_scores_are_those_of_scikit_learn() {
    for case in classifiers() {
        for (key, expected) in case["scored"].as_object().unwrap() {
            let (score, zero) = key.split_once(' ').unwrap();
            let make = || match score {
                "precision" => metrics::precision(),
                "recall" => metrics::recall(),
                "f1" => metrics::f1(),
                _ => metrics::f_beta(0.5),
            };
            let make = || make().zero_division(zero.parse().unwrap());
            for (average, expected) in expected.as_object().unwrap() {
                let choose = |meter: Meter<metrics::ClassScore>| match average.as_str() {
                    "macro" => meter.average(Average::Macro),
                    "micro" => meter.average(Average::Micro),
                    "weighted" => meter.average(Average::Weighted),
                    _ => meter.average(Average::Of(1)),
                };
                check_classifier(
                    case,
                    &format!("{key}, {average}"),
                    || choose(make()),
                    |mut meter, tolerance, name| {
                        if average == "each" {
                            let each = meter.per_class().unwrap();
                            each.iter()
                                .zip(numbers(expected))
                                .for_each(|(one, other)| assert_near(name, *one, other, tolerance));
                        } else {
                            assert_near(name, meter.value().unwrap(), number(expected), tolerance);
                        }
                    },
                );
            }
        }
    }
}

#[test]
fn areas_and_confusions_are_those_of_scikit_learn() {
    for case in classifiers() {
        check_classifier(case, "auc", metrics::auc, |mut meter, tolerance, name| {
            assert_near(name, meter.value().unwrap(), number(&case["auc"]), tolerance);
            if !case["auc_each"].is_null() {
                let each = numbers(&case["auc_each"]);
                meter
                    .per_class()
                    .unwrap()
                    .iter()
                    .zip(each)
                    .for_each(|(one, other)| assert_near(name, *one, other, tolerance));
            }
        });
        check_classifier(case, "confusion", metrics::confusion_matrix, |mut meter, _, name| {
            let counts: Vec<Vec<f64>> = case["confusion"].as_array().unwrap().iter().map(numbers).collect();
            assert_eq!(meter.matrix().unwrap().counts, counts, "{name}");
            assert_near(name, meter.value().unwrap(), number(&case["accuracy"]), 1e-12);
        });
    }
}

#[test]
fn regressions_are_those_of_scikit_learn() {
    for case in GOLDEN["regressions"].as_array().unwrap() {
        let (outputs, targets) = (tensor(&case["outputs"]), tensor(&case["targets"]));
        let weights = (!case["weights"].is_null()).then(|| tensor(&case["weights"]));
        let check = |name: &str, make: &dyn Fn() -> Meter<Box<dyn Metric>>| {
            let tell = |mut meter: Meter<Box<dyn Metric>>, tolerance: f64| {
                let name = format!("{}: {name}", case["name"].as_str().unwrap());
                let expected = &case[name.split(": ").nth(1).unwrap()];
                assert_near(&name, meter.value().unwrap(), number(&expected["value"]), tolerance);
                let each = meter.per_class().unwrap();
                each.iter()
                    .zip(numbers(&expected["each"]))
                    .for_each(|(one, other)| assert_near(&name, *one, other, tolerance));
            };
            let targets_32 = targets.to_dtype(DType::F32).unwrap();
            tell(whole(make(), [&outputs, &targets], weights.as_ref()), 1e-12);
            tell(padded(make(), [&outputs, &targets], weights.as_ref()), 1e-12);
            let narrow = outputs.to_dtype(DType::F32).unwrap();
            tell(whole(make(), [&narrow, &targets_32], weights.as_ref()), 2e-6);
            tell(padded(make(), [&narrow, &targets_32], weights.as_ref()), 2e-6);
            if outputs.rank() == 1 {
                tell(whole(make(), [&outputs.unsqueeze(1).unwrap(), &targets], weights.as_ref()), 1e-12);
                tell(whole(make(), [&outputs, &targets.unsqueeze(1).unwrap()], weights.as_ref()), 1e-12);
            }
        };
        check("mae", &|| metrics::mae().boxed());
        check("mse", &|| metrics::mse().boxed());
        check("rmse", &|| metrics::rmse().boxed());
        check("r2", &|| metrics::r2().boxed());
    }
}

#[test]
fn r2_of_equal_targets_and_of_one_row() -> Result<()> {
    let tenths = Tensor::full(0.1_f32, 7, &CPU)?;
    assert_eq!(whole(metrics::r2(), [&(&tenths + 1.0)?, &tenths], None).value()?, 0.0);
    assert_eq!(padded(metrics::r2(), [&tenths, &tenths], None).value()?, 1.0);
    let one = Tensor::new(&[1_f32], &CPU)?;
    assert!(whole(metrics::r2(), [&one, &one], None).value()?.is_nan());
    assert!(whole(metrics::r2(), [&(&tenths * f64::NAN)?, &tenths], None).value()?.is_nan());
    Ok(())
}

fn all() -> Vec<(&'static str, Meter<Box<dyn Metric>>)> {
    let numbers = |outputs: &Tensor, targets: &Tensor| (outputs - targets.to_dtype(outputs.dtype())?)?.sqr();
    vec![
        ("accuracy", metrics::accuracy().boxed()),
        ("top_k", metrics::top_k(1).boxed()),
        ("precision", metrics::precision().boxed()),
        ("recall", metrics::recall().boxed()),
        ("f1", metrics::f1().boxed()),
        ("auc", metrics::auc().boxed()),
        ("confusion", metrics::confusion_matrix().boxed()),
        ("mae", metrics::mae().boxed()),
        ("mse", metrics::mse().boxed()),
        ("rmse", metrics::rmse().boxed()),
        ("r2", metrics::r2().boxed()),
        ("mean", metrics::mean(numbers).boxed()),
    ]
}

#[test]
fn an_output_that_is_no_number_gives_no_number() -> Result<()> {
    let outputs = Tensor::new(&[1_f32, f32::NAN, -1.0, 2.0], &CPU)?;
    let targets = Tensor::new(&[1_u32, 0, 0, 1], &CPU)?;
    for (name, mut meter) in all() {
        meter.update(&outputs, &targets)?;
        let value = meter.value()?;
        assert!(value.is_nan(), "{name} is {value}");
        if let Ok(each) = meter.per_class() {
            assert!(each.iter().all(|value| value.is_nan()), "{name}: {each:?}");
        }
        meter.reset();
        assert!(meter.value().unwrap_err().to_string().contains("has seen no row"), "{name}");
        // With the weight 0 the row is not there.
        meter.update_weighted(&outputs, &targets, &Tensor::new(&[1_f32, 0.0, 1.0, 1.0], &CPU)?)?;
        assert!(!meter.value()?.is_nan(), "{name}");
    }
    Ok(())
}

#[test]
fn infinite_scores_are_scores() -> Result<()> {
    let far = f32::INFINITY;
    let outputs = Tensor::new(&[[far, 0.0, -far], [-far, 1.0, far], [0.0, far, 1e4], [0.0, -1e4, -far]], &CPU)?;
    let targets = Tensor::new(&[0_u32, 2, 1, 2], &CPU)?;
    assert_eq!(whole(metrics::accuracy(), [&outputs, &targets], None).value()?, 0.75);
    assert_eq!(whole(metrics::top_k(2), [&outputs, &targets], None).value()?, 0.75);
    assert!(!whole(metrics::auc(), [&outputs, &targets], None).value()?.is_nan());
    Ok(())
}

#[test]
fn targets_that_are_no_class_are_an_error_of_the_value() -> Result<()> {
    let outputs = Tensor::zeros((3, 4), DType::F32, &CPU)?;
    for targets in [
        Tensor::new(&[0_i64, -1, 3], &CPU)?,
        Tensor::new(&[0_u32, 4, 3], &CPU)?,
        Tensor::new(&[0_u32, u32::MAX, 3], &CPU)?,
        Tensor::new(&[0_f32, 0.5, 3.0], &CPU)?,
        Tensor::new(&[0_f64, f64::NAN, 3.0], &CPU)?,
    ] {
        for (name, mut meter) in all().into_iter().take(7) {
            meter.update(&outputs, &targets)?;
            let error = meter.value().unwrap_err().to_string();
            assert!(error.contains("1 targets are none of the ") && error.contains("weight 0"), "{name}: {error}");
            meter.reset();
            meter.update_weighted(&outputs, &targets, &Tensor::new(&[1_f32, 0.0, 1.0], &CPU)?)?;
            assert!(meter.value().is_ok(), "{name}");
        }
    }
    Ok(())
}

#[test]
fn shapes_that_leave_a_doubt_are_refused() -> Result<()> {
    let zeros = |dims: &[usize], dtype| Tensor::zeros(dims, dtype, &CPU);
    let refused = |outputs: &[usize], targets: &[usize], weights: Option<&[usize]>| -> Result<()> {
        let (outputs, targets) = (zeros(outputs, DType::F32)?, zeros(targets, DType::U32)?);
        let weights = weights.map(|weights| zeros(weights, DType::F32)).transpose()?;
        for (name, mut meter) in all() {
            let error = meter.update_weighted(&outputs, &targets, weights.as_ref());
            assert!(error.is_err(), "{name}: {:?} and {:?}", outputs.dims(), targets.dims());
        }
        Ok(())
    };
    refused(&[4], &[1, 4], None)?;
    refused(&[4, 1], &[1, 4], None)?;
    refused(&[1, 4], &[4], None)?;
    refused(&[4, 3], &[3], None)?;
    refused(&[4, 1], &[5], None)?;
    refused(&[4], &[4], Some(&[5]))?;
    refused(&[4], &[4], Some(&[4, 4]))?;
    refused(&[4], &[4], Some(&[1]))?;
    refused(&[4], &[4], Some(&[]))?;
    refused(&[], &[], Some(&[4]))?;
    let mut accuracy = metrics::accuracy();
    let error = accuracy.update(&zeros(&[4, 3], DType::F32)?, &zeros(&[4, 3], DType::U32)?).unwrap_err().to_string();
    assert!(error.contains("outputs of shape [4, 3] do not fit targets of shape [4, 3]"), "{error}");
    let error = accuracy.update(&zeros(&[4], DType::U32)?, &zeros(&[4], DType::U32)?).unwrap_err().to_string();
    assert!(error.contains("not the predicted classes"), "{error}");
    accuracy.update(&zeros(&[4, 3], DType::F32)?, &zeros(&[4], DType::U32)?)?;
    accuracy.update(&zeros(&[4, 5], DType::F32)?, &zeros(&[4], DType::U32)?)?;
    for mut meter in [metrics::auc().boxed(), metrics::f1().boxed(), metrics::confusion_matrix().boxed()] {
        meter.update(&zeros(&[4, 3], DType::F32)?, &zeros(&[4], DType::U32)?)?;
        let error = meter.update(&zeros(&[4, 5], DType::F32)?, &zeros(&[4], DType::U32)?).unwrap_err().to_string();
        assert!(error.contains("give all the same outputs"), "{error}");
    }
    assert!(metrics::top_k(0).update(&zeros(&[4], DType::F32)?, &zeros(&[4], DType::U32)?).is_err());
    assert!(metrics::f1().average(Average::Of(7)).boxed().value().is_err());
    Ok(())
}

#[test]
fn sequences_have_a_label_at_each_time() -> Result<()> {
    let outputs = Tensor::new(&[[[1_f32, 0.0], [0.0, 1.0]], [[0.0, 1.0], [f32::NAN, 0.0]]], &CPU)?;
    let targets = Tensor::new(&[[0_u32, 1], [0, 9]], &CPU)?;
    let each = Tensor::new(&[[1_f32, 1.0], [1.0, 0.0]], &CPU)?;
    assert!((whole(metrics::accuracy(), [&outputs, &targets], Some(&each)).value()? - 2.0 / 3.0).abs() < 1e-12);
    let rows = Tensor::new(&[1_f32, 0.0], &CPU)?;
    assert_eq!(whole(metrics::accuracy(), [&outputs, &targets], Some(&rows)).value()?, 1.0);
    Ok(())
}

#[test]
fn a_label_is_left_out() -> Result<()> {
    let outputs = Tensor::new(&[[[1_f32, 0.0], [0.0, 1.0]], [[0.0, 1.0], [f32::NAN, 0.0]]], &CPU)?;
    let targets = Tensor::new(&[[0_i64, 1], [0, -100]], &CPU)?;
    let rows = Tensor::new(&[1_f32, 3.0], &CPU)?;
    for (weights, expected) in [(None, 2.0 / 3.0), (Some(&rows), 2.0 / 5.0), (Some(&rows.unsqueeze(1)?), 2.0 / 5.0)] {
        let mut accuracy = metrics::accuracy().ignore_index(-100);
        accuracy.update_weighted(&outputs, &targets, weights)?;
        assert_near("accuracy", accuracy.value()?, expected, 1e-12);
    }
    let mut confusion = metrics::confusion_matrix().ignore_index(-100);
    confusion.update(&outputs, &targets)?;
    assert_eq!(confusion.matrix()?.counts, [[1.0, 1.0], [0.0, 1.0]]);
    let mut f1 = metrics::f1().average(Average::Macro).ignore_index(1);
    let (logits, labels) = (Tensor::new(&[1_f32, -1.0], &CPU)?, Tensor::new(&[1_u8, 0], &CPU)?);
    f1.update_weighted(&logits, &labels.unsqueeze(1)?, &Tensor::ones(2, DType::F64, &CPU)?)?;
    assert_eq!(f1.per_class()?, [1.0, 0.0]);
    Ok(())
}

#[test]
fn no_row_has_no_value() -> Result<()> {
    let (outputs, targets) = (Tensor::zeros(4, DType::F32, &CPU)?, Tensor::zeros(4, DType::U32, &CPU)?);
    let none = Tensor::zeros(4, DType::F32, &CPU)?;
    for (name, mut meter) in all() {
        meter.update(&outputs.narrow(0, 0, 0)?, &targets.narrow(0, 0, 0)?)?;
        assert!(meter.value().is_err(), "{name}: an empty batch");
        meter.update_weighted(&outputs, &targets, &none)?;
        assert!(meter.value()?.is_nan(), "{name}: all padding");
    }
    Ok(())
}

#[test]
fn counts_of_many_batches_are_exact() -> Result<()> {
    let outputs = Tensor::ones(1 << 16, DType::F32, &CPU)?;
    let targets = Tensor::ones(1 << 16, DType::U32, &CPU)?;
    let mut confusion = metrics::confusion_matrix();
    let measured = confusion.metric().measure(&outputs, &targets, None)?;
    for _ in 0..1000 {
        confusion.add(measured.clone())?;
    }
    assert_eq!(confusion.matrix()?.counts[1][1], 65_536_000.0);
    Ok(())
}

#[test]
fn a_confusion_matrix_is_a_picture() -> Result<()> {
    use ferrotune_display::Show;
    let outputs = Tensor::new(&[[1_f32, 0.0], [0.0, 1.0], [0.0, 1.0]], &CPU)?;
    let mut confusion = metrics::confusion_matrix();
    confusion.update(&outputs, &Tensor::new(&[0_u32, 0, 1], &CPU)?)?;
    let matrix = confusion.matrix()?.with_names(&["<b>", "a name that is much too long"])?;
    assert_eq!(matrix.shares(), [[0.5, 0.5], [0.0, 1.0]]);
    let bundle = matrix.bundle();
    let svg = bundle.text_of("image/svg+xml");
    assert!(svg.contains("&lt;b&gt;") && !svg.contains("<b>") && svg.contains("a name that is m…"), "{svg}");
    assert_eq!(svg.matches("<rect").count(), 5, "a page, a ground and three squares");
    let class = "class \\ predicted";
    assert!(matrix.to_string().starts_with(class), "{matrix}");
    assert!(confusion.matrix()?.with_names(&["a"]).is_err());
    let mut counts = vec![vec![0.0; 1000]; 1000];
    (counts[3][5], counts[5][3], counts[7][7]) = (2.0, 9.0, 99.0);
    let large = metrics::ConfusionMatrix { counts, names: (0..1000).map(|class| class.to_string()).collect() };
    assert_eq!(large.to_svg().matches("<rect").count(), 5);
    assert_eq!(large.to_string(), "class  predicted  rows\n    5          3     9\n    3          5     2");
    assert_eq!(large.most_confused(1), [("5", "3", 9.0)]);
    Ok(())
}

#[test]
fn an_error_stays_an_error_where_a_label_is_left_out() {
    use ferrotune_nn::metrics::Metric as _;
    assert!(metrics::mae().ignore_index(-100).into_metric().is_error());
    assert!(!metrics::accuracy().ignore_index(-100).into_metric().is_error());
}
