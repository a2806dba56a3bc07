"""Every notebook, from its first cell to its last, in a copy of its folder; the first one on both transports, and the others on one of them by turns."""

import os
import pathlib
import re
import statistics
import sys

import nbformat
import pytest

import notebook_run

# Where kernels look for the plugin of XLA:CPU, which comes with the requirements of the tests.
os.environ.setdefault("VIRTUAL_ENV", sys.prefix)

NOTEBOOKS = pathlib.Path(__file__).parent.parent / "notebooks"
PATHS = sorted(NOTEBOOKS.glob("*.ipynb"))
TRANSPORTS = ["tcp", "ipc"]
RUNS = [(PATHS[0], "ipc")] + [(path, TRANSPORTS[place % 2]) for place, path in enumerate(PATHS)]


def outputs(notebook):
    return [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]


@pytest.mark.parametrize("path, transport", RUNS, ids=[f"{path.stem}-{transport}" for path, transport in RUNS])
def test_notebook_runs_to_its_end_without_a_word_of_error(path, transport, tmp_path):
    folder = notebook_run.copy_of(NOTEBOOKS, tmp_path)
    notebook, error = notebook_run.run(folder / path.name, folder, transport)
    assert error is None, error
    for output in outputs(notebook):
        assert output.output_type != "error", output
        assert output.get("name") != "stderr", output.text
    CHECKS[path.stem](notebook, folder)


def check_quickstart(notebook, folder):
    (best,) = notebook_run.cell_of(notebook, "%best").outputs
    header, row, *_ = best.data["text/plain"].splitlines()
    assert header.split()[:2] == ["trial", "val_accuracy"], header
    assert 0.95 < float(row.split()[1]) <= 1.0, row

    (trials,) = notebook_run.cell_of(notebook, "%trials").outputs
    assert len(trials.data["text/plain"].splitlines()) == 1 + 20
    assert "text/html" in trials.data

    displays = [output for output in notebook_run.cell_of(notebook, "%%tune").outputs if "data" in output]
    assert len(displays) == 1, "progress is one display that is updated"
    assert "20/20 trials" in displays[0].data["text/plain"]
    assert (folder / "studies/digits/journal.log").is_file()
    assert (folder / "digits.safetensors").is_file()
    loaded, searched = re.search(r"accuracy ([\d.]+), ([\d.]+) in the search", printed(notebook, "let loaded")).groups()
    assert loaded == searched


def check_search(notebook, folder):
    for project in ("by-chance", "by-tpe", "by-auto", "by-hyperband"):
        assert (folder / "studies" / project / "journal.log").is_file()
    (space,) = notebook_run.cell_of(notebook, "%space").outputs
    (decay,) = [row for row in space.data["text/plain"].splitlines() if row.startswith("decay")]
    assert "optimizer" in decay, decay
    for kind in ("history", "intermediate", "importance", "slice"):
        (plot,) = notebook_run.cell_of(notebook, f"%plot {kind}").outputs
        assert {"application/vnd.vegalite.v5+json", "image/svg+xml", "text/plain"} <= set(plot.data)
    assert len((folder / "by-auto.csv").read_text().splitlines()) == 1 + 24


def check_many_objectives(notebook, folder):
    (best,) = notebook_run.cell_of(notebook, "%best").outputs
    header, *rows = best.data["text/plain"].split("\n\n")[0].splitlines()
    assert header.split()[:3] == ["trial", "val_accuracy", "weights"], header
    front = sorted((float(row.split()[2]), float(row.split()[1])) for row in rows)
    assert len(front) >= 2
    # In the front a larger model is also a better one.
    assert [accuracy for _, accuracy in front] == sorted(accuracy for _, accuracy in front)
    assert all(size <= 20000 for size, _ in front)


def printed(notebook, source):
    """What the cell that has `source` printed."""
    return "".join(output.text for output in notebook_run.cell_of(notebook, source).outputs if output.get("name") == "stdout")


def check_data(notebook, folder):
    assert len(list((folder / "digits").glob("*/*.pgm"))) == 600
    assert (folder / "digits.cache").is_file()
    accuracies = [float(line.split()[-1]) for line in printed(notebook, "let held_out").splitlines()]
    assert len(accuracies) == 6 and accuracies[-1] > 0.6, accuracies
    first, second, chart = notebook_run.cell_of(notebook, "%%profile").outputs
    assert [re.search(r"\d+ steps", loop.data["text/plain"])[0] for loop in (first, second)] == ["14 steps"] * 2
    assert "application/vnd.vegalite.v5+json" in chart.data
    (best,) = notebook_run.cell_of(notebook, "%best").outputs
    assert float(best.data["text/plain"].splitlines()[1].split()[1]) > 0.5, best


def check_tpu(notebook, folder):
    lazy, compiled = re.findall(r"loss ([\d.]+), ([\d.]+) ms", printed(notebook, "%env FERROTUNE_CHECK_INDEXES"))
    assert float(lazy[0]) < 0.5 and float(compiled[0]) < 0.5
    for source in ("struct Cnn", "struct Transformer"):
        first, last = map(float, re.search(r"mean loss ([\d.]+) in the first epoch, ([\d.]+)", printed(notebook, source)).groups())
        assert last < first / 2, (source, first, last)
    assert "a compiled step reads a value that it computes" in printed(notebook, "let mut choosing")
    (absolute,) = notebook_run.cell_of(notebook, "let mut absolute").outputs
    assert absolute.data["text/plain"] == "[2.0, 3.0, 4.0]"
    (report,) = notebook_run.cell_of(notebook, "%device --report").outputs
    assert report.data["text/plain"].startswith("connected to xla:cpu\nprograms compiled: "), report


def check_tables(notebook, folder):
    (found,) = notebook_run.cell_of(notebook, "use ferrotune").outputs
    kinds = {row.split()[0]: row.split()[1] for row in found.data["text/plain"].splitlines()[2:]}
    assert kinds == {"city": "category", "rooms": "number", "area": "number", "garden": "yes/no", "built": "date", "price": "target,"}
    (best,) = notebook_run.cell_of(notebook, "%best").outputs
    assert float(best.data["text/plain"].splitlines()[1].split()[1]) < 20, best
    price, error = map(float, re.search(r"Oslo: (\d+), with a mean error of (\d+)", printed(notebook, "let best")).groups())
    # 60 + 180 for Oslo, 2 for each of about 102 square metres, 35 for the garden, 39 for the year, and 15 on average.
    assert abs(price - 533) < 60 and error < 20
    assert (folder / "houses.safetensors.json").is_file()
    exported = {"trial.json", "model.safetensors", "model.safetensors.json", "prep.json"}
    assert {path.name for path in (folder / "houses").iterdir()} == exported


def check_custom(notebook, folder):
    (summary,) = notebook_run.cell_of(notebook, "struct Reader").outputs
    assert summary.data["text/plain"].splitlines()[-2].split() == ["trainable", "6026"], summary
    histories = []
    for source in ("fn training", "let model = reader(32"):
        (history,) = [output for output in notebook_run.cell_of(notebook, source).outputs if output.output_type == "execute_result"]
        # The loss, the accuracy and the notebook's own metric, each of both data.
        assert history.data["text/html"].count("<polyline") == 6, history.data["text/html"]
        header, *rows, sentence = history.data["text/plain"].splitlines()
        assert header.split() == ["epoch", "accuracy", "loss", "sure", "val_accuracy", "val_loss", "val_sure"], header
        # One epoch may be an outlier.
        histories.append((statistics.median(float(row.split()[4]) for row in rows[-5:]), sentence))
    (by_heart, ended), (robust, to_the_end) = histories
    assert re.fullmatch(r"(?!40)\d+ epochs, stopped early", ended) and to_the_end == "40 epochs", histories
    assert by_heart < 0.87 < 0.89 < robust, histories
    (trials,) = notebook_run.cell_of(notebook, "%trials").outputs
    assert trials.data["text/plain"].count("finished") == 4, trials
    (measured,) = notebook_run.cell_of(notebook, "let best").outputs
    measured = {row.split()[0].strip('"'): float(row.split()[1]) for row in measured.data["text/plain"].splitlines()[1:]}
    best = max(float(row.split()[1]) for row in trials.data["text/plain"].splitlines()[1:])
    # The table of trials has six digits.
    assert abs(measured["accuracy"] - best) < 1e-5 and 0.94 < measured["accuracy"] <= measured["sure"] <= 1, (measured, best)


CHECKS = {
    "01_quickstart": check_quickstart,
    "02_search": check_search,
    "03_many_objectives": check_many_objectives,
    "04_data": check_data,
    "05_tpu": check_tpu,
    "06_tables": check_tables,
    "07_custom": check_custom,
}


def test_every_notebook_has_its_checks():
    assert [path.stem for path in PATHS] == sorted(CHECKS)


def test_what_is_the_users_own_is_compiled_with_another_device_line_alone(tmp_path):
    folder = notebook_run.copy_of(NOTEBOOKS, tmp_path)
    path = folder / "07_custom.ipynb"
    notebook = nbformat.read(path, as_version=4)
    notebook_run.cell_of(notebook, "%tpu_connect").source += " --plugin cpu"
    notebook.cells.append(nbformat.v4.new_code_cell("%device --report"))
    nbformat.write(notebook, path)
    notebook, error = notebook_run.run(path, folder)
    assert error is None, error
    # The loss takes the label's probability by its index, which a compiled step does not check.
    said = [line for output in outputs(notebook) if output.get("name") == "stderr" for line in output.text.splitlines() if line]
    assert all(line.startswith("ferrotune: this compiled step does not check its indexes") for line in said) and len(said) <= 1, said
    check_custom(notebook, folder)
    assert notebook_run.text_of(notebook_run.cell_of(notebook, "%tpu_connect").outputs[-1]) == "connected to xla:cpu: chosen by --plugin"
    report = notebook_run.text_of(notebook_run.cell_of(notebook, "%device --report").outputs[0]).splitlines()
    assert report[0] == "connected to xla:cpu", report
    # About 65 epochs of 45 batches each: what a program has measured is read once in each epoch.
    reads = [int(re.search(r", (\d+) times,", line)[1]) for line in report if line.startswith("copied to the host")]
    assert reads and max(reads) < 100, report
