"""The operation that makes a NaN or an infinity ends the cell or the trial, and is named, with the user's line."""

import pytest

LOG = "log(f32[2]) has made -inf, which its inputs had not: element [1] of the result f32[2]"


@pytest.fixture(scope="module")
def watched(kernel):
    kernel.ok("use candle_core::{DType, Device, Tensor, Var};\nferrotune::debug_nans(true);")
    kernel.ok("let x = Var::new(&[1f32, 0.], &Device::Cpu)?;\nfn logs(x: &Tensor) -> candle_core::Result<Tensor> {\n    x.log()\n}")
    return kernel


# Only the first backtrace of a process knows the lines of cells.
def test_the_line_that_called_it_is_named_and_variables_stay(watched):
    outcome = watched.fails("let fine = x.exp()?;\nlet z = logs(&x)?;\nprintln!(\"never\");")
    assert outcome.error.startswith(f"Panic: {LOG} (In ["), outcome.error
    assert outcome.error.endswith("] line 3)") and outcome.stdout == "", outcome.error
    assert "line 2 of the cell: let z = logs(&x)?;" in outcome.traceback, outcome.traceback
    assert watched.ok("x.to_vec1::<f32>()?").result == "[1.0, 0.0]"


def test_a_gradient_says_whose_it_is_and_a_mask_is_no_fault(watched):
    outcome = watched.fails("let loss = x.sqrt()?.sum_all()?;\nloss.backward()?;")
    expected = "Panic: in the gradient of sqrt(f32[2]): div(f32[2], f32[2]) has made inf, which its inputs had not: element [1] of the result f32[2]"
    assert outcome.error.startswith(expected), outcome.error
    watched.ok("let mask = Tensor::new(&[0f32, f32::NEG_INFINITY], &Device::Cpu)?;")
    assert watched.ok("candle_nn::ops::softmax(&(x.as_tensor() + mask)?, 0)?.to_vec1::<f32>()?").result == "[1.0, 0.0]"


def test_a_trial_fails_with_the_operation_and_its_line(watched):
    cell = "%%tune --objective loss:min --max-trials 1 --seed 1 --project nans{}\n|trial| {{\n    let x: f64 = trial.float(\"x\", 0.0..=1.0).get()?;\n"
    cell += "    let zeros = Tensor::zeros(2, DType::F32, &Device::Cpu)?;\n    Ok(zeros.log()?.to_vec1::<f32>()?[0])\n}}"
    watched.run(cell.format(" --debug-nans"))
    shown = watched.ok("%trials 0 --project nans").display
    expected = "trial 0 of nans: log(f32[2]) has made -inf, which its inputs had not: element [0] of the result f32[2] (line 5 of the cell)"
    assert shown.startswith(expected), shown


def test_it_ends_when_it_is_asked_to(watched):
    watched.ok("ferrotune::debug_nans(false);")
    assert watched.ok("x.log()?.to_vec1::<f32>()?").result == "[0.0, -inf]"
