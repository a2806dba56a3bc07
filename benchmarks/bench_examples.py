"""Runs the examples of Rust's standard library as cells, whole and cut into statements, and writes how many run as Markdown.

Usage: PYTHONPATH=tests python benchmarks/bench_examples.py --output FILE [--sample N] [--seed S] [--all] [--jobs N] [--rival PROGRAM]
(`cargo xtask bench examples` prepares and calls it)

Each result is a line of target/examples.jsonl. A failure counts only if it is repeated in a kernel of its own, so that no example
fails because of another one.
"""

import argparse
import collections
import dataclasses
import json
import multiprocessing
import pathlib
import queue
import re
import subprocess
import sys
import tempfile
import time

import rust_examples
from bench import register_rival, say
from session import TARGET, Session

CELL_TIMEOUT_S = 60
# A kernel keeps snapshots of what a reset forgets.
EXAMPLES_PER_KERNEL = 25
# The goals, in percent of the examples that rustdoc runs.
GOALS = {"whole": 99.5, "cut": 95.0}
# The failures that the tests expect.
KNOWN = pathlib.Path(__file__).parent.parent / "tests/known_examples.txt"
OURS, RIVAL = "ferrotune", "evcxr"
FORGET_ALL = ":clear"
# So many names stand behind an error on the page.
NAMES = 6


@dataclasses.dataclass
class Result:
    """How one example has run in one mode: as one cell (whole), or with each statement in a cell of its own (cut)."""

    kernel: str
    mode: str
    name: str
    place: str
    cells: list
    # Number of the cell that has failed, its error, and what a user reads of it; none if all have run.
    failed: int = None
    error: str = None
    traceback: str = None
    seconds: float = 0.0

    def fail(self, number, error, traceback=""):
        self.failed, self.error, self.traceback = number, error, traceback


class Runner:
    """Kernels that run examples one after the other."""

    def __init__(self, folder, kernel=OURS):
        self.folder, self.kernel = pathlib.Path(folder), kernel
        self.session, self.runs = None, 0

    def run(self, example, mode):
        """Runs an example, and a second time in a new kernel if it fails."""
        result = self.run_once(example, mode)
        if result.error is not None and self.runs > 1:
            self.close()
            result = self.run_once(example, mode)
        return result

    def run_once(self, example, mode):
        cells = example.cells if mode == "cut" else [example.code]
        result = Result(self.kernel, mode, example.name, example.place, cells)
        begin, number = time.monotonic(), 0
        try:
            self._prepare()
            for number, cell in enumerate(cells):
                outcome = self.session.run(cell)
                # evcxr_jupyter publishes each error of the compiler.
                del outcome.errors[1:]
                if outcome.error is None:
                    continue
                if not (example.panics and is_panic(outcome, self.kernel)):
                    result.fail(number, outcome.error, outcome.traceback)
                break
            else:
                if example.panics:
                    result.fail(number, "it should panic and does not")
        except queue.Empty:
            result.fail(number, f"no end within {CELL_TIMEOUT_S} s")
            self.close()
        except AssertionError as unexpected:
            result.fail(number, "messages that a cell does not publish", str(unexpected))
            self.close()
        result.seconds = round(time.monotonic() - begin, 2)
        return result

    def _prepare(self):
        """Makes sure that there is a kernel which knows nothing of other examples."""
        self.runs += 1
        if self.session and self.runs <= EXAMPLES_PER_KERNEL and self.session.run(FORGET_ALL).error is None:
            return
        self.close()
        self.session, self.runs = Session(tempfile.mkdtemp(dir=self.folder), self.kernel), 1
        self.session.cell_timeout_s = CELL_TIMEOUT_S

    def close(self):
        if self.session:
            self.session.close()
        self.session = None


def is_panic(outcome, kernel):
    return outcome.error.startswith("Panic:") or kernel == RIVAL


def runs_in_rustdoc(examples, folder):
    """The names of the examples that pass as tests of rustdoc, which gets those of one file together. All have the edition of cells."""
    files, passed = {}, set()
    for example in examples:
        files.setdefault(example.place.rpartition(":")[0], []).append(example)
    for number, found in enumerate(files.values()):
        path, names, line = pathlib.Path(folder) / f"page{number}.md", {}, 1
        with path.open("w", encoding="utf-8") as page:
            for example in found:
                names[line] = example.name
                info = re.sub(r"edition20\d\d", "edition2024", example.info)
                block = f"~~~~~~{info or 'rust'}\n{example.text}\n~~~~~~\n\n"
                page.write(block)
                line += block.count("\n")
        command = ["rustdoc", "--test", "--edition", "2024", path, "--test-run-directory", folder]
        ran = subprocess.run(command, capture_output=True, text=True, cwd=folder)
        lines = re.findall(r"^test .* \(line (\d+)\)(?: - [a-z ]+)? \.\.\. ok$", ran.stdout, re.MULTILINE)
        passed |= {names[int(line)] for line in lines}
    return passed


def run_share(folder, kernel, modes, examples, results):
    """Runs some of the examples in a process, which sends each result and at last none."""
    runner = Runner(folder, kernel)
    for example in examples:
        for mode in modes:
            results.put(runner.run(example, mode))
    runner.close()
    results.put(None)


def run_all(folder, kernel, modes, examples, jobs, done):
    """Runs examples in several kernels at the same time; `done` gets each result."""
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    shares = [examples[first::jobs] for first in range(jobs)]
    processes = [context.Process(target=run_share, args=(folder, kernel, modes, share, results)) for share in shares]
    for process in processes:
        process.start()
    running = jobs
    while running:
        try:
            result = results.get(timeout=CELL_TIMEOUT_S)
        except queue.Empty:
            assert any(process.is_alive() for process in processes), "a process that runs examples has failed"
            continue
        if result is None:
            running -= 1
        else:
            done(result)
    for process in processes:
        process.join()


def kind(error):
    """The first line of an error without what is only of one example."""
    error = re.sub(r" \((line|cell) .*\)$", "", error.splitlines()[0])
    # An error of several variables has a part for each.
    error = re.sub(r"(it borrows|can write its type) .*", r"\1 …", error)
    return re.sub(r"In \[\d+\]", "In […]", re.sub(r"`[^`]*`", "`…`", error))


def groups(results):
    """The results with the same kind of error, by mode and kind, the largest group first."""
    found = collections.defaultdict(list)
    for result in results:
        if result.error is not None and result.kernel == OURS:
            found[result.mode, kind(result.error)].append(result)
    return sorted(found.items(), key=lambda group: (-len(group[1]), group[0]))


def known_failures(results):
    """The text of tests/known_examples.txt: a line for each failure, below its kind of error."""
    lines = ["# Examples that do not run yet. tests/test_examples.py fails for one that runs and is listed here."]
    for (mode, error), group in groups(results):
        lines += ["", f"# {error}", *sorted(f"{mode} {result.name}" for result in group)]
    return "\n".join(lines) + "\n"


def report(library, chosen, passed, results):
    rows = []
    for kernel in (OURS, RIVAL):
        for mode, goal in GOALS.items():
            ran = [result for result in results if (result.kernel, result.mode) == (kernel, mode)]
            if not ran:
                continue
            good = sum(result.error is None for result in ran)
            percent = 100 * good / len(ran)
            verdict = "" if kernel == RIVAL else f"≥ {goal} %: {'met' if percent >= goal else '**missed**'}"
            name = "one cell" if mode == "whole" else "each statement a cell"
            rows.append(f"| {kernel}, {name} | {len(ran)} | {good} | {percent:.1f} % | {verdict} |")
    failures = []
    for (mode, error), group in groups(results):
        names = ", ".join(f"`{result.place}`" for result in group[:NAMES]) + (", …" if len(group) > NAMES else "")
        failures.append(f"| {mode} | {len(group)} | {error.replace('|', chr(92) + '|')} | {names} |")
    seconds = sum(result.seconds for result in results)
    return f"""The documentation of `core`, `alloc` and `std`, as `rust-src` has it, has {len(library.examples):,} examples that are programs for the stable compiler.
Left out are {library.unstable:,} with unstable features, {library.not_run:,} that rustdoc does not run (`no_run`, `compile_fail`, `ignore`), {library.other:,} in other
languages, {library.generated:,} with text that a macro makes, and {library.repeated:,} that repeat another one of their file.
Of {len(chosen):,} examples rustdoc runs {len(passed):,} here, with edition 2024; others are for other platforms or older editions.

Each example runs in a notebook without variables: as one cell, and with each statement in a cell of its own, up to its first error. Lines that
documentation hides are in the cells, and after an example with a function `main` comes `main();`, or `main()?;` if it returns a `Result`. An
example that should panic has run if a cell panics.

| | examples | run | part | goal |
|---|---|---|---|---|
{chr(10).join(rows)}

From the first to the last cell, kernels ran {seconds / 60:.0f} minutes for this.

## Failures

| mode | examples | error | where |
|---|---|---|---|
{chr(10).join(failures)}
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--output", type=pathlib.Path, required=True)
    parser.add_argument("--results", type=pathlib.Path, default=TARGET / "examples.jsonl", help="each result in JSON")
    parser.add_argument("--sample", type=int, default=60, help="how many examples run")
    parser.add_argument("--seed", default="1", help="the sample; a larger one has the examples of a smaller one")
    parser.add_argument("--all", action="store_true", help="all examples run, which takes hours")
    parser.add_argument("--again", action="store_true", help="only those run that failed in the run before, and no page is written")
    parser.add_argument("--known", action="store_true", help=f"all examples run, and {KNOWN.name} gets those that fail")
    parser.add_argument("--mode", choices=GOALS, action="append", help="only whole, or only cut")
    parser.add_argument("--jobs", type=int, default=2, help="how many kernels run at the same time")
    parser.add_argument("--rival", type=pathlib.Path, help="the program evcxr_jupyter, for comparison")
    arguments = parser.parse_args()
    if arguments.known and (arguments.mode or arguments.again):
        parser.error("--known needs all examples and both modes")
    library = rust_examples.library()
    number = len(library.examples) if arguments.all or arguments.known else arguments.sample
    chosen = rust_examples.sample(library.examples, number, arguments.seed)
    if arguments.again:
        before = [json.loads(line) for line in arguments.results.read_text(encoding="utf-8").splitlines()]
        failed = {result["name"] for result in before if result["error"] is not None}
        chosen = [example for example in library.examples if example.name in failed]
    results = []

    def done(result):
        results.append(result)
        with arguments.results.open("a", encoding="utf-8") as lines:
            lines.write(json.dumps(dataclasses.asdict(result)) + "\n")
        say(f"{len(results)} {result.kernel} {result.mode} {result.place}, {result.seconds:.1f} s: {result.error or 'ok'}")

    arguments.results.write_text("")
    kernels = [OURS]
    if arguments.rival:
        register_rival(arguments.rival.resolve())
        kernels.append(RIVAL)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        passed = runs_in_rustdoc(chosen, folder)
        say(f"{len(passed)} of {len(chosen)} examples run in rustdoc")
        examples = [example for example in chosen if example.name in passed]
        for kernel in kernels:
            run_all(folder, kernel, arguments.mode or list(GOALS), examples, arguments.jobs, done)
    page = report(library, chosen, passed, results)
    if not arguments.again:
        arguments.output.write_text(page, encoding="utf-8")
    if arguments.known:
        KNOWN.write_text(known_failures(results), encoding="utf-8")
    say(page)


if __name__ == "__main__":
    sys.exit(main())
