//! Tests of compiled steps: their results, the values that they keep, and their errors.

use crate::plugin;
use candle_core::{DType, Device, Result, Tensor, Var};
use candle_nn::{AdamW, Linear, Module as _, Optimizer as _, ParamsAdamW, SGD, VarBuilder, VarMap, linear, ops};
use ferrotune_xla::{Options, Step, all_reduce_gradients, all_reduce_mean, backend_of, shard};
use std::cell::RefCell;

/// A small network, with the same weights on every device.
struct Network {
    layers: [Linear; 2],
    map: VarMap,
}

impl Network {
    fn new(device: &Device) -> Result<Network> {
        let map = VarMap::new();
        let builder = VarBuilder::from_varmap(&map, DType::F32, device);
        let layers = [linear(6, 8, builder.pp("a"))?, linear(8, 3, builder.pp("b"))?];
        let mut named: Vec<_> = map.data().lock().expect("no test panics with it").clone().into_iter().collect();
        named.sort_by(|left, right| left.0.cmp(&right.0));
        for (_, var) in named {
            let count = var.elem_count() as f32;
            let values = Tensor::arange(0f32, count, &Device::Cpu)?.affine(1.7, 0.3)?.sin()?.affine(0.5, 0.)?;
            var.set(&values.reshape(var.shape())?.to_device(device)?)?;
        }
        Ok(Network { layers, map })
    }

    fn loss(&self, x: &Tensor, y: &Tensor) -> Result<Tensor> {
        let hidden = self.layers[0].forward(x)?.relu()?;
        candle_nn::loss::cross_entropy(&self.layers[1].forward(&hidden)?, y)
    }
}

fn data(device: &Device, rows: usize) -> Result<[Tensor; 2]> {
    let x = Tensor::arange(0f32, rows as f32 * 6., &Device::Cpu)?.cos()?.reshape((rows, 6))?.to_device(device)?;
    let classes: Vec<u32> = (0..rows as u32).map(|row| row * 7 % 3).collect();
    Ok([x, Tensor::from_vec(classes, rows, &Device::Cpu)?.to_device(device)?])
}

fn values(tensor: &Tensor) -> Result<Vec<f32>> {
    tensor.flatten_all()?.to_vec1()
}

fn assert_close(left: &[f32], right: &[f32], tolerance: f32) {
    assert_eq!(left.len(), right.len());
    for (left, right) in left.iter().zip(right) {
        assert!((left - right).abs() <= tolerance * right.abs().max(1.), "{left} and {right}");
    }
}

/// The losses of twenty steps of gradient descent, by a compiled step where the device has a compiler.
fn losses(device: &Device) -> Result<Vec<f32>> {
    let network = Network::new(device)?;
    let mut optimizer = SGD::new(network.map.all_vars(), 0.2)?;
    let mut step = Step::new(device, |arguments: &[Tensor]| {
        let loss = network.loss(&arguments[0], &arguments[1])?;
        optimizer.backward_step(&loss)?;
        Ok(vec![loss])
    });
    let data = data(device, 9)?;
    (0..20).map(|_| step.run(&data)?[0].to_scalar()).collect()
}

#[test]
fn a_compiled_step_trains_as_the_cpu_does() -> Result<()> {
    let expected = losses(&Device::Cpu)?;
    assert!(expected[19] < expected[0] * 0.9, "{expected:?}");
    assert_close(&losses(&plugin::open()?)?, &expected, 1e-5);
    Ok(())
}

#[test]
fn a_loop_without_compile_trains_as_well() -> Result<()> {
    let device = plugin::open()?;
    let network = Network::new(&device)?;
    let mut optimizer = AdamW::new(network.map.all_vars(), ParamsAdamW { lr: 0.05, ..ParamsAdamW::default() })?;
    let [x, y] = data(&device, 9)?;
    let mut losses: Vec<f32> = Vec::new();
    for _ in 0..20 {
        let loss = network.loss(&x, &y)?;
        optimizer.backward_step(&loss)?;
        losses.push(loss.to_scalar()?);
    }
    assert!(losses[19] < losses[0] * 0.9, "{losses:?}");
    // The step counter and the learning rate are arguments of the program.
    let backend = backend_of(&device).expect("a device of a plugin");
    assert!(backend.compilations() < 6, "{}", backend.compilations());
    Ok(())
}

#[test]
fn another_shape_is_compiled_once_more_and_the_state_is_the_same() -> Result<()> {
    let device = plugin::open()?;
    let sum = Var::zeros((), DType::F32, &device)?;
    let mut step = Step::new(&device, |arguments: &[Tensor]| {
        sum.set(&(sum.as_tensor() + arguments[0].sum_all()?)?)?;
        Ok(vec![(arguments[0].sum_all()? * 2.)?])
    });
    let ones = |count: usize| Tensor::ones(count, DType::F32, &device);
    assert_eq!(step.run(&[ones(2)?])?[0].to_scalar::<f32>()?, 4.);
    let compiled = backend_of(&device).expect("a device of a plugin").compilations();
    step.run(&[ones(2)?])?;
    assert_eq!(backend_of(&device).expect("a device of a plugin").compilations(), compiled);
    step.run(&[ones(5)?])?;
    assert_eq!(sum.to_scalar::<f32>()?, 9.);
    Ok(())
}

#[test]
fn a_tensor_from_outside_is_read_anew_in_each_run() -> Result<()> {
    let device = plugin::open()?;
    let weight = Var::new(3f32, &device)?;
    let mut step = Step::new(&device, |arguments: &[Tensor]| Ok(vec![(&arguments[0] * weight.as_tensor())?]));
    let two = Tensor::new(2f32, &device)?;
    assert_eq!(step.run(std::slice::from_ref(&two))?[0].to_scalar::<f32>()?, 6.);
    weight.set(&Tensor::new(10f32, &device)?)?;
    assert_eq!(step.run(&[two])?[0].to_scalar::<f32>()?, 20.);
    Ok(())
}

#[test]
fn a_copy_of_a_variable_keeps_its_value() -> Result<()> {
    let device = plugin::open()?;
    let count = Var::new(1f32, &device)?;
    let mut step = Step::new(&device, |_: &[Tensor]| {
        count.set(&(count.as_tensor() + 1.)?)?;
        Ok(Vec::new())
    });
    step.run(&[])?;
    let kept = count.as_tensor().copy()?;
    step.run(&[])?;
    assert_eq!((kept.to_scalar::<f32>()?, count.to_scalar::<f32>()?), (2., 3.));
    Ok(())
}

#[test]
fn random_numbers_are_new_in_each_run_and_the_same_for_a_seed() -> Result<()> {
    let device = plugin::open()?;
    let mut step = Step::new(&device, |arguments: &[Tensor]| Ok(vec![ops::dropout(&arguments[0], 0.5)?]));
    let ones = [Tensor::ones(64, DType::F32, &device)?];
    let mut two = || -> Result<_> {
        device.set_seed(7)?;
        Ok((values(&step.run(&ones)?[0])?, values(&step.run(&ones)?[0])?))
    };
    let (first, second) = two()?;
    assert_ne!(first, second);
    assert_eq!((first, second), two()?);
    Ok(())
}

/// The error of a step with this function.
fn refusal(device: &Device, body: impl FnMut(&[Tensor]) -> Result<Vec<Tensor>>) -> Result<String> {
    let argument = Tensor::ones(3, DType::F32, device)?;
    let error = Step::new(device, body).run(&[argument]).err();
    Ok(error.expect("the step is refused").to_string())
}

#[test]
fn what_a_program_cannot_hold_is_refused() -> Result<()> {
    let device = plugin::open()?;
    let reads = refusal(&device, |arguments| {
        if arguments[0].sum_all()?.to_scalar::<f32>()? > 0. { Ok(Vec::new()) } else { Ok(arguments.to_vec()) }
    })?;
    assert!(reads.contains("where_cond"), "{reads}");

    let mut calls = 0.;
    let counts = refusal(&device, |arguments| {
        calls += 1.;
        Ok(vec![(&arguments[0] * calls)?])
    })?;
    assert!(counts.contains("changes from call to call"), "{counts}");

    let total = Var::new(1f32, &device)?;
    let frozen = refusal(&device, |arguments| {
        let known = total.to_scalar::<f32>()?;
        total.set(&(total.as_tensor() + 1.)?)?;
        Ok(vec![(&arguments[0] * f64::from(known))?])
    })?;
    assert!(frozen.contains("reads a value from outside"), "{frozen}");
    assert_eq!(total.to_scalar::<f32>()?, 1., "a step that is refused changes nothing");

    let elsewhere = refusal(&device, |_| Ok(vec![Tensor::new(1f32, &Device::Cpu)?]))?;
    assert!(elsewhere.contains("keep it on the device"), "{elsewhere}");
    let mut step = Step::new(&device, |arguments: &[Tensor]| Ok(arguments.to_vec()));
    let stray = step.run(&[Tensor::new(1f32, &Device::Cpu)?]).expect_err("another device").to_string();
    assert!(stray.contains("to_device"), "{stray}");
    Ok(())
}

#[test]
fn a_later_process_loads_what_was_compiled() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let compilations = || -> Result<u64> {
        let options = Options { cache: Some(folder.path()), ..Options::default() };
        let device = ferrotune_xla::open_with(&plugin::path()?, options)?;
        assert_eq!(values(&Tensor::arange(0f32, 3., &device)?.sqr()?)?, [0., 1., 4.]);
        Ok(backend_of(&device).expect("a device of a plugin").compilations())
    };
    assert_eq!(compilations()?, 1);
    assert_eq!(compilations()?, 0);
    for entry in std::fs::read_dir(folder.path())? {
        std::fs::write(entry?.path(), "damaged")?;
    }
    assert_eq!(compilations()?, 1);
    Ok(())
}

#[test]
fn four_replicas_train_as_one_device_does_on_the_global_batch() -> Result<()> {
    let options = Options { replicas: 4, ..Options::default() };
    let losses = |device: &Device| -> Result<Vec<f32>> {
        let network = Network::new(device)?;
        let vars = network.map.all_vars();
        let mut optimizer = SGD::new(vars.clone(), 0.2)?;
        let mut step = Step::new(device, |arguments: &[Tensor]| {
            let loss = network.loss(&shard(&arguments[0])?, &shard(&arguments[1])?)?;
            let mut gradients = loss.backward()?;
            all_reduce_gradients(&vars, &mut gradients)?;
            optimizer.step(&gradients)?;
            Ok(vec![all_reduce_mean(&loss)?])
        });
        let data = data(device, 12)?;
        (0..100).map(|_| step.run(&data)?[0].to_scalar()).collect()
    };
    let expected = losses(&Device::Cpu)?;
    let device = ferrotune_xla::open_with(&plugin::path()?, options)?;
    assert_close(&losses(&device)?, &expected, 1e-5);
    let odd = shard(&Tensor::ones((6, 2), DType::F32, &device)?).expect_err("six rows").to_string();
    assert!(odd.contains("multiple of 4"), "{odd}");
    Ok(())
}

#[test]
fn the_program_of_a_step_is_text_and_nothing_runs() -> Result<()> {
    let device = plugin::open()?;
    let count = Var::new(1f32, &device)?;
    let mut step = Step::new(&device, |arguments: &[Tensor]| {
        count.set(&(count.as_tensor() + 1.)?)?;
        Ok(vec![arguments[0].sqr()?])
    });
    let text = step.stablehlo(&[Tensor::ones((2, 3), DType::F32, &device)?])?;
    assert!(text.contains("func.func public @main") && text.contains("tensor<2x3xf32>"), "{text}");
    assert!(text.contains("tf.aliasing_output"), "the variable keeps its memory: {text}");
    assert_eq!(count.to_scalar::<f32>()?, 1.);
    let none = Step::new(&Device::Cpu, |_: &[Tensor]| Ok(Vec::new())).stablehlo(&[]).expect_err("the CPU").to_string();
    assert!(none.contains("xla:cpu"), "{none}");
    Ok(())
}

#[test]
fn the_order_in_which_an_optimiser_has_its_variables_does_not_change_the_program() -> Result<()> {
    let device = plugin::open()?;
    let x = Tensor::ones((2, 3), DType::F32, &device)?;
    let text = |order: [usize; 3], returns_loss: bool| {
        let vars = (0..3).map(|_| Var::ones((3, 3), DType::F32, &device)).collect::<Result<Vec<_>>>()?;
        let given = order.iter().map(|index| vars[*index].clone()).collect();
        let mut optimiser = SGD::new(given, 0.1)?;
        let mut step = Step::new(&device, |arguments: &[Tensor]| {
            let hidden = arguments[0].matmul(vars[0].as_tensor())?.matmul(vars[1].as_tensor())?;
            let loss = hidden.matmul(vars[2].as_tensor())?.sqr()?.sum_all()?;
            optimiser.backward_step(&loss)?;
            Ok(if returns_loss { vec![loss] } else { Vec::new() })
        });
        step.stablehlo(std::slice::from_ref(&x))
    };
    for returns_loss in [true, false] {
        let expected = text([0, 1, 2], returns_loss)?;
        for order in [[2, 1, 0], [1, 2, 0], [0, 2, 1]] {
            assert!(text(order, returns_loss)? == expected, "{order:?}, with loss: {returns_loss}");
        }
    }
    Ok(())
}

#[test]
fn a_copy_from_outside_is_not_the_variable() -> Result<()> {
    let device = plugin::open()?;
    let weight = Var::from_tensor(&Tensor::ones((1, 4), DType::F32, &device)?)?;
    let (kept, target) = (weight.as_tensor().copy()?, Var::zeros((1, 4), DType::F32, &device)?);
    target.set(weight.as_tensor())?;
    let mut step = Step::new(&device, |_: &[Tensor]| {
        let away = (weight.as_tensor() - &kept)?.sqr()?.sum_all()?;
        weight.set(&(weight.as_tensor() + 1.)?)?;
        target.set(&(target.as_tensor() * 2.)?)?;
        Ok(vec![away, weight.as_tensor().copy()?])
    });
    let away: Vec<f32> = (0..3).map(|_| step.run(&[])?[0].to_scalar()).collect::<Result<_>>()?;
    assert_eq!(away, [0., 4., 16.]);
    assert_eq!((values(weight.as_tensor())?, values(target.as_tensor())?), (vec![4.; 4], vec![8.; 4]));
    assert_eq!(values(&kept)?, [1.; 4]);
    Ok(())
}

#[test]
fn what_a_step_returns_is_what_it_has_set() -> Result<()> {
    let device = plugin::open()?;
    let (total, outside) = (Var::new(1f32, &device)?, Var::new(7f32, &device)?);
    let mut step = Step::new(&device, |arguments: &[Tensor]| {
        total.set(&(total.as_tensor() + &arguments[0])?)?;
        Ok(vec![total.as_tensor().clone(), outside.as_tensor().clone(), arguments[0].clone()])
    });
    let two = Tensor::new(2f32, &device)?;
    let mut run = || step.run(std::slice::from_ref(&two))?.iter().map(Tensor::to_scalar).collect::<Result<Vec<f32>>>();
    assert_eq!(run()?, [3., 7., 2.]);
    outside.set(&Tensor::new(9f32, &device)?)?;
    assert_eq!(run()?, [5., 9., 2.]);
    Ok(())
}

#[test]
fn a_step_may_make_tensors_and_keep_the_first_one() -> Result<()> {
    let device = plugin::open()?;
    let mut mask: Option<Tensor> = None;
    let zeros = Tensor::zeros((1, 3), DType::F32, &device)?;
    let mut step = Step::new(&device, |arguments: &[Tensor]| {
        let kept = match &mask {
            Some(mask) => mask.clone(),
            None => mask.insert(Tensor::new(&[1f32, 0., 1.], arguments[0].device())?.affine(2., 0.)?).clone(),
        };
        let places = Tensor::arange(0u32, 3, arguments[0].device())?.unsqueeze(0)?;
        let put = zeros.scatter_add(&places, &(&arguments[0] * kept)?.unsqueeze(0)?, 1)?;
        Ok(vec![put.squeeze(0)?])
    });
    let ones = [Tensor::ones(3, DType::F32, &device)?];
    for _ in 0..3 {
        assert_eq!(values(&step.run(&ones)?[0])?, [2., 0., 2.]);
    }
    assert_eq!(values(&zeros)?, [0.; 3]);
    Ok(())
}

#[test]
fn a_step_within_a_step_is_refused() -> Result<()> {
    let device = plugin::open()?;
    let mut inner = Step::new(&device, |_: &[Tensor]| Ok(Vec::new()));
    inner.run(&[])?;
    let refused = refusal(&device, |_| inner.run(&[]))?;
    assert!(refused.contains("`Step::run` is called in a compiled step"), "{refused}");
    Ok(())
}

#[test]
fn a_tensor_that_a_loop_carries_has_an_end() -> Result<()> {
    let device = plugin::open()?;
    let mut sum = Tensor::zeros(2, DType::F32, &device)?;
    for _ in 0..11_000 {
        sum = (sum + 1.)?;
    }
    device.synchronize()?;
    let compiled = backend_of(&device).expect("a device of a plugin").compilations();
    assert_eq!(values(&sum)?, [11_000.; 2]);
    assert_eq!(backend_of(&device).expect("a device of a plugin").compilations(), compiled, "it was computed before");
    Ok(())
}

#[test]
fn means_over_replicas_are_summed_in_f32() -> Result<()> {
    let options = Options { replicas: 4, ..Options::default() };
    let device = ferrotune_xla::open_with(&plugin::path()?, options)?;
    let mut step = Step::new(&device, |arguments: &[Tensor]| Ok(vec![all_reduce_mean(&shard(&arguments[0])?)?]));
    // bf16 cannot represent 257.
    let rows = [Tensor::new(&[256f32, 1., 1., 2.], &device)?.to_dtype(DType::BF16)?];
    assert_eq!(step.run(&rows)?[0].to_dtype(DType::F32)?.to_vec1::<f32>()?, [65.]);
    // A compiler may add in `f32` without being asked to; a TPU's compiler does not.
    let text = step.stablehlo(&rows)?;
    assert!(text.contains("stablehlo.all_reduce") && text.contains("(tensor<1xf32>) -> tensor<1xf32>"), "{text}");
    Ok(())
}

#[test]
fn a_tensor_from_outside_that_is_gone_has_its_last_value() -> Result<()> {
    let device = plugin::open()?;
    let weight = RefCell::new(Some(Var::new(3f32, &device)?));
    let mut step = Step::new(&device, |arguments: &[Tensor]| match &*weight.borrow() {
        Some(weight) => Ok(vec![(&arguments[0] * weight.as_tensor())?]),
        None => Ok(Vec::new()),
    });
    let two = [Tensor::new(2f32, &device)?];
    assert_eq!(step.run(&two)?[0].to_scalar::<f32>()?, 6.);
    let last = weight.take().expect("it is there");
    last.set(&Tensor::new(10f32, &device)?)?;
    drop(last);
    assert_eq!(step.run(&two)?[0].to_scalar::<f32>()?, 20.);
    Ok(())
}
