"""`jupyter console` in a pseudo-terminal, as a user has it: results, errors, bars that get full, Ctrl-C."""

import sys

import pexpect
import pytest

PROGRESS = "for _ in ferrotune::progress(0..40) {{ std::thread::sleep(std::time::Duration::from_millis(20)); {} }}"


@pytest.fixture(scope="module")
def console(tmp_path_factory):
    arguments = ["-m", "jupyter_console", "--kernel", "ferrotune", "--simple-prompt"]
    folder = tmp_path_factory.mktemp("console")
    console = pexpect.spawn(sys.executable, arguments, encoding="utf-8", timeout=60, cwd=folder, dimensions=(40, 120))
    console.expect(r"In \[1\]: ")
    yield console
    console.sendeof()
    console.expect("exit")
    console.sendline("y")
    console.expect(pexpect.EOF)
    console.close()
    assert console.exitstatus == 0


def after(console, cell):
    """What the console shows of a cell before it asks for the next one."""
    console.sendline(cell)
    console.expect(r"In \[\d+\]: ")
    # The terminal shows what was typed.
    return console.before.partition("\r\n")[2]


def test_result_has_its_number(console):
    assert "]: 42" in after(console, "40 + 2")


def test_error_is_shown_and_the_console_goes_on(console):
    shown = after(console, "let n: u8 = 1 + ;")
    assert "CompilationError" not in shown.splitlines()[-1] and "expected expression" in shown, shown
    assert "Panic" in (shown := after(console, 'panic!("first\\nsecond")')) and "second" in shown, shown


def test_bar_moves_and_ends_full(console):
    shown = after(console, PROGRESS.format(""))
    assert "  0% 0/40" in shown
    over = shown.split("\x1b[1F\x1b[J")
    assert len(over) > 3 and "100% 40/40" in over[-1], shown
    assert shown.count("100%") == 1, shown


def test_bar_above_other_output_is_shown_full_at_the_end(console):
    shown = after(console, PROGRESS.format('print!(".");'))
    assert "\x1b[1F" not in shown
    assert "100% 40/40" in shown.splitlines()[-2 if not shown.splitlines()[-1].strip() else -1], shown


def test_interrupt_key_stops_the_cell(console):
    console.sendline('println!("asleep"); std::thread::sleep(std::time::Duration::from_secs(60));')
    console.expect("\nasleep")
    console.sendintr()
    console.expect("Interrupted", timeout=10)
    console.expect(r"In \[\d+\]: ", timeout=10)
    assert "]: 7" in after(console, "3 + 4")
