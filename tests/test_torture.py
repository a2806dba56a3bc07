"""All faults of a trial, each in its own trial: contained, distinguished, and with nothing left behind."""

import json
import os
import pathlib
import re
import subprocess

import pytest

from session import resident_bytes
from test_tune import study, table, tune

# The code of the objective in each trial, and a part of its ending. The first and the last trial succeed, so the search
# continues after all faults.
FAULTS = [
    ("well", "", "finished"),
    ("panic", 'panic!("boom");', "panicked: boom"),
    (
        "panic in drop",
        'struct Bomb; impl Drop for Bomb { fn drop(&mut self) { panic!("bomb") } } let _bomb = Bomb; panic!("first");',
        "killed by SIGABRT",
    ),
    ("abort", "std::process::abort();", "killed by SIGABRT"),
    ("segfault", "unsafe { (8 as *mut u8).write_volatile(1) };", "killed by SIGSEGV"),
    (
        "stack overflow",
        "#[allow(unconditional_recursion)] fn deep(n: u64) -> u64 { let a = [n; 64]; std::hint::black_box(&a); deep(n + 1) + a[3] }"
        " std::hint::black_box(deep(0));",
        "killed by SIGABRT",
    ),
    ("exit 0", "std::process::exit(0);", "exited with 0 before the objective returned"),
    ("exit 3", "std::process::exit(3);", "exited with 3 before the objective returned"),
    ("infinite loop", "let mut n = 0u64; loop { n = std::hint::black_box(n + 1); }", "timed out after "),
    ("sleep", "std::thread::sleep(std::time::Duration::from_secs(1000));", "timed out after "),
    (
        "SIGTERM ignored",
        'std::process::Command::new("sh").args(["-c", "trap \'\' TERM INT HUP; while :; do sleep 1; done"]).status()?;',
        "timed out after ",
    ),
    (
        "fork bomb of 20",
        'for _ in 0..20 { std::process::Command::new("sh").args(["-c", "sleep 1000 & sleep 1000 & wait"]).spawn()?; }',
        "finished",
    ),
    (
        "setsid double fork",
        'std::process::Command::new("sh").args(["-c", "setsid sh -c \'sleep 1000 & sleep 1000\' > /dev/null 2>&1 &"]).status()?;',
        "finished",
    ),
    (
        "thread flood",
        "loop { std::thread::Builder::new().stack_size(16384)"
        ".spawn(|| std::thread::sleep(std::time::Duration::from_secs(1000)))?; }",
        ("it ran", "Resource temporarily unavailable"),
    ),
    (
        "allocation at 1 GB/s",
        "let mut held = Vec::new(); loop { held.push(vec![1u8; 10_000_000]); std::thread::sleep(std::time::Duration::from_millis(10)); }",
        "out of memory",
    ),
    ("allocation at full speed", "let mut held = Vec::new(); loop { held.push(vec![1u8; 64 << 20]); }", "out of memory"),
    (
        "allocation at full speed in huge pages",
        "let layout = std::alloc::Layout::from_size_align(64 << 20, 2 << 20)?; loop { unsafe {"
        " let held = std::alloc::alloc(layout); madvise(held, 64 << 20, 14); held.write_bytes(1, 64 << 20); } }",
        # A virtual machine may need time to find such pages.
        ("out of memory", "timed out after "),
    ),
    (
        "allocation on 64 threads",
        "let threads: Vec<_> = (0..64).map(|_| std::thread::spawn(|| { let mut held = Vec::new();"
        " loop { held.push(vec![1u8; 1 << 20]); } })).collect(); for thread in threads { thread.join().unwrap(); }",
        "out of memory",
    ),
    ("fd leak", 'loop { std::mem::forget(std::fs::File::open("/dev/null")?); }', "Too many open files"),
    ("disk full", 'std::fs::write("/dev/full", [0u8; 100])?;', "No space left on device"),
    (
        "result of 100 MB",
        'let long = "x".repeat(100 << 20); trial.report(0, [(long.as_str(), 1.0)])?;',
        ("a request of more than", "no connection to the search's supervisor", "out of memory"),
    ),
    ("NaN as objective", "return Ok(f64::NAN);", "returned NaN"),
    ("infinity as objective", 'trial.report(0, [("loss", f64::INFINITY)])?; return Ok(f64::INFINITY);', "returned inf"),
    ("no result", "std::mem::forget(trial.folder()); unsafe { libc_exit() }", "exited with 0 before the objective returned"),
    (
        "shared memory left behind",
        # Open for so long that the supervisor sees which process has it, also on a machine with much other work.
        'let mut file = std::fs::File::create(format!("/dev/shm/ferrotune-torture-{}", std::process::id()))?;'
        " std::io::Write::write_all(&mut file, &[1u8; 1 << 20])?;"
        " std::thread::sleep(std::time::Duration::from_millis(1500)); std::mem::forget(file);",
        "finished",
    ),
    ("temporary file left behind", 'std::fs::write(std::env::temp_dir().join("left"), [1u8; 1 << 20])?;', "finished"),
    ("well again", "", "finished"),
]

# Memory must stay within this share of its first value over this many trials.
TRIALS = int(os.environ.get("FERROTUNE_TORTURE_TRIALS", "60"))
FLAT = 0.01

# Longest time of a trial in seconds, except those that their deadline ends.
CONTAINED_S = 3.0


def objective():
    arms = "\n".join(f"        {number} => {{ {code} }}" for number, (_, code, _) in enumerate(FAULTS) if code)
    return f"""extern "C" {{ fn _exit(status: i32) -> !; fn madvise(start: *mut u8, length: usize, advice: i32) -> i32; }}
    unsafe fn libc_exit() {{ unsafe {{ _exit(0) }} }}
    #[allow(unreachable_code)]
    match trial.number() {{
{arms}
        _ => {{}}
    }}
    Ok(x)""".replace('extern "C"', 'unsafe extern "C"')


def shared_memory():
    """The files of these trials in shared memory, where other programs have files, too."""
    return {path.name for path in pathlib.Path("/dev/shm").glob("ferrotune-*")}


def tagged(project):
    """Processes that a trial of the project has left."""
    found = []
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if f"FERROTUNE_TRIAL={project}/".encode() in (process / "environ").read_bytes():
                found.append((process / "cmdline").read_bytes())
        except OSError:
            pass  # It has left, or is another user's.
    return found


@pytest.fixture(scope="module", params=[1, 3], ids=["alone", "side by side"])
def torture(request, kernel):
    """All faults in one search, and its trials as %trials shows them."""
    project = f"torture-{request.param}"
    kernel.ok("let before = vec![6, 7]; let cells = std::process::id();")
    before = shared_memory()
    # Concurrent trials on few cores need longer to fail.
    timeout_s = 2 if request.param == 1 else 5
    options = (
        f"--objective loss:min --max-trials {len(FAULTS)} --seed 3 --memory 300MiB --trial-timeout {timeout_s}s"
        f" --concurrency {request.param}"
    )
    outcome = kernel.ok(tune(objective(), options, project))
    rows = {int(row["trial"]): row for row in table(kernel.ok(f"%trials --project {project}").display)}
    assert tagged(project) == []
    return outcome, rows, before, project


def test_every_ending_is_told_apart(torture):
    _, rows, _, _ = torture
    assert len(rows) == len(FAULTS)
    wrong = []
    for number, (name, _, beginnings) in enumerate(FAULTS):
        beginnings = beginnings if isinstance(beginnings, tuple) else (beginnings,)
        if not any(beginning in rows[number]["ending"] for beginning in beginnings):
            wrong.append((name, rows[number]["ending"]))
    assert wrong == []


def test_every_fault_is_contained_in_time(torture):
    _, rows, _, project = torture
    slow = {FAULTS[number][0]: row["seconds"] for number, row in rows.items() if float(row["seconds"]) > CONTAINED_S}
    assert slow == {} or project != "torture-1", slow


def test_nothing_is_left_behind(torture, kernel):
    _, _, shared, project = torture
    assert shared_memory() <= shared
    folders = (study(kernel, project) / "trials").iterdir()
    assert [folder for folder in folders if (folder / "tmp").exists()] == []


def test_what_was_left_behind_is_in_the_trials_record(torture, kernel):
    _, _, _, project = torture
    names = [name for name, _, _ in FAULTS]
    # The least and the most processes that each fault leaves, children of a process that is killed included.
    leaves = {"SIGTERM ignored": (1, 2), "fork bomb of 20": (20, 60), "setsid double fork": (1, 3)}
    # Of trials that end at the same time, the one whose worker is reaped first counts what all of them have left.
    groups = [[name] for name in leaves] if project == "torture-1" else [names]
    for group in groups:
        shown = [kernel.ok(f"%trials {names.index(name)} --project {project}").display for name in group]
        counts = [int(count) for text in shown for count in re.findall(r"left behind: (\d+) process(?:es)?, killed", text)]
        bounds = [leaves[name] for name in group if name in leaves]
        least, most = sum(bound[0] for bound in bounds), sum(bound[1] for bound in bounds)
        assert least <= sum(counts) <= most, (counts, shown)


def test_overshoot_of_the_budget_is_small(torture, kernel):
    _, rows, _, project = torture
    if project != "torture-1":
        pytest.skip("measured where trials run one after the other")
    number = [name for name, _, _ in FAULTS].index("allocation at 1 GB/s")
    size, unit = rows[number]["peak memory"].split()
    peak = float(size) * {"MiB": 1, "GiB": 1024}[unit]
    assert 300 <= peak <= 400, rows[number]


def test_process_of_the_cells_and_its_variables_stay(torture, kernel):
    assert kernel.ok("(before, cells == std::process::id())").result == "([6, 7], true)"


def descriptors(pid):
    return len(list(pathlib.Path(f"/proc/{pid}/fd").iterdir()))


@pytest.mark.parametrize("oracle", ["random", "auto"])
def test_memory_is_flat_over_many_trials(kernel, oracle):
    """Trials of random sizes leave nothing behind: no memory in any process of ours, no process, file or descriptor."""
    body = 'let mib: usize = trial.int("mib", 1..=128).get()?; let held = vec![1u8; mib << 20]; Ok(x + held[mib] as f64)'
    project = f"flat-{oracle}"

    def search(trials):
        kernel.ok(tune(body, f"--oracle {oracle} --objective loss:min --max-trials {trials} --seed 5", project))

    search(10)
    cells = int(kernel.ok("std::process::id()").result)
    processes = {"kernel": kernel.manager.provisioner.pid, "cells": cells}
    kernel.read_sources()
    before = {name: (resident_bytes(pid), descriptors(pid)) for name, pid in processes.items()}
    shared = shared_memory()
    search(10 + TRIALS)
    for name, pid in processes.items():
        resident, files = before[name]
        # The process of the cells is so small that a few pages of its allocator are one in a hundred.
        allowed = max(FLAT * resident, 128 << 10)
        assert abs(resident_bytes(pid) - resident) <= allowed, (name, resident, resident_bytes(pid))
        assert descriptors(pid) == files, name
    journal = (study(kernel, project) / "journal.log").read_text().splitlines()
    facts = [json.loads(line).get("user_attr", {}).get("ferrotune:memory") for line in journal]
    supervisor = [fact["supervisor_bytes"] for fact in facts if fact][10:]
    assert len(supervisor) == TRIALS
    assert max(supervisor) / min(supervisor) - 1 <= FLAT, (min(supervisor), max(supervisor))
    left = [line for fact in facts if fact for line in fact["left"]]
    # Other programs on the machine also take and free memory, and tests/test_storm.py makes files of nobody.
    others = ("others may have taken", "/dev/shm/foreign-")
    assert [line for line in left if not any(word in line for word in others)] == []
    assert tagged(project) == [] and shared_memory() <= shared
    folders = list((study(kernel, project) / "trials").iterdir())
    assert len(folders) == 10 + TRIALS
    assert [file for folder in folders for file in folder.iterdir() if file.name != "output.log"] == []


def test_full_disk_ends_the_search_and_costs_it_nothing(kernel, tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", str(disk)], capture_output=True)
    if mounted.returncode != 0:
        pytest.skip("needs the right to mount a small disk")
    try:
        filler = disk / "filler"
        body = f"""if trial.number() == 2 && !std::path::Path::new("{disk}/freed").exists() {{
            // Fails when the disk is full, which is no reason to stop.
            std::fs::write("{filler}", vec![1u8; 100 << 20]).ok();
        }}
        trial.report(0, [("loss", x)])?;
        Ok(x)"""
        code = tune(body, "--objective loss:min --max-trials 5 --seed 3", "full", f"--directory {disk}")
        outcome = kernel.fails(code)
        assert "journal.log" in outcome.error and "free space" in outcome.error, outcome.error
        filler.unlink()
        (disk / "freed").touch()
        kernel.ok(code)
        rows = table(kernel.ok("%trials").display)
        assert [row["ending"] for row in rows] == 5 * ["finished"]
    finally:
        subprocess.run(["umount", str(disk)], check=True)
