"""Output in masses: nothing is lost or disordered up to the limit, and one line says that the rest is not shown."""

import pytest

LINES = 400_000
LINE_BYTES = 80
LIMIT_LINE = (
    "\nthe cell has printed 976.56 KiB, and what it prints from here on is not shown; write it to a file, or start Jupyter "
    "with FERROTUNE_OUTPUT_LIMIT=SIZE or FERROTUNE_OUTPUT_LIMIT=none\n"
)


def texts(session, cell):
    """The texts of a cell's messages, by stream."""
    msg_id = session.begin(cell)
    seen = {"stdout": [], "stderr": []}
    for msg_type, content in session.rest_of(msg_id):
        assert msg_type in ("status", "execute_input", "stream"), content
        if msg_type == "stream":
            seen[content["name"]].append(content["text"])
    assert session.reply(msg_id)["content"]["status"] == "ok"
    return seen


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_many_lines_arrive_whole_and_in_order(kernel, stream):
    macro = {"stdout": "println", "stderr": "eprintln"}[stream]
    count = LINES if stream == "stdout" else LINES // 10
    seen = texts(kernel, f'for number in 0..{count} {{ {macro}!("{{number:>79}}"); }}')
    text = "".join(seen.pop(stream))
    assert list(seen.values()) == [[]]
    assert len(text) == count * LINE_BYTES
    assert all(int(line) == number for number, line in enumerate(text.splitlines()))


def test_the_stream_that_is_written_first_is_shown_first(kernel):
    cell = """for round in 0..60 {
    if round % 2 == 0 { eprintln!("{round}"); println!("{round}"); } else { println!("{round}"); eprintln!("{round}"); }
    std::thread::sleep(std::time::Duration::from_millis(40));
}"""
    msg_id = kernel.begin(cell)
    seen = [content for msg_type, content in kernel.rest_of(msg_id) if msg_type == "stream"]
    kernel.reply(msg_id)
    # `eprintln!` writes the end of a line by itself.
    lines = [(int(line), content["name"]) for content in seen for line in content["text"].splitlines() if line]
    orders = (["stderr", "stdout"], ["stdout", "stderr"])
    assert lines == [(round, name) for round in range(60) for name in orders[round % 2]]


def test_masses_come_in_few_messages(kernel):
    seen = texts(kernel, f'let line = "x".repeat({LINE_BYTES - 1}); for _ in 0..{LINES} {{ println!("{{line}}"); }}')
    assert len(seen["stdout"]) < 1000, len(seen["stdout"])


@pytest.mark.parametrize(
    "cell",
    [
        'for _ in 0..30_000 { println!("{}", "x".repeat(99)); }',
        'println!("{}", "x".repeat(3_000_000));',
        "!head -c 3000000 /dev/zero | tr '\\000' x",
    ],
)
def test_text_beyond_the_limit_is_not_shown_and_one_line_says_so(start, cell):
    session = start(env={"FERROTUNE_OUTPUT_LIMIT": "1MB"})
    for _ in range(2):
        seen = texts(session, cell)
        assert (sum(map(len, seen["stdout"])), "".join(seen["stderr"])) == (1_000_000, LIMIT_LINE)
    assert session.ok("40 + 2").result == "42"


def test_limit_may_be_taken_away(start):
    session = start(env={"FERROTUNE_OUTPUT_LIMIT": "none"})
    seen = texts(session, 'println!("{}", "x".repeat(3_000_000));')
    assert (sum(map(len, seen["stdout"])), seen["stderr"]) == (3_000_001, [])


def test_limit_that_is_no_size_is_named_by_every_cell(start):
    session = start(env={"FERROTUNE_OUTPUT_LIMIT": "much"})
    for _ in range(2):
        error = session.run("1").error
        assert "FERROTUNE_OUTPUT_LIMIT=much: not a size; write it as 512MiB, 4GiB, 4GB or a number of bytes, or none" in error
