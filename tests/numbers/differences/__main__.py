"""`python -m differences [--mode cpu] [--only PATTERN] [--seed N]`: runs the suite and prints a line of Rust for each difference.

`cargo xtask test` builds the program that it needs, `cargo build --release -p ferrotune-numbers` does, too.
"""

import argparse
import pathlib
import sys

from differences import program, suite
from differences.place import ROOT

REPORT = ROOT / "benchmarks/numbers.md"
MARK = "<!-- tables -->\n"


def main():
    parser = argparse.ArgumentParser(prog="differences", description=__doc__)
    parser.add_argument("--mode", choices=program.MODES, action="append", help="on what to compute; all by default")
    parser.add_argument("--only", default="", help="a pattern of the operations' names")
    parser.add_argument("--seed", type=int, default=suite.seed())
    parser.add_argument("--wide", action="store_true", help="all types and views on the plugin, too")
    parser.add_argument("--differences", type=pathlib.Path, help="a file for the differences, by kind")
    parser.add_argument("--report", action="store_true", help=f"write how many cases there are into {REPORT.name}")
    options = parser.parse_args()
    reports, found = [], {}
    for mode in options.mode or program.MODES:
        report = suite.run(mode, options.only, options.seed, options.wide)
        reports.append(report)
        print(f"{mode}: {report.cases} cases, {len(report.differences)} differ, seed {report.seed}, {report.seconds:.1f} s", flush=True)
        for difference, line in suite.lines(report):
            print(f"  {difference.kind:8} {line}", flush=True)
            found.setdefault((mode, difference.kind), []).append(line)
    if options.differences:
        sections = [f"## {mode}: {kind}\n\n" + "".join(f"* {line}\n" for line in lines) for (mode, kind), lines in sorted(found.items())]
        options.differences.write_text(f"# Differences, seed {options.seed}\n\n" + "\n".join(sections))
    if options.report:
        write_report(reports)
    sys.exit(any(report.differences for report in reports))


def write_report(reports):
    kept = REPORT.read_text().split(MARK)[0]
    rows = "".join(f"| {report.mode} | {report.operations} | {report.cases} | {len(report.differences)} |\n" for report in reports)
    table = f"Seed {reports[0].seed}:\n\n| computed | rows of the table | cases | cases that differ |\n|---|---|---|---|\n"
    REPORT.write_text(kept + MARK + table + rows)


if __name__ == "__main__":
    main()
