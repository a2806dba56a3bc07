"""%%profile and %profile: what the steps of a cell or a trial spend their time on."""

import json
import re

import altair
import pytest

from test_devices_xla import xla_cpu  # noqa: F401

WORK = """use candle_core::{DType, Device, Tensor};
use ferrotune::data::Dataset;
fn work(milliseconds: u64) {
    let begin = std::time::Instant::now();
    while begin.elapsed() < std::time::Duration::from_millis(milliseconds) { std::hint::spin_loop(); }
}"""
VEGA = "application/vnd.vegalite.v5+json"


def shares(text):
    """The share of each part in percent, from the table of a loop."""
    rows = re.findall(r"^(\S.*?) +[\d.]+ +([\d.]+) %$", text, re.MULTILINE)
    return {name: float(share) for name, share in rows}


@pytest.fixture
def notebook(start):
    notebook = start()
    notebook.ok(WORK)
    return notebook


def test_a_loop_that_waits_and_one_that_computes(notebook, tmp_path):
    cell = """%%profile --trace trace.json
let slow = Dataset::from_iter(0..30u32).map(1, |number| { work(9); Ok(number) });
for number in &slow { number?; work(3); }
for number in &Dataset::from_iter(0..30u32).map(1, |number| { work(1); Ok(number) }).prefetch(2) {
    number?; work(10);
}
for _ in 0..4 { ferrotune::profile::step(); work(1); }
1 + 1"""
    outcome = notebook.ok(cell)
    assert outcome.result == "2"
    waits, computes, steps, chart, written = outcome.displays
    assert waits.startswith("line 3 of the cell: 29 steps after a first one of ")
    # 75 % on a quiet machine.
    assert 50 < shares(waits)["waiting for input"] < 95
    assert re.search(r"input-bound: a step waits for its input \d\d % of the time, and the device computes \d\d % of it", waits)
    assert "to change: end the dataset with `.prefetch(2)`" in waits
    assert computes.startswith("line 4 of the cell: 29 steps after ")
    assert shares(computes)["computing"] > 80
    assert steps.startswith("line 7 of the cell: 2 steps after ")
    assert chart.startswith("steps\n") and "waiting for input" in chart
    assert written == "wrote trace.json; https://ui.perfetto.dev opens it"
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    named = [event for event in events if event["ph"] == "X"]
    assert {event["name"] for event in named} == {"waiting for input", *(f"step {number}" for number in range(63))}
    assert [event["args"]["place"] for event in named if event["cat"] == "step"][0] == "line 3 of the cell"
    waited = sum(event["dur"] for event in named if event["name"] == "waiting for input")
    assert 30 * 9_000 < waited < 10 * 30 * 9_000, "times are in microseconds"
    assert notebook.ok("for number in &slow { number?; }").displays == [], "the next cell is not recorded"


def test_displays_have_a_table_and_a_chart(notebook):
    shown = []

    def watch(message):
        if message["msg_type"] == "display_data":
            shown.append(message["content"]["data"])

    outcome = notebook.run("%%profile\nfor number in &Dataset::from_iter(0..3u32) { number?; work(1); }", watch)
    assert not outcome.error, outcome
    table, chart = shown
    assert "<table>" in table["text/html"] and "compute-bound: " in table["text/html"]
    altair.Chart.from_dict(chart[VEGA], validate=True)
    assert "</svg>" in chart["image/svg+xml"]


def test_cells_without_steps_and_with_mistakes(notebook):
    outcome = notebook.ok("%%profile\nlet a = vec![1];")
    assert outcome.displays == [
        "no loop with two steps was recorded: a step is a batch of a Dataset, or begins where ferrotune::profile::step() is called"
    ]
    outcome = notebook.run("%%profile\n// Text.\nfor number in &Dataset::from_iter(0..9u32) { if number? == 5 { panic!(\"five\"); } }")
    assert outcome.error == "Panic: five (line 3 of the cell)"
    assert outcome.displays[0].startswith("line 3 of the cell: 4 steps after "), "what ran before is shown"
    assert "E0425" in notebook.run("%%profile\nmissing;").error
    outcome = notebook.run("%%profile\npanic!();")
    assert outcome.error.startswith("Panic: ") and outcome.displays == []
    for cell, error in [
        ("%%profile\n", "%%profile has nothing to run"),
        ("%%profile --steps 0\n1", "--steps 0"),
        ("%%profile --project a\n1", "option --project: belongs to %profile, which shows a trial"),
        ("%profile --trace a", "option --trace: belongs to %%profile, on the first line of a cell"),
        ("%profile", "no search has run in this notebook"),
    ]:
        assert error in notebook.run(cell).error, cell
    outcome = notebook.ok("%%profile --steps 4\nfor number in &Dataset::from_iter(0..9u32) { number?; work(1); }")
    heading = outcome.displays[0].splitlines()[0]
    assert heading.startswith("line 2 of the cell: 3 steps after ") and heading.endswith("; later steps were not recorded")


def test_trials_are_profiled(notebook, tmp_path):
    search = """%%tune --objective loss:min --max-trials 3 --oracle random --project profiled --profile 8
|trial| {
    let x = trial.float("x", 0.0..=1.0).get()?;
    let vars = candle_nn::VarMap::new();
    for epoch in trial.epochs(2) {
        for number in &Dataset::from_iter(0..5u32).map(1, |number| { work(2); Ok(number) }) {
            number?;
            work(2);
            trial.report(epoch, [("loss", x)])?;
            trial.checkpoint(&vars)?;
        }
    }
    trial.best("loss")
}"""
    notebook.ok(search)
    for trial in range(3):
        text = (tmp_path / f"studies/profiled/trials/{trial}/profile.json").read_text()
        steps = [event for event in json.loads(text)["traceEvents"] if event.get("cat") == "step"]
        assert len(steps) == 8
    shown, _, path = notebook.ok("%profile 1").displays
    assert shown.startswith("line 6 of the cell: 7 steps after ")
    assert {"waiting for input", "computing", "checkpointing", "reporting", "a step"} == set(shares(shown))
    assert path.startswith("trial 1; https://ui.perfetto.dev opens ") and path.endswith("trials/1/profile.json")
    best = re.search(r"in trial (\d)", notebook.ok("%best").display or "") or re.search(r"trial (\d)", notebook.ok("%best").display)
    assert notebook.ok("%profile").displays[-1].startswith(f"trial {best[1]};")
    assert "trial 7 of profiled has no profile" in notebook.run("%profile 7").error
    notebook.ok(search.replace(" --profile 8", "").replace("profiled", "plain"))
    assert "no trial of plain has a profile; run the search with %%tune --profile N" in notebook.run("%profile").error


def test_a_device_is_busy_while_it_runs_programs(notebook):
    notebook.ok("%tpu_connect --plugin cpu")
    notebook.ok(
        """let device = ferrotune::device::current()?;
let weights = Tensor::randn(0f32, 1., (512, 512), &device)?;
weights.sum_all()?.to_scalar::<f32>()?;
let rows = Dataset::from_tensors(Tensor::rand(0f32, 1., (1280, 512), &Device::Cpu)?)?.batch(64, false).prefetch(2);"""
    )
    outcome = notebook.ok(
        """%%profile
for batch in &rows {
    let mut x = batch?.to_device(&device)?;
    for _ in 0..20 { x = x.matmul(&weights)?.tanh()?; }
    x.sum_all()?.to_scalar::<f32>()?;
}"""
    )
    loop, chart = outcome.displays
    parts = shares(loop)
    assert parts["reading back"] > 50, "it waits for the program"
    assert {"waiting for input", "copying to the device", "starting programs, and Rust"} < set(parts)
    assert "compiling" not in parts, "the one program is compiled in the first step"
    busy = int(re.search(r"the device computes (\d+) % of the time", loop)[1])
    assert busy > 50, loop
    assert "xla:cpu" in chart and "program" in chart


HEAVY = """fn heavy(rounds: u64) -> u64 {
    let mut state = 1u64;
    for round in 0..rounds { state = state.rotate_left(17).wrapping_mul(31) ^ std::hint::black_box(round); }
    state
}"""


def rows(text, title):
    """The shares in percent of the rows of a table, by their names."""
    table = text.split(title, 1)[1].split("\n\n")[0]
    found = re.findall(r"^(\S.*?) +\d+ +([\d.]+) %$", table, re.MULTILINE)
    return {name: float(share) for name, share in found}


def test_a_flame_graph_has_the_lines_of_cells(notebook):
    notebook.ok(HEAVY)
    shown = []

    def watch(message):
        if message["msg_type"] == "display_data":
            shown.append(message["content"]["data"])

    cell = "%%profile --flame\nlet a = heavy(900_000_000);\nlet b = heavy(300_000_000);\na ^ b != 0"
    outcome = notebook.run(cell, watch)
    assert not outcome.error, outcome
    assert outcome.result == "true"
    (data,) = shown
    text, svg = data["text/plain"], data["image/svg+xml"]
    assert re.match(r"\d+\.\d\d s of CPU time in \d+\.\d\d s, \d+ samples\n", text)
    lines = rows(text, "line of a cell, with all that it calls")
    assert 65 < lines["line 2 of the cell: let a = heavy(900_000_000);"] < 85
    assert 15 < lines["line 3 of the cell: let b = heavy(300_000_000);"] < 35
    functions = rows(text, "line or function, without what it calls")
    own = sum(share for name, share in functions.items() if name.startswith("heavy, In [2] line 3: for round in"))
    assert own > 90, functions
    assert svg in data["text/html"] and "<table>" in data["text/html"]
    for generated in ["run_user_code", "ferrotune_run", "supervisor", "lang_start", "[unknown]"]:
        assert generated not in svg, generated


def test_a_flame_graph_has_all_threads_and_the_crates_functions(notebook):
    cell = """%%profile --flame
let x = Tensor::randn(0f32, 1., (1024, 1024), &Device::Cpu)?;
for _ in 0..20 { x.matmul(&x)?; }
std::thread::spawn(|| work(300)).join().unwrap();"""
    text = notebook.ok(cell).display
    functions = rows(text, "line or function, without what it calls")
    assert any("gemm" in name for name in functions), functions
    assert any(name.startswith("line 4 of the cell") or name.startswith("work, In [1]") for name in
               rows(text, "line of a cell, with all that it calls")), text


def test_flame_graphs_of_cells_that_fail_or_do_little(notebook):
    notebook.ok(HEAVY)
    outcome = notebook.run("%%profile --flame\nheavy(300_000_000);\npanic!(\"late\");")
    assert outcome.error == "Panic: late (line 3 of the cell)"
    assert "line 2 of the cell: heavy(300_000_000);" in outcome.displays[0]
    (shown,) = notebook.ok("%%profile --flame\n1 + 1;").displays
    assert shown.startswith("the cell used too little CPU time for a flame graph")
    cell = "%%profile --flame\nfor number in &Dataset::from_iter(0..9u32) { number?; heavy(20_000_000); }"
    flame, steps, _ = notebook.ok(cell).displays
    assert "s of CPU time in" in flame and steps.startswith("line 2 of the cell: 8 steps after ")
    assert notebook.ok("heavy(20_000_000);").displays == [], "the next cell is not sampled"
    assert "option --flame: belongs to %%profile" in notebook.run("%profile --flame").error
    assert "E0425" in notebook.run("%%profile --flame\nmissing;").error


def test_the_notebook_goes_on_after_sampled_cells(notebook):
    """The sampler's signal, timers and thread do not disturb the snapshots that %undo and a crash need."""
    notebook.ok(HEAVY)
    notebook.ok("let kept = vec![1, 2, 3];")
    notebook.ok("%%profile --flame\nheavy(100_000_000);")
    outcome = notebook.run("%%profile --flame\nheavy(100_000_000);\nstd::process::abort();")
    assert "SIGABRT" in outcome.error or "abort" in outcome.error.lower(), outcome.error
    assert notebook.ok("kept.len()").result == "3"
    (shown,) = notebook.ok("%%profile --flame\nheavy(300_000_000);").displays
    assert "line 2 of the cell: heavy(300_000_000);" in shown
