"""Interrupts and standard input: an interrupt stops what ran or was queued when it came, and nothing that came later."""

import pytest

from session import wait_for


def test_cell_after_an_interrupt_of_an_idle_kernel_runs(kernel):
    refused = []
    for number in range(12):
        kernel.ask("interrupt_request", channel="control")
        outcome = kernel.run(f"{number} + 1")
        if outcome.result != str(number + 1):
            refused.append((number, outcome.error))
    assert refused == []


def test_cell_after_two_interrupts_of_an_idle_kernel_runs(kernel):
    refused = []
    for number in range(6):
        for _ in range(2):
            kernel.ask("interrupt_request", channel="control")
        outcome = kernel.run(f"let after = {number};\nafter")
        if outcome.result != str(number):
            refused.append((number, outcome.error))
    assert refused == []


def test_cell_after_an_interrupted_cell_runs(kernel):
    for number in range(4):
        outcome = kernel.interrupt('println!("running"); ferrotune::sleep(std::time::Duration::from_secs(60))?;')
        assert outcome.error == "Error: the cell was interrupted (line 1 of the cell)"
        assert kernel.ok(f"{number}").result == str(number)


def test_interrupt_stops_the_running_cell_and_the_queued_ones(kernel):
    mark = kernel.folder / "runs"
    first = kernel.begin(f'std::fs::write("{mark}", "")?; ferrotune::sleep(std::time::Duration::from_secs(60))?;')
    queued = [kernel.begin(f"{number}") for number in range(2)]
    wait_for(mark.exists, "first cell")
    kernel.ask("interrupt_request", channel="control")
    assert kernel.end_of(first).error == "Error: the cell was interrupted (line 1 of the cell)"
    stopped = "Interrupted: the cell was stopped before it ran; no variable has changed"
    assert [kernel.end_of(cell).error for cell in queued] == [stopped] * 2
    assert kernel.ok("40 + 2").result == "42"


@pytest.mark.parametrize("cell", ["std::io::stdin().lines().count()", "std::io::read_to_string(std::io::stdin())?.len()"])
def test_other_ways_to_read_standard_input_do_not_wait(kernel, cell):
    assert kernel.run(cell).seconds < 10


def test_program_of_a_cell_has_an_empty_standard_input(kernel):
    outcome = kernel.ok('std::process::Command::new("cat").output()?.stdout.len()')
    assert (outcome.result, outcome.seconds < 10) == ("0", True)


READ_LINE = "let mut line = String::new(); std::io::stdin().read_line(&mut line)?; line"


def test_reading_standard_input_asks_the_user(kernel):
    msg_id = kernel.begin(f'print!("Name: "); let first = {{ {READ_LINE} }}; {READ_LINE} + &first', allow_stdin=True)
    for answer in ["Ada", "36 é"]:
        assert kernel.receive("stdin")["content"] == {"prompt": "", "password": False}
        kernel.client.input(answer)
    outcome = kernel.end_of(msg_id)
    assert (outcome.error, outcome.stdout, outcome.result) == (None, "Name: ", '"36 é\\nAda\\n"')


def test_reading_standard_input_is_an_error_where_nobody_can_be_asked(kernel):
    outcome = kernel.fails(READ_LINE)
    assert outcome.error == "Error: Input/output error (os error 5) (line 1 of the cell)"
    reason = "the standard input cannot be read: there is no one to ask: this front end does not take input"
    assert outcome.stderr.startswith(reason), outcome.stderr
    assert outcome.seconds < 10


def test_interrupt_ends_the_wait_for_a_line(kernel):
    pid = kernel.ok("std::process::id()").result
    msg_id = kernel.begin(READ_LINE, allow_stdin=True)
    kernel.receive("stdin")
    kernel.ask("interrupt_request", channel="control")
    assert kernel.end_of(msg_id).error == "Error: Operation canceled (os error 125) (line 1 of the cell)"
    assert kernel.ok("std::process::id()").result == pid, "it ended by itself"


def test_user_is_asked_after_a_crash_and_not_for_a_replaced_input(kernel):
    kernel.fails("std::process::abort();")
    msg_id = kernel.begin(READ_LINE, allow_stdin=True)
    kernel.receive("stdin")
    kernel.client.input("again")
    assert kernel.end_of(msg_id).result == '"again\\n"'
    (kernel.folder / "lines").write_text("from a file\n")
    kernel.ok('unsafe extern "C" { fn dup2(old: i32, new: i32) -> i32; }')
    replace = 'let file = std::fs::File::open("lines")?; unsafe { dup2(std::os::fd::AsRawFd::as_raw_fd(&file), 0); }'
    assert kernel.ok(f"{{ {replace} }}; {READ_LINE}").result == '"from a file\\n"'
    assert kernel.fails(READ_LINE).error == "Error: Input/output error (os error 5) (line 1 of the cell)"
