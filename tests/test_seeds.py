"""`ferrotune::seed`: first weights, dropout and shuffles in cells and in trials."""

import json

from test_tune import study, tune

WEIGHTS = """
use candle_core::{DType, Device, Tensor};
use candle_nn::{VarBuilder, VarMap};
fn weights() -> ferrotune::Result<Vec<f32>> {
    let vars = VarMap::new();
    let vb = VarBuilder::from_varmap(&vars, DType::F32, &Device::Cpu);
    Ok(candle_nn::linear(3, 2, vb)?.weight().flatten_all()?.to_vec1()?)
}
"""


def test_a_seed_decides_weights_and_a_crash_changes_nothing_of_it(start):
    session = start()
    session.ok(WEIGHTS)
    session.ok("ferrotune::seed(7)?; let first = [weights()?, weights()?, weights()?];")
    assert session.ok("first[0] != first[1]").result == "true"
    session.ok("ferrotune::seed(7)?; let mut again = vec![weights()?];")
    session.ok("again.push(weights()?);")
    assert session.run("std::process::abort();").error
    session.ok("again.push(weights()?);")
    assert session.ok("again == first").result == "true"


def test_replicas_begin_with_the_same_weights_and_each_scope_with_others(start):
    session = start()
    session.ok(WEIGHTS)
    session.ok("""
    use ferrotune::strategy::{self, Strategy};
    fn scope() -> Vec<Vec<f32>> {
        let weights = |replica: &strategy::Replica<'_>| strategy::device(replica).and_then(|_| weights()).unwrap();
        Strategy::mirrored(["cpu", "cpu", "cpu"]).unwrap().scope(weights)
    }
    ferrotune::seed(7)?;
    let scopes = [scope(), scope()];
    ferrotune::seed(7)?;
    let again = [scope(), scope()];""")
    assert session.ok("scopes == again").result == "true"
    assert session.ok("scopes[0][0] == scopes[0][1] && scopes[0][0] == scopes[0][2]").result == "true"
    assert session.ok("scopes[0][0] == scopes[1][0]").result == "false"


# What a trial reports depends on its first weight, on the order of its data, and on what it draws in each epoch.
OBJECTIVE = """
    let mut first = Tensor::rand(0f64, 1., (), &Device::Cpu)?.to_scalar::<f64>()?;
    trial.restore(&mut first)?;
    for epoch in trial.epochs(4) {
        let batches = train.shuffle(20, None).batch(20, false);
        let order: Vec<u32> = batches.epoch(epoch as u64).next().ok_or("empty")??.to_vec1()?;
        let drawn = Tensor::rand(0f64, 1., (), &Device::Cpu)?.to_scalar::<f64>()?;
        trial.report(epoch, [("loss", drawn + 10.0 * first + f64::from(100 * order[0] + 10_000 * order[1]))])?;
        trial.checkpoint(&first)?;
        let crashed = trial.folder().join("crashed");
        if CRASHES && epoch == 1 && !crashed.exists() {
            std::fs::write(crashed, "")?;
            std::process::abort();
        }
    }
    trial.best("loss")"""


def losses(session, project, crashes, options=""):
    """The losses of a search of three trials, by trial and epoch."""
    options = f"--objective loss:min --oracle random --max-trials 3 --retries 1 {options}"
    session.ok(tune(OBJECTIVE.replace("CRASHES", crashes), options, project))
    journal = map(json.loads, (study(session, project) / "journal.log").read_text().splitlines())
    found = {(line["trial_id"], line["step"]): line["intermediate_value"] for line in journal if line["op_code"] == 7}
    assert len(found) == 12
    return found


def test_trials_draw_numbers_of_their_own_and_the_same_after_a_crash(start):
    session = start()
    session.ok(WEIGHTS)
    session.ok("let train = ferrotune::data::Dataset::from_tensors(Tensor::arange(0u32, 20, &Device::Cpu)?)?;")
    session.ok("ferrotune::seed(3)?;")
    whole = losses(session, "whole", "false")
    assert losses(session, "crashed", "true") == whole
    assert len(list((study(session, "crashed") / "trials").glob("*/crashed"))) == 3
    assert len(set(whole.values())) == 12
    assert losses(session, "concurrent", "false", "--concurrency 2") == whole
    assert losses(session, "named", "false", "--seed 3") == whole
    session.ok("ferrotune::seed(4)?;")
    assert not set(losses(session, "other", "false").values()) & set(whole.values())
    assert losses(session, "again", "false", "--seed 3") == whole
