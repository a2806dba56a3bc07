"""The tables for those who come from other tools: each row has cells here that use what its last column names, in a real kernel."""

import io
import pathlib
import pickle
import re
import struct
import sys
import types
import zipfile

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from session import Session

ROOT = pathlib.Path(__file__).parent.parent

# What the cells of a row find: data, the device, a function that builds a model for a trial, and a study.
SETUP = [
    """use ferrotune::prelude::*;
ferrotune::seed(7)?;
let [train, valid] = data::digits()?.split([0.8, 0.2], 7)?;
let device = device::current()?;
fn build(trial: &Trial) -> Result<nn::Sequential> {
    let units = trial.int("units", 32..=512).step(32).get()?;
    Ok(nn::mlp(64, &[units], 10).build(&trial.device()?)?)
}""",
    """%%tune --oracle random --objective val_loss:min --max-trials 3 --project digits --seed 1
|trial| {
    let model = build(trial)?;
    Fit::classifier(&model).batch(256).epochs(2).run_in(trial, &train, &valid)
}""",
]

ONE_OF_THREE = '|trial| Ok(trial.choice("x", [1.0, 2.0, 3.0]).get()?)'

# A row is a list of cells, by the row's first text. What a cell has to show, as a regular expression, stands behind the cell.
TRAINING = {
    "`keras.Sequential([…])`, `nn.Sequential(…)`": [
        """let images = nn::cnn([1, 8, 8], &[8], 10).build(&device)?;
let layers = nn::model(&device, |vb| Ok(nn::seq().add(linear(64, 8, vb.pp("a"))?).add(Activation::Relu).add(linear(8, 10, vb.pp("b"))?)))?;
assert_eq!(layers.parameters(), nn::mlp(64, &[8], 10).build(&device)?.parameters());
assert_eq!(images.predict(&Tensor::zeros((3, 1, 8, 8), DType::F32, &device)?)?.dims(), [3, 10]);""",
    ],
    "`class Net(nn.Module)`, `class Net(keras.Model)`": [
        """struct Net { vars: VarMap, output: Linear }
impl nn::Model for Net {
    fn forward(&self, xs: &Tensor, _train: bool) -> candle_core::Result<Tensor> { self.output.forward(xs) }
    fn vars(&self) -> &VarMap { &self.vars }
}
let vars = VarMap::new();
let net = Net { output: linear(64, 10, VarBuilder::from_varmap(&vars, DType::F32, &device))?, vars };
assert_eq!(net.parameters(), 650);
Fit::classifier(&net).epochs(1).run(&train, &valid)?;""",
    ],
    "`Dropout`, `BatchNorm1d`": [
        """let model = nn::mlp(64, &[32], 10).dropout(0.2).batch_norm().build(&device)?;
let rows = Tensor::randn(0f32, 1.0, (4, 64), &device)?;
let at = |train| model.forward(&rows, train)?.to_vec2::<f32>();
assert!(at(true)? != at(true)?);
assert_eq!(at(false)?, at(false)?);""",
    ],
    '`model.to("cuda")`': [
        ("%tpu_connect", "connected to cpu"),
        "let model = nn::mlp(64, &[32], 10).build(&device::current()?)?;\nassert!(model.device().unwrap().is_cpu());",
    ],
    "`torch.compile`, `jit_compile=True`": [
        "let mut double = ferrotune::compile(|args: &[Tensor]| Ok(vec![(&args[0] * 2.0)?]))?;",
        ("double.run(&[Tensor::new(&[1f32, 2.0], &device)?])?[0].to_vec1::<f32>()?", r"\[2\.0, 4\.0\]"),
        "let model = nn::mlp(64, &[8], 10).build(&device)?;\nFit::classifier(&model).epochs(1).run(&train, None)?;",
    ],
    "`torch.autocast`, `mixed_bfloat16`": [
        """let model = nn::mlp(64, &[8], 10).build(&device)?;
// This device has no compiler.
assert!(Fit::classifier(&model).precision(DType::BF16).epochs(1).run(&train, None).is_err());""",
    ],
    "`MirroredStrategy`, `DistributedDataParallel`": [
        """use ferrotune::strategy::{self, Strategy};
let strategy = Strategy::mirrored(["cpu", "cpu"])?;
let losses = strategy.scope(|replica| -> Result<Vec<f64>> {
    let model = nn::mlp(13, &[8], 3).build(&strategy::device(replica)?)?;
    Ok(Fit::classifier(&model).replica(replica).epochs(2).run(&data::wine()?, None)?.get("loss"))
});
let losses = losses.into_iter().collect::<Result<Vec<_>>>()?;
assert_eq!((losses.len(), losses[0].len(), &losses[0]), (2, 2, &losses[1]));""",
    ],
    "`model.compile(optimizer, loss, metrics)`, then `model.fit(…)`": [
        """let model = nn::mlp(64, &[8], 10).build(&device)?;
let fit = Fit::new(&model).optimizer(AdamW::lr(1e-2)).criterion(nn::loss::CrossEntropy::default()).metric("f1", metrics::f1());
assert_eq!(fit.epochs(1).run(&train, None)?.names(), ["f1", "loss"]);""",
    ],
    "`train_step` of your own, `training_step`": [
        """let model = nn::mlp(64, &[8], 64).build(&device)?;
let history = Fit::new(&model)
    .step(|model, batch| (model.forward(&batch.inputs, batch.train)? - &batch.inputs)?.sqr()?.mean(1))
    .epochs(2)
    .run(&train, None)?;
assert!(history.get("loss")[1] < history.get("loss")[0]);
let history = Fit::new(&model)
    .optimizer_of("0.", AdamW::lr(1e-3))
    .optimizer_of("2.", AdamW::lr(1e-2))
    .steps(|model, batch| {
        let loss = || (model.forward(&batch.inputs, batch.train)? - &batch.inputs)?.sqr()?.mean(1);
        batch.minimize("2.", &loss()?)?;
        let loss = loss()?;
        batch.minimize("0.", &loss)
    })
    .epochs(2)
    .run(&train, None)?;
assert!(history.get("loss")[1] < history.get("loss")[0]);""",
    ],
    "`model.evaluate(test)`": [
        """let (model, test) = (nn::mlp(64, &[8], 10).build(&device)?, valid.clone());
let measured = Fit::classifier(&model).evaluate(&test)?;
assert_eq!(measured.keys().collect::<Vec<_>>(), ["accuracy", "loss"]);""",
    ],
    "`model.predict(x)`, `model.eval()` with `torch.no_grad()`": [
        """let model = nn::mlp(64, &[8], 10).dropout(0.5).build(&device)?;
let (rows, _) = valid.to_tensors()?;
assert_eq!(model.predict(&rows)?.to_vec2::<f32>()?, model.predict(&rows)?.to_vec2::<f32>()?);
assert!(model.predict(&rows)?.sum_all()?.backward()?.get(&model.trainable()[0]).is_none());""",
    ],
    "`predict_proba(x)`, and `predict(x)` of a classifier": [
        """let model = nn::mlp(64, &[8], 10).build(&device)?;
let (rows, _) = valid.to_tensors()?;
let scores = model.predict(&rows)?;
let sums = ops::softmax(&scores, 1)?.sum(1)?.to_vec1::<f32>()?;
assert!(sums.iter().all(|sum| (sum - 1.0).abs() < 1e-5));
assert_eq!(scores.argmax(1)?.dims(), [sums.len()]);""",
    ],
    "`model.summary()`, `torchinfo`": [
        ("let model = nn::mlp(64, &[8], 10).build(&device)?;\nmodel.summary()?", r"trainable +610"),
    ],
    "`model.save_weights`, `torch.save(model.state_dict())`": [
        """let model = nn::mlp(64, &[8], 10).build(&device)?;
model.save("m.safetensors")?;
let again = nn::mlp(64, &[8], 10).build(&device)?;
let load = |model: &nn::Sequential| model.load("m.safetensors");
load(&again)?;
let ones = Tensor::ones((1, 64), DType::F32, &device)?;
assert_eq!(model.predict(&ones)?.to_vec2::<f32>()?, again.predict(&ones)?.to_vec2::<f32>()?);""",
    ],
    "`safetensors.torch.save_file`, `load_file`": [
        """let model = nn::mlp(64, &[8], 10).build(&device)?;
std::fs::copy("python.safetensors", "m.safetensors")?;
model.load("m.safetensors")?;
let sums = model.vars().all_vars().iter().map(|var| var.sum_all()?.to_scalar::<f32>()).collect::<candle_core::Result<Vec<f32>>>()?;
assert_eq!(sums.iter().sum::<f32>(), 610.0);
let larger = nn::mlp(64, &[8, 10], 10).build(&device)?;
let model = larger;
assert_eq!(model.load_common("m.safetensors")?.len(), 2);""",
    ],
    "`keras.models.load_model`": [
        """let model = nn::mlp(64, &[8], 10).build(&device)?;
model.save("m.safetensors")?;
let ones = Tensor::ones((1, 64), DType::F32, &device)?;
assert_eq!(nn::open("m.safetensors", &device)?.predict(&ones)?.to_vec2::<f32>()?, model.predict(&ones)?.to_vec2::<f32>()?);""",
    ],
    '`torch.load("m.pt")`': [
        """let tensors = candle_core::pickle::read_all("m.pt")?;
assert_eq!((tensors[0].0.as_str(), tensors[0].1.to_vec2::<f32>()?), ("weight", vec![vec![1.0, 2.0, 3.0], vec![4.0, 5.0, 6.0]]));
let layer = candle_nn::linear_no_bias(3, 2, VarBuilder::from_pth("m.pt", DType::F32, &device)?)?;
assert_eq!(layer.forward(&Tensor::ones((1, 3), DType::F32, &device)?)?.to_vec2::<f32>()?, [[6.0, 15.0]]);""",
    ],
    "`torch.onnx.export`": [
        """// There is no ONNX.
let model = nn::mlp(64, &[8], 10).build(&device)?;
model.save("exported.safetensors")?;""",
    ],
    "`layer.trainable = False`, `requires_grad_(False)`": [
        """let mut model = nn::mlp(64, &[8], 10).build(&device)?;
model.freeze("0.")?;
assert_eq!(model.parameters(), 90);
let before = model.vars().data().lock().unwrap()["0.weight"].to_vec2::<f32>()?;
Fit::classifier(&model).epochs(1).run(&train, None)?;
assert_eq!(model.vars().data().lock().unwrap()["0.weight"].to_vec2::<f32>()?, before);""",
    ],
    '`History.history["val_loss"]`': [
        """let model = nn::mlp(64, &[8], 10).build(&device)?;
let history = Fit::classifier(&model).epochs(2).run(&train, &valid)?;
assert_eq!(history.get("val_loss").len(), 2);""",
    ],
    "`EarlyStopping(patience=3, restore_best_weights=True)`": [
        """let model = nn::mlp(64, &[32], 10).build(&device)?;
let history = Fit::classifier(&model).optimizer(AdamW::lr(5e-2)).epochs(60).early_stop("val_loss", 3).run(&train, &valid)?;
let losses = history.get("val_loss");
let best = (0..losses.len()).min_by(|a, b| losses[*a].total_cmp(&losses[*b])).unwrap();
assert_eq!((history.best_epoch, history.len()), (Some(best), best + 1 + 3));
assert!((Fit::classifier(&model).evaluate(&valid)?["loss"] - losses[best]).abs() < 1e-6);""",
    ],
    "`ModelCheckpoint(save_best_only=True)`": [
        """use ferrotune::fit::ModelCheckpoint;
let model = nn::mlp(64, &[32], 10).build(&device)?;
let fit = Fit::classifier(&model).callback(ModelCheckpoint::new(&model, "best.safetensors").best("val_loss"));
let history = fit.optimizer(AdamW::lr(5e-2)).epochs(9).run(&train, &valid)?;
model.load("best.safetensors")?;
let least = history.get("val_loss").into_iter().fold(f64::INFINITY, f64::min);
assert!((Fit::classifier(&model).evaluate(&valid)?["loss"] - least).abs() < 1e-6);""",
        """%%tune --objective val_loss:min --max-trials 1 --project checkpoints
|trial| {
    let model = build(trial)?;
    Fit::classifier(&model).batch(256).epochs(2).run_in(trial, &train, &valid)
}""",
        """let files = std::fs::read_dir("studies/checkpoints/trials/0")?.map(|file| file.unwrap().path());
assert_eq!(files.filter(|file| file.extension() == Some("safetensors".as_ref())).count(), 2);""",
    ],
    "`Callback`, `LambdaCallback`": [
        """use ferrotune::fit::{Callback, Control, Logs};
struct Once;
impl Callback for Once {
    fn on_epoch_end(&mut self, _epoch: usize, _logs: &Logs, control: &mut Control) -> Result<()> {
        control.stop = true;
        Ok(())
    }
}
let model = nn::mlp(64, &[8], 10).build(&device)?;
let (mut seen, mut losses) = (Vec::new(), Vec::new());
let fit = Fit::classifier(&model).callback(Once).on_epoch(|epoch, logs| { seen.push((epoch, logs["loss"])); Ok(()) });
let fit = fit.on_batch(|batch| { losses.push(batch.loss()?); Ok(()) });
assert_eq!(fit.batch(100).epochs(5).run(&train, None)?.len(), 1);
assert_eq!((seen.len(), losses.len()), (1, 15));""",
    ],
    "`ReduceLROnPlateau`, `CSVLogger`, `TensorBoard`": [
        """use ferrotune::fit::{CsvLog, ReduceOnPlateau, TensorBoard};
let model = nn::mlp(64, &[8], 10).build(&device)?;
let fit = Fit::classifier(&model).callback(ReduceOnPlateau::new("val_loss", 0.5, 1));
let fit = fit.callback(CsvLog::new("log.csv")).callback(TensorBoard::new("logs"));
let history = fit.optimizer(AdamW::lr(1e-12)).epochs(3).run(&train, &valid)?;
// Without a better loss, the second epoch asks for half of the rate.
assert_eq!(history.epochs[2].learning_rate, 5e-13);
assert_eq!(std::fs::read_to_string("log.csv")?.lines().count(), 1 + 3);
assert!(std::fs::read_dir("logs/train")?.count() == 1 && std::fs::read_dir("logs/validation")?.count() == 1);""",
    ],
    "`CosineDecay`, `CosineAnnealingLR`": [
        """let model = nn::mlp(64, &[8], 10).build(&device)?;
let history = Fit::classifier(&model).optimizer(AdamW::lr(1e-2)).schedule(optim::cosine(0.0)).epochs(4).run(&train, None)?;
let rates: Vec<f64> = history.epochs.iter().map(|epoch| epoch.learning_rate).collect();
// Half of the rate is left in the middle, and nothing at the end.
assert!((rates[1] - 5e-3).abs() < 2e-4 && rates[3] < 1e-5, "{rates:?}");""",
    ],
    "`LinearLR` before it, `warmup_steps`": [
        """let model = nn::mlp(64, &[8], 10).build(&device)?;
let fit = Fit::classifier(&model).optimizer(AdamW::lr(1e-2)).schedule(optim::cosine(0.0).warm_up(0.1));
let history = fit.epochs(20).run(&train, None)?;
let rates: Vec<f64> = history.epochs.iter().map(|epoch| epoch.learning_rate).collect();
assert!(rates[0] < rates[1] && rates[1] > 9.9e-3 && rates[2] < rates[1], "{rates:?}");""",
    ],
    "`AdamW(lr=1e-3)`, `SGD(lr=0.1, momentum=0.9)`": [
        """let model = nn::mlp(64, &[8], 10).build(&device)?;
Fit::classifier(&model).optimizer(AdamW::lr(1e-3)).epochs(1).run(&train, None)?;
let sgd = optim::ParamsSGD { lr: 0.1, momentum: 0.9, ..Default::default() };
assert_eq!(Fit::classifier(&model).optimizer(sgd).epochs(1).run(&train, None)?.epochs[0].learning_rate, 0.1);""",
    ],
    "a parameter group with its own rate": [
        """let model = nn::mlp(64, &[8], 10).build(&device)?;
let before = model.vars().data().lock().unwrap()["0.weight"].to_vec2::<f32>()?;
Fit::classifier(&model).optimizer_of("0.", AdamW::lr(1e-4)).epochs(1).run(&train, None)?;
// 45 steps, each of which moves a weight by about the rate.
let moved = model.vars().data().lock().unwrap()["0.weight"].to_vec2::<f32>()?;
let most = before.iter().flatten().zip(moved.iter().flatten()).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
assert!(most > 1e-4 && most < 45.0 * 1.1e-4, "{most}");""",
    ],
    "`CrossEntropyLoss`, `BCEWithLogitsLoss`, `HuberLoss`": [
        """use nn::loss::{BinaryCrossEntropy, Huber, Loss as _};
let loss = nn::loss::CrossEntropy::default().loss(&Tensor::zeros((2, 10), DType::F32, &device)?, &Tensor::new(&[3u32, 4], &device)?)?;
assert!((loss.to_scalar::<f32>()? - 10f32.ln()).abs() < 1e-6);
let loss = BinaryCrossEntropy::default().loss(&Tensor::zeros(2, DType::F32, &device)?, &Tensor::new(&[0u32, 1], &device)?)?;
assert!((loss.to_scalar::<f32>()? - 2f32.ln()).abs() < 1e-6);
let loss = Huber::default().loss(&Tensor::new(&[0f32, 0.0], &device)?, &Tensor::new(&[0.5f32, 3.0], &device)?)?;
assert!((loss.to_scalar::<f32>()? - (0.125 + 2.5) / 2.0).abs() < 1e-6);""",
    ],
    "`class_weight`, `CrossEntropyLoss(weight=…)`": [
        """use nn::loss::{CrossEntropy, Loss as _};
let weighted = CrossEntropy { class_weights: Some(vec![1.0, 3.0]), ..Default::default() };
let (logits, labels) = (Tensor::new(&[[0f32, 1.0], [0.0, 1.0]], &device)?, Tensor::new(&[0u32, 1], &device)?);
// As in PyTorch, the sum of the weighted losses is divided by the sum of the weights.
let loss = weighted.loss(&logits, &labels)?.to_scalar::<f32>()?;
assert!((loss - (1.3132617 + 3.0 * 0.3132617) / 4.0).abs() < 1e-6);""",
    ],
    "`clip_grad_norm_`": [
        """let model = nn::mlp(64, &[8], 10).build(&device)?;
Fit::classifier(&model).clip_norm(1.0).epochs(1).run(&train, None)?;
let weights = || -> candle_core::Result<Vec<Vec<f32>>> { model.vars().data().lock().unwrap()["0.weight"].to_vec2() };
let before = weights()?;
Fit::classifier(&model).clip_norm(1e-9).optimizer(optim::SGD::lr(1.0)).epochs(1).run(&train, None)?;
assert!(before.iter().flatten().zip(weights()?.iter().flatten()).all(|(a, b)| (a - b).abs() < 1e-6));""",
    ],
    "`gradient_accumulation_steps=4`, `accumulate_grad_batches=4`": [
        """let weights = |batch: usize, batches: usize| -> Result<Vec<Vec<f32>>> {
    ferrotune::seed(7)?;
    let model = nn::mlp(64, &[8], 10).build(&device)?;
    // The first 160 rows, which both batches divide.
    let fit = Fit::classifier(&model).batch(batch).accumulate(batches).shuffle(0).optimizer(optim::SGD::lr(0.1));
    fit.epochs(2).run(&train.take(160), None)?;
    Ok(model.vars().data().lock().unwrap()["0.weight"].to_vec2::<f32>()?)
};
let (whole, accumulated) = (weights(80, 1)?, weights(20, 4)?);
assert!(whole.iter().flatten().zip(accumulated.iter().flatten()).all(|(a, b)| (a - b).abs() < 1e-5));
let model = nn::mlp(64, &[8], 10).build(&device)?;
Fit::classifier(&model).accumulate(4).epochs(1).run(&train, None)?;""",
    ],
    "`torch.manual_seed(7)`, `set_random_seed(7)`, `random_state=7`": [
        """ferrotune::seed(7)?;
let first = Tensor::randn(0f32, 1.0, 4, &device)?.to_vec1::<f32>()?;
ferrotune::seed(7)?;
assert_eq!(Tensor::randn(0f32, 1.0, 4, &device)?.to_vec1::<f32>()?, first);""",
    ],
    "`TensorDataset(x, y)`, `from_tensor_slices((x, y))`": [
        """let (x, y) = (Tensor::ones((6, 3), DType::F32, &device)?, Tensor::zeros(6, DType::U32, &device)?);
let dataset = Dataset::from_tensors((x, y))?;
assert_eq!(dataset.len(), Some(6));""",
    ],
    "`DataLoader(shuffle=True, batch_size=32)`": [
        """let dataset = valid.clone();
let batches = dataset.shuffle(1000, 7).batch(32, false);
let sizes = batches.iter().map(|batch| Ok(batch?.0.dim(0)?)).collect::<Result<Vec<usize>>>()?;
assert_eq!((sizes[0], sizes.iter().sum::<usize>() as u64), (32, dataset.len().unwrap()));
let model = nn::mlp(64, &[8], 10).build(&device)?;
Fit::classifier(&model).batch(32).epochs(1).run(&train, None)?;""",
    ],
    "`load_digits`, `load_iris`, `load_wine`": [
        "assert_eq!([data::digits()?.len(), data::iris()?.len(), data::wine()?.len()], [Some(1797), Some(150), Some(178)]);",
    ],
    "`pd.read_csv`, `df.describe()`": [
        ('let table = data::csv("houses.csv").target("price")?;\ntable.describe()', r"(?s)city +category.*rooms +number"),
    ],
    "`StandardScaler` of an array": [
        """let features = Tensor::new(&[[1f32, 5.0], [3.0, 5.0]], &device)?;
let scaler = StandardScaler::fit(&features)?;
assert_eq!(scaler.transform(&features)?.to_vec2::<f32>()?, [[-1.0, 0.0], [1.0, 0.0]]);""",
    ],
    "`ColumnTransformer` with `SimpleImputer`, `StandardScaler`, `OneHotEncoder`": [
        """let table = data::csv("houses.csv").target("price")?;
let prep = Prep::fit(&table)?;
// The city of each row, and the rooms, whose median 3 stands for the gap; their mean is 3, and their variance 10 / 6.
let rooms = prep.features(&table)?.i((.., prep.names().iter().position(|name| name == "rooms").unwrap()))?.to_vec1::<f32>()?;
let deviation = (10f32 / 6.0).sqrt();
assert!(rooms.iter().zip([-2f32, -1.0, 0.0, 0.0, 1.0, 2.0]).all(|(is, from)| (is - from / deviation).abs() < 1e-5), "{rooms:?}");
assert_eq!(prep.names().iter().filter(|name| name.starts_with("city")).count(), 2);""",
    ],
    "`OrdinalEncoder`, `MinMaxScaler`": [
        """use ferrotune::data::Scale;
let table = data::csv("houses.csv").target("price")?;
let prep = Prep::options().ordinal("city").scale(Scale::MinMax).fit(&table)?;
assert_eq!(prep.names(), ["city", "rooms", "rooms is missing"]);
assert_eq!(prep.features(&table)?.max(0)?.to_vec1::<f32>()?, [1.0, 1.0, 1.0]);""",
    ],
    "`Pipeline`, saved with `joblib.dump`": [
        """let prep = Prep::fit(&data::csv("houses.csv").target("price")?)?;
let model = nn::mlp(prep.width(), &[8], 1).build(&device)?;
prep.save("m.prep.json")?;
model.save("m.safetensors")?;
assert_eq!(Prep::load("m.prep.json")?.names(), prep.names());""",
    ],
    "`to_categorical`, `F.one_hot`": [
        """let labels = Tensor::new(&[0u32, 3], &device)?;
assert_eq!(data::one_hot(&labels, 10)?.sum(1)?.to_vec1::<f32>()?, [1.0, 1.0]);""",
    ],
    "`train_test_split`, `validation_split=0.2`": [
        """let rows = data::wine()?;
let [train, test] = rows.split([0.8, 0.2], 7)?;
assert_eq!(train.len().unwrap() + test.len().unwrap(), rows.len().unwrap());""",
        "let [train, valid] = data::digits()?.split([0.8, 0.2], 7)?;",
    ],
    "`KFold(5, shuffle=True)`": [
        """let rows = data::iris()?;
let folds = rows.split([0.2; 5], 7)?;
let sum = |part: &Dataset<(Tensor, Tensor)>| Ok::<f32, ferrotune::Error>(part.to_tensors()?.0.sum_all()?.to_scalar()?);
let mut sums = 0.0;
for held_out in 0..5 {
    let others: Vec<usize> = (0..5).filter(|fold| *fold != held_out).collect();
    let joined = others[1..].iter().fold(folds[others[0]].clone(), |joined, fold| joined.concat(&folds[*fold]));
    assert_eq!((joined.len(), folds[held_out].len()), (Some(120), Some(30)));
    let model = nn::mlp(4, &[8], 3).build(&device)?;
    assert_eq!(Fit::classifier(&model).epochs(1).run(&joined, &folds[held_out])?.get("val_accuracy").len(), 1);
    sums += sum(&folds[held_out])?;
}
// Each row is held out once.
assert!((sums - sum(&rows)?).abs() < 0.1);
assert_eq!(folds[0].concat(&folds[1]).len(), Some(60));""",
    ],
    "`accuracy_score`, `f1_score`, `confusion_matrix`": [
        """use metrics::{confusion_matrix, f1};
let (scores, labels) = (Tensor::new(&[[2f32, 0.0, 1.0], [0.0, 1.0, 3.0], [0.0, 1.0, 3.0]], &device)?, Tensor::new(&[0u32, 1, 2], &device)?);
let (mut accuracy, mut f1, mut confusion) = (metrics::accuracy(), f1(), confusion_matrix());
accuracy.update(&scores, &labels)?;
f1.update(&scores, &labels)?;
confusion.update(&scores, &labels)?;
// As `f1_score(…, average="macro")`, which scikit-learn asks for where there are more than two classes.
assert!((accuracy.value()? - 2.0 / 3.0).abs() < 1e-6 && (f1.value()? - 5.0 / 9.0).abs() < 1e-6);
confusion.matrix()?;""",
    ],
    "`precision_score`, `recall_score`, `roc_auc_score`, `top_k_accuracy_score`": [
        """use metrics::{auc, recall, top_k};
let (scores, labels) = (Tensor::new(&[-2f32, 0.5, 0.1, 3.0], &device)?, Tensor::new(&[0u32, 0, 1, 1], &device)?);
let (mut precision, mut recall, mut auc) = (metrics::precision(), recall(), auc());
precision.update(&scores, &labels)?;
recall.update(&scores, &labels)?;
auc.update(&scores, &labels)?;
assert!((precision.value()? - 2.0 / 3.0).abs() < 1e-6);
assert_eq!((recall.value()?, auc.value()?), (1.0, 0.75));
let mut second = top_k(2);
second.update(&Tensor::new(&[[0.1f32, 0.2, 0.3], [0.1, 0.2, 0.3]], &device)?, &Tensor::new(&[1u32, 0], &device)?)?;
assert_eq!(second.value()?, 0.5);""",
    ],
    "`mean_absolute_error`, `root_mean_squared_error`, `r2_score`": [
        """use metrics::{r2, rmse};
let (outputs, targets) = (Tensor::new(&[1f32, 2.0, 5.0], &device)?, Tensor::new(&[1f32, 2.0, 3.0], &device)?);
let (mut mae, mut rmse, mut r2) = (metrics::mae(), rmse(), r2());
mae.update(&outputs, &targets)?;
rmse.update(&outputs, &targets)?;
r2.update(&outputs, &targets)?;
let values = [mae.value()?, rmse.value()?, r2.value()?];
assert!(values.iter().zip([2.0 / 3.0, (4f64 / 3.0).sqrt(), -1.0]).all(|(is, of)| (is - of).abs() < 1e-6), "{values:?}");""",
    ],
    "`GridSearchCV`, `RandomizedSearchCV`": [
        ("%%tune --oracle grid --objective x:max --max-trials 9 --project all\n" + ONE_OF_THREE, "3/9 trials.* nothing is left to try"),
        ("%%tune --oracle random --objective x:max --max-trials 2 --project drawn\n" + ONE_OF_THREE, "2/2 trials"),
    ],
    # Its last column is the other table.
    "Keras Tuner, Optuna": [],
}

LOSSES = """|trial| {
    let x: f64 = trial.float("x", 0.0..=1.0).get()?;
    for epoch in trial.epochs(9) {
        trial.report(epoch, [("loss", (x - 0.3).abs() + 1.0 / (epoch + 1) as f64)])?;
    }
    trial.best("loss")
}"""

DRAWN = '|trial| { let x = trial.float("x", 0.0..=1.0).get()?; Ok(x) }'


def search(options, objective=LOSSES, metric="loss:min", trials=3):
    """The cell of a search."""
    return f"%%tune --objective {metric} --max-trials {trials} {options}\n{objective}"


def searches(options, **more):
    """A search for each of these options, in a study of its own, each of which runs to its end."""
    cells = []
    for option in options:
        project = re.sub(r"\W+", "-", option).strip("-")
        cells.append((search(f"{option} --project {project}", **more), r"[23]/3 trials.* done"))
    return cells


SEARCHES = {
    '`hp.Int("units", 32, 512, step=32)`': [
        """let trial = Trial::of([("units", 64.into())]);
assert_eq!(trial.int("units", 32..=512).step(32).get()?, 64);
assert!(Trial::of([("units", 65.into())]).int("units", 32..=512).step(32).get().is_err());""",
    ],
    '`hp.Float("lr", 1e-4, 1e-1, sampling="log")`': [
        """let trial = Trial::of([("lr", 0.1.into())]);
assert_eq!(trial.float("lr", 1e-4..=1e-1).log().get()?, 0.1);""",
        search("--oracle auto --project logarithmic", '|trial| Ok(trial.float("lr", 1e-4..=1e-1).log().get()?)', trials=1),
        # The middle of the range on its scale.
        ("%trials --project logarithmic", r"0\.00316"),
    ],
    '`sampling="reverse_log"`': [
        search("--oracle auto --project reversed", '|trial| Ok(trial.float("x", 1e-3..=1.0).reverse_log().get()?)', trials=1),
        ("%trials --project reversed", r"0\.969"),
    ],
    '`hp.Choice("act", […], ordered=…)`': [
        """let trial = Trial::of([("act", "relu".into()), ("size", 2.into())]);
assert_eq!(trial.choice("act", ["relu", "gelu"]).get()?, "relu");
assert_eq!(trial.choice("size", [1, 2, 4]).ordered().get()?, 2);""",
    ],
    "`hp.Boolean`, `hp.Fixed`": [
        """let trial = Trial::of([("bias", true.into()), ("depth", 2.into())]);
assert!(trial.bool("bias").get()?);
assert_eq!(trial.fixed("depth", 2).get()?, 2);""",
    ],
    "`hypermodel.build(best_hps)`": [
        """let best = ferrotune::best("digits")?;
assert_eq!(build(&best)?.parameters(), 75 * best.int("units", 32..=512).step(32).get()? + 10);
let values = [("units", 64.into())];
assert_eq!(build(&Trial::of(values))?.parameters(), 64 * 64 + 64 + 64 * 10 + 10);""",
    ],
    "`hp.conditional_scope(parent, values)`": [
        search(
            "--oracle random --seed 1 --project conditions",
            """|trial| {
    let (parent, value) = ("kind", "wide");
    let kind = trial.choice(parent, ["plain", "wide"]).get()?;
    let a = if kind == "wide" { trial.float("a", 1.0..=2.0).get()? } else { 0.0 };
    let b = trial.float("b", 1.0..=2.0).when(parent, value).get()?;
    Ok(a + b)
}""",
            trials=9,
        ),
        ("%space conditions", r"(?s)a .*if kind is wide.*b .*if kind is wide"),
    ],
    "`search_space_summary()`": [("%space digits", r"units +int +32\.\.=512 +step 32")],
    '`Objective("val_loss", "min")`': [
        (
            search(
                "--project named",
                """|trial| {
    trial.report(0, [("val_loss", trial.float("x", 0.0..=1.0).get()?)])?;
    trial.best("val_loss")
}""",
                "val_loss:min",
            ),
            "best: val_loss",
        ),
    ],
    "a list of objectives, summed with signs": [
        search("--oracle random --seed 1 --project front", DRAWN.replace("Ok(x)", "Ok((x, x))"), "a:max,b:min"),
        ("%best --project front", r"(?s)(?:\n +\d+ .*){3}"),
    ],
    "`constraints_func`": [
        search(
            '--oracle random --seed 1 --constraint "latency<=10" --project bounded',
            '|trial| { let x = trial.float("x", 0.0..=20.0).get()?; trial.report(0, [("latency", x)])?; Ok(x) }',
            "x:max",
            trials=8,
        ),
        'assert!(ferrotune::best("bounded")?.value.unwrap() <= 10.0);',
    ],
    "`RandomSearch`, `GridSearch`": [
        *searches(["--oracle random", "--oracle qmc"]),
        *searches(["--oracle grid"], objective='|trial| Ok(trial.choice("x", [1.0, 2.0]).get()?)'),
        (
            search('--oracle "grid:lr=0.1|0.01" --project combinations', '|trial| Ok(trial.float("lr", 1e-4..=1.0).get()?)', trials=9),
            r"best: loss = 0\.01 ",
        ),
        ("%trials --project combinations", r"(?s)\A(?:[^\n]+\n){2}[^\n]+\Z"),
    ],
    "`factor`, `hyperband_iterations`": [
        (search('--oracle "hyperband:factor=4,iterations=2" --project set', trials=60), r"12/60 trials.*nothing is left to try"),
    ],
    "`BayesianOptimization`": [
        *searches(["--oracle auto", "--oracle gp", "--oracle tpe", "--oracle cmaes"]),
        search("--project by-default"),
        ("%studies", r"by-default +\S+ +auto"),
    ],
    "`Hyperband`": searches([f"--oracle {name}" for name in ("hyperband", "bohb", "asha", "successive_halving", "pbt", "pb2")]),
    "`NSGAIISampler`, `NSGAIIISampler`": searches(["--oracle nsga2", "--oracle nsga3"]),
    "an `EarlyStopping` callback": searches(["--pruner median", "--pruner patience:steps=3", "--pruner patience:steps=3,around=median"]),
    "`trial.report(loss, step)`, `trial.should_prune()`": [
        (
            search(
                "--pruner threshold:upper=0.5 --project pruned",
                """|trial| {
    let x: f64 = trial.float("x", 0.0..=1.0).get()?;
    for step in trial.epochs(3) {
        let loss = x + step as f64;
        trial.report(step, [("loss", loss)])?;
    }
    trial.best("loss")
}""",
                trials=1,
            ),
            "1 pruned",
        ),
    ],
    "`Terminator`": searches(["--terminator stagnation"]),
    "`max_trials` (of the study)": [
        search("--oracle random --project counted", trials=2),
        (search("--oracle random --project counted", trials=2), "2/2 trials|2 trials"),
        (search("--oracle random --project counted", trials=3), "3/3 trials"),
    ],
    "`timeout`": [
        (
            search(
                "--timeout 1s --project timed",
                """|trial| {
    let x = trial.float("x", 0.0..=1.0).get()?;
    for epoch in trial.epochs(1000) {
        std::thread::sleep(std::time::Duration::from_millis(50));
        trial.report(epoch, [("loss", x)])?;
    }
    trial.best("loss")
}""",
            ),
            "0/3 trials",
        ),
    ],
    "`seed`": [
        *(search(f"--oracle random --seed 7 --project {project}") for project in ("seeded", "again")),
        'assert_eq!(ferrotune::best("seeded")?.value, ferrotune::best("again")?.value);',
    ],
    "`executions_per_trial`": [
        # The mean of the numbers of executions.
        (search("--executions 3 --project executed", DRAWN.replace("Ok(x)", "Ok(0.0 * x + trial.execution() as f64)"), trials=1), "loss = 1 "),
    ],
    "`study.add_trials`, `source_trials`": [
        search("--oracle random --project source"),
        search("--oracle random --from source --project learned", trials=1),
        'assert_eq!(ferrotune::best("learned")?.value, ferrotune::best("source")?.value);',
    ],
    "`hyperparameters=…`, `tune_new_entries=False`": [
        search(
            '--oracle random --fix b=2 --enqueue "x=0.25" --tune-only x --project decided',
            """|trial| {
    let x = trial.float("x", 0.0..=1.0).get()?;
    let (b, c) = (trial.int("b", 1..=9).get()?, trial.int("c", 1..=9).default(5).get()?);
    Ok(x + (b + c) as f64)
}""",
        ),
        ("%trials --project decided --sort trial --columns trial,loss", r"\n +0 +7\.25"),
    ],
    "`max_retries_per_trial`, `max_consecutive_failed_trials`": [
        (
            search(
                "--oracle random --retries 1 --max-consecutive-failures 1 --project again-and-again",
                """|trial| {
    let x = trial.float("x", 0.0..=1.0).get()?;
    let marker = trial.folder().join("was-here");
    if !marker.exists() {
        std::fs::write(marker, "")?;
        std::process::abort();
    }
    Ok(x)
}""",
            ),
            r"3/3 trials, [\d.]+ s, done",
        ),
    ],
    "`directory`, `project_name`, `overwrite`": [
        search("--directory elsewhere --project kept", trials=2),
        (search("--directory elsewhere --project kept --overwrite", trials=1), "1/1 trials"),
        'assert!(std::path::Path::new("elsewhere/kept/journal.log").exists());',
    ],
    "`tuner.reload()`": [search("--project reloaded", trials=1), ("%resume reloaded", "1/1 trials|1 trial")],
    "chief and workers by gRPC": [(search("--concurrency 2 --project beside"), "3/3 trials")],
    # A Rust program: the tests of its crate run this file.
    "`study.add_trial`": ROOT / "tuner/study/tests/it/additions.rs",
    "`trial.set_user_attr`, `study.stop()`": [
        (
            search("--project stopped", DRAWN.replace("Ok(x)", 'trial.set_user_attr("note", "first")?; trial.stop_search()?; Ok(x)')),
            "1/3 trials",
        ),
        ("%trials 0 --project stopped", r"note: \"first\""),
    ],
    "`results_summary()`, `get_best_hyperparameters()`": [
        ("%trials --project digits", "units"),
        ("%best --project digits", "let units"),
    ],
    "`get_best_models()`": [
        """let best = ferrotune::best("digits")?;
assert!((Fit::classifier(&best.model()?).evaluate(&valid)?["loss"] - best.metrics["val_loss"]).abs() < 1e-6);
let model = build(&best)?;
best.restore(model.vars())?;
assert!((Fit::classifier(&model).evaluate(&valid)?["loss"] - best.metrics["val_loss"]).abs() < 1e-6);""",
    ],
    "`optuna.visualization`": [("%plot history --project digits", "history: digits")],
    "TensorBoard's callback": [
        search("--tensorboard live --project shown"),
        "%export tensorboard runs --project shown",
        'for folder in ["live", "runs"] { assert!(std::fs::read_dir(folder)?.count() > 0); }',
    ],
    # A Rust program: the documentation of its crate runs this file.
    "subclass `Tuner`, override `run_trial`": ROOT / "tuner/study/tests/it/in_process.rs",
}

PAGES = {"training.md": TRAINING, "coming-from.md": SEARCHES}


def rows(page):
    """The rows of the page's last table, by their first text, with the text of the last column."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    table = re.findall(r"(?:^\|.*\n)+", text, re.M)[-1]
    _, rule, *lines = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in table.splitlines()]
    assert set("".join(rule)) == {"-"}, rule
    found = {next(cell for cell in cells if cell): cells[-1].replace(r"\|", "|") for cells in lines}
    assert len(found) == len(lines), "two rows begin with the same text"
    return found


def names(text):
    """The identifiers, options and magics in the code of a text; a word in capital letters is a place for the user's own."""
    found = re.findall(r"--[a-z][a-z-]*|%+[a-z_]+|\b[A-Za-z_]\w*", " ".join(re.findall(r"`([^`]*)`", text)))
    return {name for name in found if not (name.isupper() and len(name) > 1)}


def sources(cells):
    """The text of a row's cells, or of its file."""
    if isinstance(cells, pathlib.Path):
        return cells.read_text()
    return "\n".join(cell if isinstance(cell, str) else cell[0] for cell in cells)


def write_pth(path, name, array):
    """Writes one tensor as `torch.save` does: a pickle of references to PyTorch's functions, and the numbers beside it."""
    torch, utils = types.ModuleType("torch"), types.ModuleType("torch._utils")
    torch.FloatStorage = type("FloatStorage", (), {"__module__": "torch"})

    def _rebuild_tensor_v2():
        raise NotImplementedError

    _rebuild_tensor_v2.__module__ = "torch._utils"
    _rebuild_tensor_v2.__qualname__ = "_rebuild_tensor_v2"
    utils._rebuild_tensor_v2 = _rebuild_tensor_v2

    class Storage:
        pass

    class Saved:
        def __reduce__(self):
            strides = (array.shape[1], 1)
            return _rebuild_tensor_v2, (Storage(), 0, array.shape, strides, False, {})

    class Pickler(pickle.Pickler):
        def persistent_id(self, value):
            return ("storage", torch.FloatStorage, "0", "cpu", array.size) if isinstance(value, Storage) else None

    pickled = io.BytesIO()
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "torch", torch)
        patch.setitem(sys.modules, "torch._utils", utils)
        Pickler(pickled, protocol=2).dump({name: Saved()})
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("m/data.pkl", pickled.getvalue())
        archive.writestr("m/byteorder", sys.byteorder)
        archive.writestr("m/data/0", struct.pack(f"<{array.size}f", *array.flatten()))
        archive.writestr("m/version", "3\n")


@pytest.fixture(scope="module")
def notebook(tmp_path_factory):
    session = Session(tmp_path_factory.mktemp("coming-from"))
    shapes = {"0.weight": (8, 64), "0.bias": 8, "2.weight": (10, 8), "2.bias": 10}
    save_file({name: np.ones(shape, np.float32) for name, shape in shapes.items()}, session.folder / "python.safetensors", {"format": "pt"})
    write_pth(session.folder / "m.pt", "weight", np.arange(1, 7, dtype=np.float32).reshape(2, 3))
    (session.folder / "houses.csv").write_text("city,rooms,price\nOslo,1,10\nBergen,2,20\nOslo,3,30\nBergen,,30\nOslo,4,40\nOslo,5,50\n")
    for cell in SETUP:
        session.ok(cell)
    yield session
    session.close()


@pytest.mark.parametrize("page", PAGES)
def test_each_row_has_cells_and_each_cell_has_a_row(page):
    assert list(PAGES[page]) == list(rows(page))


@pytest.mark.parametrize(("page", "row"), [(page, row) for page, found in PAGES.items() for row in found])
def test_the_cells_of_a_row_use_what_it_names_and_run(notebook, page, row):
    cells = PAGES[page][row]
    text = sources(cells)
    missing = [name for name in names(rows(page)[row]) if not re.search(rf"(?<![\w%-]){re.escape(name)}(?![\w-])", text)]
    assert not missing, f"no cell of the row uses {missing}"
    if isinstance(cells, pathlib.Path):
        return
    for cell in cells:
        code, shown = (cell, "") if isinstance(cell, str) else cell
        outcome = notebook.ok(code)
        seen = "\n".join(text for text in (*outcome.displays, outcome.result, outcome.stdout) if text)
        assert re.search(shown, seen), f"{code}\nshows\n{seen}"


def test_python_reads_the_file_of_a_model(notebook):
    notebook.ok('nn::mlp(64, &[8], 10).build(&device)?.save("for-python.safetensors")?;')
    read = load_file(pathlib.Path(notebook.folder) / "for-python.safetensors")
    shapes = {name: array.shape for name, array in read.items()}
    assert shapes == {"0.weight": (8, 64), "0.bias": (8,), "2.weight": (10, 8), "2.bias": (10,)}
