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


