"""Memory that cells free: kept while a cell runs, and the system's after it."""

import time

from session import resident_bytes
from session import wait_for

# The memory that the process holds, in MiB, the pages that the system has provided to it, and a step that needs 2048.
LOOK = """
fn held_mib() -> usize {
    let fields = std::fs::read_to_string("/proc/self/statm").unwrap();
    fields.split(' ').nth(1).unwrap().parse::<usize>().unwrap() / 256
}
fn pages() -> usize {
    let fields = std::fs::read_to_string("/proc/self/stat").unwrap();
    fields.rsplit_once(')').unwrap().1.split(' ').nth(8).unwrap().parse().unwrap()
}
fn step() {
    let tensors: Vec<_> = (0..8).map(|_| vec![1u8; 1 << 20]).collect();
    std::hint::black_box(&tensors);
}
"""
TEN_STEPS = "step(); let first = pages(); (0..10).for_each(|_| step()); pages() - first"


def test_memory_that_a_cell_frees_is_kept_for_its_next_step_and_comes_back_after_it(start):
    kernel = start()
    kernel.ok(LOOK)
    pid = int(kernel.ok("std::process::id()").result)
    before = resident_bytes(pid)
    kernel.ok("let mut held: Vec<Vec<u8>> = (0..200).map(|_| vec![1u8; 1 << 20]).collect();")
    # The last one is at the end of the heap.
    assert int(kernel.ok("held.drain(..199); held_mib()").result) > 200
    assert resident_bytes(pid) - before < 50 << 20
    assert int(kernel.ok(TEN_STEPS).result) < 1000


def test_memory_that_a_cell_frees_is_not_kept_where_the_user_says_so(start, monkeypatch):
    monkeypatch.setenv("MALLOC_TRIM_THRESHOLD_", "131072")
    kernel = start()
    kernel.ok(LOOK)
    assert int(kernel.ok(TEN_STEPS).result) > 10_000


def test_idle_kernel_drops_what_completion_knows_and_reads_it_again_when_asked(start):
    session = start(env={"FERROTUNE_COMPLETION_IDLE": "12s"})
    session.ok("struct Point { wide: f32 }\nlet text = String::from(\"a\");")
    kernel = session.manager.provisioner.process.pid
    # After a pause the kernel has returned what it has freed.
    assert "len" in [text.split("(")[0] for text in session.complete("text.le")["matches"]]
    time.sleep(4)
    full = resident_bytes(kernel)

    def is_dropped():
        return resident_bytes(kernel) < full - (50 << 20)

    for code, name in (("text.le", "len"), ("text.is_em", "is_empty")):
        assert not is_dropped()
        wait_for(is_dropped, "dropped knowledge")
        assert name in [text.split("(")[0] for text in session.complete(code)["matches"]]
    wait_for(is_dropped, "dropped knowledge")
    assert session.ok("let point = Point { wide: 2.0 };\ntext.len()").result == "1"
    assert session.ok("point.wide").result == "2.0"


def test_idle_time_that_is_no_duration_is_named_by_every_cell(start):
    session = start(env={"FERROTUNE_COMPLETION_IDLE": "long"})
    for _ in range(2):
        error = session.run("1").error
        assert "FERROTUNE_COMPLETION_IDLE=long is no idle time; write it as 90s, 10m or 2h, or none" in error
