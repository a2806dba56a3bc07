"""What a trial costs beside its training, on a device that trials share and on XLA's compiler for the CPU, which each trial opens itself.
`cargo xtask bench trials` prepares and calls it. XLA:CPU stands in for a card, by the place of the card's plugin.
"""

import argparse
import pathlib
import re
import statistics
import tempfile

from device_place import Place
from test_devices_cards import beside, install
from test_devices_xla import XLA_CPU

TRIALS = 20
STEPS = 50
SEARCH = """%%tune --objective loss:min --oracle random --seed 1 --project {project} --max-trials {trials}
|trial| {{
    let now = || std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map(|time| time.as_secs_f64() * 1e3);
    let begin = now()?;
    let device = trial.device()?;
    let map = VarMap::new();
    let build = VarBuilder::from_varmap(&map, DType::F32, &device);
    let (first, last) = (candle_nn::linear(16, 16, build.pp("first"))?, candle_nn::linear(16, 4, build.pp("last"))?);
    let mut optimiser = ferrotune::AdamW::new_lr(map.all_vars(), trial.float("rate", 1e-3..=1e-1).log().get()?)?;
    let (x, y) = (Tensor::ones((32, 16), DType::F32, &device)?, Tensor::zeros(32, DType::U32, &device)?);
    let mut step = ferrotune::compile(move |args: &[Tensor]| {{
        let loss = candle_nn::loss::cross_entropy(&last.forward(&first.forward(&args[0])?.relu()?)?, &args[1])?;
        optimiser.backward_step(&loss)?;
        Ok(vec![loss])
    }})?;
    let mut loss = step.run(&[x.clone(), y.clone()])?[0].to_scalar::<f32>()?;
    let ready = now()?;
    for _ in 0..{steps} {{
        loss = step.run(&[x.clone(), y.clone()])?[0].to_scalar::<f32>()?;
    }}
    println!("begin {{begin}} ready {{ready}} end {{}}", now()?);
    Ok(f64::from(loss))
}}"""
USES = "use candle_core::{DType, Tensor};\nuse candle_nn::{Module, Optimizer, VarBuilder, VarMap};"


def searched(notebook, project):
    """Of a search: its seconds, and of each trial but the first the milliseconds from the end of the last trial's training to the first
    step's end, and those of the other steps."""
    code = SEARCH.format(project=project, trials=TRIALS, steps=STEPS)
    seconds = notebook.ok(code).seconds
    texts = [notebook.ok(f"%trials {number} --project {project}").display for number in range(TRIALS)]
    times = [[float(time) for time in re.search(r"begin ([\d.]+) ready ([\d.]+) end ([\d.]+)", text).groups()] for text in texts]
    times.sort()
    to_first = [later[1] - earlier[2] for earlier, later in zip(times, times[1:])]
    return seconds, statistics.median(to_first), statistics.median(end - ready for _, ready, end in times[1:])


def measure(folder, name, plugin):
    install(folder / name / "python", "xla_cuda13", XLA_CPU)
    place = Place(folder / name, **beside(folder / name / "python"), FERROTUNE_XLA_CPU=XLA_CPU)
    notebook = place.notebook(plugin=plugin)
    notebook.ok(USES)
    rows = [(f"{name}, {which} search", *searched(notebook, project)) for which, project in [("first", "one"), ("second", "two")]]
    place.end()
    return rows


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--output", type=pathlib.Path)
    output = arguments.parse_args().output
    with tempfile.TemporaryDirectory() as folder:
        measured = [("shared device process", "cuda"), ("XLA:CPU in each trial", "cpu")]
        rows = [row for name, plugin in measured for row in measure(pathlib.Path(folder), name, plugin)]
    lines = [
        f"A search of {TRIALS} trials, one at a time; each makes a",
        f"network 16-16-4 with AdamW, compiles its step, and runs it {STEPS + 1} times, reading the loss each time. XLA:CPU stands in for a card, by",
        "the place of the card's plugin. The second search has the same programs. Medians of all trials but the first.",
        "",
        "| | search | from the end of a trial's training to the end of the next one's first step | further steps |",
        "|---|---|---|---|",
        *(f"| {name} | {seconds:.2f} s | {first:.1f} ms | {steps:.1f} ms |" for name, seconds, first, steps in rows),
        "",
        "The goal is 50 ms from the supervisor's decision to the first step of a program that is known. The time in the table has the end of",
        "the earlier trial in it, too: its reports, its process, and the check that nothing of it is left.",
    ]
    text = "\n".join(lines) + "\n"
    if output:
        output.write_text(text)
    print(text)


if __name__ == "__main__":
    main()
