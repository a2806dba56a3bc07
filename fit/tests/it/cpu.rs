//! Trainings on the CPU.

use candle_core::{DType, Device, Tensor};
use candle_nn::Optimizer as _;
use ferrotune_data::{Dataset, digits, wine};
use ferrotune_fit::{BatchEnd, Callback, Control, CsvLog, Ended, Fit, Logs, ReduceOnPlateau};
use ferrotune_nn::loss::{CrossEntropy, Loss as _};
use ferrotune_nn::{self as nn, Model as _, Sequential, metrics};
use ferrotune_state::Result;
use ferrotune_trial::{AdamW, optim};

type Rows = Dataset<(Tensor, Tensor)>;

fn parts() -> Result<[Rows; 2]> {
    Ok(digits()?.split([0.8, 0.2], 7)?)
}

/// A model whose first weights depend on nothing random.
fn model(inputs: usize, hidden: usize, outputs: usize) -> Result<Sequential> {
    let model = nn::mlp(inputs, &[hidden], outputs).build(&Device::Cpu)?;
    for (place, var) in model.trainable().into_iter().enumerate() {
        let wave: Vec<f32> =
            (0..var.elem_count()).map(|index| (index as f32 * 0.7 + place as f32).sin() * 0.2).collect();
        var.set(&Tensor::from_vec(wave, var.shape(), &Device::Cpu)?)?;
    }
    Ok(model)
}

#[test]
fn a_classifier_learns_and_its_history_has_all_metrics() -> Result<()> {
    let [train, valid] = parts()?;
    let model = model(64, 32, 10)?;
    let history = Fit::classifier(&model)
        .optimizer(AdamW::lr(1e-2))
        .schedule(optim::cosine(0.1).warm_up(0.1))
        .epochs(6)
        .metric("f1", metrics::f1())
        .run(&train, &valid)?;
    assert_eq!(history.names(), ["accuracy", "f1", "loss", "val_accuracy", "val_f1", "val_loss"]);
    assert!(history.value("val_accuracy") > Some(0.93), "{:?}", history.get("val_accuracy"));
    assert!(history.epochs[5].learning_rate < 0.0011 && history.epochs[1].learning_rate > 0.008);
    assert_eq!((history.ended, history.best_epoch), (Ended::Finished, None));
    let (images, labels) = valid.to_tensors()?;
    let mut accuracy = metrics::accuracy();
    accuracy.update(&model.predict(&images)?, &labels)?;
    assert_eq!(Some(accuracy.value()?), history.value("val_accuracy"));
    Ok(())
}

#[test]
fn losses_are_those_of_a_loop_written_by_hand_bit_for_bit() -> Result<()> {
    let [train, _] = parts()?;
    let (one, other) = (model(64, 16, 10)?, model(64, 16, 10)?);
    let history = Fit::classifier(&one).optimizer(AdamW::lr(1e-2)).batch(50).epochs(2).run(&train, None)?;
    let mut optimizer = AdamW::new_lr(other.trainable(), 1e-2)?;
    let batches = train.shuffle(train.len().unwrap_or(0) as usize, None).batch(50, false);
    for epoch in 0..2 {
        let (mut sum, mut rows) = (0.0, 0.0);
        for batch in batches.epoch(epoch) {
            let (images, labels) = batch?;
            let (terms, count) = CrossEntropy::default().terms(&other.forward(&images, true)?, &labels, None)?;
            optimizer.backward_step(&(&terms / &count)?)?;
            sum += f64::from(terms.to_scalar::<f32>()?);
            rows += f64::from(count.to_scalar::<f32>()?);
        }
        assert_eq!(history.get("loss")[epoch as usize], sum / rows);
    }
    let sizes: Vec<usize> = batches.epoch(0).map(|batch| Ok(batch?.0.dims()[0])).collect::<Result<_>>()?;
    assert!(sizes.last() < sizes.first(), "the last batch is smaller: {sizes:?}");
    for (one, other) in one.trainable().iter().zip(other.trainable()) {
        assert_eq!(one.flatten_all()?.to_vec1::<f32>()?, other.flatten_all()?.to_vec1::<f32>()?);
    }
    Ok(())
}

#[test]
fn early_stopping_leaves_the_weights_of_the_best_epoch() -> Result<()> {
    let [train, valid] = wine()?.split([0.5, 0.5], 7)?;
    let model = model(13, 16, 3)?;
    // The rate is so high that the loss soon becomes worse.
    let fit = Fit::classifier(&model).optimizer(optim::SGD::lr(0.002)).batch(8).epochs(200);
    let history = fit.early_stop("val_loss", 3).run(&train, &valid)?;
    let losses = history.get("val_loss");
    let best = losses.iter().copied().fold(f64::INFINITY, f64::min);
    assert_eq!(history.ended, Ended::Early, "{losses:?}");
    assert_eq!(history.best_epoch, losses.iter().position(|loss| *loss == best));
    assert_eq!(history.len(), history.best_epoch.map_or(0, |best| best + 4));
    let (rows, classes) = valid.to_tensors()?;
    let loss = CrossEntropy::default().loss(&model.predict(&rows)?, &classes)?.to_scalar::<f32>()?;
    assert!((f64::from(loss) - best).abs() < 1e-5, "{loss} and {best}");
    Ok(())
}

#[test]
fn numbers_are_predicted_and_smaller_errors_are_better() -> Result<()> {
    let inputs = Tensor::arange(0_f32, 200.0, &Device::Cpu)?.reshape((200, 1))?.affine(0.01, -1.0)?;
    let targets = inputs.sqr()?.squeeze(1)?;
    let rows = Dataset::from_tensors((inputs.clone(), targets))?;
    let model = model(1, 32, 1)?;
    let fit = Fit::regressor(&model).optimizer(AdamW::lr(1e-2)).metric("r2", metrics::r2()).epochs(60);
    let history = fit.early_stop("val_mae", 60).run(&rows, &rows)?;
    assert!(history.value("val_r2") > Some(0.98), "{:?}", history.value("val_r2"));
    let smallest = history.get("val_mae").into_iter().fold(f64::INFINITY, f64::min);
    assert_eq!(history.value("val_mae"), Some(smallest));
    Ok(())
}

#[test]
fn closures_of_a_mean_and_of_rows_are_the_same_loss() -> Result<()> {
    let [train, valid] = parts()?;
    let losses = |of_rows: bool| -> Result<Vec<f64>> {
        let model = model(64, 8, 10)?;
        let fit = Fit::new(&model).epochs(2).batch(100);
        let history = match of_rows {
            false => fit.loss(candle_nn::loss::cross_entropy).run(&train, &valid)?,
            true => {
                let of_rows = |outputs: &Tensor, targets: &Tensor| {
                    let logs = candle_nn::ops::log_softmax(outputs, 1)?;
                    logs.gather(&targets.unsqueeze(1)?, 1)?.squeeze(1)?.neg()
                };
                fit.loss(of_rows).run(&train, &valid)?
            }
        };
        Ok(history.get("val_loss"))
    };
    for (mean, rows) in losses(false)?.into_iter().zip(losses(true)?) {
        assert!((mean - rows).abs() < 1e-4, "{mean} and {rows}");
    }
    Ok(())
}

#[test]
fn callbacks_see_each_moment_and_may_end_the_training() -> Result<()> {
    #[derive(Default)]
    struct Moments(std::rc::Rc<std::cell::RefCell<Vec<String>>>);
    impl Callback for Moments {
        fn on_train_begin(&mut self) -> Result<()> {
            self.0.borrow_mut().push("begin".to_owned());
            Ok(())
        }
        fn on_epoch_begin(&mut self, epoch: usize) -> Result<()> {
            self.0.borrow_mut().push(format!("epoch {epoch}"));
            Ok(())
        }
        fn on_batch_end(&mut self, batch: &BatchEnd<'_>) -> Result<()> {
            self.0.borrow_mut().push(format!("batch {}", batch.number));
            Ok(())
        }
        fn on_epoch_end(&mut self, _: usize, logs: &Logs, control: &mut Control) -> Result<()> {
            self.0.borrow_mut().push(format!("{}", logs.len()));
            control.stop = true;
            Ok(())
        }
        fn on_train_end(&mut self) -> Result<()> {
            self.0.borrow_mut().push("end".to_owned());
            Ok(())
        }
    }
    let folder = tempfile::tempdir()?;
    let (moments, csv) = (Moments::default(), folder.path().join("log.csv"));
    let seen = moments.0.clone();
    let model = model(13, 4, 3)?;
    let history = Fit::classifier(&model)
        .batch(100)
        .epochs(9)
        .callback(moments)
        .callback(CsvLog::new(&csv))
        .callback(ReduceOnPlateau::new("loss", 0.1, 2))
        .run(&wine()?, None)?;
    assert_eq!(*seen.borrow(), ["begin", "epoch 0", "batch 0", "batch 1", "2", "end"]);
    assert_eq!((history.ended, history.len()), (Ended::Early, 1));
    let csv = std::fs::read_to_string(csv)?;
    assert!(csv.starts_with("epoch,accuracy,loss\n0,") && csv.lines().count() == 2, "{csv}");
    Ok(())
}

#[test]
fn a_plateau_reduces_the_rate() -> Result<()> {
    /// The share of the rate in each epoch, where the step logs these scores.
    fn rates(scores: &[f32], patience: usize, is_error: bool) -> Result<Vec<f64>> {
        let model = model(13, 4, 3)?;
        let epoch = std::cell::Cell::new(0);
        let fit =
            Fit::new(&model).optimizer(optim::SGD::lr(1e-3)).batch(200).epochs(scores.len()).step(|model, batch| {
                batch.log("score", &Tensor::full(scores[epoch.get()], batch.inputs.dims()[0], &Device::Cpu)?)?;
                candle_nn::loss::cross_entropy(&model.forward(&batch.inputs, true)?, &batch.targets)
            });
        let fit = if is_error { fit.minimize("score") } else { fit.maximize("score") };
        let fit = fit.callback(ReduceOnPlateau::new("score", 0.5, patience)).on_epoch(|number, _| {
            epoch.set(number + 1);
            Ok(())
        });
        let history = fit.run(&wine()?, None)?;
        Ok(history.epochs.iter().map(|epoch| (epoch.learning_rate / 1e-3 * 1e6).round() / 1e6).collect())
    }
    let halves = rates(&[3.0, 2.0, 2.0, 2.5, 1.0, 1.0, f32::NAN, 0.0], 2, true)?;
    assert_eq!(halves, [1.0, 1.0, 1.0, 1.0, 0.5, 0.5, 0.5, 0.25]);
    assert_eq!(rates(&[0.1, 0.2, 0.3, 0.2, 0.4], 1, false)?, [1.0, 1.0, 1.0, 1.0, 0.5]);
    Ok(())
}

#[test]
fn mistakes_are_errors_with_a_cure() -> Result<()> {
    let [train, valid] = wine()?.split([0.5, 0.5], 7)?;
    let model = model(13, 4, 3)?;
    let error = |fit: Fit<'_>| fit.epochs(1).run(&train, &valid).expect_err("it is a mistake").to_string();
    assert!(error(Fit::new(&model)).contains("choose one with `.loss("));
    assert!(error(Fit::classifier(&model).batch(0)).contains("`.batch(32)`"));
    let watched = error(Fit::classifier(&model).early_stop("val_f1", 3));
    assert!(
        watched.contains("`val_f1`, which is not measured; measured are accuracy, loss, val_accuracy"),
        "{watched}"
    );
    let shape = error(Fit::new(&model).loss(|outputs, _| outputs.sum(0)));
    assert!(shape.contains("made [3] of 32 rows"), "{shape}");
    let nan = error(Fit::classifier(&model).optimizer(optim::SGD::lr(f64::MAX)).epochs(3));
    assert!(nan.contains("lower the learning rate"), "{nan}");
    let endless = Dataset::from_iter(0..10)
        .map(1, |_| Ok((Tensor::zeros(13, DType::F32, &Device::Cpu)?, Tensor::new(0_u32, &Device::Cpu)?)));
    let endless = endless.filter(|_| Ok(true));
    let model = self::model(13, 4, 3)?;
    let rate = error(Fit::classifier(&model).optimizer(AdamW::lr(-1.0)));
    assert!(rate.contains("the learning rate is -1; choose a number above 0"), "{rate}");
    let named = error(Fit::classifier(&model).metric("val_x", metrics::f1()));
    assert!(named.contains("a metric cannot have the name `val_x`"), "{named}");
    let empty = Fit::classifier(&nn::seq()).run(&train, None).expect_err("nothing is trained").to_string();
    assert!(empty.contains("no variables to train"), "{empty}");
    let unknown = Fit::classifier(&model).schedule(optim::linear(0.0)).run(&endless, None);
    assert!(unknown.expect_err("its length is unknown").to_string().contains("a schedule needs the number of rows"));
    assert_eq!(Fit::classifier(&model).epochs(1).run(&endless, None)?.len(), 1);
    let none = Dataset::from_tensors((
        Tensor::zeros((0, 13), DType::F32, &Device::Cpu)?,
        Tensor::zeros(0, DType::U32, &Device::Cpu)?,
    ))?;
    assert!(Fit::classifier(&model).run(&none, None).is_err());
    Ok(())
}

#[test]
fn a_history_shows_curves_and_a_table() -> Result<()> {
    use ferrotune_display::Show as _;
    let model = model(13, 4, 3)?;
    let history = Fit::classifier(&model).epochs(20).run(&wine()?, None)?;
    let bundle = history.bundle();
    let text = bundle.text_of("text/plain");
    assert_eq!(text.lines().count(), 13, "{text}");
    assert!(text.ends_with("20 epochs") && text.starts_with("epoch"), "{text}");
    assert_eq!(bundle.text_of("text/html").matches("<polyline").count(), 4);
    Ok(())
}

#[test]
fn a_loss_that_is_not_finite_leaves_the_best_weights() -> Result<()> {
    let [train, valid] = wine()?.split([0.5, 0.5], 7)?;
    let model = model(13, 8, 3)?;
    struct Explode;
    impl Callback for Explode {
        fn on_epoch_end(&mut self, epoch: usize, _: &Logs, control: &mut Control) -> Result<()> {
            control.rate = if epoch > 2 { 1e300 } else { 1.0 };
            Ok(())
        }
    }
    let fit = Fit::classifier(&model).optimizer(optim::SGD::lr(1e-3)).early_stop("val_loss", 30).callback(Explode);
    let error = fit.epochs(30).run(&train, &valid).expect_err("the rate explodes").to_string();
    assert!(error.contains("is NaN; lower the learning rate"), "{error}");
    assert!(Fit::classifier(&model).evaluate(&valid)?["loss"].is_finite());
    Ok(())
}
