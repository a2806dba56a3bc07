//! Tests of loops without `compile`: a read computes what it needs and what the program still holds on the way to it, in as few programs
//! as the loop has forms, with the values of the CPU.

use crate::compare::Draws;
use crate::plugin;
use candle_core::{DType, Device, Result, Tensor, Var};
use candle_nn::rnn::{GRUConfig, RNN as _, gru};
use candle_nn::{Optimizer as _, SGD, VarBuilder, VarMap};
use ferrotune_xla::{Options, backend_of, device_bytes, with_sharding_constraint};
use std::process::Command;
use std::thread;

const STEPS: usize = 40;
const WIDTH: usize = 8;

/// Runs a loop on the CPU and on this device. The numbers that it reads must be the CPU's; returns how many programs were compiled.
fn programs(device: &Device, read: impl Fn(&Device) -> Result<Vec<f32>>) -> Result<u64> {
    let (found, expected) = (read(device)?, read(&Device::Cpu)?);
    assert_eq!(found.len(), expected.len());
    for (place, (found, expected)) in found.iter().zip(&expected).enumerate() {
        let difference = (found - expected).abs();
        assert!(difference <= 1e-4 * expected.abs().max(1.), "read {place} is {found} instead of {expected}");
    }
    Ok(backend_of(device).expect("a device of a plugin").compilations())
}

/// A small square matrix.
fn square(seed: u64, device: &Device) -> Result<Tensor> {
    Draws(seed).tensor((WIDTH, WIDTH), DType::F32, &Device::Cpu)?.affine(0.2, 0.)?.to_device(device)
}

/// Variables with the same values on each device, by their names.
fn variables(device: &Device) -> Result<VarMap> {
    let map = VarMap::new();
    let cpu = VarBuilder::from_varmap(&map, DType::F32, &Device::Cpu);
    gru(WIDTH, WIDTH, GRUConfig::default(), cpu)?;
    let mut names: Vec<(String, Tensor)> = Vec::new();
    for (name, var) in map.data().lock().expect("it is not poisoned").iter() {
        names.push((name.clone(), var.as_tensor().clone()));
    }
    names.sort_by(|(left, _), (right, _)| left.cmp(right));
    let moved = VarMap::new();
    for (place, (name, tensor)) in names.into_iter().enumerate() {
        let values = Draws(place as u64).tensor(tensor.dims(), DType::F32, &Device::Cpu)?.affine(0.2, 0.)?;
        let var = Var::from_tensor(&values.to_device(device)?)?;
        moved.data().lock().expect("it is not poisoned").insert(name, var);
    }
    Ok(moved)
}

#[test]
fn a_carried_tensor_is_one_program_and_its_first_step_another() -> Result<()> {
    let compiled = programs(&plugin::open()?, |device| {
        let (a, mut x) = (square(1, device)?, square(2, device)?);
        let step = |_| {
            x = x.matmul(&a)?.tanh()?;
            x.sum_all()?.to_scalar()
        };
        (0..STEPS).map(step).collect()
    })?;
    assert!(compiled <= 2, "{compiled}");
    Ok(())
}

#[test]
fn two_carried_tensors_are_one_program() -> Result<()> {
    let compiled = programs(&plugin::open()?, |device| {
        let (a, mut x, mut v) =
            (square(1, device)?, square(2, device)?, Tensor::zeros((WIDTH, WIDTH), DType::F32, device)?);
        let step = |_| {
            v = (&v * 0.9)?.sub(&x.matmul(&a)?)?;
            x = (&x + (&v * 0.1)?)?;
            x.sqr()?.sum_all()?.to_scalar()
        };
        (0..STEPS).map(step).collect()
    })?;
    assert!(compiled <= 2, "{compiled}");
    Ok(())
}

#[test]
fn two_reads_in_each_step_are_two_programs() -> Result<()> {
    let compiled = programs(&plugin::open()?, |device| {
        let (a, mut x) = (square(1, device)?, square(2, device)?);
        let mut read = Vec::new();
        for _ in 0..STEPS {
            x = x.matmul(&a)?.tanh()?;
            read.push(x.sum_all()?.to_scalar()?);
            read.push(x.flatten_all()?.max(0)?.to_scalar()?);
        }
        Ok(read)
    })?;
    assert!(compiled <= 3, "{compiled}");
    Ok(())
}

#[test]
fn a_recurrent_network_carries_its_state_though_its_weights_are_variables() -> Result<()> {
    let compiled = programs(&plugin::open()?, |device| {
        let cell =
            gru(WIDTH, WIDTH, GRUConfig::default(), VarBuilder::from_varmap(&variables(device)?, DType::F32, device))?;
        let (input, mut state) = (square(1, device)?, cell.zero_state(WIDTH)?);
        let step = |_| {
            state = cell.step(&input, &state)?;
            state.h().sum_all()?.to_scalar()
        };
        (0..STEPS).map(step).collect()
    })?;
    assert!(compiled <= 2, "{compiled}");
    Ok(())
}

#[test]
fn a_window_that_is_joined_anew_in_each_step_is_one_program() -> Result<()> {
    let compiled = programs(&plugin::open()?, |device| {
        let (a, mut window) = (square(1, device)?, square(2, device)?);
        let step = |_| {
            let next = window.matmul(&a)?.tanh()?.narrow(0, 0, 1)?;
            window = Tensor::cat(&[&window.narrow(0, 1, WIDTH - 1)?, &next], 0)?;
            window.sum_all()?.to_scalar()
        };
        (0..STEPS).map(step).collect()
    })?;
    assert!(compiled <= 2, "{compiled}");
    Ok(())
}

#[test]
fn a_state_that_only_a_view_holds_is_carried() -> Result<()> {
    let compiled = programs(&plugin::open()?, |device| {
        let weight = Var::from_tensor(&square(1, device)?)?;
        let mut turned = square(2, device)?.t()?;
        let step = |_| {
            turned = turned.matmul(&weight)?.tanh()?.t()?;
            turned.sum_all()?.to_scalar()
        };
        (0..STEPS).map(step).collect()
    })?;
    assert!(compiled <= 3, "{compiled}");
    Ok(())
}

#[test]
fn an_evaluation_draws_the_weights_once() -> Result<()> {
    let device = plugin::open()?;
    let backend = backend_of(&device).expect("a device of a plugin");
    let weights = Tensor::randn(0f32, 1., (WIDTH, 3), &device)?;
    for seed in 0..STEPS as u64 {
        let logits = square(seed, &device)?.matmul(&weights)?;
        logits.argmax(1)?.to_dtype(DType::F32)?.sum_all()?.to_scalar::<f32>()?;
    }
    assert_eq!(backend.compilations(), 2);
    weights.to_vec2::<f32>()?;
    assert_eq!(backend.compilations(), 2, "the weights are arrays");
    Ok(())
}

#[test]
fn first_weights_are_those_of_the_cpu_and_need_no_program() -> Result<()> {
    let device = plugin::open()?;
    let backend = backend_of(&device).expect("a device of a plugin");
    let layers = |device: &Device| -> Result<Vec<Vec<f32>>> {
        candle_core::random::set_draws_of_thread(candle_core::random::Draws { seed: 7, drawn: 0 });
        let map = VarMap::new();
        let vb = VarBuilder::from_varmap(&map, DType::F32, device);
        let (first, second) = (candle_nn::linear(5, 3, vb.pp("first"))?, candle_nn::embedding(4, 2, vb.pp("second"))?);
        let all = [first.weight(), first.bias().expect("a bias"), second.embeddings()];
        all.into_iter().map(|tensor| tensor.flatten_all()?.to_vec1()).collect()
    };
    assert_eq!(layers(&device)?, layers(&Device::Cpu)?);
    assert_eq!(backend.compilations(), 0);
    Ok(())
}

#[test]
fn training_without_compile_is_two_programs() -> Result<()> {
    let compiled = programs(&plugin::open()?, |device| {
        let weight = Var::from_tensor(&square(1, device)?)?;
        let (x, mut optimiser) = (square(2, device)?, SGD::new(vec![weight.clone()], 0.1)?);
        let step = |_| {
            let loss = x.matmul(&weight)?.tanh()?.sub(&x)?.sqr()?.sum_all()?;
            optimiser.backward_step(&loss)?;
            loss.to_scalar()
        };
        (0..STEPS).map(step).collect()
    })?;
    assert!(compiled <= 2, "{compiled}");
    Ok(())
}

#[test]
fn gradients_follow_a_read_of_the_loss() -> Result<()> {
    let compiled = programs(&plugin::open()?, |device| {
        let weight = Var::from_tensor(&square(1, device)?)?;
        let (x, mut optimiser) = (square(2, device)?, SGD::new(vec![weight.clone()], 0.1)?);
        let step = |_| {
            let hidden = x.matmul(&weight)?.tanh()?;
            let loss = hidden.sub(&x)?.sqr()?.sum_all()?;
            let read = loss.to_scalar()?;
            optimiser.backward_step(&loss)?;
            Ok(read)
        };
        (0..STEPS).map(step).collect()
    })?;
    assert!(compiled <= 3, "{compiled}");
    Ok(())
}

#[test]
fn a_mesh_carries_a_tensor_in_its_parts() -> Result<()> {
    let options = Options { mesh: &[("data", 4)], ..Options::default() };
    let device = ferrotune_xla::open_with(&plugin::path()?, options)?;
    let spread = |x: &Tensor| with_sharding_constraint(x, &[Some("data"), None]);
    let compiled = programs(&device, |device| {
        let (a, mut x) = (square(1, device)?, spread(&square(2, device)?)?);
        let mut read = Vec::new();
        for _ in 0..STEPS {
            x = spread(&x.matmul(&a)?.tanh()?)?;
            read.push(x.sum_all()?.to_scalar()?);
        }
        if backend_of(device).is_some() {
            assert_eq!(device_bytes(&x)?, 4 * WIDTH * WIDTH / 4);
        }
        Ok(read)
    })?;
    // One more spreads the first array.
    assert!(compiled <= 3, "{compiled}");
    Ok(())
}

#[test]
fn threads_read_what_follows_from_the_same_held_tensor() -> Result<()> {
    let device = plugin::open()?;
    let x = square(1, &device)?.tanh()?;
    let expected = square(1, &Device::Cpu)?.tanh()?;
    let close = |found: f32, expected: f32| assert!((found - expected).abs() < 1e-4, "{found} and {expected}");
    let scaled = |x: &Tensor, factor: f64| x.affine(factor, 0.)?.sum_all()?.to_scalar::<f32>();
    thread::scope(|scope| {
        let x = &x;
        let reads: Vec<_> = (1..5).map(|factor| scope.spawn(move || scaled(x, f64::from(factor)))).collect();
        for (factor, read) in (1..5).zip(reads) {
            close(read.join().expect("no panic")?, scaled(&expected, f64::from(factor))?);
        }
        Ok::<(), candle_core::Error>(())
    })?;
    close(x.sum_all()?.to_scalar()?, expected.sum_all()?.to_scalar()?);
    Ok(())
}

#[test]
fn a_held_tensor_with_an_index_out_of_range_stays_an_error() -> Result<()> {
    let device = plugin::open()?;
    let (table, ids) = (square(1, &device)?, Tensor::new(&[0u32, 9], &device)?);
    let taken = table.index_select(&ids, 0)?;
    let sound = (&table * 2.)?;
    let both = taken.narrow(0, 0, 1)?.add(&sound.narrow(0, 0, 1)?)?;
    for tensor in [&both, &taken] {
        let error = tensor.sum_all()?.to_scalar::<f32>().expect_err("9 is no row").to_string();
        assert!(error.contains("index 9 is out of range for dimension 0 of size 8"), "{error}");
    }
    assert_eq!(sound.to_vec2::<f32>()?.len(), WIDTH);
    Ok(())
}

#[test]
fn a_line_that_compiles_more_than_ten_programs_is_noted_once() -> Result<()> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["--ignored", "--exact", "--test-threads=1", "--nocapture", "reads::with_another_shape_in_each_step"]);
    let output = command.output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let notes: Vec<&str> = said.lines().filter(|line| line.starts_with("ferrotune: ")).collect();
    let [note] = notes.as_slice() else { panic!("{notes:?}") };
    // A release has no lines.
    assert!(note.contains("/reads.rs:") || note.contains("a line that has no debug information"), "{note}");
    assert!(note.contains(": more than 10 programs were compiled for this line"), "{note}");
    Ok(())
}

#[test]
#[ignore = "needs a process of its own"]
fn with_another_shape_in_each_step() -> Result<()> {
    let device = plugin::open()?;
    for rows in 1..15 {
        Tensor::ones(rows, DType::F32, &device)?.tanh()?.to_vec1::<f32>()?;
    }
    // Ten programs of one line are no reason for a note.
    for rows in 1..11 {
        Tensor::ones(rows, DType::F32, &device)?.exp()?.to_vec1::<f32>()?;
    }
    Ok(())
}

#[test]
fn batches_that_narrow_cuts_out_of_a_dataset_are_one_program() -> Result<()> {
    let compiled = programs(&plugin::open()?, |device| {
        let (weight, rows) =
            (square(1, device)?, Draws(2).tensor((40, WIDTH), DType::F32, &Device::Cpu)?.to_device(device)?);
        let batch = |at: usize| rows.narrow(0, at * 4, 4)?.matmul(&weight)?.tanh()?.sum_all()?.to_scalar();
        (0..10).map(batch).collect()
    })?;
    assert_eq!(compiled, 1);
    Ok(())
}

#[test]
fn columns_and_windows_of_an_array_begin_at_arguments() -> Result<()> {
    let compiled = programs(&plugin::open()?, |device| {
        let rows = Draws(2).tensor((6, WIDTH), DType::F32, &Device::Cpu)?.to_device(device)?;
        let part = |at: usize| {
            let (column, last) = (rows.narrow(1, at, 2)?, rows.narrow(0, at % 3, 3)?.t()?.narrow(0, at, 2)?);
            column.sum_all()?.add(&last.mean_all()?)?.to_scalar()
        };
        (0..WIDTH - 2).map(part).collect()
    })?;
    assert_eq!(compiled, 1);
    Ok(())
}
