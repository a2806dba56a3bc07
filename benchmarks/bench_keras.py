"""Runs one search here and with Keras Tuner, of the same model on the same data, and writes times and memory as Markdown.

Usage: PYTHONPATH=tests python benchmarks/bench_keras.py --output FILE     (`cargo xtask bench keras` prepares and calls it)
"""

import argparse
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import threading
import time as clock

import numpy

from bench import say
from session import Session, resident_bytes

TRIALS, EPOCHS, BATCH, EXAMPLES, TRAINING = 50, 5, 64, 5120, 4096
SETTLED = 5

LOAD = """use candle_core::{DType, Device, Tensor};
use candle_nn::{AdamW, Module, Optimizer, ParamsAdamW, VarBuilder, VarMap, linear};
let inputs = Tensor::read_npy("inputs.npy")?;
let labels = Tensor::read_npy("labels.npy")?;"""
TRAIN = f"""%%tune --oracle random --objective val_accuracy:max --max-trials {TRIALS} --seed 1 --project train
|trial| {{
    let units: usize = trial.int("units", 32..=512).step(32).get()?;
    let lr: f64 = trial.float("lr", 1e-4..=1e-2).log().get()?;
    let vars = VarMap::new();
    let builder = VarBuilder::from_varmap(&vars, DType::F32, &trial.device()?);
    let hidden = linear(64, units, builder.pp("hidden"))?;
    let output = linear(units, 10, builder.pp("output"))?;
    let mut optimizer = AdamW::new(vars.all_vars(), ParamsAdamW {{ lr, weight_decay: 0.0, ..Default::default() }})?;
    let (held_out, truth) = (inputs.narrow(0, {TRAINING}, {EXAMPLES - TRAINING})?, labels.narrow(0, {TRAINING}, {EXAMPLES - TRAINING})?);
    for epoch in trial.epochs({EPOCHS}) {{
        for start in (0..{TRAINING}).step_by({BATCH}) {{
            let logits = output.forward(&hidden.forward(&inputs.narrow(0, start, {BATCH})?)?.relu()?)?;
            optimizer.backward_step(&candle_nn::loss::cross_entropy(&logits, &labels.narrow(0, start, {BATCH})?)?)?;
        }}
        let logits = output.forward(&hidden.forward(&held_out)?.relu()?)?;
        let right = logits.argmax(1)?.eq(&truth)?.to_dtype(DType::F32)?.mean_all()?.to_scalar::<f32>()?;
        trial.report(epoch, [("val_accuracy", right)])?;
        trial.checkpoint(&vars)?;
    }}
    trial.best("val_accuracy")
}}"""
NOTHING = f"""%%tune --oracle random --objective loss:min --max-trials {TRIALS} --seed 1 --project nothing
|trial| {{
    let x: f64 = trial.float("x", 0.0..=1.0).get()?;
    Ok(x)
}}"""


def make_data(folder):
    """A linear teacher's classes, which a small network learns in some epochs."""
    draw = numpy.random.default_rng(0)
    inputs = draw.standard_normal((EXAMPLES, 64)).astype("float32")
    labels = (inputs @ draw.standard_normal((64, 10)) + draw.standard_normal((EXAMPLES, 10))).argmax(1).astype("uint32")
    numpy.save(folder / "inputs.npy", inputs)
    numpy.save(folder / "labels.npy", labels)


def resident(pid):
    """As `resident_bytes`, and 0 for a process that has left."""
    try:
        return resident_bytes(pid)
    except OSError:
        return 0


def tree(pid):
    """A process and all below it, as (process id, command line)."""
    found, waiting = [], [pid]
    while waiting:
        pid = waiting.pop()
        try:
            found.append((pid, pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()))
            for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
                waiting += [int(child) for child in (task / "children").read_text().split()]
        except OSError:
            pass  # it has just left
    return found


class Peak(threading.Thread):
    """Measures every 20 ms the memory of a process and all its descendants."""

    def __init__(self, pid):
        super().__init__(daemon=True)
        self.pid, self.bytes, self.over = pid, 0, threading.Event()
        self.start()

    def run(self):
        while not self.over.wait(0.02):
            self.bytes = max(self.bytes, sum(resident(pid) for pid, _ in tree(self.pid)))

    def end(self):
        self.over.set()
        self.join()
        return self.bytes


def ours(session, code):
    """Seconds, memory of what outlives a trial by trials done, the peak of all, and the mean of the objective's best."""
    root, sizes = session.manager.provisioner.pid, {}

    def watch(message):
        text = message["content"].get("data", {}).get("text/plain", "")
        if done := re.match(rf"\w+: (\d+)/{TRIALS} trials", text):
            sizes[int(done[1])] = sum(resident(pid) for pid, command in tree(root) if b"\0worker\0" not in command)

    peak = Peak(root)
    outcome = session.run(code, watch)
    assert outcome.error is None, outcome.error
    return {"seconds": outcome.seconds, "sizes": sizes, "peak": peak.end()}


def keras(what, folder):
    """The same, in a separate process."""
    result = folder / f"{what}.json"
    child = subprocess.Popen([sys.executable, __file__, "--keras", what, "--output", str(result)], cwd=folder)
    peak = Peak(child.pid)
    assert child.wait() == 0
    measured = json.loads(result.read_text()) | {"peak": peak.end()}
    return measured | {"sizes": {int(done): size for done, size in measured["sizes"].items()}}


def run_keras(what, result):
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    import keras_tuner
    import tensorflow

    sizes = {}

    class Search(keras_tuner.RandomSearch):
        def on_trial_end(self, trial):
            super().on_trial_end(trial)
            sizes[len(sizes) + 1] = resident(os.getpid())

    class Nothing(Search):
        def run_trial(self, trial, *_, **__):
            return trial.hyperparameters.Float("x", 0.0, 1.0)

    def build(parameters):
        layers = tensorflow.keras.layers
        units = parameters.Int("units", 32, 512, step=32)
        rate = parameters.Float("lr", 1e-4, 1e-2, sampling="log")
        model = tensorflow.keras.Sequential([layers.Input((64,)), layers.Dense(units, "relu", kernel_initializer="he_normal"), layers.Dense(10, kernel_initializer="he_normal")])
        loss = tensorflow.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(tensorflow.keras.optimizers.Adam(rate), loss, metrics=["accuracy"])
        return model

    inputs, labels = numpy.load("inputs.npy"), numpy.load("labels.npy").astype("int64")
    common = {"max_trials": TRIALS, "seed": 1, "directory": what, "project_name": "keras"}
    started = clock.monotonic()
    if what == "train":
        search = Search(build, objective="val_accuracy", **common)
        held_out = (inputs[TRAINING:], labels[TRAINING:])
        search.search(inputs[:TRAINING], labels[:TRAINING], validation_data=held_out, epochs=EPOCHS, batch_size=BATCH, shuffle=False, verbose=0)
    else:
        search = Nothing(objective=keras_tuner.Objective("loss", "min"), **common)
        search.search(verbose=0)
    seconds = clock.monotonic() - started
    best = search.oracle.get_best_trials(1)[0].score
    result.write_text(json.dumps({"seconds": seconds, "sizes": sizes, "best": best}))


def mib(size):
    return f"{size / 2**20:.0f} MiB"


def report(measured, best):
    (train, nothing), (their_train, their_nothing) = measured
    rows = []
    for name, one, other in [("50 trials of training", train, their_train), ("50 trials of nothing", nothing, their_nothing)]:
        ratio = one["seconds"] / other["seconds"]
        rows.append(f"| {name}, wall time | {one['seconds']:.1f} s | {other['seconds']:.1f} s | {ratio:.2f} |")
    overhead, theirs = (1e3 * it["seconds"] / TRIALS for it in (nothing, their_nothing))
    rows.append(f"| overhead of a trial | {overhead:.0f} ms | {theirs:.0f} ms | {overhead / theirs:.2f} |")

    def grown(it):
        return it["sizes"][TRIALS] - it["sizes"][min(done for done in it["sizes"] if done >= SETTLED)]

    rows.append(f"| memory between trials, at the end | {mib(train['sizes'][TRIALS])} | {mib(their_train['sizes'][TRIALS])} | {train['sizes'][TRIALS] / their_train['sizes'][TRIALS]:.2f} |")
    rows.append(f"| its growth from trial {SETTLED} to {TRIALS} | {grown(train) / 2**20:+.1f} MiB | {grown(their_train) / 2**20:+.1f} MiB | |")
    rows.append(f"| a trial's part of that | {grown(train) / 45 / 1024:.1f} KiB | {grown(their_train) / 45 / 1024:.1f} KiB | |")
    rows.append(f"| peak, all processes | {mib(train['peak'])} | {mib(their_train['peak'])} | {train['peak'] / their_train['peak']:.2f} |")
    rows.append(f"| best validation accuracy | {best:.4f} | {their_train['best']:.4f} | |")
    import importlib.metadata

    versions = " and ".join(f"{name} {importlib.metadata.version(name)}" for name in ("keras-tuner", "tensorflow-cpu"))
    return f"""Versions: {versions}.

Random search of {TRIALS} trials, one after the other: units (32 to 512) and learning rate of a network with one hidden
layer, {EPOCHS} epochs of Adam over {TRAINING} examples of 64 numbers in batches of {BATCH}, in the same order, with first
weights of the same distribution and a checkpoint after an epoch (Keras Tuner: of the best one). The objective of nothing returns a number that
was drawn. Ours is timed from sending the cell, compilation included, to its end; Keras Tuner from the tuner's making to
the end of its search, imports not included. Memory is resident less shared: ours of kernel, cells, their snapshots and
the search's supervisor together, Keras Tuner's of its process, in which the trials run, too.

| | ferrotune | Keras Tuner | ratio |
|---|---|---|---|
{chr(10).join(rows)}
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--output", type=pathlib.Path, required=True)
    parser.add_argument("--keras", choices=["train", "nothing"], help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.keras:
        return run_keras(arguments.keras, arguments.output)
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        make_data(folder)
        session = Session(folder)
        session.ok(LOAD)
        theirs = [keras("train", folder)]
        say(f"Keras Tuner, training: {theirs[0]['seconds']:.1f} s")
        mine = [ours(session, TRAIN)]
        say(f"ferrotune, training: {mine[0]['seconds']:.1f} s")
        best = float(session.ok("%best").display.splitlines()[1].split()[1])
        theirs.append(keras("nothing", folder))
        mine.append(ours(session, NOTHING))
        session.close()
    page = report((mine, theirs), best)
    arguments.output.write_text(page, encoding="utf-8")
    say(page)


if __name__ == "__main__":
    sys.exit(main())
