"""Shell commands: `!command` and `%%bash` show what they write at once, can be interrupted, and fail as a cell fails."""

import os
import pathlib
import signal

import pytest

from session import is_alive, wait_for


def test_command_runs_between_statements(kernel):
    outcome = kernel.ok('let before = 1;\n!echo "a | b" | tr a-z A-Z; echo late >&2\nbefore + 1')
    assert (outcome.stdout, outcome.stderr, outcome.result) == ("A | B\n", "late\n", "2")
    assert kernel.ok("!echo one \\\n  two").stdout == "one two\n"


def test_script_runs_in_bash_and_names_the_lines_of_its_cell(kernel):
    outcome = kernel.run('%%bash\nnames=(x y z)\necho "${names[2]}"\nnot-a-program\ntrue')
    assert (outcome.error, outcome.stdout) == (None, "z\n")
    assert "line 4: not-a-program: command not found" in outcome.stderr


def test_negation_in_brackets_is_rust(kernel):
    assert kernel.ok("let flag = true;\n(!flag)").result == "false"


@pytest.mark.parametrize(
    ("cell", "error"),
    [
        ("!exit 3", "!exit 3 ended with exit status 3"),
        ("1;\n  !false\n!echo never", "!false ended with exit status 1"),
        ("%%bash\nkill -TERM $$", "%%bash was ended by SIGTERM"),
        ("%%bash\nset -e\nfalse\necho never", "%%bash ended with exit status 1"),
        ("%bash exit 4", "%bash exit 4 ended with exit status 4"),
    ],
)
def test_failed_command_is_an_error_that_names_its_exit(kernel, cell, error):
    outcome = kernel.fails(cell)
    assert (outcome.error, outcome.stdout) == (f"ShellError: {error}", "")


def test_command_is_shown_while_it_runs(kernel):
    heard = kernel.folder / "heard"

    def watch(message):
        if message["msg_type"] == "stream":
            heard.touch()

    outcome = kernel.run(f"!printf '10%%\\r'; while [ ! -e {heard} ]; do sleep 0.01; done; echo 20%", watch)
    assert (outcome.error, outcome.stdout) == (None, "10%\r20%\n")


@pytest.mark.parametrize("cell", ["!echo on; sleep 60", "%%bash\ncat <(echo on; sleep 60)\n"])
def test_interrupt_ends_the_command_and_what_it_has_started(kernel, cell):
    outcome = kernel.interrupt(cell + "\n!echo never" if cell.startswith("!") else cell)
    assert outcome.error.startswith("Interrupted: ") and outcome.error.endswith(" was interrupted"), outcome.error
    assert outcome.seconds < 1.4
    assert kernel.ok("!echo next").stdout == "next\n"


def test_command_that_ignores_the_interrupt_is_killed(kernel):
    pid = kernel.folder / "pid"
    outcome = kernel.interrupt(f"%%bash\ntrap '' INT\necho $$ > {pid}\necho on\nsleep 60\nsleep 60\n")
    assert outcome.error == "Interrupted: %%bash was interrupted"
    assert 1.4 < outcome.seconds < 5
    assert not is_alive(int(pid.read_text()))


def test_command_finds_its_standard_input_empty(kernel):
    outcome = kernel.ok("!cat; read line || echo nothing")
    assert (outcome.stdout, outcome.seconds < 10) == ("nothing\n", True)


def test_program_in_the_background_does_not_hold_its_cell_up(kernel):
    go = kernel.folder / "go"
    outcome = kernel.ok(f"!(while [ ! -e {go} ]; do sleep 0.01; done; echo behind) & echo first")
    assert (outcome.stdout, outcome.seconds < 10) == ("first\n", True)
    msg_id = kernel.begin("let running = 1;")
    kernel.end_of(msg_id)
    go.touch()
    message = kernel.next_published(msg_id)
    assert (message["msg_type"], message["content"]["text"]) == ("stream", "behind\n")


def test_command_has_the_folder_and_the_environment_of_the_cells(kernel):
    assert kernel.ok("!pwd").stdout == f"{kernel.folder}\n"
    inner = kernel.folder / "an inner folder"
    inner.mkdir()
    kernel.ok('unsafe { std::env::set_var("FERROTUNE_TEST", "set é"); std::env::remove_var("HOME") };')
    kernel.ok(f'std::env::set_current_dir("{inner}")?;')
    assert kernel.ok('!pwd; echo "$FERROTUNE_TEST,$HOME,$FERROTUNE_LINK"').stdout == f"{inner}\nset é,,\n"
    kernel.ok("%undo")
    assert kernel.ok('!pwd; echo "$FERROTUNE_TEST"').stdout == f"{kernel.folder}\nset é\n"
    kernel.ok("%undo")
    assert kernel.ok('!echo "$FERROTUNE_TEST,$PATH"').stdout == f",{pathlib.os.environ['PATH']}\n"


def test_files_complete_in_a_command(kernel):
    (kernel.folder / "table of digits.csv").touch()
    (kernel.folder / "tables").mkdir(exist_ok=True)
    assert kernel.complete("let a = 1;\n!ls tabl")["matches"] == ['"table of digits.csv"', "tables/"]
    assert kernel.complete("%%bash\nls tables")["matches"] == ["tables/"]


def kill(session):
    os.kill(session.manager.provisioner.pid, signal.SIGKILL)
    # The shell may end before it.
    wait_for(lambda: not session.manager.is_alive(), "end of the kernel")


@pytest.mark.parametrize(
    ("before", "end"),
    [("", lambda session: session.close()), ("trap '' INT TERM; ", lambda session: session.close()), ("", kill)],
    ids=["ended", "ended, and it ignores interrupts", "killed"],
)
def test_command_ends_with_the_kernel(start, tmp_path, before, end):
    session = start(tmp_path)
    pid = tmp_path / "pid"
    session.begin(f"!{before}echo $$ > {pid}; sleep 600; sleep 600")
    wait_for(lambda: pid.exists() and pid.read_text(), "command")
    end(session)
    wait_for(lambda: not is_alive(int(pid.read_text())), "end of the command", 10)
