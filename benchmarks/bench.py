"""Measures this kernel, its cells in turn with those of evcxr_jupyter, and writes a table as Markdown.

Usage: PYTHONPATH=tests python benchmarks/bench.py TABLE --output FILE [--rounds 20]     (`cargo xtask bench TABLE` prepares and calls it)
"""

import argparse
import datetime
import json
import os
import pathlib
import statistics
import sys
import tempfile
import time as clock

from session import Session, descendants

ROOT = pathlib.Path(__file__).parent.parent
OURS, RIVAL = "ferrotune", "evcxr"
TRIALS_FOR_MEMORY = 200

# The kernels of a class, and the idle time after which one of them drops rust-analyzer's knowledge here; it is ten minutes elsewhere.
KERNELS = 30
IDLE_S = 20
FORGOTTEN = "after ten idle minutes"

DEPENDENCIES = ':dep candle-core = "0.11.1"\n:dep candle-nn = "0.11.1"'
CANDLE = """
use candle_core::{DType, Device, Tensor};
use candle_nn::{AdamW, Module, Optimizer, VarBuilder, VarMap};
let first = Tensor::ones((2, 3), DType::F32, &Device::Cpu)?.sum_all()?.to_scalar::<f32>()?;
"""
STATE = """
let x = 1;
let a = Tensor::rand(0f32, 1.0, (64, 64), &Device::Cpu)?;
let inputs = Tensor::rand(0f32, 1.0, (128, 16), &Device::Cpu)?;
let targets = Tensor::rand(0f32, 1.0, (128, 1), &Device::Cpu)?;
let vars = VarMap::new();
let (hidden, output) = {
    let builder = VarBuilder::from_varmap(&vars, DType::F32, &Device::Cpu);
    (candle_nn::linear(16, 32, builder.pp("hidden"))?, candle_nn::linear(32, 1, builder.pp("output"))?)
};
let mut optimizer = AdamW::new_lr(vars.all_vars(), 1e-3)?;
"""
TRAINING = """for _ in 0..10 {
    let predicted = output.forward(&hidden.forward(&inputs)?.relu()?)?;
    optimizer.backward_step(&candle_nn::loss::mse(&predicted, &targets)?)?;
}"""
# Name, and the cell of one round.
CELLS = [
    ("`println!`", lambda n: f'println!("{n}");'),
    ("`let`", lambda n: f"let y = {n};"),
    ("`x + 1`", lambda n: f"x + {n}"),
    ("candle matmul", lambda n: f"a.matmul(&a)?.sum_all()?.to_scalar::<f32>()? + {n}.0"),
    ("training loop, 10 steps of AdamW", lambda n: f"{TRAINING} // {n}"),
]

SHARED_GIB = "let shared = Tensor::ones((256, 1024, 1024), DType::F32, &Device::Cpu)?;"
FIRST_LINE = """%%tune --objective loss:min --max-trials {trials} --seed 1 --project first-line
|trial| {{
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?;
    std::fs::write(trial.folder().join("first-line"), format!("{{}}", now.as_secs_f64()))?;
    let x: f64 = trial.float("x", 0.0..=1.0).get()?;
    Ok(x + shared.dim(0)? as f64)
}}"""
SIZES = """%%tune --oracle {oracle} --objective loss:min --max-trials {trials} --seed 1 --project {project}
|trial| {{
    let status = std::fs::read_to_string(format!("/proc/{{}}/status", std::os::unix::process::parent_id()))?;
    std::fs::write(trial.folder().join("supervisor"), status)?;
    let mib: usize = trial.int("mib", 1..=256).get()?;
    let bytes = vec![1u8; mib << 20];
    Ok(f64::from(std::hint::black_box(&bytes)[mib]) + mib as f64)
}}"""


# 100 MB in lines of 80 bytes.
LINES = 1_250_000
PRINTED = f'let line = "x".repeat(79); for _ in 0..{LINES} {{ println!("{{line}}"); }}'


def register_rival(program=ROOT / "target/evcxr/bin/evcxr_jupyter"):
    """A kernelspec for evcxr_jupyter under target/, beside ours."""
    data = ROOT / "target/evcxr/share/jupyter"
    folder = data / "kernels" / RIVAL
    folder.mkdir(parents=True, exist_ok=True)
    spec = {"argv": [str(program), "--control_file", "{connection_file}"], "display_name": "evcxr", "language": "rust"}
    (folder / "kernel.json").write_text(json.dumps(spec))
    os.environ["JUPYTER_PATH"] = f"{os.environ['JUPYTER_PATH']}{os.pathsep}{data}"


def starts(folder, rounds):
    """Seconds from starting a kernel to its first result, by kernel."""
    seconds = {OURS: [], RIVAL: []}
    for number in range(rounds):
        for kernel in seconds:
            session = Session(folder, kernel)
            seconds[kernel].append(session.start_seconds + session.ok("1 + 1").seconds)
            session.close()
            say(f"start {number + 1}/{rounds} of {kernel}: {seconds[kernel][-1]:.2f} s")
    return seconds


def memory_after_one_cell(folder):
    """Bytes of the kernel and its helpers after one cell, and after the pause in which rust-analyzer reads its sources."""
    session = Session(folder)
    session.ok("1 + 1")
    kernel = session.manager.provisioner.process.pid
    measured = {"after the first cell": proportional_bytes(kernel)}
    wait_until_idle(kernel)
    measured["after a pause, with rust-analyzer ready"] = proportional_bytes(kernel)
    session.close()
    say(f"memory: {measured}")
    return measured


def proportional_bytes(pid):
    """Memory of a process and its children; pages that several share count once."""
    return sum(private_and_files(pid))


def wait_until_idle(pid):
    """Waits until a process computes nothing for two seconds."""
    before = None
    while before != (before := processor_ticks(pid)):
        clock.sleep(2)


def processor_ticks(pid):
    return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11]


def first_candle_cells(folder, rounds):
    """Seconds of the first cell with candle after the start; only once for the rival, because it builds candle."""
    ours = []
    for _ in range(rounds):
        session = Session(folder)
        session.ok("1 + 1")
        ours.append(session.ok(CANDLE).seconds)
        session.close()
    say(f"first candle cell: {statistics.median(ours):.2f} s")
    return ours


def cells(ours, rival, rounds):
    """Seconds of each kind of cell, by name and kernel, with candle in use."""
    for session in (ours, rival):
        session.ok(STATE)
    measured = {name: {OURS: [], RIVAL: []} for name, _ in CELLS}
    for number in range(-1, rounds):
        for name, source in CELLS:
            for kernel, session in ((OURS, ours), (RIVAL, rival)):
                seconds = session.ok(source(number + 2)).seconds
                # The first round of each is not counted.
                if number >= 0:
                    measured[name][kernel].append(seconds)
        say(f"cells, round {number + 1}/{rounds}")
    return measured


def first_lines(session, rounds):
    """Seconds from the supervisor's decision to the objective's first line, with 1 GiB of shared data."""
    session.ok(SHARED_GIB)
    session.ok(FIRST_LINE.format(trials=rounds))
    study = session.folder / "studies/first-line"
    entries = [json.loads(line) for line in (study / "journal.log").read_text().splitlines()]
    decided = [entry["datetime_start"] for entry in entries if entry["op_code"] == 4]
    seconds = []
    for number, text in enumerate(decided):
        at = datetime.datetime.fromisoformat(text)
        reached = float((study / f"trials/{number}/first-line").read_text())
        seconds.append(reached - at.timestamp())
    session.ok("drop(shared);")
    return seconds


def memory(session, oracle):
    """Resident bytes of kernel, cell process and tune supervisor, before and after 50 trials of different sizes."""
    kernel = session.manager.provisioner.process.pid
    process = int(session.ok("std::process::id()").result)
    session.ok(SIZES.format(oracle=oracle, trials=3, project=f"warm-up-{oracle}"))
    before = [resident(pathlib.Path(f"/proc/{pid}/status").read_text()) for pid in (kernel, process)]
    session.ok(SIZES.format(oracle=oracle, trials=TRIALS_FOR_MEMORY, project=f"sizes-{oracle}"))
    after = [resident(pathlib.Path(f"/proc/{pid}/status").read_text()) for pid in (kernel, process)]
    seen = [session.folder / f"studies/sizes-{oracle}/trials/{number}/supervisor" for number in (1, TRIALS_FOR_MEMORY - 1)]
    supervisor = [resident(path.read_text()) for path in seen]
    names = [f"{name}, `--oracle {oracle}`" for name in ("kernel", "cell process", "tune supervisor")]
    return dict(zip(names, zip([*before, supervisor[0]], [*after, supervisor[1]])))


def snapshots(folder, rounds):
    """Seconds that a snapshot holds up the process, and that a small cell takes, with a small heap and with 1 GiB."""
    session = Session(folder)
    session.ok(CANDLE)
    measured = {}
    for name, cell in (("small heap", "let shared = 0;"), ("1 GiB resident", SHARED_GIB)):
        session.ok(cell)
        forks, round_trips = [], []
        for number in range(rounds):
            round_trips.append(session.ok(f'println!("{number}");').seconds)
            (row,) = [line for line in session.ok("%checkpoints").display.splitlines() if line.startswith("%undo 1 ")]
            forks.append(float(row.split()[-2]) / 1e3)
        measured[name] = (statistics.median(forks), statistics.median(round_trips))
        say(f"snapshots, {name}: {measured[name]}")
    session.close()
    return measured


def interrupts(folder, rounds):
    """Seconds from an interrupt of `loop {}` to the reply, the variables being back."""
    session = Session(folder)
    session.ok(CANDLE)
    seconds = []
    for _ in range(rounds):
        outcome = session.interrupt('println!("on"); loop { std::hint::spin_loop() }')
        seconds.append(outcome.seconds)
        assert outcome.error.startswith("Interrupted"), outcome.error
    session.close()
    say(f"interrupts: {statistics.median(seconds):.2f} s")
    return seconds


def output(session, rounds):
    """Megabytes of printed lines that reach the client in a second, from the request to the end of the cell."""
    rates = []
    for _ in range(rounds):
        started = clock.monotonic()
        msg_id = session.begin(PRINTED)
        published = session.rest_of(msg_id)
        seconds = clock.monotonic() - started
        session.reply(msg_id)
        received = sum(len(content["text"]) for msg_type, content in published if msg_type == "stream")
        assert received == LINES * 80, f"{received} bytes have come"
        rates.append(received / seconds / 1e6)
    say(f"output: {statistics.median(rates):.1f} MB/s")
    return rates


def resident(status):
    (line,) = [line for line in status.splitlines() if line.startswith("VmRSS:")]
    return int(line.split()[1]) * 1024


def say(line):
    print(line, flush=True)


def time(seconds):
    return f"{seconds:.2f} s" if seconds >= 1 else f"{seconds * 1e3:.1f} ms"


def verdict(good):
    return "met" if good else "**missed**"


def cells_table(folder, rounds):
    register_rival()
    # Starts both once before measuring, because the first start takes longer.
    for kernel in (OURS, RIVAL):
        session = Session(folder, kernel)
        session.ok("1 + 1")
        session.close()
    start = starts(folder, rounds)
    used = memory_after_one_cell(folder)
    first = first_candle_cells(folder, rounds)
    ours, rival = Session(folder), Session(folder, RIVAL)
    rival.cell_timeout_s = 3600
    rival_first = rival.ok(DEPENDENCIES).seconds + rival.ok(CANDLE).seconds
    say(f"first candle cell of {RIVAL}: {rival_first:.1f} s")
    ours.ok(CANDLE)
    measured = cells(ours, rival, rounds)
    for session in (ours, rival):
        session.close()
    rows = []

    def compare(name, ours, rival, goal):
        ratio = ours / rival
        wanted = f"≤ {goal}: {verdict(ratio <= goal)}"
        rows.append(f"| {name} | {time(ours)} | {time(rival)} | {ratio:.2f} | {wanted} |")

    ours, rival = (statistics.median(start[kernel]) for kernel in (OURS, RIVAL))
    wanted = f"≤ 1 s: {verdict(ours <= 1)}"
    rows.append(f"| kernel start to first result | {time(ours)} | {time(rival)} | {ours / rival:.2f} | {wanted} |")
    ours = statistics.median(first)
    wanted = f"≤ 5 s: {verdict(ours <= 5)}"
    rows.append(f"| first candle cell | {time(ours)} | {time(rival_first)} (once) | {ours / rival_first:.3f} | {wanted} |")
    for name, seconds in measured.items():
        compare(name, *(statistics.median(seconds[kernel]) for kernel in (OURS, RIVAL)), goal=0.25)
    used_rows = [f"| {name} | {size / 2**20:.0f} MiB | {verdict(size <= 150 * 2**20)} |" for name, size in used.items()]
    return f"""Medians of {rounds}, ferrotune and evcxr_jupyter 0.22 in turn, as a front end sees them: from sending the request to the
reply and the end of its output. From the second row on candle is in use; the rival's first candle cell builds candle.

| | ferrotune | evcxr_jupyter | ratio | goal |
|---|---|---|---|---|
{chr(10).join(rows)}

Memory of the kernel and its helpers after one cell, `1 + 1`; the goal is ≤ 150 MiB:

| | memory | goal |
|---|---|---|
{chr(10).join(used_rows)}
"""


def snapshots_table(folder, rounds):
    forks, stops = snapshots(folder, rounds), interrupts(folder, min(rounds, 5))
    goals = {"small heap": 0.001, "1 GiB resident": 0.06}
    rows = [
        f"| {name} | {time(fork)} | ≤ {time(goals[name])}: {verdict(fork <= goals[name])} | {time(cell)} |"
        for name, (fork, cell) in forks.items()
    ]
    return f"""After every cell its process is copied before the cell's end is told. Medians of {rounds}: how long that holds up the
process, and `println!` in that session.

| | the copy | goal | `println!` |
|---|---|---|---|
{chr(10).join(rows)}

From an interrupt of `loop {{}}` to its reply, with the variables back: {time(max(stops))}, the longest of {len(stops)}; the goal is
≤ 2 s: {verdict(max(stops) <= 2)}.
"""


def output_table(folder, rounds):
    session = Session(folder)
    session.ok(CANDLE)
    rates = output(session, min(rounds, 5))
    session.close()
    return f"""100 MB of lines of 80 bytes that a cell prints, from the request to the end of the cell, at a client in Python, which gets every
byte: {statistics.median(rates):.0f} MB/s, the median of {len(rates)}; the goal is ≥ 20 MB/s: {verdict(statistics.median(rates) >= 20)}.
"""


def class_table(folder, rounds):
    idle = one_idle_kernel(folder)
    taken, seconds = a_class(folder, min(rounds, 5))
    rows = [f"| {name} | {private / 2**20:.0f} MiB | {files / 2**20:.0f} MiB |" for name, (private, files) in idle.items()]
    private, _ = idle[FORGOTTEN]
    longest = max(seconds)
    return f"""The kernel and its helpers after the cell `1 + 1`. Private is what no other kernel can share: memory without a file. Pages of files,
such as the program and the prelude, are in memory once for all kernels of a machine.

| | private | of files |
|---|---|---|
{chr(10).join(rows)}

The idle time is {IDLE_S} s here, by `FERROTUNE_COMPLETION_IDLE`, and the last row is measured before the kernel returns freed memory, which it
does within a minute. The goal for the private memory after the idle time is ≤ 60 MiB: {verdict(private <= 60 * 2**20)}.

{KERNELS} kernels on this machine, each of which runs a cell each minute, in turn `let` and a product with candle, for {len(seconds) // KERNELS} minutes: they take
{taken / 2**30:.1f} GiB together; a cell takes {time(statistics.median(seconds))} in the median, and {time(longest)} at most.
"""


def one_idle_kernel(folder):
    """Bytes of one kernel and its helpers, private and of files, after one cell."""
    session = Session(folder, env={**os.environ, "FERROTUNE_COMPLETION_IDLE": f"{IDLE_S}s"})
    session.ok("1 + 1")
    kernel = session.manager.provisioner.process.pid
    measured = {"after the first cell": private_and_files(kernel)}
    wait_until_idle(kernel)
    measured["after a pause, with rust-analyzer ready"] = private_and_files(kernel)
    clock.sleep(IDLE_S + 2)
    wait_until_idle(kernel)
    measured[FORGOTTEN] = private_and_files(kernel)
    asked = clock.monotonic()
    assert "len" in session.complete('"text".le')["matches"]
    asked = clock.monotonic() - asked
    wait_until_idle(kernel)
    measured[f"after completion was asked again, which takes {time(asked)}"] = private_and_files(kernel)
    session.close()
    say(f"one kernel: {measured}")
    return measured


def a_class(folder, minutes):
    """Bytes that many kernels take together, and the seconds of each of their cells."""
    before = available_bytes()
    sessions = []
    for number in range(KERNELS):
        home = pathlib.Path(folder, str(number))
        home.mkdir()
        sessions.append(Session(home))
        sessions[-1].ok(CANDLE)
        sessions[-1].ok("let a = Tensor::rand(0f32, 1.0, (64, 64), &Device::Cpu)?;")
        say(f"kernel {number + 1} of {KERNELS} has started")
    seconds = []
    begun = clock.monotonic()
    for turn in range(KERNELS * minutes):
        clock.sleep(max(0, begun + 60 * turn / KERNELS - clock.monotonic()))
        cell = f"let y = {turn};" if (turn + turn // KERNELS) % 2 else f"a.matmul(&a)?.sum_all()?.to_scalar::<f32>()? + {turn}.0"
        seconds.append(sessions[turn % KERNELS].ok(cell).seconds)
    taken = before - available_bytes()
    for session in sessions:
        session.close()
    say(f"{KERNELS} kernels: {taken / 2**30:.1f} GiB")
    return taken, seconds


def private_and_files(pid):
    """Memory of a process and its children without a file, and that of files; pages that several processes share count once."""
    private, files = 0, 0
    for process in (pid, *descendants(pid)):
        rollup = [line.split() for line in pathlib.Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()[1:]]
        bytes_of = {words[0].rstrip(":"): int(words[1]) * 1024 for words in rollup}
        private += bytes_of["Pss_Anon"] + bytes_of["Pss_Shmem"]
        files += bytes_of["Pss_File"]
    return private, files


def available_bytes():
    (line,) = [line for line in pathlib.Path("/proc/meminfo").read_text().splitlines() if line.startswith("MemAvailable:")]
    return int(line.split()[1]) * 1024


def supervisor_table(folder, rounds):
    session = Session(folder)
    session.ok(CANDLE)
    lines = first_lines(session, rounds)
    sizes = memory(session, "random") | memory(session, "auto")
    session.close()
    line = statistics.median(lines)
    rows = []
    for name, (before, after) in sizes.items():
        change = after / before - 1
        shown = f"{before / 2**20:.1f} MiB | {after / 2**20:.1f} MiB | {change:+.1%}"
        rows.append(f"| {name} | {shown} | {verdict(abs(change) <= 0.01)} |")
    return f"""From the supervisor's decision (the trial's start in the journal) to the objective's first line, with 1 GiB of shared
data: {time(line)}, the median of {len(lines)}; the goal is ≤ 20 ms: {verdict(line <= 0.02)}.

Resident memory before and after {TRIALS_FOR_MEMORY} trials of 1 to 256 MiB; the goal is a change of 1 % at most:

| process | before | after | change | goal |
|---|---|---|---|---|
{chr(10).join(rows)}
"""


TABLES = {
    "cells": cells_table,
    "class": class_table,
    "snapshots": snapshots_table,
    "output": output_table,
    "supervisor": supervisor_table,
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("table", choices=TABLES)
    parser.add_argument("--output", type=pathlib.Path, required=True)
    parser.add_argument("--rounds", type=int, default=20)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        text = TABLES[arguments.table](folder, arguments.rounds)
    arguments.output.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
