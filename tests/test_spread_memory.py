"""GPT-2-medium's training step over eight cores of a TPU that is not there: what a core needs by libtpu, with weights and moments
spread over the cores, and what one core needs without that.

The normal run has the first two of 24 layers, and libtpu compiles them only if `tpu_peaks.py` has no answer.
`FERROTUNE_GPT2_LAYERS=24` has all; docs/strategies.md has the figures.
"""

import os
import re

import pytest

import tpu_peaks
from session import Session
from test_devices import set_variable
from test_devices_xla import XLA_CPU, xla_cpu  # noqa: F401

LAYERS = int(os.environ.get("FERROTUNE_GPT2_LAYERS", "2"))
TPU = "v5e:2x4"
UNITS = {"MiB": 2**20, "GiB": 2**30}

MODEL = r"""
use candle_core::{D, DType, Device, Tensor, Var};
use candle_nn::ops::{layer_norm, softmax_last_dim};
use candle_nn::Optimizer;
use ferrotune::optim::{AdamW, ParamsAdamW};
use ferrotune::xla::{self, Options};

const WIDTH: usize = 1024;
const HEADS: usize = 16;
const TIME: usize = 1024;
/// GPT-2 has 50257 words; the number is rounded up so that cores can share them.
const WORDS: usize = 50304;
const MODEL: Option<&str> = Some("model");
type Made = Box<dyn FnMut(&[Tensor]) -> candle_core::Result<Vec<Tensor>>>;

/// A step of AdamW. Columns of the first and rows of the second of two products are split over the axis `model`, the batch over
/// `data`, where the device has them.
fn gpt2(device: &Device, layers: usize) -> candle_core::Result<Made> {
    let mut vars: Vec<Var> = Vec::new();
    let mut var = |dims: &[usize], axes: &[Option<&str>]| -> candle_core::Result<Var> {
        let var = Var::zeros(dims, DType::F32, device)?;
        xla::spread(&var, axes)?;
        vars.push(var.clone());
        Ok(var)
    };
    let words = var(&[WORDS, WIDTH], &[MODEL, None])?;
    let places = var(&[TIME, WIDTH], &[None, MODEL])?;
    let mut blocks = Vec::new();
    for _ in 0..layers {
        let mut norms = Vec::new();
        for _ in 0..4 {
            norms.push(var(&[WIDTH], &[None])?);
        }
        let mut products = Vec::new();
        for (rows, columns, axes) in [
            (WIDTH, WIDTH, [None, MODEL]),
            (WIDTH, WIDTH, [None, MODEL]),
            (WIDTH, WIDTH, [None, MODEL]),
            (WIDTH, WIDTH, [MODEL, None]),
            (WIDTH, 4 * WIDTH, [None, MODEL]),
            (4 * WIDTH, WIDTH, [MODEL, None]),
        ] {
            products.push(var(&[rows, columns], &axes)?);
        }
        blocks.push((norms, products));
    }
    let last = [var(&[WIDTH], &[None])?, var(&[WIDTH], &[None])?];
    let mut optimizer = AdamW::new(vars, ParamsAdamW::default())?;
    Ok(Box::new(move |args: &[Tensor]| {
        let ids = xla::with_sharding_constraint(&args[0], &[Some("data"), None])?;
        let (batch, time) = ids.dims2()?;
        let place = Tensor::arange(0u32, time as u32, ids.device())?;
        let earlier = place.unsqueeze(1)?.broadcast_ge(&place.unsqueeze(0)?)?.broadcast_as((batch, HEADS, time, time))?;
        let never = Tensor::new(f32::NEG_INFINITY, ids.device())?.broadcast_as(earlier.shape())?;
        let mut x = words.index_select(&ids.flatten_all()?, 0)?.reshape((batch, time, WIDTH))?.broadcast_add(&places)?;
        for (norms, products) in &blocks {
            let h = layer_norm(&x, &norms[0], &norms[1], 1e-5)?;
            let heads = |weight: &Var| {
                h.broadcast_matmul(weight)?.reshape((batch, time, HEADS, WIDTH / HEADS))?.transpose(1, 2)?.contiguous()
            };
            let (q, k, v) = (heads(&products[0])?, heads(&products[1])?, heads(&products[2])?);
            let scores = (q.matmul(&k.transpose(2, 3)?.contiguous()?)? * 0.125)?;
            let weights = softmax_last_dim(&earlier.where_cond(&scores, &never)?)?;
            let h = weights.matmul(&v)?.transpose(1, 2)?.contiguous()?.reshape((batch, time, WIDTH))?;
            x = (x + h.broadcast_matmul(&products[3])?)?;
            let h = layer_norm(&x, &norms[2], &norms[3], 1e-5)?.broadcast_matmul(&products[4])?.gelu()?;
            x = (x + h.broadcast_matmul(&products[5])?)?;
        }
        let logits = layer_norm(&x, &last[0], &last[1], 1e-5)?.reshape((batch * time, WIDTH))?.matmul(&words.t()?)?;
        let loss = candle_nn::loss::cross_entropy(&logits, &args[1])?;
        optimizer.backward_step(&loss)?;
        Ok(vec![loss])
    }))
}
"""


def needed(outcome):
    """The bytes that a core needs."""
    assert outcome.errors == [], outcome.traceback
    value, unit = re.search(r"needs ([\d.]+) (\w+) of", outcome.display).groups()
    return float(value) * UNITS[unit]


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("libtpu", ["newest"], indirect=True)
def test_a_core_needs_less_where_weights_are_spread(tmp_path, libtpu, xla_cpu):  # noqa: F811
    session = Session(tmp_path)
    session.cell_timeout_s = 3000
    set_variable(session, "TPU_LIBRARY_PATH", libtpu[1])
    session.ok(MODEL)
    plugin = f'"{XLA_CPU}".as_ref()'
    spread = '&[("data", 2), ("model", 4)]'
    bytes_of = {}
    for name, mesh in (("one", "&[]"), ("spread", spread)):
        session.ok(f"let device = xla::open_with({plugin}, Options {{ mesh: {mesh}, ahead_of_time: true, ..Options::default() }})?;")
        session.ok(f"let mut {name}: ferrotune::Step<'static> = xla::Step::new(&device, gpt2(&device, {LAYERS})?);")
        arguments = "Tensor::zeros((4, TIME), DType::U32, &device)?, Tensor::zeros(4 * TIME, DType::U32, &device)?"
        session.ok(f'std::fs::write("{name}.mlir", {name}.stablehlo(&[{arguments}])?)?;')
        program = (session.folder / f"{name}.mlir").read_bytes()
        asked = program, TPU, libtpu[1], f"gpt2-medium of {LAYERS} layers, {name}, {TPU}"
        bytes_of[name] = tpu_peaks.kept(*asked)
        if bytes_of[name] is None:
            bytes_of[name] = needed(session.run(f"%tpu_check --tpu {TPU} {name}"))
            tpu_peaks.keep(*asked, bytes_of[name])
    session.close()
    line = f"GPT-2-medium, {LAYERS} layers, batch 4, {TPU}: one core {bytes_of['one'] / 2**30:.2f} GiB, each of eight {bytes_of['spread'] / 2**30:.2f} GiB"
    print(line)
    assert bytes_of["spread"] < bytes_of["one"] / 3, line
