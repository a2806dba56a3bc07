"""`python -m differences [--mode cpu] [--only PATTERN] [--seed N]`: runs the suite and prints a line of Rust for each difference.

`cargo xtask test` builds the program that it needs, `cargo build --release -p ferrotune-numbers` does, too.
"""

import argparse
import pathlib
import sys

from differences import program, suite


def main():
    parser = argparse.ArgumentParser(prog="differences", description=__doc__)
    parser.add_argument("--mode", choices=program.MODES, action="append", help="on what to compute; all by default")
    parser.add_argument("--only", default="", help="a pattern of the operations' names")
    parser.add_argument("--seed", type=int, default=suite.seed())
    parser.add_argument("--wide", action="store_true", help="all types and views on the plugin, too")
    parser.add_argument("--differences", type=pathlib.Path, help="a file for the differences, by kind")
    parser.add_argument("--output", type=pathlib.Path, help="a file for the number of cases; `cargo xtask bench numbers` writes it into its page")
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
    if options.output:
        options.output.write_text(table(reports), encoding="utf-8")
    else:
        sys.exit(any(report.differences for report in reports))


def table(reports):
    rows = "".join(f"| {report.mode} | {report.operations} | {report.cases} | {len(report.differences)} |\n" for report in reports)
    return f"Seed {reports[0].seed}:\n\n| computed | rows of the table | cases | cases that differ |\n|---|---|---|---|\n{rows}"


if __name__ == "__main__":
    main()
