"""The magics that a user of IPython expects: timing, variables, files, and help in the pager."""

import json
import os
import re
import stat

import pytest

TIMES = re.compile(
    r"[\d.]+ (ns|µs|ms|s) ± [\d.]+ (ns|µs|ms|s) per loop "
    r"\(mean ± std\. dev\. of (\d+) runs?, ([\d,]+) loops? each; best [\d.]+ (ns|µs|ms|s)\)"
)
SECONDS = {"ns": 1e-9, "µs": 1e-6, "ms": 1e-3, "s": 1.0}


@pytest.fixture(scope="module")
def notebook(kernel):
    """A notebook with variables of several types."""
    kernel.ok(
        "use candle_core::{DType, Device, Tensor};\n"
        "struct Opaque(u64);\n"
        "let weights = Tensor::zeros((2, 3), DType::F32, &Device::Cpu)?;\n"
        "let numbers: Vec<f64> = (0..1000).map(f64::from).collect();\n"
        'let title = String::from("digits");\n'
        "let opaque = Opaque(7);\n"
        "let several = vec![Opaque(1), Opaque(2)];\n"
        "let mut count = 0_u64;"
    )
    return kernel


def mean_s(shown):
    number, unit = shown.split()[:2]
    return float(number) * SECONDS[unit]


def test_a_statement_is_timed_many_times_and_borrows_the_variables(notebook):
    shown = notebook.ok("%timeit numbers.iter().sum::<f64>()").display
    _, _, runs, loops, _ = TIMES.fullmatch(shown).groups()
    assert runs == "7" and int(loops.replace(",", "")) >= 1000, shown
    # The sum of a thousand numbers is neither left out nor moved out of the loop.
    assert 50e-9 < mean_s(shown) < 1e-3, shown
    assert notebook.ok("numbers.len()").result == "1000"


def test_a_time_is_that_of_one_run_and_counts_are_kept_to(notebook):
    sleep = "std::thread::sleep(std::time::Duration::from_millis(20))"
    shown = notebook.ok(f"%timeit -n2 -r 3 {sleep}").display
    assert TIMES.fullmatch(shown).groups()[2:4] == ("3", "2"), shown
    assert 0.02 <= mean_s(shown) < 0.04, shown
    notebook.ok("count = 0;")
    notebook.ok("%timeit -n 5 -r 2 count += 1;")
    # The first run warms up.
    assert notebook.ok("count").result == "11"


def test_a_cell_is_timed_without_its_setup(notebook):
    cell = "%%timeit -n 1 -r 2 std::thread::sleep(std::time::Duration::from_millis(300)); let mut copy = numbers.clone()\n"
    shown = notebook.ok(cell + "copy.reverse();\ncopy.len()").display
    assert TIMES.fullmatch(shown) and mean_s(shown) < 0.1, shown
    assert "copy" not in notebook.ok("%who").display


def test_errors_of_timed_rust_are_those_of_its_line(notebook):
    assert notebook.run("let a = 1;\n%timeit -r 2 nombers.len()").error.endswith("(line 2, column 14)")
    assert notebook.run("%%timeit\n1;\nnombers").error.endswith("(line 3, column 1)")
    assert notebook.fails("%timeit \"x\".parse::<u8>()?").error == "Error: invalid digit found in string (line 1 of the cell)"
    assert notebook.fails("%timeit -n 3 panic!(\"stop\")").error.startswith("Panic: stop")
    assert "cannot move out of `title`" in notebook.run("%timeit drop(title)").error
    assert notebook.run("%timeit -n 0 1").error.startswith("MagicError: -n 0: give at least 1; usage: ")
    assert notebook.run("%timeit --runs 1").error.startswith("MagicError: unknown option --runs; ")
    assert notebook.run("%timeit").error.startswith("MagicError: %timeit has nothing to run; usage: ")


def test_a_measurement_is_interrupted_and_the_variables_stay(notebook):
    sleep = 'println!("asleep"); std::thread::sleep(std::time::Duration::from_millis(200));'
    outcome = notebook.interrupt(f"%timeit -n 100 {sleep}")
    assert outcome.error == "Interrupted: the measurement was interrupted; no variable is lost"
    assert outcome.seconds < 5
    assert notebook.ok("title").result == '"digits"'


def test_variables_are_listed_with_sizes_and_values(notebook):
    assert {"numbers", "title", "weights"} <= set(notebook.ok("%who").display.split())
    assert notebook.ok("%who Tensor").display == "weights"
    assert notebook.ok("%who Nothing").display == "no variable has Nothing in its type"
    rows = dict(line.split(maxsplit=1) for line in notebook.ok("%whos").display.splitlines())
    assert rows["variable"].split() == ["type", "size", "value"]
    assert "[2, 3] F32 on cpu" in rows["weights"]
    assert "7.8 KiB" in rows["numbers"] and "1000 elements: [0.0, 1.0, 2.0," in rows["numbers"]
    assert rows["numbers"].endswith("…")
    assert rows["title"].split() == ["String", "30", "B", '"digits"']
    assert rows["opaque"].split() == ["Opaque", "8", "B"]
    assert rows["several"].split() == ["Vec<Opaque>", "40", "B", "2", "elements"]


def test_a_look_at_the_variables_is_not_undone(notebook):
    notebook.ok("let later = 1;")
    notebook.ok("%whos")
    notebook.ok("%undo")
    assert "later" not in notebook.ok("%who").display


def test_a_cell_is_written_to_a_file(notebook):
    file = notebook.folder / "model.rs"
    text = "// %not a magic\nfn f() {\n    \"é\"\n\n}\n"
    assert notebook.ok(f"%%writefile model.rs\n{text}").display == "Writing model.rs"
    assert file.read_text() == text
    umask = os.umask(0)
    os.umask(umask)
    assert stat.S_IMODE(file.stat().st_mode) == 0o666 & ~umask
    file.chmod(0o640)
    assert notebook.ok("%%writefile model.rs\nshort").display == "Overwriting model.rs"
    assert (file.read_text(), stat.S_IMODE(file.stat().st_mode)) == ("short", 0o640)
    assert notebook.ok('%%writefile -a "model.rs"\n\nmore\n').display == "Appending to model.rs"
    assert file.read_text() == "short\nmore\n"
    assert sorted(path.name for path in notebook.folder.iterdir()) == ["model.rs"]
    outcome = notebook.run("%%writefile missing/model.rs\n1")
    assert outcome.error == "MagicError: cannot write missing/model.rs: there is no folder missing; make it first"
    assert notebook.run("%%writefile .\n1").error == "MagicError: . is a folder; name a file in it"
    assert notebook.run("%%writefile\n1").error.startswith("MagicError: %%writefile needs PATH of the file; usage: ")
    assert notebook.run("%writefile model.rs").error.startswith("MagicError: %writefile is a cell magic: ")


def test_a_file_is_loaded_into_the_cell(notebook):
    (notebook.folder / "part.rs").write_text("one\ntwo\nthree\n")

    def loaded(cell):
        (payload,) = notebook.ok(cell).payload
        assert (payload["source"], payload["replace"]) == ("set_next_input", True)
        return payload["text"]

    assert loaded("%load part.rs") == "// %load part.rs\none\ntwo\nthree\n"
    assert loaded("%load part.rs -r 2-") == "// %load part.rs\ntwo\nthree\n"
    assert loaded("%load -r 2 part.rs") == "// %load part.rs\ntwo\n"
    assert notebook.run("%load part.rs -r 9").error == "MagicError: part.rs has 3 lines, and line 9 is not one of them"
    assert notebook.run("%load none.rs").error.startswith("MagicError: cannot read none.rs: No such file")
    assert notebook.run("%load part.rs -r 3-2").error.startswith("MagicError: -r 3-2: the last number is below the first")


def test_text_is_shown_as_what_it_is(notebook):
    for magic, mime_type in [("html", "text/html"), ("markdown", "text/markdown"), ("latex", "text/latex")]:
        shown = []
        notebook.run(f"%%{magic}\n<b>% bold</b>", lambda message: shown.append(message["content"].get("data", {})))
        assert {mime_type: "<b>% bold</b>", "text/plain": "<b>% bold</b>"} in shown


def test_help_of_a_magic_is_shown_in_the_pager(notebook):
    outcome = notebook.ok("%timeit?")
    (payload,) = outcome.payload
    assert payload["source"] == "page" and outcome.displays == []
    assert payload["data"]["text/plain"].startswith("%timeit [-n N] [-r N] STATEMENT")
    assert notebook.ok("%lsmagic timeit").display == payload["data"]["text/plain"]


def write_notebook(path, cells, language="rust"):
    cells = [{"cell_type": kind, "source": source, "metadata": {}} for kind, source in cells]
    path.write_text(json.dumps({"cells": cells, "metadata": {"kernelspec": {"language": language}}, "nbformat": 4}))


def test_a_notebook_runs_as_if_typed_and_stops_at_its_first_error(notebook):
    cells = [
        ("markdown", "# Data"),
        ("code", ["let shift = 3_u64;\n", "fn shifted(x: u64) -> u64 {\n", "    x + 3\n", "}"]),
        ("code", "%who u64\nshifted(shift)"),
    ]
    write_notebook(notebook.folder / "prepare.ipynb", cells)
    outcome = notebook.ok("%run prepare.ipynb")
    assert outcome.result == "6" and "shift" in outcome.display.split()
    assert notebook.ok("shifted(shift)").result == "6"
    assert notebook.ok("%load prepare.ipynb").payload[0]["text"].endswith("}\n\n%who u64\nshifted(shift)")
    notebook.ok("%undo 2")
    assert "shift" not in notebook.ok("%who").display.split()

    cells = [("code", "let first = 1;"), ("markdown", "text"), ("code", "1;\nfirst + missing"), ("code", "let last = 1;")]
    write_notebook(notebook.folder / "broken.ipynb", cells)
    outcome = notebook.run("%run broken.ipynb")
    assert outcome.error.startswith("CompilationError: cell 3 of broken.ipynb: error[E0425]: cannot find value `missing`")
    assert "(line 2, column 9)" in outcome.error
    names = notebook.ok("%who").display.split()
    assert "first" in names and "last" not in names

    write_notebook(notebook.folder / "other.ipynb", [("code", "print(1)")], "python")
    error = notebook.run("%run other.ipynb").error
    assert error == "MagicError: other.ipynb is a notebook in python, and only Rust can be run"
    write_notebook(notebook.folder / "itself.ipynb", [("code", "%run itself.ipynb")])
    error = notebook.run("%run itself.ipynb").error
    assert error == "MagicError: cell 1 of itself.ipynb: itself.ipynb runs itself with %run"
    assert notebook.run("%run none.ipynb").error.startswith("MagicError: cannot read none.ipynb: No such file")


def test_a_file_of_rust_is_run_and_its_main_called(notebook):
    program = "fn greeting() -> &'static str { \"hello\" }\nfn main() -> Result<(), std::fmt::Error> {\n    println!(\"{}\", greeting());\n    Ok(())\n}\n"
    (notebook.folder / "program.rs").write_text(program)
    assert notebook.ok("%run program.rs").stdout == "hello\n"
    assert notebook.ok("greeting()").result == '"hello"'
    (notebook.folder / "program.rs").write_text("fn one() {}\nlet x: u8 = 1u16;")
    assert notebook.run("%run program.rs").error.startswith("CompilationError: program.rs: error[E0308]")


def test_history_has_the_cells_of_this_session(start):
    kernel = start()
    kernel.ok("let a = 1;")
    kernel.ok("fn f() -> i32 {\n    2\n}")
    kernel.run("missing")
    assert kernel.ok("%history 1-3").display == "let a = 1;\nfn f() -> i32 {\n    2\n}\nmissing"
    assert kernel.ok("%history 1-2 -n").display == "   1: let a = 1;\n   2: fn f() -> i32 {\n          2\n      }"
    assert kernel.ok("%history 5-").display.splitlines() == ["%history 1-2 -n", "%history 5-"]
    assert kernel.ok("%history 1-2 -f cells.rs").display == "Writing cells.rs"
    assert (kernel.folder / "cells.rs").read_text() == "let a = 1;\n\nfn f() -> i32 {\n    2\n}\n"
    assert kernel.run("%history -f cells.rs").error == "MagicError: cells.rs exists; delete it, or name another file"
    assert kernel.run("%history 900").error.startswith("MagicError: no cell of this session has such a number")
    assert kernel.ok("%reset -f").display.startswith("all variables, definitions and crates are forgotten")
    assert kernel.ok("%who").display == "there are no variables"
    kernel.ok("%undo")
    assert kernel.ok("a + f()").result == "3"


def page(outcome):
    (payload,) = outcome.payload
    assert payload["source"] == "page" and outcome.displays == [] and outcome.result is None
    return payload["data"]["text/plain"]


def test_a_question_mark_shows_documentation_or_source(notebook):
    item = "/// Adds the bonus.\nfn with_bonus(points: u64) -> u64 {\n    points + 5\n}"
    notebook.ok(f"#[derive(Debug)]\nstruct Score {{ points: u64 }}\n{item}")
    notebook.ok('impl Score {\n    fn total(&self) -> u64 {\n        self.points\n    }\n}\nlet maybe = "7".parse::<u64>();')
    shown = page(notebook.ok("with_bonus?"))
    assert shown.startswith("fn with_bonus(points: u64) -> u64\n") and shown.endswith("Adds the bonus.")
    assert "A contiguous growable array type" in page(notebook.ok("?Vec"))
    assert page(notebook.ok("with_bonus??")) == item
    source = page(notebook.ok("??Score"))
    assert source.startswith("#[derive(Debug)]\nstruct Score { points: u64 }") and "fn total(&self)" in source
    assert "A contiguous growable array type" in page(notebook.ok("Vec??"))
    # Rust's own question mark.
    assert notebook.ok("maybe?").result == "7"
    assert "A contiguous growable array type" in notebook.ok("%doc Vec").display
    assert notebook.run("nothing_of_this_name?").error.startswith("MagicError: nothing is known of nothing_of_this_name; ")


def test_the_optimisation_level_is_chosen(notebook):
    assert notebook.ok("%opt 0").result == "Optimization: 0"
    assert notebook.ok("%opt 2").result == "Optimization: 2"
    assert notebook.run("%opt 4").error.startswith("MagicError: LEVEL 4: choose 0, 1, 2 or 3; usage: ")


def test_folder_and_environment_hold_for_cells_trials_and_after_a_crash(start, tmp_path):
    kernel = start()
    (tmp_path / "data").mkdir()
    folder = "std::env::current_dir()?.display().to_string()"
    value = 'std::env::var("FT_MODE").ok()'
    kernel.ok("let kept = 1;")
    kernel.ok("%checkpoint early")
    assert kernel.ok("%cd data").display == str(tmp_path / "data")
    assert kernel.ok("%env FT_MODE=\"fast and small\"").display == "FT_MODE=fast and small"
    assert kernel.ok(f"({folder}, {value})").result == f'("{tmp_path}/data", Some("fast and small"))'
    assert kernel.ok('env!("FT_MODE")').result == '"fast and small"'
    assert kernel.ok("%env FT_MODE").display == "fast and small"
    assert kernel.ok("%%writefile here.txt\n1").display == "Writing here.txt" and (tmp_path / "data/here.txt").exists()

    # Trials and their study.
    kernel.ok(
        "%%tune --objective loss:min --max-trials 1 --project p\n|trial| {\n"
        '    trial.float("x", 0.0..=1.0).get()?;\n'
        f'    std::fs::write("trial.txt", format!("{{}} {{:?}}", {folder}, {value})).map_err(|e| e.to_string())?;\n'
        "    Ok(1.0)\n}"
    )
    assert (tmp_path / "data/studies/p").is_dir()
    (written,) = list((tmp_path / "data").rglob("trial.txt"))
    assert written.read_text().endswith('Some("fast and small")')

    # A crash, with and without variables that come back, and going back.
    assert "CellDied" in kernel.fails("std::process::abort();").error
    assert kernel.ok(f"({folder}, {value}, kept)").result == f'("{tmp_path}/data", Some("fast and small"), 1)'
    kernel.ok("%restore early")
    assert kernel.ok(f"({folder}, {value})").result == f'("{tmp_path}/data", Some("fast and small"))'
    kernel.ok(":clear")
    assert kernel.ok('!echo "$FT_MODE"').stdout == "fast and small\n"
    assert kernel.ok(f"({folder}, {value})").result == f'("{tmp_path}/data", Some("fast and small"))'
    assert kernel.ok("%trials").display.splitlines()[0].split()[0] == "trial"

    assert kernel.ok("%cd -").display == str(tmp_path)
    assert kernel.ok("%cd -").display == str(tmp_path / "data")
    assert kernel.ok("%cd ..").display == str(tmp_path)
    assert kernel.run("%cd missing").error == "MagicError: cannot go to missing: No such file or directory (os error 2)"
    assert kernel.run("%cd data/here.txt").error == "MagicError: data/here.txt is a file; name a folder"
    assert kernel.ok(folder).result == f'"{tmp_path}"'
    kernel.ok("%env FT_API_KEY abc")
    lines = kernel.ok("%env").display.splitlines()
    assert "FT_API_KEY=<hidden>" in lines and "FT_MODE=fast and small" in lines
    assert kernel.run("%env FT_NONE").error.endswith("no environment variable FT_NONE is set; %env FT_NONE=VALUE sets it")
    assert kernel.run("%env FT-NONE=1").error.startswith("MagicError: NAME FT-NONE: a name has letters, digits and _")


def vendored(folder, name, version, text):
    crate = folder / f"{name}-{version}"
    (crate / "src").mkdir(parents=True)
    features = "[features]\ndefault = []\nloud = []\n"
    (crate / "Cargo.toml").write_text(
        f'[package]\nname = "{name}"\nversion = "{version}"\nedition = "2021"\n{features}'
    )
    (crate / "src/lib.rs").write_text(f'pub fn version() -> String {{ format!("{text}{{}}", cfg!(feature = "loud")) }}')
    (crate / ".cargo-checksum.json").write_text('{"files": {}, "package": null}')


def test_a_crate_is_added_in_its_newest_version(start, tmp_path, monkeypatch):
    crates = tmp_path / "crates"
    for version in ["1.2.0", "1.10.3", "0.9.0"]:
        vendored(crates, "bell-tower", version, version)
    home = tmp_path / "cargo"
    home.mkdir()
    (home / "config.toml").write_text(
        f'[source.crates-io]\nreplace-with = "own"\n[source.own]\ndirectory = "{crates}"\n'
    )
    monkeypatch.setenv("CARGO_HOME", str(home))
    kernel = start()
    outcome = kernel.ok("%dep bell-tower --features loud")
    assert outcome.displays[0] == ':dep bell-tower = { version = "1.10.3", features = ["loud"] }'
    assert kernel.ok("bell_tower::version()").result == '"1.10.3true"'
    assert kernel.fails("%dep bell-towers").error.startswith("MagicError: cargo cannot add the crate: ")
    assert kernel.run("%dep ../x").error.startswith("MagicError: NAME ../x: write the crate's name, as in ")
