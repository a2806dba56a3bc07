//! Tests of pipelines: their results, their devices, and their errors.

mod model;
mod tied;

use crate::plugin;
use candle_core::backprop::GradStore;
use candle_core::{DType, Device, Result, Tensor, Var};
use candle_nn::loss::cross_entropy;
use candle_nn::{AdamW, Optimizer, ParamsAdamW, SGD, ops};
use ferrotune_xla::{Pipeline, Stage, Step, backend_of, cores};
use model::{Adam, Layer, Maker, STAGES, classes, layer, numbers, perceptron, tokens, transformer};
use std::cell::Cell;
use std::slice::from_ref;
use std::time::{Duration, Instant};

const STEPS: usize = 100;

/// The result of a training: the loss of each step, and the variables at its end.
struct Trained {
    losses: Vec<f64>,
    vars: Vec<f64>,
}

fn number(tensor: &Tensor) -> Result<f64> {
    tensor.to_dtype(DType::F64)?.to_scalar()
}

fn values(vars: &[Var]) -> Result<Vec<f64>> {
    let values = vars.iter().map(|var| var.flatten_all()?.to_dtype(DType::F64)?.to_vec1());
    Ok(values.collect::<Result<Vec<_>>>()?.concat())
}

/// A model, its batch, and the tolerance between two trainings of it.
struct Task {
    make: Maker,
    dtype: DType,
    x: Tensor,
    tolerance: f64,
}

impl Task {
    fn parts(&self, devices: &[Device]) -> Result<(Vec<Layer>, Vec<Var>)> {
        let parts = devices.iter().enumerate().map(|(index, device)| layer(self.make, index, device, self.dtype));
        let parts = parts.collect::<Result<Vec<_>>>()?;
        let vars = parts.iter().flat_map(|part| part.vars.clone()).collect();
        Ok((parts, vars))
    }

    /// Trains the whole model on the CPU, with candle's own optimiser.
    fn plain<O: Optimizer>(&self, params: O::Config) -> Result<Trained> {
        let (parts, vars) = self.parts(&[const { Device::Cpu }; STAGES])?;
        let mut optimiser = O::new(vars.clone(), params)?;
        let mut losses = Vec::new();
        for _ in 0..STEPS {
            let output = parts.iter().try_fold(self.x.clone(), |x, part| (part.layers)(&x))?;
            let loss = cross_entropy(&output, &classes(&Device::Cpu)?)?;
            optimiser.backward_step(&loss)?;
            losses.push(number(&loss)?);
        }
        Ok(Trained { losses, vars: values(&vars)? })
    }

    /// Trains the model as a pipeline, whose stages are on these devices.
    fn piped(
        &self,
        devices: &[Device],
        micro_batches: usize,
        stage: fn(Layer) -> Result<Stage<'static>>,
    ) -> Result<Trained> {
        let (parts, vars) = self.parts(devices)?;
        let stages = parts.into_iter().map(stage).collect::<Result<_>>()?;
        let mut pipeline = Pipeline::new(stages, cross_entropy, micro_batches)?;
        let (x, y) = (self.x.to_device(&devices[0])?, classes(&devices[STAGES - 1])?);
        let mut losses = Vec::new();
        for _ in 0..STEPS {
            losses.push(number(&pipeline.run(&x, &y)?)?);
            // Other work on the same devices must still be correct.
            let other = Tensor::ones(3, DType::F32, &devices[1])?.cumsum(0)?;
            assert_eq!(other.to_vec1::<f32>()?, [1., 2., 3.]);
        }
        Ok(Trained { losses, vars: values(&vars)? })
    }

    fn assert_same(&self, left: &Trained, right: &Trained, what: &str) {
        assert!(right.losses[STEPS - 1] < right.losses[0] * 0.95, "{:?}", right.losses);
        for (left, right) in [(&left.losses, &right.losses), (&left.vars, &right.vars)] {
            assert_eq!(left.len(), right.len());
            let far = left.iter().zip(right).map(|(left, right)| (left - right).abs() / right.abs().max(1.));
            let far = far.fold(0., f64::max);
            assert!(far <= self.tolerance, "{what}: {far}");
        }
    }
}

fn with_adam(Layer { vars, layers }: Layer) -> Result<Stage<'static>> {
    let mut optimiser = Adam::new(&vars)?;
    Ok(Stage::new(vars, layers, move |gradients| optimiser.step(gradients)))
}

fn with_sgd(Layer { vars, layers }: Layer) -> Result<Stage<'static>> {
    let mut optimiser = SGD::new(vars.clone(), 0.1)?;
    Ok(Stage::new(vars, layers, move |gradients| optimiser.step(gradients)))
}

/// Compares trainings with AdamW, which divides by the root of small numbers: in `f32` that makes the last digit important.
fn check_adam(task: &Task) -> Result<()> {
    let params = ParamsAdamW { lr: Adam::LR, weight_decay: Adam::DECAY, ..ParamsAdamW::default() };
    let expected = task.plain::<AdamW>(params)?;
    let devices = cores(&plugin::open()?)?;
    for micro_batches in [1, 2, 8] {
        let trained = task.piped(&devices[..STAGES], micro_batches, with_adam)?;
        task.assert_same(&trained, &expected, &format!("{micro_batches} micro-batches on a plugin"));
    }
    let trained = task.piped(&[const { Device::Cpu }; STAGES], 4, with_adam)?;
    task.assert_same(&trained, &expected, "four micro-batches on the CPU");
    Ok(())
}

#[test]
fn a_perceptron_in_four_stages_trains_as_on_one_device() -> Result<()> {
    let task =
        |dtype, tolerance| -> Result<Task> { Ok(Task { make: perceptron, dtype, x: numbers(dtype)?, tolerance }) };
    check_adam(&task(DType::F64, 1e-9)?)?;
    let single = task(DType::F32, 1e-5)?;
    let expected = single.plain::<SGD>(0.1)?;
    let devices = cores(&plugin::open()?)?;
    let mixed = [devices[0].clone(), Device::Cpu, devices[0].clone(), devices[1].clone()];
    for (devices, what) in [(&devices[..STAGES], "on four cores"), (&mixed, "on two cores and the CPU")] {
        single.assert_same(&single.piped(devices, 4, with_sgd)?, &expected, what);
    }
    Ok(())
}

#[test]
fn a_transformer_in_four_stages_trains_as_on_one_device() -> Result<()> {
    check_adam(&Task { make: transformer, dtype: DType::F64, x: tokens()?, tolerance: 1e-9 })
}

/// A pipeline of perceptrons on these devices, and its variables.
fn pipeline(devices: &[Device], micro_batches: usize) -> Result<(Pipeline<'static>, Vec<Var>)> {
    let task = Task { make: perceptron, dtype: DType::F32, x: numbers(DType::F32)?, tolerance: 0. };
    let (parts, vars) = task.parts(devices)?;
    let stages = parts.into_iter().map(with_sgd).collect::<Result<_>>()?;
    Ok((Pipeline::new(stages, cross_entropy, micro_batches)?, vars))
}

#[test]
fn nothing_reaches_the_host_before_it_is_read() -> Result<()> {
    let devices = cores(&plugin::open()?)?;
    let (mut pipeline, _) = pipeline(&devices[..STAGES], 4)?;
    let (x, y) = (numbers(DType::F32)?.to_device(&devices[0])?, classes(&devices[STAGES - 1])?);
    let losses = (0..3).map(|_| pipeline.run(&x, &y)).collect::<Result<Vec<_>>>()?;
    let reports = || -> Vec<String> {
        devices[..STAGES].iter().map(|device| backend_of(device).expect("a plugin's").traffic().to_string()).collect()
    };
    assert!(!reports().concat().contains("to the host"), "{:?}", reports());
    assert!(number(&losses[2])? < number(&losses[0])?);
    assert_eq!(reports().concat().matches("to the host").count(), 1, "{:?}", reports());
    Ok(())
}

#[test]
fn random_numbers_are_the_same_when_a_stage_is_computed_once_more() -> Result<()> {
    let plugin = cores(&plugin::open()?)?;
    for [first, second] in [[&plugin[0], &plugin[1]], [&Device::Cpu, &Device::Cpu]] {
        let vars = [first, second].map(|device| Var::ones(64, DType::F32, device));
        let [left, right] = [vars[0].as_ref().expect("made").clone(), vars[1].as_ref().expect("made").clone()];
        let descend = |var: &Var| {
            let var = var.clone();
            move |gradients: &GradStore| {
                let gradient = gradients.get(&var).expect("each variable has one");
                var.set(&(var.as_detached_tensor() - gradient)?)
            }
        };
        let dropped = |x: &Tensor| -> Result<Tensor> {
            let x = x.broadcast_mul(&left)?;
            // The layer has two draws, the second of which has three times the weight.
            ops::dropout(&x, 0.5)? + (ops::dropout(&x, 0.5)? * 3.)?
        };
        let stages = vec![
            Stage::new(vec![left.clone()], dropped, descend(&left)),
            Stage::new(vec![right.clone()], |x| x.broadcast_mul(&right), descend(&right)),
        ];
        let mut pipeline = Pipeline::new(stages, |output, _| output.sum_all(), 2)?;
        let y = Tensor::zeros(2, DType::F32, second)?;
        let mut before = values(from_ref(&left))?;
        let mut changes = Vec::new();
        for _ in 0..2 {
            // Both variables have the same values before, so both gradients are the sum of the masks.
            right.set(&left.to_device(&Device::Cpu)?.to_device(second)?)?;
            pipeline.run(&Tensor::ones((2, 64), DType::F32, first)?, &y)?;
            let [after, other] = [values(from_ref(&left))?, values(from_ref(&right))?];
            assert_eq!(after, other);
            changes
                .push(before.iter().zip(&after).map(|(before, after)| (before - after) / before).collect::<Vec<f64>>());
            left.set(&Tensor::ones(64, DType::F32, first)?)?;
            before = vec![1.; 64];
        }
        let kinds: std::collections::BTreeSet<i64> = changes[0].iter().map(|change| (change * 4.) as i64).collect();
        assert!(kinds.len() > 3, "{kinds:?}");
        assert_ne!(changes[0], changes[1], "each step has random numbers of its own");
    }
    Ok(())
}

#[test]
fn a_variable_without_a_gradient_stays_as_it_is() -> Result<()> {
    let core = plugin::open()?;
    for device in [&core, &Device::Cpu] {
        let (used, unused) = (Var::ones(4, DType::BF16, device)?, Var::ones(4, DType::BF16, device)?);
        let vars = vec![used.clone(), unused.clone()];
        let halved = |gradients: &GradStore| {
            let known = vars.iter().filter_map(|var| Some((var, gradients.get(var)?)));
            known.into_iter().try_for_each(|(var, gradient)| var.set(&(var.as_detached_tensor() * 0.5)?.sub(gradient)?))
        };
        let stage = Stage::new(vars.clone(), |x: &Tensor| x.broadcast_mul(used.as_tensor()), halved);
        let mut pipeline = Pipeline::new(vec![stage], |output, _| output.to_dtype(DType::F32)?.mean_all(), 2)?;
        let x = Tensor::ones((2, 4), DType::BF16, device)?;
        assert_eq!(number(&pipeline.run(&x, &x)?)?, 1.);
        assert_eq!(values(&[used.clone(), unused])?, [0.25, 0.25, 0.25, 0.25, 1., 1., 1., 1.]);
    }
    Ok(())
}

#[test]
fn a_step_that_fails_leaves_nothing_for_the_next_one() -> Result<()> {
    let calls = Cell::new(0);
    let (left, right) = (Var::new(3f32, &Device::Cpu)?, Var::new(2f32, &Device::Cpu)?);
    let layers = |x: &Tensor| {
        calls.set(calls.get() + 1);
        if calls.get() == 2 {
            candle_core::bail!("the second micro-batch is lost")
        }
        x.broadcast_mul(&right)
    };
    let mut optimisers = [SGD::new(vec![left.clone()], 0.1)?, SGD::new(vec![right.clone()], 0.1)?];
    let [one, other] = &mut optimisers;
    let stages = vec![
        Stage::new(vec![left.clone()], |x| x.broadcast_mul(&left), |gradients| one.step(gradients)),
        Stage::new(vec![right.clone()], layers, |gradients| other.step(gradients)),
    ];
    let mut pipeline = Pipeline::new(stages, |output, _| output.mean_all(), 3)?;
    let x = Tensor::ones((3, 1), DType::F32, &Device::Cpu)?;
    assert!(pipeline.run(&x, &x).expect_err("the second call").to_string().contains("is lost"));
    assert_eq!(number(&pipeline.run(&x, &x)?)?, 6.);
    assert_eq!((left.to_scalar::<f32>()?, right.to_scalar::<f32>()?), (2.8, 1.7));
    Ok(())
}

#[test]
fn the_programs_of_all_stages_are_text_and_nothing_runs() -> Result<()> {
    let devices = cores(&plugin::open()?)?;
    let (mut pipeline, vars) = pipeline(&devices[..STAGES], 4)?;
    let before = values(&vars)?;
    let (x, y) = (numbers(DType::F32)?.to_device(&devices[0])?, classes(&devices[STAGES - 1])?);
    let programs = pipeline.stablehlo(&x, &y)?;
    let names: Vec<&str> = programs.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names[..3], ["stage_1_forward", "stage_1_backward", "stage_1_update"]);
    assert_eq!(names[9..], ["stage_4_backward", "stage_4_update"]);
    assert!(programs.iter().all(|(_, text)| text.contains("func.func public @main")));
    assert!(programs[1].1.contains("tf.aliasing_output"), "sums keep their memory: {}", programs[1].1);
    assert_eq!(values(&vars)?, before);
    let (mut on_host, _) = self::pipeline(&[const { Device::Cpu }; STAGES], 4)?;
    let refused = on_host.stablehlo(&numbers(DType::F32)?, &classes(&Device::Cpu)?).expect_err("the CPU").to_string();
    assert!(refused.contains("xla:cpu"), "{refused}");
    Ok(())
}

#[test]
fn what_a_pipeline_cannot_do_is_refused_before_anything_runs() -> Result<()> {
    let devices = cores(&plugin::open()?)?;
    let var = |device: &Device| Var::ones(2, DType::F32, device);
    let (here, there) = (var(&devices[0])?, var(&devices[1])?);
    let stage =
        |vars: &[&Var]| Stage::new(vars.iter().map(|var| (*var).clone()).collect(), |x| Ok(x.clone()), |_| Ok(()));
    let refused = |stages: Vec<Stage<'_>>, micro_batches| {
        Pipeline::new(stages, |output, _| output.mean_all(), micro_batches)
            .err()
            .map_or(String::new(), |error| error.to_string())
    };
    let table = [
        (refused(Vec::new(), 1), "a pipeline of 0 stages"),
        (refused(vec![stage(&[&here])], 0), "0 micro-batches"),
        (refused(vec![stage(&[&here]), stage(&[])], 1), "stage 2 of the pipeline has no variables"),
        (refused(vec![stage(&[&here, &there])], 1), "a stage is on one device"),
        (refused(vec![stage(&[&here]), stage(&[&here])], 1), "stages 1 and 2 of the pipeline have the same variable"),
    ];
    for (error, expected) in table {
        assert!(error.contains(expected), "{error}");
    }
    let twice = |x: &Tensor| x.broadcast_mul(here.as_tensor());
    let updates = Cell::new(0);
    // The error of a pipeline of two stages whose first stage has these layers.
    let run = |layers: &dyn Fn(&Tensor) -> Result<Tensor>, rows: usize, target: &Device| -> Result<String> {
        let update = |_: &_| {
            updates.set(updates.get() + 1);
            Ok(())
        };
        let last = Stage::new(vec![there.clone()], |x| x.broadcast_mul(there.as_tensor()), update);
        let stages = vec![Stage::new(vec![here.clone()], layers, update), last];
        let mut pipeline = Pipeline::new(stages, |output, y| (output - y)?.sqr()?.mean_all(), 2)?;
        let x = Tensor::ones((rows, 2), DType::F32, &devices[0])?;
        let y = Tensor::ones((4, 2), DType::F32, target)?;
        let error = pipeline.run(&x, &y).err();
        assert_eq!(updates.get(), 0);
        Ok(error.map_or(String::new(), |error| error.to_string()))
    };
    let sets = |x: &Tensor| {
        here.set(&(here.as_tensor() * 2.)?)?;
        twice(x)
    };
    let table = [
        (run(&twice, 5, &devices[1])?, "make its rows a multiple"),
        (run(&twice, 6, &devices[1])?, "6 rows and 4 targets"),
        (run(&twice, 4, &devices[0])?, "move it with `to_device`"),
        (run(&|x| x.to_device(&Device::Cpu), 4, &devices[1])?, "reads a value"),
        (run(&|_| Tensor::ones(2, DType::F32, &Device::Cpu), 4, &devices[1])?, "returns a tensor on Cpu"),
        (run(&|x| x.to_dtype(DType::U32), 4, &devices[1])?, "only floating-point numbers"),
        (run(&sets, 4, &devices[1])?, "stage 1 of the pipeline sets a variable"),
    ];
    for (error, expected) in table {
        assert!(error.contains(expected), "{expected}: {error}");
    }
    assert_eq!(values(&[here.clone(), there.clone()])?, [1.; 4]);
    Ok(())
}

/// Asserts that a time is less than half of another one in one of five tries: other programs of this machine may delay some tries.
fn assert_early(mut times: impl FnMut() -> Result<[Duration; 2]>) -> Result<()> {
    let tries = (0..5).map(|_| times()).collect::<Result<Vec<_>>>()?;
    assert!(tries.iter().any(|[early, late]| *early * 2 < *late), "{tries:?}");
    Ok(())
}

#[test]
fn a_step_is_started_without_a_wait() -> Result<()> {
    let devices = cores(&plugin::open()?)?;
    let stage = |device: &Device| {
        let weight = Var::ones((512, 512), DType::F32, device)?;
        let mut optimiser = SGD::new(vec![weight.clone()], 1e-9)?;
        let layer = weight.clone();
        let layers = move |x: &Tensor| (0..3).try_fold(x.clone(), |x, _| x.matmul(&layer)?.tanh());
        Ok(Stage::new(vec![weight], layers, move |gradients| optimiser.step(gradients)))
    };
    let stages = devices[..2].iter().map(stage).collect::<Result<_>>()?;
    let mut pipeline = Pipeline::new(stages, |output, _| output.mean_all(), 4)?;
    let x = Tensor::ones((1024, 512), DType::F32, &devices[0])?;
    let y = Tensor::ones(1024, DType::F32, &devices[1])?;
    number(&pipeline.run(&x, &y)?)?;
    assert_early(|| {
        let begun = Instant::now();
        let loss = pipeline.run(&x, &y)?;
        let started = begun.elapsed();
        number(&loss)?;
        Ok([started, begun.elapsed()])
    })
}

#[test]
fn a_core_does_not_wait_for_another() -> Result<()> {
    let devices = cores(&plugin::open()?)?;
    let product = |times: usize| {
        move |x: &[Tensor]| Ok(vec![(0..times).try_fold(x[0].clone(), |y, _| y.matmul(&x[0])?.tanh())?.sum_all()?])
    };
    let (mut long, mut short) = (Step::new(&devices[0], product(10)), Step::new(&devices[1], product(1)));
    let input = |size: usize, device: &Device| Tensor::ones((size, size), DType::F32, device);
    let (great, small) = ([input(768, &devices[0])?], [input(64, &devices[1])?]);
    let mut times = || {
        let begun = Instant::now();
        let [first, second] = [long.run(&great)?, short.run(&small)?];
        number(&second[0])?;
        let early = begun.elapsed();
        number(&first[0])?;
        Ok([early, begun.elapsed()])
    };
    times()?;
    assert_early(times)
}

#[test]
fn the_cores_of_a_plugin_are_the_same_from_each_of_them() -> Result<()> {
    let devices = cores(&plugin::open()?)?;
    let names = |devices: &[Device]| -> Vec<String> {
        devices.iter().map(|device| format!("{:?}", backend_of(device).expect("a plugin's"))).collect()
    };
    assert_eq!(names(&devices), ["cpu", "cpu:1", "cpu:2", "cpu:3"]);
    assert_eq!(names(&cores(&devices[2])?), ["cpu:2", "cpu", "cpu:1", "cpu:3"]);
    assert_eq!(cores(&Device::Cpu)?.len(), 1);
    Ok(())
}
