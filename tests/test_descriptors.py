"""Pipes and sockets of cells: the other end learns that one was closed, although snapshots of the process sleep."""

WAIT = (
    "let begun = std::time::Instant::now();\n"
    "let ended = loop { match child.try_wait()? {\n"
    "None if begun.elapsed().as_secs() < 10 => std::thread::sleep(std::time::Duration::from_millis(5)),\n"
    "other => break other } };\n"
    "ended.map(|status| status.success())"
)


def test_program_ends_when_a_later_cell_closes_its_input(kernel):
    kernel.ok("use std::io::{Read as _, Write as _}; use std::process::{Command, Stdio};")
    kernel.ok('let mut child = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;')
    kernel.ok('child.stdin.as_mut().unwrap().write_all(b"three words here")?;')
    kernel.ok("drop(child.stdin.take());")
    assert kernel.ok(WAIT).result == "Some(true)"
    read = "let mut said = String::new(); child.stdout.take().unwrap().read_to_string(&mut said)?; said"
    assert kernel.ok(read).result == '"three words here"'


def test_output_of_a_program_is_read_to_its_end_in_one_call(kernel):
    kernel.ok("use std::process::{Command, Stdio};")
    kernel.ok('let child = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;')
    outcome = kernel.run(
        "let (sender, receiver) = std::sync::mpsc::channel();\n"
        "std::thread::spawn(move || sender.send(child.wait_with_output().map(|output| output.stdout.len())));\n"
        "receiver.recv_timeout(std::time::Duration::from_secs(10))??"
    )
    assert (outcome.error, outcome.result) == (None, "0")


def test_peer_of_a_socket_learns_that_a_later_cell_has_closed_it(kernel):
    kernel.ok(
        "use std::io::Read as _; use std::net::{TcpListener, TcpStream}; use std::time::Duration;\n"
        'let listener = TcpListener::bind("127.0.0.1:0")?;\n'
        "let here = TcpStream::connect(listener.local_addr()?)?; let (mut there, _) = listener.accept()?;"
    )
    kernel.ok("there.set_read_timeout(Some(Duration::from_secs(10)))?;")
    kernel.ok("drop(here);")
    assert kernel.ok("there.read(&mut [0])?").result == "0"
    kernel.ok("drop((listener, there));")


def test_channel_of_the_standard_library_ends_with_its_sender(kernel):
    kernel.ok("let (mut reader, writer) = std::io::pipe()?;")
    kernel.ok("drop(writer);")
    outcome = kernel.run(
        "use std::io::Read as _;\nlet (sender, receiver) = std::sync::mpsc::channel();\n"
        "std::thread::spawn(move || sender.send(reader.read(&mut [0]).ok()));\n"
        "receiver.recv_timeout(std::time::Duration::from_secs(10))?"
    )
    assert (outcome.error, outcome.result) == (None, "Some(0)")


def test_pipe_of_a_snapshot_that_takes_over_is_closed_and_not_another_file(kernel):
    kernel.ok("use std::io::Write as _; use std::process::{Command, Stdio};")
    kernel.ok('let mut child = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn()?;')
    told = kernel.fails("std::process::abort();").stderr
    assert told == "pipes and connections of earlier cells that are closed in this copy of their process: 1\n"
    outcome = kernel.fails('child.stdin.as_mut().unwrap().write_all(b"lost")?;')
    assert "Broken pipe" in outcome.error


def test_port_that_a_cell_has_closed_is_free(kernel):
    kernel.ok('let closed = std::net::TcpListener::bind("127.0.0.1:0")?; let port = closed.local_addr()?.port();')
    kernel.ok("1;")
    kernel.ok("drop(closed);")
    assert kernel.ok('std::net::TcpListener::bind(("127.0.0.1", port)).is_ok()').result == "true"


def test_files_and_pairs_of_sockets_survive_a_crash(kernel):
    kernel.ok(
        "use std::io::{Read as _, Write as _}; use std::os::unix::net::UnixStream;\n"
        'let mut file = std::fs::File::options().read(true).write(true).create(true).open("kept")?;\n'
        "let pair: (UnixStream, UnixStream) = UnixStream::pair()?;"
    )
    kernel.fails("std::process::abort();")
    kernel.ok('file.write_all(b"kept")?; (&pair.0).write_all(b"pair")?; (&pair.1).read_exact(&mut [0; 4])?;')
    assert (kernel.folder / "kept").read_text() == "kept"


LOCKED = 'std::fs::File::options().read(true).write(true).create(true).truncate(false).open("lock")?'


def test_lock_of_a_file_that_a_later_cell_has_closed_is_free(kernel):
    for lock, other in [("lock", "try_lock"), ("lock_shared", "try_lock")]:
        kernel.ok(f"let locked = {LOCKED}; locked.{lock}()?;")
        assert kernel.ok(f"{LOCKED}.{other}().is_err()").result == "true"
        kernel.ok("let between = 1;")
        kernel.ok("drop(locked);")
        assert kernel.ok(f"{LOCKED}.{other}().is_ok()").result == "true"


def test_lock_is_held_again_by_the_copy_that_takes_over(kernel):
    kernel.ok(f'use std::io::{{Read as _, Seek as _, Write as _}};\nlet mut locked = {LOCKED}; locked.lock()?; locked.write_all(b"one")?;')
    kernel.ok("let after = 1;")
    assert "locks" not in kernel.fails("std::process::abort();").stderr
    assert kernel.ok(f"{LOCKED}.try_lock().is_err()").result == "true"
    kernel.ok('locked.write_all(b" two")?;')
    assert (kernel.folder / "lock").read_text().startswith("one two")
    kernel.ok("let later = 2;")
    kernel.ok("%undo")
    assert kernel.ok(f"{LOCKED}.try_lock().is_err()").result == "true"
    kernel.ok("locked.unlock()?;")
    assert kernel.ok(f"{LOCKED}.try_lock().is_ok()").result == "true"
