//! Models that are built from their description: the same layers, variables, predictions and training as before.

use candle_core::random::{Draws, with_draws};
use candle_core::{DType, Device, Module, Result, Tensor};
use candle_nn::ops::Identity;
use candle_nn::{
    Activation, BatchNormConfig, Conv1dConfig, Conv2d, Conv2dConfig, ConvTranspose1dConfig, ConvTranspose2dConfig,
    Dropout, Init, LayerNorm, LayerNormConfig, Linear, VarBuilder, VarMap, batch_norm, conv_transpose1d,
    conv_transpose2d_no_bias, conv1d, conv1d_no_bias, conv2d, embedding, func, group_norm, layer_norm,
    layer_norm_no_bias, linear, linear_no_bias, prelu, rms_norm,
};
use ferrotune_nn::{self as nn, Model, Sequential};
use std::collections::BTreeMap;
use std::sync::Arc;

const CPU: Device = Device::Cpu;
const DRAWS: Draws = Draws { seed: 5, drawn: 0 };

/// The bits of a tensor, with its type.
fn bits(tensor: &Tensor) -> (DType, Vec<u64>) {
    let values: Vec<f64> = tensor.to_dtype(DType::F64).unwrap().flatten_all().unwrap().to_vec1().unwrap();
    (tensor.dtype(), values.into_iter().map(f64::to_bits).collect())
}

type State = BTreeMap<String, (bool, Vec<usize>, (DType, Vec<u64>))>;

/// Each variable: whether it is trained, its shape, its type and its bits.
fn state(model: &dyn Model) -> State {
    let trainable: Vec<_> = model.trainable().iter().map(|var| var.id()).collect();
    let vars = model.vars().data().lock().unwrap();
    let one = |(name, var): (&String, &candle_core::Var)| {
        (name.clone(), (trainable.contains(&var.id()), var.dims().to_vec(), bits(var)))
    };
    vars.iter().map(one).collect()
}

fn opened(model: &Sequential) -> Sequential {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.safetensors");
    model.save(&path).unwrap();
    nn::open(&path, &CPU).unwrap()
}

/// Compares a model with the one that is opened from its files, and with the one that is built with the same random numbers.
fn check(make: impl Fn() -> Result<Sequential>, xs: &Tensor) -> Sequential {
    let model = with_draws(DRAWS, make).unwrap();
    let json = nn::describe(&model).unwrap();
    let built = with_draws(DRAWS, || nn::build(&json, &CPU)).unwrap();
    assert_eq!(state(&built), state(&model), "{json}");
    let opened = opened(&model);
    for other in [&built, &opened] {
        assert_eq!(nn::describe(other).as_ref(), Ok(&json));
        assert_eq!(format!("{other:?}"), format!("{model:?}"));
        assert_eq!(other.summary().unwrap(), model.summary().unwrap());
    }
    // Training changes the statistics, and the next steps and predictions have the changed ones.
    for train in [false, true, true, false] {
        let outputs = |model: &Sequential| bits(&with_draws(DRAWS, || model.forward(xs, train)).unwrap());
        let expected = outputs(&model);
        assert_eq!(outputs(&opened), expected, "{json}");
        assert_eq!(outputs(&built), expected, "{json}");
        assert_eq!(state(&opened), state(&model), "{json}");
    }
    opened
}

fn randn(shape: &[usize]) -> Tensor {
    Tensor::randn(0_f32, 1.0, shape, &CPU).unwrap()
}

#[test]
fn an_mlp_is_opened_with_every_choice() {
    let xs = randn(&[6, 3]);
    check(|| nn::mlp(3, &[], 2).build(&CPU), &xs);
    check(|| nn::mlp(3, &[4, 5], 2).batch_norm().dropout(0.3).activation(Activation::Gelu).build(&CPU), &xs);
    check(|| nn::mlp(3, &[4], 2).dtype(DType::F64).batch_norm().build(&CPU), &xs.to_dtype(DType::F64).unwrap());
    check(|| nn::mlp(3, &[4], 2).dtype(DType::BF16).build(&CPU), &xs.to_dtype(DType::BF16).unwrap());
}

#[test]
fn a_cnn_is_opened_with_every_choice() {
    let make = || nn::cnn([2, 9, 8], &[3, 4], 5).kernel(5).hidden(&[6]).batch_norm().dropout(0.25).build(&CPU);
    let opened = check(make, &randn(&[3, 2, 9, 8]));
    assert_eq!(opened.summary().unwrap().output, Some(vec![5]));
}

/// The text is on disk, so a change of it is a new version.
#[test]
fn the_text_of_a_version_does_not_change() -> Result<()> {
    let mut model = nn::mlp(3, &[4], 2).dropout(0.25).build(&CPU)?.add(Activation::LeakyRelu(0.1));
    model.freeze("3.bias")?;
    let expected = concat!(
        r#"{"version":1,"input":[3],"frozen":["3.bias"],"layers":["#,
        r#"{"name":"0","layer":{"linear":{"inputs":3,"outputs":4,"bias":true}},"variables":"#,
        r#"{"bias":{"name":"0.bias","dtype":"f32"},"weight":{"name":"0.weight","dtype":"f32"}}},"#,
        r#"{"name":"1","layer":{"activation":"relu"}},"#,
        r#"{"name":"2","layer":{"dropout":{"probability":0.25}}},"#,
        r#"{"name":"3","layer":{"linear":{"inputs":4,"outputs":2,"bias":true}},"variables":"#,
        r#"{"bias":{"name":"3.bias","dtype":"f32"},"weight":{"name":"3.weight","dtype":"f32"}}},"#,
        r#"{"name":"4","layer":{"activation":{"leakyrelu":0.1}}}]}"#,
    );
    assert_eq!(nn::describe(&model).unwrap(), expected);
    Ok(())
}

#[test]
fn all_activations_are_opened() {
    let activations = [
        Activation::Gelu,
        Activation::NewGelu,
        Activation::Relu,
        Activation::Relu2,
        Activation::Relu6,
        Activation::Silu,
        Activation::Sigmoid,
        Activation::HardSigmoid,
        Activation::Swiglu,
        Activation::Swish,
        Activation::Mish,
        Activation::HardSwish,
        Activation::Elu(0.1 + 0.2),
        Activation::LeakyRelu(1.0 / 3.0),
        Activation::GeluPytorchTanh,
    ];
    for activation in activations {
        check(|| Ok(nn::mlp(3, &[], 4).build(&CPU)?.add(activation)), &randn(&[5, 3]));
    }
}

fn of_sequences() -> Result<Sequential> {
    nn::model(&CPU, |vb| {
        let strided = Conv1dConfig { padding: 2, stride: 2, dilation: 2, groups: 2, cudnn_fwd_algo: None };
        let larger = ConvTranspose1dConfig { padding: 1, output_padding: 1, stride: 3, dilation: 1, groups: 2 };
        let norm = BatchNormConfig { eps: 0.1 + 0.2, remove_mean: false, affine: false, momentum: 1.0 / 3.0 };
        let biased_rms = LayerNormConfig { eps: 1e-3, remove_mean: false, affine: true };
        Ok(nn::seq()
            .add(embedding(11, 4, vb.pp("words"))?)
            .add(layer_norm(4, 1e-4, vb.pp("norm"))?)
            .add(layer_norm(4, biased_rms, vb.pp("biased_rms"))?)
            .add(layer_norm_no_bias(4, 1e-6, vb.pp("scaled"))?)
            .add(rms_norm(4, 1e-2, vb.pp("deep").pp("rms"))?)
            .add_as("convolve", conv1d(6, 4, 3, strided, vb.pp("conv"))?)
            .add(prelu(Some(4), vb.pp("slopes"))?)
            .add(conv1d_no_bias(4, 4, 1, Conv1dConfig::default(), vb.pp("mixed"))?)
            .add(conv_transpose1d(4, 2, 3, larger, vb.pp("widen"))?)
            .add(prelu(None, vb.pp("slope"))?)
            .add(batch_norm(2, norm, vb.pp("statistics"))?)
            .add(Identity)
            .add(Dropout::new(0.1))
            .add_as(
                "part",
                nn::seq()
                    .add(linear_no_bias(5, 3, vb.pp("inner"))?)
                    .add(nn::mlp(3, &[2], 3).batch_norm().build(&CPU)?)
                    .add(nn::seq()),
            )
            .add(nn::flatten())
            .add(linear(6, 2, vb.pp(""))?)
            .input(&[6]))
    })
}

#[test]
fn every_layer_of_sequences_is_opened() {
    let words = Tensor::new(&[[0_u32, 1, 2, 3, 4, 10], [10, 9, 8, 7, 6, 5]], &CPU).unwrap();
    check(of_sequences, &words);
}

#[test]
fn every_layer_of_images_is_opened() {
    let make = || {
        nn::model(&CPU, |vb| {
            let vb = vb.to_dtype(DType::F64);
            let config = Conv2dConfig { padding: 1, stride: 2, dilation: 2, groups: 2, ..Conv2dConfig::default() };
            let larger = ConvTranspose2dConfig { padding: 1, output_padding: 1, stride: 2, dilation: 1 };
            Ok(nn::seq()
                .add(conv2d(4, 6, 3, config, vb.pp("conv"))?)
                .add(conv_transpose2d_no_bias(6, 3, 3, larger, vb.pp("widen"))?)
                .add(batch_norm(3, 1e-3, vb.pp("norm"))?)
                .add(nn::max_pool2d(3))
                .add(nn::flatten()))
        })
    };
    check(make, &randn(&[2, 4, 13, 13]).to_dtype(DType::F64).unwrap());
}

#[test]
fn layers_may_share_variables_and_name_them_freely() -> Result<()> {
    let model = nn::model(&CPU, |vb| {
        let words = embedding(7, 4, vb.pp("words"))?;
        let logits = Linear::new(words.embeddings().clone(), None);
        let gamma = vb.get_with_hints(4, "gamma", Init::Const(2.0))?;
        let norm = LayerNorm::new(gamma, vb.get_with_hints(4, "old.beta", Init::Const(3.0))?, 1e-5);
        Ok(nn::seq().add(words).add(norm.clone()).add(norm).add(logits))
    })?;
    let xs = Tensor::new(&[[1_u32, 2], [3, 6]], &CPU)?;
    let opened = opened(&model);
    assert_eq!((state(&opened), opened.vars().all_vars().len()), (state(&model), 3));
    assert_eq!(bits(&opened.predict(&xs)?), bits(&model.predict(&xs)?));
    let gradients = opened.forward(&xs, true)?.sqr()?.sum_all()?.backward()?;
    assert!(opened.trainable().iter().all(|var| gradients.get(var).is_some()));
    let built = nn::build(&nn::describe(&model).unwrap(), &CPU)?;
    assert_eq!(built.vars().all_vars().len(), 3);
    Ok(())
}

#[test]
fn a_built_model_has_new_values_and_the_same_shapes() -> Result<()> {
    let model = nn::mlp(3, &[4], 2).batch_norm().build(&CPU)?;
    model.forward(&randn(&[8, 3]), true)?;
    let built = nn::build(&nn::describe(&model).unwrap(), &CPU)?;
    let (old, new) = (state(&model), state(&built));
    let shapes = |state: &State| state.iter().map(|(name, var)| (name.clone(), var.1.clone())).collect::<Vec<_>>();
    assert_eq!(shapes(&old), shapes(&new));
    for name in ["0.weight", "0.bias", "1.running_mean", "3.weight"] {
        assert_ne!(old[name], new[name], "{name}");
    }
    assert_eq!(new["1.running_mean"].2, (DType::F32, vec![0; 4]));
    Ok(())
}

#[test]
fn frozen_variables_stay_frozen() -> Result<()> {
    let mut part = nn::mlp(3, &[4], 3).batch_norm().build(&CPU)?;
    part.freeze("0.")?;
    let mut model = nn::seq().add(part).add(nn::mlp(3, &[4], 2).build(&CPU)?).add(Activation::Relu);
    model.freeze("1.2.weight")?;
    let trained = |model: &Sequential| state(model).into_iter().filter(|(_, var)| var.0).map(|(name, _)| name);
    let expected = ["0.1.bias", "0.1.weight", "0.3.bias", "0.3.weight", "1.0.bias", "1.0.weight", "1.2.bias"];
    let built = nn::build(&nn::describe(&model).unwrap(), &CPU)?;
    for mut other in [opened(&model), built] {
        assert_eq!(trained(&other).collect::<Vec<_>>(), expected);
        other.unfreeze();
        assert_eq!(trained(&other).count(), 10);
    }
    Ok(())
}

#[test]
fn models_within_models_and_pointers_to_models_are_described() -> Result<()> {
    let part = Arc::new(nn::mlp(3, &[4], 3).build(&CPU)?);
    let model = nn::seq().add_model(Arc::clone(&part)).add_model(Box::new(nn::mlp(3, &[], 1).build(&CPU)?) as Boxed);
    let boxed: Box<dyn Model> = Box::new(&model);
    assert_eq!(nn::describe(&boxed), nn::describe(&model));
    let (opened, xs) = (opened(&model), randn(&[2, 3]));
    assert_eq!((state(&opened), bits(&opened.predict(&xs)?)), (state(&model), bits(&model.predict(&xs)?)));
    Ok(())
}

type Boxed = Box<dyn Model + Send + Sync>;

struct Own(Linear, VarMap);

impl Module for Own {
    fn forward(&self, xs: &Tensor) -> Result<Tensor> {
        self.0.forward(xs)
    }
}

struct OwnModel(Own);

impl Model for OwnModel {
    fn forward(&self, xs: &Tensor, _train: bool) -> Result<Tensor> {
        self.0.forward(xs)
    }

    fn vars(&self) -> &VarMap {
        &self.0.1
    }
}

fn own() -> Own {
    let vars = VarMap::new();
    Own(linear(2, 2, VarBuilder::from_varmap(&vars, DType::F32, &CPU)).unwrap(), vars)
}

#[test]
fn what_a_description_cannot_have_is_named() -> Result<()> {
    let reason = |model: &dyn Model| nn::describe(model).unwrap_err();
    let of = |build: &dyn Fn(VarBuilder<'static>) -> Result<Sequential>| reason(&nn::model(&CPU, build).unwrap());
    let closure = || nn::seq().add(Activation::Relu).add(|xs: &Tensor| xs * 0.5);
    assert_eq!(reason(&closure()), "layer 1 is a closure");
    assert_eq!(reason(&nn::seq().add(Activation::Relu).add(closure())), "layer 1.1 is a closure");
    assert_eq!(reason(&nn::seq().add_as("head", func(|xs| xs + 1.0))), "layer head is a closure");
    assert_eq!(reason(&nn::seq().add(own())), "layer 0 has the type `Own`, which a description does not know");
    let of_own = "layer 0 has the type `OwnModel`, which a description does not know";
    assert_eq!(reason(&nn::seq().add_model(OwnModel(own()))), of_own);
    assert_eq!(reason(&OwnModel(own())), "the model has a type of your own, which a description does not know");
    let group = of(&|vb| Ok(nn::seq().add(group_norm(1, 2, 1e-5, vb)?)));
    assert_eq!(group, "layer 0 has the type `GroupNorm`, which a description does not know");

    let fixed = of(&|_| Ok(nn::seq().add(Linear::new(Tensor::ones((2, 2), DType::F32, &CPU)?, None))));
    assert_eq!(fixed, "layer 0 has a `weight` that is no variable of the model");
    let turned = of(&|vb| Ok(nn::seq().add(Linear::new(vb.get((2, 3), "weight")?.t()?, None))));
    assert_eq!(turned, "layer 0 has a `weight` that is no variable of the model");
    let oblong = of(&|vb| Ok(nn::seq().add(Conv2d::new(vb.get((2, 1, 3, 5), "w")?, None, Conv2dConfig::default()))));
    assert_eq!(oblong, "layer 0 has a `weight` of shape [2, 1, 3, 5], which its function in candle does not make");
    let unused = of(&|vb| {
        linear(2, 2, vb.pp("unused"))?;
        Ok(nn::seq().add(linear(2, 2, vb.pp("used"))?))
    });
    assert_eq!(unused, "the variable `unused.bias` belongs to no layer");
    let twice = nn::mlp(2, &[], 2).build(&CPU)?;
    let weight = twice.vars().data().lock().unwrap()["0.weight"].clone();
    twice.vars().data().lock().unwrap().insert("again".to_owned(), weight);
    assert_eq!(reason(&twice), "a variable has two names, `again` and `0.weight`");

    let infinite = reason(&nn::seq().add(Activation::Elu(f64::INFINITY)));
    assert_eq!(infinite, "layer 0 has a number that is infinite or no number");
    assert_eq!(reason(&nn::seq().add(Dropout::new(1.0))), "layer 0 drops with probability 1, which is not below 1");
    assert_eq!(reason(&nn::seq().add(nn::max_pool2d(0))), "layer 0 has a size of 0");
    let inputs = reason(&nn::seq().input(&[usize::MAX, 2]));
    assert!(inputs.contains("more than 2147483647 elements"), "{inputs}");
    let deep = |depth: usize| (0..depth).fold(nn::seq(), |model, _| nn::seq().add(model));
    assert!(nn::build(&nn::describe(&deep(24)).unwrap(), &CPU).is_ok());
    assert!(reason(&deep(25)).ends_with("is more than 24 models deep"));
    opened(&deep(24));
    Ok(())
}
