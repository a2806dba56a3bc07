"""Datasets in notebooks: in cells, after a crash, and in trials that go on."""

import pathlib
import re

from test_resume import facts
from test_tune import study, tune

DOCUMENT = pathlib.Path(__file__).parent.parent / "docs/data.md"

DATASET = """
use candle_core::{Device, Tensor};
use ferrotune::data::Dataset;
let rows = Tensor::arange(0u32, 100, &Device::Cpu)?;
let train = Dataset::from_tensors(rows.clone())?.shuffle(100, 7).map(2, |row| Ok(row.to_scalar::<u32>()?)).prefetch(3);
let whole: Vec<u32> = train.epoch(0).collect::<Result<_, _>>()?;
"""


def test_the_document_runs(start):
    session = start()
    blocks = re.findall(r"```rust\n(.*?)```", DOCUMENT.read_text(), re.S)
    whole, parts, functions, scaled, seeded, objective = blocks
    session.ok(whole)
    session.ok(functions)
    assert session.ok("centred.len()").result == "Some(1000)"
    session.ok(scaled)
    assert session.ok("(train.len(), valid.0.dims().to_vec())").result == "(Some(142), [36, 13])"
    session.ok(seeded)
    assert session.ok("noisy.len()").result == "Some(1438)"
    session.ok("let numbers = Dataset::from_tensors(Tensor::arange(0u32, 1000, &Device::Cpu)?)?;")
    session.ok(parts)
    assert session.ok("(train.len(), valid.len())").result == "(Some(800), Some(200))"
    model = (
        "let vars = candle_nn::VarMap::new();\n"
        'vars.get(1, "w", candle_nn::Init::Const(0.0), candle_core::DType::F32, &Device::Cpu)?;\n'
        "let mut optimizer = <ferrotune::AdamW as candle_nn::Optimizer>::new(vars.all_vars(), Default::default())?;\n"
        "let loss = 0.5;\n"
        "let train = Dataset::from_tensors((inputs, labels))?.shuffle(1000, 7).batch(32, false).prefetch(2);\n"
    )
    session.ok(tune(model + objective + 'trial.best("loss")', "--objective loss:min --max-trials 1", "document"))


def test_an_iterator_continues_in_later_cells_and_after_a_crash(start):
    session = start()
    session.ok(DATASET)
    session.ok("let mut numbers = train.epoch(0);\nlet mut seen: Vec<u32> = numbers.by_ref().take(10).collect::<Result<_, _>>()?;")
    session.ok("seen.extend(numbers.by_ref().take(20).collect::<Result<Vec<_>, _>>()?);")
    assert session.run("std::process::abort();").error
    # The process is a copy without the threads of the iterator.
    session.ok("seen.extend(numbers.by_ref().collect::<Result<Vec<_>, _>>()?);")
    assert session.ok("seen == whole").result == "true"
    session.ok("let left = train.epoch(0); drop(numbers);")


def test_a_search_captures_a_dataset_of_rows_and_says_what_else_to_do(start):
    session = start()
    session.ok(DATASET)
    session.ok("let [rows, _] = Dataset::from_tensors(rows)?.shuffle(100, 3).split([0.6, 0.4], 7)?;")
    session.ok("let order: Vec<u32> = rows.batch(60, false).epoch(0).next().unwrap()?.to_vec1()?;")
    objective = """
    let batch: Vec<u32> = rows.batch(60, false).epoch(0).next().ok_or("empty")??.to_vec1()?;
    if batch != order { return Err(format!("{batch:?} is not {order:?}").into()); }
    Ok(0.5)"""
    session.ok(tune(objective, "--objective loss:min --max-trials 2", "captured"))
    error = session.run(tune("train.len(); Ok(0.5)", "--objective loss:min --max-trials 1", "refused")).error
    assert "variable `train`" in error and "`u32` is neither a tensor nor a tuple of tensors" in error, error
    session.ok("let made = rows.map(1, Ok);")
    error = session.run(tune("made.len(); Ok(0.5)", "--objective loss:min --max-trials 1", "refused")).error
    assert "`made` cannot be shared: only rows of tensors and images travel to a trial; call map, batch" in error, error


def test_a_trial_that_goes_on_continues_with_the_batch_after_the_last_one(start):
    session = start()
    session.ok(DATASET)
    objective = """
    let train = Dataset::from_tensors(rows)?.shuffle(100, 7).batch(8, false).prefetch(2);
    let mut batches = train.epoch(0);
    let mut seen: Vec<u32> = Vec::new();
    trial.restore((&mut seen, &mut batches))?;
    // 30 batches are two passes of 13 and a part of a third one.
    for epoch in trial.epochs(6) {
        for _ in 0..5 {
            let batch = match batches.next() { Some(batch) => batch?, None => batches.next().ok_or("empty")?? };
            seen.extend(batch.to_vec1::<u32>()?);
        }
        trial.report(epoch, [("loss", 0.5)])?;
        trial.checkpoint((&seen, &batches))?;
        let crashed = trial.folder().join(format!("crashed-{epoch}"));
        if epoch % 2 == 0 && !crashed.exists() {
            std::fs::write(crashed, "")?;
            std::process::abort();
        }
    }
    let passes = (0..3).flat_map(|number| train.epoch(number)).map(|batch| batch?.to_vec1::<u32>());
    let passes = passes.collect::<candle_core::Result<Vec<_>>>()?.concat();
    if seen[..] != passes[..seen.len()] { return Err(format!("{seen:?} is not {passes:?}").into()); }
    if seen.len() < 230 { return Err(format!("only {} elements", seen.len()).into()); }
    trial.best("loss")"""
    session.ok(tune(objective, "--objective loss:min --max-trials 1 --retries 3", "continued"))
    folder = study(session, "continued")
    assert len(list(folder.glob("trials/0/crashed-*"))) == 3
    assert facts(folder)[1] == {0: [1]}
