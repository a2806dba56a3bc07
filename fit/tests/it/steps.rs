//! Steps of the user's own, several optimisers, and accumulated gradients.

use crate::waves;
use candle_core::{Device, Tensor};
use candle_nn::loss::cross_entropy;
use ferrotune_data::{digits, wine};
use ferrotune_fit::{CsvLog, Ended, Fit, ModelCheckpoint, TensorBoard};
use ferrotune_nn::{self as nn, Model as _, Sequential, metrics};
use ferrotune_state::Result;
use ferrotune_trial::{AdamW, optim};

fn model(inputs: usize, hidden: usize, outputs: usize) -> Result<Sequential> {
    let model = nn::mlp(inputs, &[hidden], outputs).build(&Device::Cpu)?;
    waves(&model)?;
    Ok(model)
}

fn weights(model: &Sequential) -> Result<Vec<f32>> {
    let vars = model.trainable();
    let all = vars.iter().map(|var| Ok(var.flatten_all()?.to_vec1::<f32>()?)).collect::<Result<Vec<_>>>()?;
    Ok(all.concat())
}

fn distance(one: &[f32], other: &[f32]) -> f32 {
    one.iter().zip(other).map(|(one, other)| (one - other).abs()).fold(0.0, f32::max)
}

#[test]
fn accumulated_gradients_are_those_of_one_greater_batch() -> Result<()> {
    let [train, valid] = digits()?.split([0.8, 0.2], 7)?;
    let (one, other) = (model(64, 16, 10)?, model(64, 16, 10)?);
    // 1437 rows: the last step has 37 of them, a part of one batch.
    let fit = |model| Fit::classifier(model).optimizer(optim::SGD::lr(0.1)).clip_norm(0.5).epochs(2);
    let greater = fit(&one).batch(200).run(&train, &valid)?;
    let accumulated = fit(&other).batch(50).accumulate(4).run(&train, &valid)?;
    for name in greater.names() {
        for (one, other) in greater.get(name).iter().zip(accumulated.get(name)) {
            assert!((one - other).abs() < 1e-5, "{name}: {one} and {other}");
        }
    }
    assert!(distance(&weights(&one)?, &weights(&other)?) < 1e-5);
    let smaller = fit(&model(64, 16, 10)?).batch(50).run(&train, &valid)?;
    assert!((smaller.get("loss")[1] - greater.get("loss")[1]).abs() > 1e-2, "more steps reach another loss");
    Ok(())
}

#[test]
fn a_step_of_ones_own_is_the_loss_and_logs_values() -> Result<()> {
    let [train, valid] = digits()?.split([0.8, 0.2], 7)?;
    let (one, other) = (model(64, 16, 10)?, model(64, 16, 10)?);
    let step = Fit::new(&one)
        .step(|model, batch| {
            let outputs = model.forward(&batch.inputs, batch.train)?;
            batch.log("wrong", &outputs.argmax(1)?.ne(&batch.targets)?)?;
            cross_entropy(&outputs, &batch.targets)
        })
        .epochs(2)
        .minimize("wrong")
        .early_stop("val_wrong", 5)
        .run(&train, &valid)?;
    let loss = Fit::new(&other).loss(cross_entropy).metric("accuracy", metrics::accuracy()).epochs(2);
    let loss = loss.run(&train, &valid)?;
    assert_eq!(step.names(), ["loss", "val_loss", "val_wrong", "wrong"]);
    assert_eq!(step.get("loss"), loss.get("loss"));
    for (wrong, accuracy) in step.get("val_wrong").iter().zip(loss.get("val_accuracy")) {
        assert!((wrong - (1.0 - accuracy)).abs() < 1e-9);
    }
    let best =
        step.get("val_wrong").iter().enumerate().min_by(|one, other| one.1.total_cmp(other.1)).map(|(place, _)| place);
    assert_eq!(step.best_epoch, best, "smaller values are better");
    Ok(())
}

#[test]
fn steps_of_two_optimisers_are_those_of_a_loop_written_by_hand() -> Result<()> {
    use candle_nn::Optimizer as _;
    let train = wine()?;
    let (one, other) = (model(13, 8, 13)?, model(13, 8, 13)?);
    let error = |model: &dyn nn::Model, inputs: &Tensor| (model.forward(inputs, true)? - inputs)?.sqr()?.mean_all();
    let history = Fit::new(&one)
        .optimizer_of("0.", AdamW::lr(1e-2))
        .optimizer_of("2.", optim::SGD::lr(1e-7))
        .steps(|model, batch| {
            batch.minimize("0.", &error(model, &batch.inputs)?)?;
            batch.minimize("2.", &error(model, &batch.inputs)?)
        })
        .batch(50)
        .shuffle(0)
        .epochs(2)
        .run(&train, &train)?;
    let vars = other.trainable();
    let mut first = AdamW::new_lr(vars[..2].to_vec(), 1e-2)?;
    let mut second = optim::SGD::new(vars[2..].to_vec(), optim::ParamsSGD { lr: 1e-7, ..Default::default() })?;
    for epoch in 0..2 {
        let (mut sum, mut rows) = (0.0, 0.0);
        for batch in train.batch(50, false).epoch(epoch) {
            let inputs = batch?.0;
            let one = error(&other, &inputs)?;
            first.backward_step(&one)?;
            let two = error(&other, &inputs)?;
            second.backward_step(&two)?;
            sum += f64::from((one.to_scalar::<f32>()? + two.to_scalar::<f32>()?) * inputs.dims()[0] as f32);
            rows += inputs.dims()[0] as f64;
        }
        let (found, expected) = (history.get("loss")[epoch as usize], sum / rows);
        assert!((found - expected).abs() <= 1e-6 * expected && expected < 1e6, "{found} {expected}");
    }
    assert_eq!(weights(&one)?, weights(&other)?);
    assert_eq!(history.names(), ["loss", "val_loss"]);
    Ok(())
}

#[test]
fn an_optimiser_of_some_variables_has_a_rate_of_its_own() -> Result<()> {
    let train = wine()?;
    let one = model(13, 8, 3)?;
    let before = weights(&one)?;
    Fit::classifier(&one)
        .optimizer(optim::SGD::lr(1e-2))
        .optimizer_of("0.", optim::SGD::lr(1e-30))
        .epochs(1)
        .run(&train, None)?;
    let after = weights(&one)?;
    let first = 13 * 8 + 8;
    assert!(distance(&before[..first], &after[..first]) == 0.0 && distance(&before[first..], &after[first..]) > 1e-4);
    let known = Fit::classifier(&one).optimizer_of("9.", AdamW::lr(1e-3)).run(&train, None).expect_err("no such layer");
    assert!(
        known.to_string().contains("no trainable variable is left for the optimiser of `9.`; the variables are 0.")
    );
    Ok(())
}

#[test]
fn callbacks_write_files_of_the_model_and_for_tensorboard() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let path = |name: &str| folder.path().join(name);
    let [train, valid] = wine()?.split([0.8, 0.2], 7)?;
    let one = model(13, 8, 3)?;
    let mut losses = Vec::new();
    let history = Fit::classifier(&one)
        .optimizer(optim::SGD::lr(1e-5))
        .batch(50)
        .epochs(5)
        .callback(ModelCheckpoint::new(&one, path("{epoch}.safetensors").display().to_string()).every(2))
        .callback(
            ModelCheckpoint::new(&one, path("best-{epoch}.safetensors").display().to_string()).best("val_accuracy"),
        )
        .callback(TensorBoard::new(path("logs")))
        .callback(CsvLog::new(path("log.csv")))
        .on_batch(|batch| {
            losses.push((batch.epoch, batch.number, batch.loss()?));
            Ok(())
        })
        .run(&train, &valid)?;
    let saved: Vec<bool> = (0..5).map(|epoch| path(&format!("{epoch}.safetensors")).exists()).collect();
    assert_eq!(saved, [false, true, false, true, false]);
    let mut best = f64::NEG_INFINITY;
    for (epoch, accuracy) in history.get("val_accuracy").into_iter().enumerate() {
        let is_best = accuracy > best;
        best = best.max(accuracy);
        assert_eq!(path(&format!("best-{epoch}.safetensors")).exists(), is_best);
    }
    // 142 rows are two batches of 50 and one of 42.
    assert_eq!(losses.len(), 15);
    let sum: f64 = losses.iter().take(3).zip([50.0, 50.0, 42.0]).map(|((.., loss), rows)| loss * rows).sum();
    assert!((sum / 142.0 / history.get("loss")[0] - 1.0).abs() < 1e-6);
    for run in ["train", "validation"] {
        let files: Vec<_> = std::fs::read_dir(path("logs").join(run))?.collect::<std::io::Result<_>>()?;
        let [file] = &files[..] else { panic!("{run} has {} files", files.len()) };
        let bytes = std::fs::read(file.path())?;
        let count = bytes.windows(10).filter(|window| window == b"epoch_loss").count();
        assert_eq!(count, 5, "{run}");
    }
    Ok(())
}

#[test]
fn wrong_descriptions_are_refused_in_one_line_before_anything_is_trained() -> Result<()> {
    let train = wine()?;
    let one = model(13, 8, 3)?;
    let before = weights(&one)?;
    let error = |fit: Fit<'_>| fit.run(&train, None).expect_err("refused").to_string();
    let mean = |model: &dyn nn::Model, batch: &ferrotune_fit::Batch<'_>| {
        cross_entropy(&model.forward(&batch.inputs, true)?, &batch.targets)
    };
    for (told, wanted) in [
        (error(Fit::classifier(&one).step(mean)), "log a value of the step with `batch.log(\"accuracy\", &value)?`"),
        (error(Fit::classifier(&one).precision(candle_core::DType::BF16)), "needs a device with a compiler"),
        (error(Fit::classifier(&one).epochs(0)), "a training of 0 epochs trains nothing"),
        (
            error(Fit::new(&one).step(|_, batch| batch.inputs.sqr()?.mean(1))),
            "the loss depends on none of the variables to train",
        ),
        (
            error(Fit::classifier(&one).metric("f1", metrics::f1()).metric("f1", metrics::auc())),
            "two metrics have the name `f1`",
        ),
        (error(Fit::classifier(&one).accumulate(0)), "gradients of 0 batches train nothing"),
        (error(Fit::new(&one).steps(|_, _| Ok(())).accumulate(2)), "leave out one of both"),
        (error(Fit::new(&one).steps(|_, _| Ok(()))), "has minimised nothing; call `batch.minimize(\"\", &loss)?`"),
        (
            error(Fit::new(&one).steps(move |model, batch| batch.minimize("9.", &mean(model, batch)?))),
            "there is no optimiser of \"9.\"",
        ),
        (
            error(Fit::new(&one).step(move |model, batch| {
                batch.log("val_x", &mean(model, batch)?)?;
                mean(model, batch)
            })),
            "`val_x` stands for",
        ),
        (
            error(Fit::new(&one).step(move |model, batch| {
                batch.minimize("", &mean(model, batch)?)?;
                mean(model, batch)
            })),
            "in `.steps` only",
        ),
        (error(Fit::new(&one).step(|_, batch| batch.inputs.narrow(0, 0, 1))), "a closure made [1, 13] of 32 rows"),
    ] {
        assert!(told.lines().next().is_some_and(|line| line.contains(wanted)), "{told}");
    }
    assert_eq!(weights(&one)?, before);
    let undecided = Fit::new(&one).step(mean).early_stop("val_wrong", 2).epochs(1).run(&train, None);
    let undecided = undecided.expect_err("no direction").to_string();
    assert!(undecided.contains("call `.minimize(\"wrong\")` or `.maximize(\"wrong\")` of `Fit`"), "{undecided}");
    let watched = Fit::new(&one).step(mean).minimize("wrong").early_stop("val_wrong", 2).epochs(1).run(&train, None);
    assert!(
        watched.expect_err("not logged").to_string().contains("early_stop watches `val_wrong`, which is not measured")
    );
    let history = Fit::new(&one).step(mean).epochs(1).run(&train, None)?;
    assert_eq!(history.ended, Ended::Finished);
    Ok(())
}

#[test]
fn a_step_logs_the_same_names_in_each_batch_and_epoch() -> Result<()> {
    let train = wine()?;
    let one = model(13, 8, 3)?;
    let count = std::cell::Cell::new(0);
    let told = |changes_at: usize| -> Result<String> {
        count.set(0);
        let fit = Fit::new(&one).batch(100).epochs(3).step(|model, batch| {
            count.set(count.get() + 1);
            let losses = model.forward(&batch.inputs, true)?.sqr()?.mean(1)?;
            batch.log(if count.get() > changes_at { "other" } else { "first" }, &losses)?;
            Ok(losses)
        });
        Ok(fit.run(&train, None).expect_err("the names change").to_string())
    };
    let within = told(1)?;
    assert!(
        within.lines().next().is_some_and(|line| line.contains("log the same names in the same order for each batch")),
        "{within}"
    );
    Ok(())
}
