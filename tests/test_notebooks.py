"""Every notebook, from its first cell to its last, on both transports and in a copy of its folder."""

import pathlib

import pytest

import notebook_run

NOTEBOOKS = pathlib.Path(__file__).parent.parent / "notebooks"
PATHS = sorted(NOTEBOOKS.glob("*.ipynb"))


def outputs(notebook):
    return [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]


@pytest.mark.parametrize("transport", ["tcp", "ipc"])
@pytest.mark.parametrize("path", PATHS, ids=[path.stem for path in PATHS])
def test_notebook_runs_to_its_end_without_a_word_of_error(path, transport, tmp_path):
    folder = notebook_run.copy_of(NOTEBOOKS, tmp_path)
    notebook, error = notebook_run.run(folder / path.name, folder, transport)
    assert error is None, error
    for output in outputs(notebook):
        assert output.output_type != "error", output
        assert output.get("name") != "stderr", output.text
    if path.stem == "01_quickstart":
        check_quickstart(notebook, folder)


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


def test_there_is_a_quickstart():
    assert "01_quickstart" in [path.stem for path in PATHS]
