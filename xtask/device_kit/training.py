"""Times training steps of a candle model in a cell: `training.py PLUGIN MODEL:BATCH STEPS`, for the models of tests/jax_twins.

Prints the time from the model to the first loss, the first and the last loss, and the time of a step as peers.py does: steps run in
windows of ten, each of which ends when its loss is read, and the median of the windows counts.
"""

import pathlib
import sys

from cells import Kernel

MODELS = pathlib.Path(__file__).parent / "tests/jax_twins/models.rs"
# How the step is made, and its two arguments.
STEPS = {
    "mlp": ("mlp(&device)?", "Tensor::rand(0f32, 1., ({batch}, 784), &device)?", "({batch}usize, 10f32)"),
    "resnet18": ("resnet18(&device, 4)?", "Tensor::rand(0f32, 1., ({batch}, 3, 224, 224), &device)?", "({batch}usize, 1000f32)"),
    "gpt2": ("gpt2(&device, 12)?", "whole(({batch}, 1024), 50257., &device)?", "(1024 * {batch}usize, 50257f32)"),
}
MAKE = """
%env FERROTUNE_CHECK_INDEXES=0
fn whole<S: Into<candle_core::Shape>>(shape: S, below: f32, device: &Device) -> Result<Tensor> {
    Tensor::rand(0f32, below, shape, device)?.floor()?.to_dtype(DType::U32)
}
let device = ferrotune::device::current()?;
let labels = LABELS;
let arguments = [INPUTS, whole(labels.0, labels.1, &device)?];
device.synchronize()?;
let begun = std::time::Instant::now();
let mut step: ferrotune::Step<'static> = ferrotune::compile(MODEL)?;
let first = step.run(&arguments)?[0].to_scalar::<f32>()?;
let compiled_s = begun.elapsed().as_secs_f64();
for _ in 0..2 { step.run(&arguments)?; }
step.run(&arguments)?[0].to_scalar::<f32>()?;
let (mut last, mut times_ms) = (first, Vec::new());
for _ in 0..WINDOWS {
    let begun = std::time::Instant::now();
    for _ in 0..9 { step.run(&arguments)?; }
    last = step.run(&arguments)?[0].to_scalar::<f32>()?;
    times_ms.push(begun.elapsed().as_secs_f64() * 100.);
}
times_ms.sort_by(f64::total_cmp);
println!("Ferrotune WORK: first loss after {compiled_s:.2} s, loss {first:.4} -> {last:.4}, {:.3} ms a step (least {:.3})",
    times_ms[times_ms.len() / 2], times_ms[0]);
assert!(last.is_finite(), "the loss is no number");
"""


def main():
    plugin, work, steps = sys.argv[1:]
    name, batch = work.split(":")
    model, inputs, labels = (text.format(batch=batch) for text in STEPS[name])
    words = {"MODEL": model, "INPUTS": inputs, "LABELS": labels, "WINDOWS": str(-(-int(steps) // 10)), "WORK": work}
    code = MAKE.strip()
    for word, text in words.items():
        code = code.replace(word, text)
    with Kernel(plugin) as kernel:
        # A cell cannot begin with the line that says what the file is for.
        kernel.run(MODELS.read_text(encoding="utf-8").partition("\n")[2])
        kernel.run(code)


if __name__ == "__main__":
    main()
