//! Models: training against evaluation, variables, summaries and predictions.

use candle_core::{DType, Device, Module, ModuleT, Result, Tensor, Var};
use candle_nn::{
    Activation, BatchNorm, BatchNormConfig, Dropout, Linear, VarBuilder, VarMap, batch_norm, conv2d, embedding, linear,
};
use ferrotune_nn::{self as nn, Model};

const CPU: Device = Device::Cpu;

fn names(model: &impl Model) -> Vec<String> {
    let mut names: Vec<String> = model.vars().data().lock().unwrap().keys().cloned().collect();
    names.sort();
    names
}

fn values(tensor: &Tensor) -> Vec<f64> {
    tensor.to_dtype(DType::F64).unwrap().flatten_all().unwrap().to_vec1().unwrap()
}

#[test]
fn statistics_of_batch_norm_change_in_training_only_and_are_not_trainable() -> Result<()> {
    let model = nn::mlp(3, &[4], 2).batch_norm().dropout(0.5).build(&CPU)?;
    assert_eq!(
        names(&model),
        ["0.bias", "0.weight", "1.bias", "1.running_mean", "1.running_var", "1.weight", "4.bias", "4.weight"]
    );
    assert_eq!((model.trainable().len(), model.parameters()), (6, 3 * 4 + 4 + 8 + 4 * 2 + 2));
    let statistics = || values(&model.vars().data().lock().unwrap()["1.running_mean"]);
    let xs = Tensor::randn(0_f32, 1.0, (16, 3), &CPU)?;
    let before = statistics();
    let first = values(&model.forward(&xs, false)?);
    assert_eq!(values(&model.predict(&xs)?), first);
    model.summary()?;
    assert_eq!(statistics(), before);
    let trained = [values(&model.forward(&xs, true)?), values(&model.forward(&xs, true)?)];
    assert_ne!(trained[0], trained[1], "dropout drops others each time");
    assert_ne!(statistics(), before);
    let gradients = model.forward(&xs, true)?.sqr()?.sum_all()?.backward()?;
    assert!(model.trainable().iter().all(|var| gradients.get(var).is_some()));
    Ok(())
}

#[test]
fn predictions_are_those_of_one_batch_and_keep_no_graph() -> Result<()> {
    let model = nn::mlp(3, &[4], 2).build(&CPU)?;
    let xs = Tensor::randn(0_f32, 1.0, (3, 7), &CPU)?.t()?;
    let whole = values(&model.forward(&xs, false)?);
    for batch in [1, 2, 3, 6, 7, 8, 512] {
        let outputs = model.predict_in_batches(&xs, batch)?;
        let worst = values(&outputs).iter().zip(&whole).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
        assert!(worst < 1e-6, "{batch}: {worst}");
        assert!(outputs.sum_all()?.backward()?.get(&model.trainable()[0]).is_none());
    }
    let none = model.predict(&Tensor::zeros((0, 3), DType::F32, &CPU)?)?;
    assert_eq!((none.dims(), none.dtype()), ([0, 2].as_slice(), DType::F32));
    let error = model.predict(&Tensor::new(1_f32, &CPU)?).unwrap_err().to_string();
    assert!(error.contains("a scalar has no rows"), "{error}");
    assert!(model.predict_in_batches(&xs, 0).is_err());
    Ok(())
}

#[test]
fn threads_can_share_a_model() {
    fn is_shared<T: Send + Sync>() {}
    is_shared::<nn::Sequential>();
    is_shared::<nn::metrics::Meter<nn::metrics::ClassScore>>();
    is_shared::<Box<dyn nn::loss::Loss>>();
}

#[test]
fn a_layer_that_fails_is_named() -> Result<()> {
    let model = nn::mlp(3, &[4], 2).build(&CPU)?;
    let error = model.forward(&Tensor::zeros((2, 5), DType::F32, &CPU)?, false).unwrap_err().to_string();
    assert!(error.contains("layer 0 of the model (Linear) got [2, 5]"), "{error}");
    Ok(())
}

/// A layer of one's own, whose variables the summary finds by gradients.
struct Scaled(Linear, Tensor);

impl Module for Scaled {
    fn forward(&self, xs: &Tensor) -> Result<Tensor> {
        self.0.forward(xs)?.broadcast_mul(&self.1)
    }
}

#[test]
fn a_summary_has_shapes_and_parameters_of_all_kinds_of_layers() -> Result<()> {
    let model = nn::model(&CPU, |vb| {
        let inner = nn::seq().add(Activation::Silu).add(Dropout::new(0.1));
        let own = Scaled(linear(6, 5, vb.pp("own"))?, vb.pp("own").get((5,), "scale")?);
        let free = linear(5, 5, vb.pp("free"))?;
        Ok(nn::seq()
            .add(embedding(11, 4, vb.pp("words"))?)
            .add(|xs: &Tensor| xs.mean(1))
            .add_as("widen", linear(4, 6, vb.pp("widen"))?)
            .add(batch_norm(6, BatchNormConfig { affine: false, ..BatchNormConfig::default() }, vb.pp("norm"))?)
            .add(inner)
            .add(own)
            .add(move |xs: &Tensor| free.forward(xs))
            .input(&[9]))
    })?;
    let expected = "\
layer                 output     parameters
0      Embedding      (n, 9, 4)          44
1      closure        (n, 4)              0
widen  Linear         (n, 6)             30
3      BatchNorm      (n, 6)             12
4.0    Silu           (n, 6)              0
4.1    Dropout        (n, 6)              0
5      Scaled         (n, 5)             40
6      closure        (n, 5)             30
       trainable                        144
       not trainable                     12";
    assert_eq!(model.summary()?.to_string(), expected);
    let xs = Tensor::zeros((3, 2), DType::U32, &CPU)?;
    assert_eq!(model.summary_of(&xs)?.layers[0].output, Some(vec![2, 4]));
    Ok(())
}

#[test]
fn a_summary_without_the_shape_of_the_input_has_the_parameters() -> Result<()> {
    let model = nn::model(&CPU, |vb| Ok(nn::seq().add(conv2d(1, 2, 3, Default::default(), vb.pp("conv"))?)))?;
    let summary = model.summary()?;
    assert_eq!((summary.layers[0].parameters, &summary.layers[0].output), (20, &None));
    let images = Tensor::zeros((2, 1, 8, 8), DType::F32, &CPU)?;
    assert_eq!(model.summary_of(&images)?.output, Some(vec![2, 6, 6]));
    Ok(())
}

struct Normalised {
    vars: VarMap,
    norm: BatchNorm,
}

impl Model for Normalised {
    fn forward(&self, xs: &Tensor, train: bool) -> Result<Tensor> {
        self.norm.forward_t(xs, train)
    }

    fn vars(&self) -> &VarMap {
        &self.vars
    }
}

#[test]
fn statistics_in_a_model_of_ones_own_are_not_trained() -> Result<()> {
    let vars = VarMap::new();
    let norm = batch_norm(3, 1e-5, VarBuilder::from_varmap(&vars, DType::F32, &CPU).pp("norm"))?;
    let model = Normalised { vars, norm };
    let trainable = |model: &dyn Model| model.trainable().len();
    assert_eq!((model.vars().all_vars().len(), trainable(&model), trainable(&Box::new(model))), (4, 2, 2));
    Ok(())
}

struct Own {
    vars: VarMap,
    first: Linear,
    second: Linear,
}

impl Own {
    fn new() -> Result<Own> {
        let vars = VarMap::new();
        let vb = VarBuilder::from_varmap(&vars, DType::F32, &CPU);
        Ok(Own { first: linear(2, 3, vb.pp("first"))?, second: linear(3, 1, vb.pp("second"))?, vars })
    }
}

impl Model for Own {
    fn forward(&self, xs: &Tensor, _train: bool) -> Result<Tensor> {
        self.second.forward(&self.first.forward(xs)?.relu()?)
    }

    fn vars(&self) -> &VarMap {
        &self.vars
    }
}

#[test]
fn models_of_ones_own_have_everything_and_can_be_a_part() -> Result<()> {
    let own = Own::new()?;
    assert_eq!(
        own.summary()?.to_string(),
        "\
layer                  output  parameters
first                                   9
second                                  4
        trainable                      13
        not trainable                   0"
    );
    let xs = Tensor::ones((4, 2), DType::F32, &CPU)?;
    let expected = values(&own.predict(&xs)?);
    let boxed: Box<dyn Model> = Box::new(Own::new()?);
    assert_eq!(boxed.parameters(), 13);
    let whole = nn::seq().add_model(own).add(Activation::Sigmoid).add(nn::mlp(1, &[], 1).build(&CPU)?);
    assert_eq!(
        names(&whole),
        ["0.first.bias", "0.first.weight", "0.second.bias", "0.second.weight", "2.0.bias", "2.0.weight"]
    );
    assert_eq!(whole.parameters(), 15);
    assert_eq!(whole.summary_of(&xs)?.layers[0].parameters, 13);
    assert_eq!(expected.len(), whole.predict(&xs)?.elem_count());
    Ok(())
}

#[test]
fn frozen_layers_are_not_trained() -> Result<()> {
    let mut model = nn::mlp(3, &[4], 2).build(&CPU)?;
    model.freeze("0.")?;
    assert_eq!(model.parameters(), 10);
    assert_eq!((model.summary()?.trainable, model.summary()?.fixed), (10, 16));
    let error = model.freeze("encoder").unwrap_err().to_string();
    assert!(error.contains("begins with `encoder`"), "{error}");
    let outer = nn::seq().add(model);
    assert_eq!(outer.parameters(), 10, "a model within keeps its frozen layers");
    Ok(())
}

#[test]
fn shared_and_doubled_names_are_seen() -> Result<()> {
    let shared = nn::model(&CPU, |vb| {
        let layer = linear(3, 3, vb.pp("a"))?;
        Ok(nn::seq().add(layer.clone()).add(layer))
    })?;
    let summary = shared.summary()?;
    assert_eq!(summary.layers.iter().map(|layer| layer.parameters).collect::<Vec<_>>(), [12, 0]);
    let part = || nn::mlp(1, &[], 1).build(&CPU).unwrap();
    let twice = nn::seq().add_as("part", part()).add_as("part", part()).add_as("1", part());
    let expected = ["1.0.bias", "1.0.weight", "part.0.bias", "part.0.weight", "part_2.0.bias", "part_2.0.weight"];
    assert_eq!(names(&twice), expected);
    let doubled = nn::model(&CPU, |vb| {
        linear(1, 1, vb.pp("0").pp("0"))?;
        Ok(nn::seq().add(part()))
    });
    assert!(doubled.unwrap_err().to_string().contains("two variables have the name `0.0."));
    Ok(())
}

#[test]
fn sizes_that_make_no_model_are_refused() {
    let text = |model: Result<nn::Sequential>| model.unwrap_err().to_string();
    assert!(text(nn::mlp(3, &[4, 0], 2).build(&CPU)).contains("layer 2 of the mlp 3 → [4, 0] → 2 has size 0"));
    assert!(text(nn::mlp(3, &[], 2).dropout(1.0).build(&CPU)).contains("dropout of the mlp is 1"));
    assert!(text(nn::mlp(3, &[], 2).dropout(f64::NAN).build(&CPU)).contains("dropout of the mlp is NaN"));
    assert!(text(nn::cnn([1, 8, 8], &[2; 4], 2).build(&CPU)).contains("can be halved 3 times"));
    assert!(text(nn::cnn([1, 8, 8], &[2], 2).kernel(2).build(&CPU)).contains("an odd one, such as 3"));
    assert!(text(nn::cnn([1, 0, 8], &[2], 2).build(&CPU)).contains("has a size of 0"));
}

#[test]
fn networks_have_the_layers_that_were_chosen() -> Result<()> {
    let model = nn::cnn([1, 7, 9], &[2, 3], 4).batch_norm().dropout(0.5).hidden(&[5]).dtype(DType::F64).build(&CPU)?;
    let kinds: Vec<String> = model.summary()?.layers.into_iter().map(|layer| layer.kind).collect();
    let block = ["Conv2d", "BatchNorm", "Relu", "MaxPool2d", "Dropout"];
    let end = ["Flatten", "Linear", "BatchNorm", "Relu", "Dropout", "Linear"];
    assert_eq!(kinds, [&block[..], &block, &end].concat());
    assert_eq!(model.summary()?.output, Some(vec![4]));
    let xs = Tensor::randn(0_f64, 1.0, (2, 1, 7, 9), &CPU)?;
    let gradients = model.forward(&xs, true)?.sum_all()?.backward()?;
    assert!(model.trainable().iter().all(|var: &Var| gradients.get(var).is_some()));
    assert!(nn::seq().is_empty() && nn::seq().forward_t(&xs, true)?.dims() == xs.dims());
    let bf16 = nn::mlp(2, &[3], 1).dtype(DType::BF16).batch_norm().build(&CPU)?;
    assert_eq!(bf16.forward(&Tensor::zeros((2, 2), DType::BF16, &CPU)?, true)?.dtype(), DType::BF16);
    Ok(())
}

#[test]
fn a_frozen_model_within_a_model_stays_frozen() -> Result<()> {
    let mut backbone = nn::mlp(4, &[3], 3).build(&Device::Cpu)?;
    backbone.freeze("")?;
    let trained = backbone.trainable().len();
    let whole = nn::model(&Device::Cpu, |vb| Ok(nn::seq().add_model(backbone).add(linear(3, 2, vb.pp("head"))?)))?;
    assert_eq!((trained, whole.trainable().len()), (0, 2));
    Ok(())
}
