"""Trains one model on the same data with `Fit`, Keras, Lightning and PyTorch, and writes the times of epochs as Markdown.

Usage: PYTHONPATH=tests python benchmarks/bench_training.py --output FILE [--rows 60000] [--rounds 3]
(`cargo xtask bench training` prepares and calls it)
"""

import argparse
import importlib.metadata
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time as clock

import numpy

from bench import say

ROOT = pathlib.Path(__file__).parent.parent
FEATURES, HIDDEN, CLASSES = 784, 128, 10
EPOCHS, BATCH, RATE, DECAY, EPSILON = 5, 128, 1e-3, 0.01, 1e-8

# A program whose loss after the last epoch is greater than this times the smallest one has trained less than the others.
LOSS_TOLERANCE = 1.15

# Settings of glibc's malloc and of threads that would change the comparison. Without them, all programs use all cores.
SETTINGS = ["MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "MALLOC_TOP_PAD_", "MALLOC_MMAP_MAX_", "GLIBC_TUNABLES", "RAYON_NUM_THREADS", "OMP_NUM_THREADS", "NPROC"]
# The process of the cells makes these settings itself (docs/recovery.md).
CELLS = {"CANDLE_NUM_THREADS": "1", "MALLOC_MMAP_THRESHOLD_": str(32 << 20), "MALLOC_TRIM_THRESHOLD_": str(1 << 30), "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}


def make_data(folder, rows):
    """Rows of normal numbers, and their classes by a teacher network with one hidden layer."""
    draw = numpy.random.default_rng(0)
    inputs = draw.standard_normal((rows, FEATURES), dtype="float32")
    hidden = numpy.maximum(inputs @ draw.standard_normal((FEATURES, 32), dtype="float32") / FEATURES**0.5, 0)
    numpy.save(folder / "inputs.npy", inputs)
    numpy.save(folder / "labels.npy", (hidden @ draw.standard_normal((32, CLASSES), dtype="float32")).argmax(1).astype("uint32"))


class Epochs:
    """The seconds of each epoch, from the end of the one before; the first begins when this is made."""

    def __init__(self):
        self.ends = [clock.perf_counter()]
        self.losses = []

    def end(self, loss):
        self.losses.append(float(loss))
        self.ends.append(clock.perf_counter())

    def seconds(self):
        return [end - begin for begin, end in zip(self.ends, self.ends[1:])]


def keras(backend, steps_per_execution=1):
    begun = clock.perf_counter()
    os.environ["KERAS_BACKEND"] = backend
    import keras

    imported = clock.perf_counter()
    if backend == "jax":
        import jax

        jax.devices()
    else:
        import tensorflow

        tensorflow.zeros(1)
    opened = clock.perf_counter()
    inputs, labels = numpy.load("inputs.npy"), numpy.load("labels.npy").astype("int32")

    epochs = Epochs()
    hidden = keras.layers.Dense(HIDDEN, "relu", kernel_initializer="he_normal")
    model = keras.Sequential([keras.Input((FEATURES,)), hidden, keras.layers.Dense(CLASSES, kernel_initializer="he_normal")])
    optimizer = keras.optimizers.AdamW(RATE, weight_decay=DECAY, epsilon=EPSILON)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer, loss, steps_per_execution=steps_per_execution)
    end = keras.callbacks.LambdaCallback(on_epoch_end=lambda _, logs: epochs.end(logs["loss"]))
    model.fit(inputs, labels, batch_size=BATCH, epochs=EPOCHS, verbose=0, callbacks=[end])

    return imported - begun, opened - imported, epochs, model.predict(inputs, batch_size=512, verbose=0), labels


def network():
    from torch import nn

    model = nn.Sequential(nn.Linear(FEATURES, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, CLASSES))
    for layer in (model[0], model[2]):
        nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
    return model


def torch_data():
    import torch

    return torch.from_numpy(numpy.load("inputs.npy")), torch.from_numpy(numpy.load("labels.npy").astype("int64"))


def predict(model, inputs):
    import torch

    model.eval()
    with torch.no_grad():
        return torch.cat([model(rows) for rows in inputs.split(512)]).numpy()


def pytorch(is_compiled):
    """A loop by hand. The loss is added up without a wait for each step."""
    begun = clock.perf_counter()
    import torch
    import torch._dynamo  # else the making of the optimizer imports it, in the first epoch
    from torch.nn.functional import cross_entropy

    if is_compiled:
        import torch._inductor.compile_fx  # noqa: F401

    imported = clock.perf_counter()
    inputs, labels = torch_data()

    epochs = Epochs()
    model = network()
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=DECAY, eps=EPSILON, fused=True)

    def loss_of(rows, classes):
        return cross_entropy(model(rows), classes)

    if is_compiled:
        # The last batch has another size, and a program of its own, as with `dynamic=False` every size has.
        loss_of = torch.compile(loss_of, dynamic=False)
    for _ in range(EPOCHS):
        total = torch.zeros(())
        for index in torch.randperm(len(inputs)).split(BATCH):
            loss = loss_of(inputs[index], labels[index])
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            total += loss.detach() * len(index)
        epochs.end(total / len(inputs))

    return imported - begun, 0.0, epochs, predict(model, inputs), labels.numpy()


def lightning(reads_batches):
    """`Trainer` without loggers, checkpoints and bars. `reads_batches` takes all rows of a batch at once out of the data, in place of one
    after the other."""
    begun = clock.perf_counter()
    import lightning
    import torch
    from torch.nn.functional import cross_entropy
    from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset

    imported = clock.perf_counter()
    inputs, labels = torch_data()

    class Classifier(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.model = network()
            self.total = torch.zeros(())

        def training_step(self, batch, _):
            rows, classes = batch
            loss = cross_entropy(self.model(rows), classes)
            self.total += loss.detach() * len(rows)
            return loss

        def on_train_epoch_end(self):
            epochs.end(self.total / len(inputs))
            self.total.zero_()

        def configure_optimizers(self):
            return torch.optim.AdamW(self.parameters(), lr=RATE, weight_decay=DECAY, eps=EPSILON, fused=True)

    epochs = Epochs()
    dataset = TensorDataset(inputs, labels)
    if reads_batches:
        loader = DataLoader(dataset, batch_size=None, sampler=BatchSampler(RandomSampler(dataset), BATCH, drop_last=False))
    else:
        loader = DataLoader(dataset, batch_size=BATCH, shuffle=True)
    model = Classifier()
    quiet = dict.fromkeys(["logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"], False)
    lightning.Trainer(accelerator="cpu", devices=1, max_epochs=EPOCHS, **quiet).fit(model, loader)

    return imported - begun, 0.0, epochs, predict(model.model, inputs), labels.numpy()


RIVALS = {
    "Keras on JAX": lambda: keras("jax"),
    "Keras on JAX, 32 steps": lambda: keras("jax", steps_per_execution=32),
    "Keras on TensorFlow": lambda: keras("tensorflow"),
    "Keras on TensorFlow, 32 steps": lambda: keras("tensorflow", steps_per_execution=32),
    "Lightning": lambda: lightning(reads_batches=False),
    "Lightning, whole batches": lambda: lightning(reads_batches=True),
    "PyTorch": lambda: pytorch(is_compiled=False),
    "PyTorch, compiled": lambda: pytorch(is_compiled=True),
}
CPU, XLA = "`Fit` on the CPU", "`Fit` on XLA:CPU"
NAMES = [CPU, XLA, *RIVALS]
PACKAGES = ["keras", "jax", "tensorflow-cpu", "lightning", "torch", "fastatomstruct-xla-cpu"]


def train_rival(name):
    """Trains, and prints what `fit/examples/training.rs` prints, too."""
    imports, device, epochs, scores, labels = RIVALS[name]()
    scores = scores.astype("float64")
    of_labels = scores[numpy.arange(len(labels)), labels]
    highest = scores.max(1)
    loss = (numpy.log(numpy.exp(scores - highest[:, None]).sum(1)) + highest - of_labels).mean()
    accuracy = (scores.argmax(1) == labels).mean()
    say(json.dumps({"imports": imports, "device": device, "epochs": epochs.seconds(), "losses": epochs.losses, "loss": loss, "accuracy": accuracy}))


def train(name, arguments, folder):
    """What a program of its own measures."""
    environment = {variable: value for variable, value in os.environ.items() if variable not in SETTINGS}
    if name in RIVALS:
        command = [sys.executable, __file__, "--train", name, "--output", os.devnull]
        environment["PYTHONPATH"] = str(ROOT / "tests")
    else:
        command = [arguments.program.resolve()] + ([arguments.plugin.resolve()] if name == XLA else [])
        environment |= CELLS
    with tempfile.TemporaryDirectory() as empty:
        # No program finds what another turn has compiled.
        environment |= {"XDG_CACHE_HOME": empty, "TORCHINDUCTOR_CACHE_DIR": empty, "KERAS_HOME": empty}
        environment |= {"JAX_ENABLE_COMPILATION_CACHE": "false", "JAX_PLATFORMS": "cpu", "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""}
        child = subprocess.run(command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if child.returncode:
        sys.exit(f"{name} failed:\n{child.stdout}{child.stderr}")
    measured = json.loads(child.stdout.splitlines()[-1])
    return {"imports": 0.0, "first": measured["epochs"][0], "later": statistics.median(measured["epochs"][1:])} | measured


def seconds(value):
    if value == 0:
        return "–"
    return f"{value:.2f} s" if value >= 1 else f"{value * 1e3:.0f} ms"


def report(turns, rows, load):
    """The text about all turns, each the measured values of the programs by name. `load` is the system's load before them."""
    shown = ("imports", "device", "first", "later", "loss", "accuracy")
    middle = {name: {what: statistics.median(turn[name][what] for turn in turns) for what in shown} for name in NAMES}
    lines = []
    for name, it in middle.items():
        of_turns = [turn[name]["later"] for turn in turns]
        times = [it["first"], it["later"], min(of_turns), max(of_turns), it["imports"], it["device"]]
        lines.append(f"| {name} | {' | '.join(seconds(value) for value in times)} | {it['loss']:.4f} | {it['accuracy']:.4f} |")
    ratios = []
    for label, what in [("first epoch", "first"), ("later epoch", "later")]:
        best = min(RIVALS, key=lambda name: middle[name][what])
        one, other = (f"{middle[name][what] / middle[best][what]:.2f}" for name in (CPU, XLA))
        ratios.append(f"| {label} | {best}, {seconds(middle[best][what])} | {one} | {other} |")
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in PACKAGES)
    return f"""At a load of {load:.1f} before the first turn; {versions}.

The model is an MLP {FEATURES}-{HIDDEN}-{CLASSES} with ReLU. It trains for {EPOCHS} epochs on {rows:,} rows of `f32` in memory, with cross-entropy, AdamW
(rate {RATE}, decay {DECAY}) and batches of {BATCH}, in a new order of all rows in each epoch. The labels are the classes of a teacher network. All
programs draw the first weights from the same distribution, have as many threads as there are cores, and compute the mean loss of each epoch
and no other metric. They take turns, {len(turns)} each, every turn in a process of its own; a figure is the median over the turns.

| | first epoch | later epoch | least | greatest | imports | device | loss | accuracy |
|---|---|---|---|---|---|---|---|---|
{chr(10).join(lines)}

Ours ÷ the best rival:

| | best rival | {CPU} | {XLA} |
|---|---|---|---|
{chr(10).join(ratios)}

* **first epoch**: from the making of the model to the end of the epoch, with all tracing and compilation and with empty caches. **later
  epoch**: the median of the others, and its **least** and **greatest** of the turns. **imports** and **device**, the start of the backend, come
  before the first epoch. `Fit` runs in a compiled program here (`fit/examples/training.rs`); in a notebook, the compilation of the cell comes before.
* **loss** and **accuracy**: of the trained model on all rows. The bench fails if a loss is above {LOSS_TOLERANCE} times the least.
* **`Fit`** is compiled as the library of the cells, has [their settings of malloc and threads](../docs/recovery.md#going-back), and has the plugin in
  its own process. **Keras**: `model.fit` on arrays; with **32 steps**, `steps_per_execution=32`. **Lightning**: `Trainer` without
  logger, checkpoints and bar, and a `DataLoader` of a `TensorDataset`; with **whole batches**, a `BatchSampler` takes all rows of a batch at once.
  **PyTorch**: a loop by hand over a permutation of the rows; **compiled**: with `torch.compile` of model and loss. PyTorch and Lightning
  have the fused AdamW.
* Other processes slow PyTorch most: its threads wait for each other in each operation. Measure on a machine that does nothing else.
"""


def check_losses(turn):
    """Fails if a program has trained less than the others."""
    least = min(measured["loss"] for measured in turn.values())
    for name, measured in turn.items():
        if not measured["loss"] <= LOSS_TOLERANCE * least:
            sys.exit(f"{name} has the loss {measured['loss']:.4f}, and another program {least:.4f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--output", type=pathlib.Path, required=True)
    parser.add_argument("--rows", type=int, default=60_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--program", type=pathlib.Path, default=ROOT / "target/bench/build/release/examples/training", help="the built example")
    parser.add_argument("--plugin", type=pathlib.Path, help="XLA:CPU as a plugin; by default that of this Python")
    parser.add_argument("--train", choices=list(RIVALS), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.train:
        return train_rival(arguments.train)
    if arguments.plugin is None:
        import fastatomstruct_xla_cpu

        arguments.plugin = pathlib.Path(fastatomstruct_xla_cpu.__file__).with_name("libpjrt_cpu.so")
    turns, load = [], os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as folder:
        make_data(pathlib.Path(folder), arguments.rows)
        for number in range(arguments.rounds):
            turn = {}
            for name in NAMES:
                it = turn[name] = train(name, arguments, folder)
                say(f"{number + 1}/{arguments.rounds} {name}: first {it['first']:.2f} s, later {it['later'] * 1e3:.0f} ms, loss {it['loss']:.4f}, accuracy {it['accuracy']:.4f}")
            check_losses(turn)
            turns.append(turn)
    page = report(turns, arguments.rows, load)
    arguments.output.write_text(page, encoding="utf-8")
    say(page)


if __name__ == "__main__":
    sys.exit(main())
