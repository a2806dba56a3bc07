//! Tests of a mesh of four cores: arrays that are spread over it have the values that one device has, and take less memory on each core.

use crate::plugin;
use candle_core::{DType, Device, Result, Tensor, Var};
use candle_nn::ops::softmax_last_dim;
use ferrotune_xla::{
    Options, Step, all_reduce_mean, backend_of, device_bytes, shard, spread, with_sharding_constraint, zeros_like,
};

type Axes<'a> = &'a [Option<&'a str>];

const DATA: Option<&str> = Some("data");
const MODEL: Option<&str> = Some("model");

fn mesh(axes: &[(&str, usize)]) -> Result<Device> {
    ferrotune_xla::open_with(&plugin::path()?, Options { mesh: axes, ..Options::default() })
}

/// A transformer's block with four heads, with the same weights on every device.
struct Block {
    /// The weights of queries, keys and values; of their projection; of the two layers of the perceptron; and of the classifier.
    weights: [Var; 5],
    /// The axis along which the rows of a batch are split.
    batch: Option<&'static str>,
}

const WIDTH: usize = 16;
const HEADS: usize = 4;
const SHAPES: [(usize, usize); 5] =
    [(WIDTH, 3 * WIDTH), (WIDTH, WIDTH), (WIDTH, 4 * WIDTH), (4 * WIDTH, WIDTH), (WIDTH, 3)];

impl Block {
    /// A block whose weights are spread along these axes.
    fn new(device: &Device, batch: Option<&'static str>, axes: [Axes<'_>; 5]) -> Result<Block> {
        let weight = |place: usize| -> Result<Var> {
            let (rows, columns) = SHAPES[place];
            let numbers = Tensor::arange(0f32, (rows * columns) as f32, &Device::Cpu)?;
            let numbers = numbers.affine(1.7, place as f64)?.sin()?.affine(0.3, 0.)?.reshape((rows, columns))?;
            let var = Var::from_tensor(&numbers.to_device(device)?)?;
            spread(&var, axes[place])?;
            Ok(var)
        };
        Ok(Block { weights: [weight(0)?, weight(1)?, weight(2)?, weight(3)?, weight(4)?], batch })
    }

    /// The mean loss of an input of batch × 6 × WIDTH.
    fn loss(&self, x: &Tensor, y: &Tensor) -> Result<Tensor> {
        let x = with_sharding_constraint(x, &[self.batch, None, None])?;
        let (batch, time, _) = x.dims3()?;
        let [attend, project, up, down, classify] = &self.weights;
        let product = |x: &Tensor, weight: &Var| x.broadcast_matmul(weight.as_tensor());
        let all = product(&x, attend)?.reshape((batch, time, 3, HEADS, WIDTH / HEADS))?;
        let part = |place: usize| all.narrow(2, place, 1)?.squeeze(2)?.transpose(1, 2)?.contiguous();
        let (queries, keys, values) = (part(0)?, part(1)?, part(2)?);
        let weights = softmax_last_dim(&queries.matmul(&keys.t()?.contiguous()?)?.affine(0.5, 0.)?)?;
        let heads = weights.matmul(&values)?.transpose(1, 2)?.contiguous()?.reshape((batch, time, WIDTH))?;
        let x = (&x + product(&heads, project)?)?;
        let hidden = with_sharding_constraint(&product(&x, up)?.gelu_erf()?, &[self.batch, None, None])?;
        let x = (&x + product(&hidden, down)?)?;
        candle_nn::loss::cross_entropy(&product(&x, classify)?.mean(1)?, y)
    }
}

fn data(device: &Device) -> Result<[Tensor; 2]> {
    let x = Tensor::arange(0f32, (8 * 6 * WIDTH) as f32, &Device::Cpu)?.cos()?.reshape((8, 6, WIDTH))?;
    let y = Tensor::from_vec(vec![0u32, 2, 1, 1, 0, 2, 2, 1], 8, &Device::Cpu)?;
    Ok([x.to_device(device)?, y.to_device(device)?])
}

/// Takes a step of gradient descent with momentum, whose moments are spread as their variables are. Returns the loss.
fn descend(block: &Block, moments: &[Var], data: &[Tensor]) -> Result<Tensor> {
    let loss = block.loss(&data[0], &data[1])?;
    let gradients = loss.backward()?;
    for (var, moment) in block.weights.iter().zip(moments) {
        let gradient = gradients.get(var).expect("each weight has a gradient");
        moment.set(&((moment.as_tensor() * 0.9)? + gradient)?)?;
        var.set(&(var.as_tensor() - (moment.as_tensor() * 0.02)?)?)?;
    }
    Ok(loss)
}

fn moments(block: &Block) -> Result<Vec<Var>> {
    block.weights.iter().map(|var| Var::from_tensor(&zeros_like(var)?)).collect()
}

fn losses(device: &Device, block: &Block, moments: &[Var], steps: usize) -> Result<Vec<f32>> {
    let mut step = Step::new(device, |data: &[Tensor]| Ok(vec![descend(block, moments, data)?]));
    let data = data(device)?;
    (0..steps).map(|_| step.run(&data)?[0].to_scalar()).collect()
}

const WHOLE: [Axes<'_>; 5] = [&[None, None]; 5];
/// Columns of the first product and rows of the second are split, so that only its sum crosses between cores.
const SPREAD: [Axes<'_>; 5] = [&[None, MODEL], &[MODEL, None], &[None, MODEL], &[MODEL, None], &[None, None]];

fn assert_close(left: &[f32], right: &[f32], tolerance: f32) {
    assert_eq!(left.len(), right.len());
    for (left, right) in left.iter().zip(right) {
        assert!((left - right).abs() <= tolerance * right.abs().max(1.), "{left} and {right}");
    }
}

#[test]
fn a_mesh_trains_as_one_cpu_does_on_the_global_batch() -> Result<()> {
    let train = |device: &Device, batch, axes| {
        let block = Block::new(device, batch, axes)?;
        losses(device, &block, &moments(&block)?, 100)
    };
    let expected = train(&Device::Cpu, None, WHOLE)?;
    assert!(expected[99] < expected[0] * 0.5, "{expected:?}");
    assert_close(&train(&mesh(&[("data", 4)])?, DATA, WHOLE)?, &expected, 1e-5);
    assert_close(&train(&mesh(&[("model", 4)])?, None, SPREAD)?, &expected, 1e-5);
    assert_close(&train(&mesh(&[("data", 2), ("model", 2)])?, DATA, SPREAD)?, &expected, 1e-5);
    Ok(())
}

#[test]
fn what_is_spread_takes_its_part_of_a_core() -> Result<()> {
    let device = mesh(&[("data", 2), ("model", 2)])?;
    let block = Block::new(&device, DATA, SPREAD)?;
    let moments = moments(&block)?;
    let parts = |vars: &[Var]| vars.iter().map(|var| device_bytes(var)).collect::<Result<Vec<_>>>();
    let halves: Vec<usize> = SHAPES
        .iter()
        .enumerate()
        .map(|(place, (rows, columns))| 4 * rows * columns / if place < 4 { 2 } else { 1 })
        .collect();
    assert_eq!((parts(&block.weights)?, parts(&moments)?), (halves.clone(), halves.clone()));
    losses(&device, &block, &moments, 3)?;
    assert_eq!((parts(&block.weights)?, parts(&moments)?), (halves.clone(), halves.clone()));
    // The values also agree without `compile`, and after a change in place.
    let data = data(&device)?;
    descend(&block, &moments, &data)?.to_scalar::<f32>()?;
    block.weights[0].set(&block.weights[0].affine(2., 0.)?)?;
    block.weights[1].slice_set(&Tensor::ones((2, WIDTH), DType::F32, &device)?, 0, 1)?;
    assert_eq!((parts(&block.weights)?, parts(&moments)?), (halves.clone(), halves));
    spread(&block.weights[0], &[None, None])?;
    assert_eq!(device_bytes(&block.weights[0])?, 4 * WIDTH * 3 * WIDTH);
    Ok(())
}

#[test]
fn a_loop_without_compile_trains_as_well() -> Result<()> {
    let train = |device: &Device, batch, axes| -> Result<Vec<f32>> {
        let block = Block::new(device, batch, axes)?;
        let (moments, data) = (moments(&block)?, data(device)?);
        (0..4).map(|_| descend(&block, &moments, &data)?.to_scalar()).collect()
    };
    let expected = train(&Device::Cpu, None, WHOLE)?;
    let device = mesh(&[("data", 2), ("model", 2)])?;
    assert_close(&train(&device, DATA, SPREAD)?, &expected, 1e-5);
    let backend = backend_of(&device).expect("a device of a plugin");
    assert!(backend.compilations() < 12, "{}", backend.compilations());
    Ok(())
}

#[test]
fn a_constraint_in_the_middle_passes_its_gradient_on() -> Result<()> {
    let device = mesh(&[("data", 2), ("model", 2)])?;
    let gradients = |device: &Device| -> Result<Vec<Vec<f32>>> {
        let x = Var::from_tensor(&Tensor::arange(0f32, 24., &Device::Cpu)?.reshape((4, 6))?.to_device(device)?)?;
        let turned = with_sharding_constraint(&x.sin()?.t()?, &[MODEL, DATA])?;
        let gradients = (turned.sqr()? * 3.)?.sum_all()?.backward()?;
        gradients.get(&x).expect("the gradient").to_vec2()
    };
    assert_close(&gradients(&device)?.concat(), &gradients(&Device::Cpu)?.concat(), 1e-6);
    Ok(())
}

#[test]
fn a_spread_variable_goes_to_a_file_and_back() -> Result<()> {
    let device = mesh(&[("model", 4)])?;
    let block = Block::new(&device, None, SPREAD)?;
    let values = |block: &Block| -> Result<Vec<Vec<f32>>> {
        block.weights.iter().map(|var| var.flatten_all()?.to_vec1()).collect()
    };
    let before = values(&block)?;
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("block.safetensors");
    let named = block.weights.iter().enumerate().map(|(place, var)| (place.to_string(), var.as_tensor().clone()));
    candle_core::safetensors::save(&named.collect(), &file)?;
    for var in &block.weights {
        var.set(&var.zeros_like()?)?;
    }
    for (name, tensor) in candle_core::safetensors::load(&file, &device)? {
        block.weights[name.parse::<usize>().expect("a number")].set(&tensor)?;
    }
    assert_eq!(values(&block)?, before);
    assert_eq!(device_bytes(&block.weights[0])?, WIDTH * 3 * WIDTH);
    Ok(())
}

#[test]
fn a_compiled_step_takes_tensors_however_they_are_spread() -> Result<()> {
    let device = mesh(&[("data", 4)])?;
    let offset = Var::from_tensor(&Tensor::arange(0f32, 8., &device)?)?;
    let mut step = Step::new(&device, |x: &[Tensor]| Ok(vec![(&x[0] + offset.as_tensor())?]));
    let mut run = |x: &Tensor| step.run(std::slice::from_ref(x))?[0].to_vec1::<f32>();
    let whole = Tensor::arange(0f32, 8., &device)?;
    let parts = with_sharding_constraint(&whole, &[DATA])?;
    let expected = [0., 2., 4., 6., 8., 10., 12., 14.];
    assert_eq!((run(&whole)?, run(&parts)?), (expected.to_vec(), expected.to_vec()));
    spread(&offset, &[DATA])?;
    assert_eq!((run(&whole)?, run(&parts)?), (expected.to_vec(), expected.to_vec()));
    Ok(())
}

#[test]
fn random_numbers_of_a_mesh_are_those_of_one_core() -> Result<()> {
    let numbers = |device: &Device| -> Result<Vec<f32>> {
        device.set_seed(5)?;
        let x = Tensor::rand(0f32, 1., (8, 4), device)?;
        with_sharding_constraint(&x, &[DATA, None])?.affine(2., 1.)?.flatten_all()?.to_vec1()
    };
    assert_eq!(numbers(&mesh(&[("data", 4)])?)?, numbers(&plugin::open()?)?);
    Ok(())
}

#[test]
fn parts_of_a_sum_of_short_floats_are_added_in_single_precision() -> Result<()> {
    let device = mesh(&[("data", 4)])?;
    // bf16 has 256, 258 and 260, and no numbers between them: in a sum in bf16, ones would be lost.
    let x = Tensor::new(&[[256f32, 1., 1., 1.]], &device)?.to_dtype(DType::BF16)?;
    let x = with_sharding_constraint(&x, &[None, DATA])?;
    let ones = with_sharding_constraint(&Tensor::ones((4, 1), DType::BF16, &device)?, &[DATA, None])?;
    assert_eq!(x.matmul(&ones)?.to_dtype(DType::F32)?.to_vec2::<f32>()?, [[260.]]);
    let mut step = Step::new(&device, |x: &[Tensor]| Ok(vec![x[0].matmul(&x[1])?]));
    let text = step.stablehlo(&[x, ones])?;
    assert!(text.contains("(tensor<1x4xbf16>, tensor<4x1xbf16>) -> tensor<1x1xf32>"), "{text}");
    Ok(())
}

#[test]
fn a_program_for_more_cores_is_written_ahead_of_time() -> Result<()> {
    let options = Options { mesh: &[("model", 64)], ahead_of_time: true, ..Options::default() };
    let device = ferrotune_xla::open_with(&plugin::path()?, options)?;
    let weight = Var::zeros((1 << 20, 1 << 20), DType::F32, &device)?;
    spread(&weight, &[None, MODEL])?;
    let mut step = Step::new(&device, |x: &[Tensor]| {
        weight.set(&(weight.as_tensor() * 0.5)?)?;
        Ok(vec![x[0].matmul(weight.as_tensor())?])
    });
    let x = Tensor::zeros((1, 1 << 20), DType::F32, &device)?;
    let text = step.stablehlo(std::slice::from_ref(&x))?;
    assert!(
        text.contains("mhlo.num_partitions = 64") && text.contains("\"{devices=[1,64]<=[64]}\", tf.aliasing"),
        "{text}"
    );
    let runs = step.run(&[x]).expect_err("there are four cores").to_string();
    assert!(runs.contains("use Step::stablehlo"), "{runs}");
    Ok(())
}

#[test]
fn what_no_mesh_can_spread_is_refused_and_other_devices_spread_nothing() -> Result<()> {
    let device = mesh(&[("data", 4)])?;
    let x = Tensor::ones((6, 8), DType::F32, &device)?;
    let refused = |axes| with_sharding_constraint(&x, axes).expect_err("it is refused").to_string();
    assert!(refused(&[DATA, None]).contains("make it a multiple of 4"), "{}", refused(&[DATA, None]));
    assert!(refused(&[None, MODEL]).contains("has no axis \"model\""));
    let both = Options { replicas: 2, mesh: &[("data", 2)], ..Options::default() };
    let both = ferrotune_xla::open_with(&plugin::path()?, both).expect_err("both").to_string();
    assert!(both.contains("replicas and a mesh"), "{both}");
    let cpu = with_sharding_constraint(&Tensor::ones((6, 8), DType::F32, &Device::Cpu)?, &[DATA, None])?;
    assert_eq!(cpu.dims(), [6, 8]);
    Ok(())
}

#[test]
fn a_later_process_loads_what_was_compiled_for_a_mesh() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let compilations = || -> Result<u64> {
        let options = Options { cache: Some(folder.path()), mesh: &[("data", 4)], ..Options::default() };
        let device = ferrotune_xla::open_with(&plugin::path()?, options)?;
        let x = with_sharding_constraint(&Tensor::arange(0f32, 8., &device)?, &[DATA])?;
        assert_eq!(x.sqr()?.sum_all()?.to_scalar::<f32>()?, 140.);
        Ok(backend_of(&device).expect("a device of a plugin").compilations())
    };
    assert!(compilations()? > 0);
    assert_eq!(compilations()?, 0);
    Ok(())
}

#[test]
fn host_that_starts_steps_faster_than_the_cores_run_them_is_held_back() -> Result<()> {
    // XLA:CPU ends the process if a step waits for one of its cores for 40 seconds.
    let device = ferrotune_xla::open_with(&plugin::path()?, Options { replicas: 4, ..Options::default() })?;
    let sum = Var::new(0f32, &device)?;
    let rows = [Tensor::ones((4 * 192, 192), DType::F32, &device)?];
    let mut step = Step::new(&device, |arguments: &[Tensor]| {
        let own = shard(&arguments[0])?;
        let mean = own.t()?.matmul(&own)?.matmul(&own.t()?)?.mean_all()?;
        sum.set(&(sum.as_tensor() + all_reduce_mean(&mean)?)?)?;
        Ok(Vec::new())
    });
    for _ in 0..500 {
        step.run(&rows)?;
    }
    assert_eq!(sum.to_scalar::<f32>()?, 500. * 192. * 192.);
    Ok(())
}
