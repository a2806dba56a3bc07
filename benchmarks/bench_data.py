"""Reads the same files here, with tf.data and with PyTorch's DataLoader, and writes what each gets in a second as Markdown.

Usage: PYTHONPATH=tests python benchmarks/bench_data.py --output FILE     (`cargo xtask bench data` prepares and calls it)
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

import duckdb
import numpy
from PIL import Image

from bench import say
from session import Session

IMAGES, SIZE, PIXELS, BATCH = 1000, (500, 375), 224, 32
ROWS, COLUMNS, TABLE_BATCH = 4_000_000, 8, 1024
EXAMPLES, FEATURES = 320_000, 16
PASSES = 4

# The body of each measurement makes passes and counts elements; `PASS` is the loop around it.
OURS = {
    "images": (
        f'let dataset = data::image_folder("images", [3, {PIXELS}, {PIXELS}])?.images.shuffle({IMAGES}, 7).batch({BATCH}, false).prefetch(2);',
        "count += batch?.0.dim(0)?;",
    ),
    "parquet": (
        f'let dataset = data::parquet("table.parquet").features({json.dumps([f"c{column}" for column in range(COLUMNS)])}).stream()?.batch({TABLE_BATCH}, false);',
        "count += batch?.dim(0)?;",
    ),
    "empty": (
        f"let dataset = Dataset::from_tensors(Tensor::zeros(({EXAMPLES}, {FEATURES}), DType::F32, &Device::Cpu)?)?.batch({BATCH}, false);",
        "count += batch?.dim(0)?;",
    ),
    "shuffled": (
        f"let dataset = Dataset::from_tensors(Tensor::zeros(({EXAMPLES}, {FEATURES}), DType::F32, &Device::Cpu)?)?.shuffle({EXAMPLES}, 7).batch({BATCH}, false);",
        "count += batch?.dim(0)?;",
    ),
}
WORK = """fn work(milliseconds: u64) {
    let begin = std::time::Instant::now();
    while begin.elapsed() < std::time::Duration::from_millis(milliseconds) { std::hint::spin_loop(); }
}"""
PREFETCH = """
let dataset = Dataset::from_iter(0..300u32).map(1, |number| { work(9); Ok(number) }).prefetch(2);
let begin = std::time::Instant::now();
for number in &dataset { number?; work(10); }
begin.elapsed().as_secs_f64() * 1000. / 300."""
# What lasts longer than 1 ms of a step is what the loop costs, with and without a recorder.
STEP = """{
let begin = std::time::Instant::now();
for number in &Dataset::from_iter(0..3000u32) { number?; work(1); }
begin.elapsed().as_secs_f64() * 1000. / 3000.
}"""


def make_files(folder):
    """Photographs are too large to ship: smooth random colours compress like them."""
    draw = numpy.random.default_rng(0)
    for number in range(IMAGES):
        small = draw.integers(0, 256, (24, 32, 3), dtype="uint8")
        picture = Image.fromarray(small).resize(SIZE, Image.Resampling.BICUBIC)
        noise = draw.normal(0, 6, (SIZE[1], SIZE[0], 3))
        picture = Image.fromarray((numpy.asarray(picture) + noise).clip(0, 255).astype("uint8"))
        path = folder / "images" / f"class-{number % 10}" / f"{number}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        picture.save(path, quality=90)
    columns = ", ".join(f"random()::FLOAT AS c{column}" for column in range(COLUMNS))
    duckdb.sql(f"COPY (SELECT {columns} FROM range({ROWS})) TO '{folder}/table.parquet' (FORMAT parquet, CODEC snappy, ROW_GROUP_SIZE 200000)")


def passes(one_pass):
    """Elements per second of each pass after the first one, which warms up."""
    rates = []
    for _ in range(PASSES):
        begin = clock.monotonic()
        count = one_pass()
        rates.append(count / (clock.monotonic() - begin))
    return rates[1:]


def ours(session, what):
    make, body = OURS[what]
    session.ok(make)
    loop = f"""let mut rates = Vec::new();
    for _ in 0..{PASSES} {{
        let (begin, mut count) = (std::time::Instant::now(), 0usize);
        for batch in &dataset {{ {body} }}
        rates.push(count as f64 / begin.elapsed().as_secs_f64());
    }}
    rates"""
    return json.loads(session.ok(f"{{ {loop} }}").result)[1:]


def tensorflow(what):
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    import tensorflow as tf

    def decode(path):
        image = tf.io.decode_jpeg(tf.io.read_file(path), channels=3)
        return tf.image.resize(image, (PIXELS, PIXELS), antialias=True) / 255.0

    def table():
        import pyarrow.parquet

        for batch in pyarrow.parquet.ParquetFile("table.parquet").iter_batches(TABLE_BATCH):
            yield numpy.stack([column.to_numpy() for column in batch.columns], 1)

    numbers = numpy.zeros((EXAMPLES, FEATURES), "float32")
    if what == "images":
        paths = sorted(str(path) for path in pathlib.Path("images").glob("*/*.jpg"))
        dataset = tf.data.Dataset.from_tensor_slices(paths).shuffle(IMAGES, 7).map(decode, tf.data.AUTOTUNE).batch(BATCH).prefetch(tf.data.AUTOTUNE)
    elif what == "parquet":
        dataset = tf.data.Dataset.from_generator(table, output_signature=tf.TensorSpec((None, COLUMNS), tf.float32)).prefetch(tf.data.AUTOTUNE)
    else:
        dataset = tf.data.Dataset.from_tensor_slices(numbers)
        dataset = (dataset.shuffle(EXAMPLES, 7) if what == "shuffled" else dataset).batch(BATCH)
    return passes(lambda: sum(int(batch.shape[0]) for batch in dataset))


class Table:
    """Row groups of the table, each to one worker; made an IterableDataset where torch is."""

    def __iter__(self):
        import pyarrow.parquet
        import torch

        worker = torch.utils.data.get_worker_info()
        first, step = (worker.id, worker.num_workers) if worker else (0, 1)
        file = pyarrow.parquet.ParquetFile("table.parquet")
        groups = list(range(first, file.num_row_groups, step))
        for batch in file.iter_batches(TABLE_BATCH, row_groups=groups):
            yield torch.from_numpy(numpy.stack([column.to_numpy() for column in batch.columns], 1))


def torch(what):
    import torch
    from torch.utils.data import DataLoader, IterableDataset, TensorDataset
    from torchvision import transforms
    from torchvision.datasets import ImageFolder

    workers = len(os.sched_getaffinity(0))
    if what == "images":
        transform = transforms.Compose([transforms.Resize((PIXELS, PIXELS)), transforms.ToTensor()])
        loader = DataLoader(ImageFolder("images", transform), BATCH, shuffle=True, num_workers=workers, persistent_workers=True)
    elif what == "parquet":
        table = type("Rows", (Table, IterableDataset), {})()
        loader = DataLoader(table, batch_size=None, num_workers=workers, persistent_workers=True)
        return passes(lambda: sum(len(batch) for batch in loader))
    else:
        loader = DataLoader(TensorDataset(torch.zeros(EXAMPLES, FEATURES)), BATCH, shuffle=what == "shuffled")
    return passes(lambda: sum(len(batch[0]) for batch in loader))


def rival(name, what, folder):
    """The rates in a process of its own."""
    run = subprocess.run([sys.executable, __file__, "--rival", name, what], cwd=folder, stdout=subprocess.PIPE, check=True)
    return json.loads(run.stdout.splitlines()[-1])


def report(rates, step, plain, profiled):
    rows = []
    for what, (name, unit) in NAMES.items():
        own, *others = (statistics.median(rates[program][what]) for program in rates)
        if unit == "overhead":
            own, *others = (BATCH / rate * 1e6 for rate in (own, *others))
            cells, ratio = [f"{value:.1f} µs" for value in (own, *others)], min(others) / own
        else:
            cells, ratio = [f"{value:,.0f} {unit}" for value in (own, *others)], own / max(others)
        rows.append(f"| {name} | {' | '.join(cells)} | {ratio:.2f} | {'met' if ratio > 1 else '**missed**'} |")
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in ("tensorflow-cpu", "torch", "pyarrow", "pillow"))
    return f"""Versions: {versions}.

The same files and transforms, each program in a process of its own, one after the other; the median of {PASSES - 1} passes after a first one.
A ratio above 1 is how many times as fast as the better of the two.

| | ferrotune | tf.data | DataLoader | ratio | goal > 1 |
|---|---|---|---|---|---|
{chr(10).join(rows)}

Images: {IMAGES} JPEG files of {SIZE[0]}×{SIZE[1]} pixels, shuffled, decoded, resized to {PIXELS}×{PIXELS} with antialiasing, as f32 in batches of {BATCH}; tf.data with AUTOTUNE,
DataLoader with a worker for each core and torchvision's `ImageFolder`. Parquet: {ROWS:,} rows of {COLUMNS} columns of f32 in batches of {TABLE_BATCH:,}, where both
others read with pyarrow. Overhead: batches of {BATCH} of {EXAMPLES:,} rows of {FEATURES} numbers in memory, and nothing else.

Recording by `%%profile`: a step of 1 ms takes {1000 * (profiled - plain):.2f} µs more, which is {100 * (profiled / plain - 1):.2f} %; the goal is
≤ 2 %: {'met' if profiled <= 1.02 * plain else '**missed**'}. The medians of {PASSES} cells with 3,000 steps each, with and without `%%profile` in turn.

A step that computes for 10 ms, with input that takes 9 ms on another thread and `prefetch(2)`: {step:.2f} ms, the goal is ≤ 10.5 ms: {'met' if step <= 10.5 else '**missed**'}.
"""


NAMES = {
    "images": ("images, decoded and resized", "images/s"),
    "parquet": ("Parquet", "rows/s"),
    "empty": ("overhead of a batch", "overhead"),
    "shuffled": ("overhead of a batch, shuffled", "overhead"),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--output", type=pathlib.Path)
    parser.add_argument("--rival", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.rival:
        name, what = arguments.rival
        return print(json.dumps({"tensorflow": tensorflow, "torch": torch}[name](what)))
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        make_files(folder)
        session = Session(folder)
        session.ok("use candle_core::{DType, Device, Tensor};\nuse ferrotune::data::{self, Dataset};")
        rates = {"ferrotune": {}, "tensorflow": {}, "torch": {}}
        for what in NAMES:
            rates["ferrotune"][what] = ours(session, what)
            for name in ("tensorflow", "torch"):
                rates[name][what] = rival(name, what, folder)
            say(f"{what}: { {name: statistics.median(rates[name][what]) for name in rates} }")
        session.ok(WORK)
        step = float(session.ok(PREFETCH).result)
        taken = [[float(session.ok(magic + STEP).result) for magic in ("", "%%profile\n")] for _ in range(PASSES)]
        plain, profiled = map(statistics.median, zip(*taken))
        session.close()
    page = report(rates, step, plain, profiled)
    arguments.output.write_text(page, encoding="utf-8")
    say(page)


if __name__ == "__main__":
    sys.exit(main())
