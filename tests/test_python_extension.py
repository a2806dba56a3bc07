"""`%load_ext ferrotune` in real Python notebooks: `%%rust`, Ferrotune's magics, and arrays that travel. `cargo xtask test` runs this
with the newest IPython and with Colab's."""

import os
import pathlib
import re
import signal

import nbformat
import pytest
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

from session import Session, descendants, is_alive, wait_for

PACKAGE = pathlib.Path(__file__).parent.parent / "python"
TIMEOUT_S = 300


def environment():
    return {**os.environ, "PYTHONPATH": str(PACKAGE)}


def run_notebook(folder, *cells):
    """The outputs of each cell but the first one, which loads the extension."""
    sources = ["%load_ext ferrotune", *cells]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in sources])
    client = NotebookClient(notebook, timeout=TIMEOUT_S, kernel_name="python3", resources={"metadata": {"path": str(folder)}})
    client.execute(env=environment())
    return [cell.outputs for cell in notebook.cells[1:]]


@pytest.fixture(scope="module")
def python(tmp_path_factory):
    """A Python kernel with the extension."""
    session = Session(tmp_path_factory.mktemp("python"), kernel="python3", env=environment())
    session.ok("%load_ext ferrotune")
    yield session
    session.close()


@pytest.fixture
def fresh(tmp_path):
    """A Python kernel with the extension that only one test uses."""
    session = Session(tmp_path, kernel="python3", env=environment())
    session.ok("%load_ext ferrotune")
    yield session
    session.close()


def value(session, expression):
    return session.ok(f"print({expression})").stdout.strip()


def rust_pid(session):
    return int(value(session, "__import__('ferrotune')._extension._companion._manager.provisioner.process.pid"))


def test_a_rust_cell_shows_its_outputs_in_order_and_its_value(tmp_path):
    outputs, line = run_notebook(
        tmp_path,
        '%%rust\nlet a = 20;\nprintln!("one");\neprintln!("two");\nprintln!("three");\na + 22',
        "%rust a * 2",
    )
    # Front ends show the two streams each on its own.
    texts = {name: "".join(it.text for it in outputs if it.get("name") == name) for name in ("stdout", "stderr")}
    assert texts == {"stdout": "one\nthree\n", "stderr": "two\n"}
    assert (outputs[-1].output_type, outputs[-1].data["text/plain"]) == ("execute_result", "42")
    assert [it.data["text/plain"] for it in line] == ["40"]


def test_an_error_has_the_lines_of_the_notebooks_cell_and_stops_the_notebook(tmp_path):
    with pytest.raises(CellExecutionError) as failed:
        run_notebook(tmp_path, '%%rust\nlet b = 1;\nlet c: i32 = "x";', "%rust never")
    text = re.sub(r"\x1b\[[0-9;]*m", "", failed.value.traceback)
    assert failed.value.ename == "RustError"
    assert text.count("mismatched types") == 1 and "Traceback" not in text
    assert '   3 | let c: i32 = "x";' in text


def test_a_display_changes_in_place(tmp_path):
    (outputs,) = run_notebook(
        tmp_path,
        "%%rust\nlet mut steps = ferrotune::progress(0..3);\nwhile let Some(_) = steps.next() { }",
    )
    assert len(outputs) == 1 and "3/3" in outputs[0].data["text/plain"], outputs


def test_a_search_and_its_magics_work_as_in_a_rust_notebook(tmp_path):
    search, trials, best, undone = run_notebook(
        tmp_path,
        '%%tune --project p --max-trials 3 --oracle random --objective loss:min\n|trial| {\nlet x = trial.float("x", 0.0..=1.0).get()?;\nOk(x)\n}',
        "%trials",
        "%best",
        "%undo",
    )
    assert "3/3 trials" in search[-1].data["text/plain"]
    assert "finished" in trials[0].data["text/plain"]
    assert "let x: f64 =" in best[0].data["text/plain"]
    assert "undone" in undone[0].data["text/plain"]


def test_magics_of_ipython_stay_and_all_others_have_their_help(python):
    shown = python.ok("%tune?").payload[0]["data"]["text/plain"]
    assert "--max-trials" in shown
    assert "ferrotune" not in value(python, "get_ipython().magics_manager.magics['line']['time'].__module__")
    assert "-i NAME" in python.ok("%%rust?").payload[0]["data"]["text/plain"]
    python.ok("%rust let counted = 1;")
    assert "counted" in python.ok("%%rust\n%who").display


def test_braces_and_dollars_are_rusts(python):
    python.ok("x = 1")
    assert python.ok('%rust format!("{}", "$x")').result == '"$x"'


def test_an_interrupt_stops_the_rust_cell_and_keeps_its_variables(python):
    python.ok("%rust let kept = 5;")
    for _ in range(2):
        asked = []

        def watch(message):
            if not asked and message["msg_type"] == "stream":
                asked.append(1)
                python.manager.interrupt_kernel()

        outcome = python.run('%%rust\nprintln!("asleep");\nferrotune::sleep(std::time::Duration::from_secs(200))?;', watch)
        assert outcome.error == "RustError: Error: the cell was interrupted (line 3 of the cell)", outcome
        assert outcome.seconds < 60
    assert python.ok("%rust kept").result == "5"


def test_no_process_outlives_a_killed_python(tmp_path):
    session = Session(tmp_path, kernel="python3", env=environment())
    try:
        session.ok("%load_ext ferrotune")
        session.ok("%rust 1")
        kernel = rust_pid(session)
        processes = [kernel, *descendants(kernel)]
        assert len(processes) > 2
        os.kill(session.manager.provisioner.process.pid, signal.SIGKILL)
        for process in processes:
            wait_for(lambda: not is_alive(process), f"end of process {process}")
    finally:
        session.close()


def test_a_dead_kernel_is_named_with_its_cure(fresh):
    fresh.ok("%rust let a = 1;")
    os.kill(rust_pid(fresh), signal.SIGKILL)
    wait_for(lambda: not is_alive(rust_pid(fresh)), "end of the kernel")
    error = fresh.run("%rust a").error
    assert error == "FerrotuneError: the Rust kernel has ended; `%rust --restart` starts another one, without variables"
    fresh.ok("%rust --restart")
    assert fresh.ok("%rust 1 + 1").result == "2"
    assert "cannot find value" in fresh.run("%rust a").error


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("-i x -o 'y", "%%rust -i x -o 'y: No closing quotation; a quote needs its end"),
        ("-i type", "%%rust -i type: `type` cannot be a variable of Rust; give it another name in Python"),
        ("-o", "%%rust -o needs the name of a variable, as in -o x"),
        ("--in x", "%%rust has no option --in; it has -i NAME and -o NAME"),
    ],
)
def test_options_that_cannot_be_are_named(python, line, error):
    assert python.run(f"%%rust {line}\n1").error == f"FerrotuneError: {error}"


def test_an_interrupt_of_the_start_leaves_no_kernel(fresh):
    pid = fresh.manager.provisioner.process.pid
    outcome = fresh.interrupt_when("%rust 1", lambda: descendants(pid), "process of the Rust kernel")
    assert outcome.error.startswith("KeyboardInterrupt"), outcome
    wait_for(lambda: not descendants(pid), "end of the kernel")
    assert fresh.ok("%rust 1 + 1").result == "2"


def test_a_message_that_cannot_be_sent_fails_alone(fresh):
    fresh.ok("%rust let kept = 7;")
    fresh.ok("import ferrotune\nferrotune._extension._companion.send('comm_msg', {'comm_id': 'x', 'data': object()})")
    assert fresh.ok("%rust kept").result == "7"


def test_the_package_has_the_programs_version():
    manifest = (PACKAGE.parent / "Cargo.toml").read_text()
    version = re.search(r'^version = "(.*)"$', manifest, re.MULTILINE).group(1)
    assert f'__version__ = "{version}"\n' in (PACKAGE / "ferrotune/__init__.py").read_text()


def test_unloading_ends_the_kernel(fresh):
    fresh.ok("%rust 1")
    pid = rust_pid(fresh)
    fresh.ok("%unload_ext ferrotune")
    wait_for(lambda: not is_alive(pid), "end of the kernel")
    assert value(fresh, "'rust' in get_ipython().magics_manager.magics['line']") == "False"


def test_load_fills_the_cell_with_rust(python):
    (pathlib.Path(python.folder) / "lines.rs").write_text("let loaded = 1;\n")
    (payload,) = python.ok("%%rust\n%load lines.rs").payload
    assert (payload["source"], payload["replace"]) == ("set_next_input", True)
    assert payload["text"].startswith("%%rust\n") and "let loaded = 1;" in payload["text"]


def test_rust_is_completed_and_explained_in_its_cells(python):
    python.ok("%rust let completed_name = vec![1];")
    code = "%%rust\ncompleted_n"
    reply = python.complete(code)
    assert "completed_name" in reply["matches"] and reply["cursor_start"] == 7 and reply["cursor_end"] == len(code)
    assert "--max-trials" in python.complete("%%tune --max-tr")["matches"]
    assert "print" in python.complete("prin")["matches"]
    assert python.inspect("%%rust\ncompleted_name", 12)["found"]


def test_the_cells_of_the_page_about_colab_find_a_model(tmp_path):
    page = (PACKAGE.parent / "docs/colab.md").read_text()
    data, search = re.findall(r"```rust\n(.*?)```", page, re.DOTALL)
    assert "Fit::classifier" in search
    _, found, best = run_notebook(tmp_path, data, search, "%best")
    assert "10/10 trials" in found[-1].data["text/plain"], found
    text = best[0].data["text/plain"]
    assert float(text.splitlines()[1].split()[1]) > 0.9 and "let lr: f64 =" in text, text


def test_the_cells_of_the_page_about_python_run(tmp_path):
    page = (PACKAGE.parent / "docs/python.md").read_text()
    load, *cells, large = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert load.strip() == "%load_ext ferrotune" and "ferrotune.empty" in large, "the last block needs the user's data"
    *_, shape, timed = run_notebook(tmp_path, *cells)
    assert shape[0].data["text/plain"] == "(64,)"
    assert any(" per loop" in str(output) for output in timed), timed
