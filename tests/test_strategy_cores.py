"""TPUStrategy without a TPU: all devices of XLA:CPU from PyPI (`fastatomstruct-xla-cpu`, which has four) as one, with the batch spread over
them. One program runs on replicas, on one core and on all cores.
"""

import json

import pytest

from session import Session
from test_devices_xla import xla_cpu  # noqa: F401

TRAIN = """
use candle_core::{DType, Device, Tensor, Var};
use candle_nn::Optimizer;
use ferrotune::optim::{AdamW, ParamsAdamW};
use ferrotune::strategy::{self, Precision, Replica, Strategy};
use ferrotune::xla::Step;

fn train(replica: &Replica<'_>) -> ferrotune::Result<Vec<f32>> {
    let device = strategy::device(replica)?;
    let wave = |count: usize, step: f32| (0..count).map(|i| (i as f32 * step).sin()).collect::<Vec<f32>>();
    let x = Tensor::from_vec(wave(32 * 6, 0.7), (32, 6), &device)?;
    let y = Tensor::from_vec(wave(32, 1.3), (32, 1), &device)?;
    let w1 = Var::from_tensor(&Tensor::from_vec(wave(6 * 8, 2.1), (6, 8), &device)?)?;
    let w2 = Var::from_tensor(&Tensor::from_vec(wave(8, 2.9), (8, 1), &device)?)?;
    let vars = vec![w1.clone(), w2.clone()];
    let mut optimizer = AdamW::new(vars.clone(), ParamsAdamW { lr: 0.01, ..ParamsAdamW::default() })?;
    let mut step = Step::new(&device, |args: &[Tensor]| {
        let (x, y) = (strategy::shard(replica, &args[0])?, strategy::shard(replica, &args[1])?);
        let cast = |tensor: &Tensor| strategy::cast(replica, tensor);
        let made = cast(&x)?.matmul(&cast(&w1)?)?.tanh()?.matmul(&cast(&w2)?)?.to_dtype(DType::F32)?;
        let mut gradients = made.sub(&y)?.sqr()?.mean_all()?.backward()?;
        strategy::average(replica, &mut gradients, &vars)?;
        optimizer.step(&gradients)?;
        Ok(Vec::new())
    });
    for _ in 0..100 {
        step.run(&[x.clone(), y.clone()])?;
    }
    drop(step);
    Ok(Tensor::cat(&[w1.flatten_all()?, w2.flatten_all()?], 0)?.to_vec1()?)
}
fn trained(strategy: &Strategy) -> ferrotune::Result<Vec<f32>> {
    let mut all = strategy.scope(train).into_iter().collect::<ferrotune::Result<Vec<_>>>()?;
    Ok(all.swap_remove(0))
}
fn furthest(a: &[f32], b: &[f32]) -> f32 { a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0., f32::max) }
"""


@pytest.fixture(scope="module")
def session(tmp_path_factory, xla_cpu):  # noqa: F811
    session = Session(tmp_path_factory.mktemp("cores"))
    session.ok("%tpu_connect --plugin cpu")
    session.ok(TRAIN)
    session.ok("let cores = strategy::tpu()?;")
    yield session
    session.close()


def test_one_program_trains_alike_on_replicas_on_one_core_and_on_all_cores(session):
    compare = """
let one = trained(&Strategy::on("cpu"))?;
let strategies = [Strategy::mirrored(["cpu", "cpu"])?, strategy::current(), cores.clone()];
let away = strategies.iter().map(|strategy| Ok(furthest(&one, &trained(strategy)?))).collect::<ferrotune::Result<Vec<f32>>>()?;
println!("{} {} {:?}", cores.num_replicas_in_sync(), cores.global_batch_size(8), away);
"""
    count, batch, away = session.ok(compare).stdout.split(maxsplit=2)
    assert (count, batch) == ("4", "32")
    assert max(json.loads(away)) < 1e-5, away


def test_bf16_computes_with_16_bits_and_keeps_the_weights(session):
    compare = """
let single = trained(&cores)?;
let bf16 = trained(&cores.clone().with_precision(Precision::Bf16))?;
let whole = trained(&Strategy::on("cpu").with_precision(Precision::Bf16))?;
println!("[{:e}, {:e}]", furthest(&single, &bf16), furthest(&whole, &bf16));
"""
    single, whole = json.loads(session.ok(compare).stdout)
    assert 1e-5 < single < 0.05 and whole < 0.05, (single, whole)


def test_a_batch_that_cores_cannot_share_and_a_plugin_that_is_open_alone_are_refused(session):
    odd = """
{
let odd = |replica: &Replica<'_>| -> ferrotune::Result<Tensor> {
    Ok(strategy::shard(replica, &Tensor::zeros((6, 2), DType::F32, &strategy::device(replica)?)?)?)
};
"""
    assert "multiple of 4" in session.fails(odd + "cores.scope(odd).swap_remove(0)?;\n}").error
    pair = 'Strategy::mirrored(["cpu"; 4])?.scope(odd).swap_remove(0)?;\n}'
    assert "4 replicas cannot share a batch of 6 rows" in session.fails(odd + pair).error
    cluster = 'ferrotune::strategy::Cluster::new(["127.0.0.1:1", "127.0.0.1:2"], 1)?'
    across = f"cores.clone().across({cluster}).scope(|replica| strategy::device(replica)).swap_remove(0)?;"
    error = session.fails(across).error
    assert "xla:cpu is open in this process already, without the other workers" in error and "(\"xla:cpu\", 4)" in error, error



TUNE = """%%tune --objective off:min --max-trials 1 --seed 1 --project cores
|trial| {
    let rate = trial.float("rate", 0.1..=0.4).get()?;
    let weights = cores.scope(|replica| train(replica)).swap_remove(0)?;
    let off = f64::from(furthest(&weights, &trained(&Strategy::on("cpu"))?));
    if off > 1e-5 {
        return Err(format!("the weights are {off:e} away from those of the CPU").into());
    }
    trial.report(0, [("off", off + rate)])?;
    trial.best("off")
}"""


def test_a_trial_uses_all_cores_by_a_strategy_of_the_notebook(session):
    outcome = session.ok(TUNE)
    assert "1/1 trials" in outcome.display and "failed" not in outcome.display, outcome.display
