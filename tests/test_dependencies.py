"""Crates of `:dep`: the progress of their build, and interrupts of it. All crates are in a temporary folder."""

import fcntl
import os
import pathlib
import shutil
from concurrent.futures import ThreadPoolExecutor

import pytest
from session import wait_for
from test_cells import compiler

ENDLESS = """fn main() {
    println!("cargo::rerun-if-env-changed=NEVER");
    let folder = std::env::var("CARGO_MANIFEST_DIR").unwrap();
    std::fs::write(format!("{folder}/began"), "").unwrap();
    while std::path::Path::new(&format!("{folder}/wait")).exists() {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}
"""


def crate(folder, name, source, dependencies=(), build=None):
    """Writes a crate that depends on others of the same folder."""
    root = pathlib.Path(folder) / name
    (root / "src").mkdir(parents=True, exist_ok=True)
    lines = "".join(f'{other} = {{ path = "../{other}" }}\n' for other in dependencies)
    (root / "Cargo.toml").write_text(
        f'[package]\nname = "{name}"\nversion = "0.3.1"\nedition = "2024"\n[dependencies]\n{lines}'
    )
    (root / "src/lib.rs").write_text(source)
    if build:
        (root / "build.rs").write_text(build)
    return root


def test_build_is_one_line_that_changes(kernel, tmp_path):
    leaves = [f"leaf{number}" for number in range(5)]
    for leaf in leaves:
        crate(tmp_path, leaf, "pub fn value() -> u64 { 1 }")
    total = " + ".join(f"{leaf}::value()" for leaf in leaves)
    root = crate(tmp_path, "tree", f"pub fn value() -> u64 {{ {total} }}", leaves)
    messages = []
    cell = f':dep tree = {{ path = "{root}" }}\ntree::value()'
    outcome = kernel.run(cell, watch=messages.append)
    assert (outcome.error, outcome.result) == (None, "5")
    shown = [message for message in messages if message["msg_type"] in ("display_data", "update_display_data")]
    assert [message["msg_type"] for message in shown].count("display_data") == 1
    assert len({message["content"]["transient"]["display_id"] for message in shown}) == 1
    assert outcome.displays[0].startswith("Compiling leaf"), outcome.displays
    assert outcome.displays[0].split()[2] == "v0.3.1"
    assert outcome.display.startswith("Compiled 6 crates in "), outcome.displays
    assert kernel.run("tree::value() + 1").displays == []


def test_crate_that_does_not_build_says_why(kernel, tmp_path):
    root = crate(tmp_path, "broken", "pub fn value() -> u64 { missing }")
    outcome = kernel.fails(f':dep broken = {{ path = "{root}" }}\nbroken::value()')
    assert "the dependencies could not be built" in outcome.error
    assert "cannot find value `missing`" in outcome.stderr
    assert outcome.display.endswith(": not finished")


def test_feature_that_a_crate_does_not_have_is_the_reason(kernel, tmp_path):
    root = crate(tmp_path, "plain", "pub fn one() -> i32 { 1 }")
    outcome = kernel.fails(f':dep plain = {{ path = "{root}", features = ["rich"] }}')
    reason = "this notebook depends on `plain` with feature `rich` but `plain` does not have that feature"
    assert outcome.error.startswith(f"CompilationError: error: {reason}"), outcome.error
    assert "evcxr" not in outcome.traceback


def test_build_that_is_interrupted_ends_at_once_and_changes_nothing(kernel, tmp_path):
    kernel.ok("let kept = 7;")
    crate(tmp_path, "quick", "pub fn value() -> u64 { 1 }")
    root = crate(tmp_path, "endless", "pub fn value() -> u64 { quick::value() }", ["quick"], build=ENDLESS)
    (root / "wait").touch()
    cell = f':dep endless = {{ path = "{root}" }}\nlet kept = endless::value();'
    outcome = kernel.interrupt_when(cell, (root / "began").exists, "build script")
    assert outcome.error == "Interrupted: the cell was stopped before it ran; no variable has changed"
    assert outcome.seconds < 10
    wait_for(lambda: not build_scripts(root), "end of the build script", seconds=10)
    assert kernel.ok("kept").result == "7"
    assert "cannot find module or crate `endless`" in kernel.fails("endless::value()").error
    (root / "wait").unlink()
    assert kernel.ok(cell + "\nkept").result == "1"


def test_crate_that_was_interrupted_is_built_whole_by_another_kernel(kernel, start, tmp_path):
    root = crate(tmp_path, "later", "pub fn value() -> u64 { 3 }", build=ENDLESS)
    (root / "wait").touch()
    cell = f':dep later = {{ path = "{root}" }}\nlater::value()'
    assert kernel.interrupt_when(cell, (root / "began").exists, "build script").error.startswith("Interrupted: ")
    (root / "wait").unlink()
    assert start().ok(cell).result == "3"


def test_long_build_holds_up_no_other_notebook(start, tmp_path):
    kernel = start()
    root = crate(tmp_path, "long", "pub fn value() -> u64 { 5 }", build=ENDLESS)
    (root / "wait").touch()
    cell = f':dep long = {{ path = "{root}" }}\nlong::value()'
    builds = kernel.begin(cell)
    wait_for((root / "began").exists, "build script")
    short = crate(tmp_path, "short", "pub struct Short(pub u64);")
    other = start()
    other.ok(f':dep short = {{ path = "{short}" }}\nlet kept = short::Short(8);')
    # The same crates are not built twice: the second notebook waits for the first.
    same = start()

    def end_the_build(message):
        if "the build of another notebook" in str(message["content"].get("data")):
            (root / "wait").unlink()

    waited = same.run(cell, watch=end_the_build)
    assert (waited.error, waited.result) == (None, "5")
    assert kernel.end_of(builds).result == "5"
    # Nothing of what a notebook has built moves to another folder.
    assert other.ok("kept.0").result == "8"


def test_compiler_that_is_interrupted_ends_at_once(kernel):
    kernel.ok("let kept = 9u64;")
    outcome = kernel.interrupt_when(
        "#[allow(long_running_const_eval)]\n"
        "const SLOW: u64 = { let mut i = 0u64; while i < 4_000_000_000 { i += 1; } i };\nlet kept = SLOW;",
        lambda: compiler(kernel),
        "compiler",
    )
    assert outcome.error == "Interrupted: the cell was stopped before it ran; no variable has changed"
    assert outcome.seconds < 10
    assert kernel.ok("kept").result == "9"


def test_crate_that_changed_costs_the_variables_that_it_is_part_of(start, tmp_path):
    kernel = start()
    root = crate(tmp_path, "shape", "pub struct Shape { pub size: u64, pub name: u64 }")
    dependency = f':dep shape = {{ path = "{root}" }}\n'
    kernel.ok(dependency + "use shape::Shape; struct Own(Shape);\nlet kept = vec![1.5f32];")
    kernel.ok("let shape = Shape { size: 8, name: 8 }; let own = Own(Shape { size: 8, name: 8 });")
    (root / "src/lib.rs").write_text("pub struct Shape { pub size: String, pub name: u64 }")
    outcome = kernel.fails(dependency + "own.0.size.len() + shape.size.len()")
    assert "cannot find value" in outcome.error
    assert "the variable own was dropped" in outcome.stderr
    assert "the variable shape was dropped" in outcome.stderr
    assert kernel.ok("kept[0]").result == "1.5"


def test_crate_goes_back_with_the_cell_that_added_it(start, tmp_path):
    kernel = start()
    root = crate(tmp_path, "shape", "#[derive(Debug)] pub struct Shape { pub size: u64 }")
    dependency = f':dep shape = {{ path = "{root}" }}\n'
    for _ in range(2):
        kernel.ok(dependency + "let shape = shape::Shape { size: 8 };")
        assert kernel.ok(":show_deps").display == f'shape = {{ path = "{root}" }}'
        assert kernel.ok("shape").result == "Shape { size: 8 }"
        kernel.ok("%undo 2")
        assert kernel.ok(":show_deps").display.startswith("no crate has been added; ")
        assert "cannot find value `shape`" in kernel.fails("shape").error
        assert "cannot find" in kernel.fails("shape::Shape { size: 8 }").error
    assert kernel.ok(dependency + "shape::Shape { size: 9 }").result == "Shape { size: 9 }"


def test_how_far_cells_are_optimised_costs_no_variable_of_a_crate(start, tmp_path):
    kernel = start()
    root = crate(tmp_path, "shape", "pub struct Shape { pub size: u64 }")
    kernel.ok(f':dep shape = {{ path = "{root}" }}\nlet shape = shape::Shape {{ size: 8 }};')
    kernel.ok(":opt 0")
    outcome = kernel.ok("shape.size")
    assert (outcome.result, outcome.stderr) == ("8", "")


def test_wait_for_another_cargo_is_shown_and_can_be_interrupted(start, tmp_path, monkeypatch):
    home = tmp_path / "cargo"
    home.mkdir()
    monkeypatch.setenv("CARGO_HOME", str(home))
    kernel = start()
    kernel.ok("let kept = 7u64; let undone = 8;")
    kernel.ok("drop(undone);")
    kernel.ok("%undo")
    root = crate(tmp_path, "waits", "pub fn value() -> u64 { 1 }")
    cell = f':dep waits = {{ path = "{root}" }}\nwaits::value() + kept'

    def is_blocked(message):
        shown = message["content"].get("data", {}).get("text/plain", "")
        return shown.startswith("Blocking waiting for file lock on package cache")

    with open(home / ".package-cache", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        outcome = kernel.interrupt(cell, is_blocked)
    assert outcome.seconds < 20
    assert outcome.error == "Interrupted: the cell was stopped before it ran; no variable has changed"
    assert kernel.ok(cell).result == "8"


@pytest.mark.parametrize("is_there", [False, True])
def test_notebook_without_crates_does_not_wait_for_another_cargo(start, tmp_path, monkeypatch, is_there):
    """rust-analyzer prefers a cargo in cargo's home, where rustup has its own."""
    if is_there:
        (tmp_path / "bin").mkdir()
        (tmp_path / "bin/cargo").symlink_to(shutil.which("cargo"))
    monkeypatch.setenv("CARGO_HOME", str(tmp_path))
    with open(tmp_path / ".package-cache", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        outcome = start().ok("let numbers = vec![3, 1, 2];\nnumbers.len()")
    assert (outcome.result, outcome.displays) == ("3", [])


def test_short_wait_for_another_cargo_is_not_shown(start, tmp_path, monkeypatch):
    home = tmp_path / "cargo"
    home.mkdir()
    monkeypatch.setenv("CARGO_HOME", str(home))
    kernel = start()
    root = crate(tmp_path, "waits", "pub fn value() -> u64 { 1 }")
    with open(home / ".package-cache", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        inode = f":{os.fstat(lock.fileno()).st_ino} "

        def release():
            """As soon as a cargo waits."""
            wait_for(lambda: any("->" in line and inode in line for line in open("/proc/locks")), "cargo that waits")
            fcntl.flock(lock, fcntl.LOCK_UN)

        with ThreadPoolExecutor() as pool:
            released = pool.submit(release)
            outcome = kernel.ok(f':dep waits = {{ path = "{root}" }}\nwaits::value()')
            released.result()
    assert outcome.result == "1"
    assert not [text for text in outcome.displays if text.startswith(("Blocking", "Waited", "Waiting"))], outcome.displays


def build_scripts(root):
    """Process ids of the build scripts that run for a crate."""
    found = []
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if b"CARGO_MANIFEST_DIR=" + str(root).encode() in (folder / "environ").read_bytes().split(b"\0"):
                found.append(int(folder.name))
        except OSError:
            continue
    return found


C_CODE = """fn main() {
    let out = std::env::var("OUT_DIR").unwrap();
    std::fs::write(format!("{out}/seven.c"), "int seven(void) { return 7; }").unwrap();
    let run = |program: &str, arguments: &[&str]| {
        assert!(std::process::Command::new(program).args(arguments).current_dir(&out).status().unwrap().success());
    };
    run("cc", &["-c", "-fPIC", "seven.c"]);
    run("ar", &["rcs", "libseven.a", "seven.o"]);
    println!("cargo::rustc-link-search=native={out}");
    println!("cargo::rustc-link-lib=static=seven");
}
"""


def test_function_of_another_language_can_be_called_in_line(start, tmp_path):
    source = 'unsafe extern "C" { fn seven() -> i32; }\n#[inline(always)] pub fn value() -> i32 { unsafe { seven() } }'
    root = crate(tmp_path, "seven", source, build=C_CODE)
    assert start().ok(f':dep seven = {{ path = "{root}" }}\nseven::value()').result == "7"


def test_search_with_a_crate_goes_on_after_the_notebook_has_ended(start, tmp_path):
    kernel = start()
    root = crate(tmp_path, "scale", "pub fn twice(x: f64) -> f64 { 2.0 * x }")
    kernel.ok(f':dep scale = {{ path = "{root}" }}\nscale::twice(2.0)')
    body = '|trial| Ok(scale::twice(trial.float("x", 0.0..=1.0).get()?))'
    outcome = kernel.ok(f"%%tune --objective loss:min --max-trials 2 --seed 1 --project scaled\n{body}")
    assert "2/2 trials" in outcome.display and "failed" not in outcome.display, outcome.display
    kernel.close()
    outcome = start().ok("%resume scaled --max-trials 4")
    assert "4/4 trials" in outcome.display and "failed" not in outcome.display, outcome.display


def test_futures_of_all_cells_run_in_one_runtime(start):
    kernel = start()
    kernel.ok("let mut count = 1; async fn next(count: i32) -> i32 { count + 1 }")
    assert kernel.ok("count = next(count).await; count").result == "2"
    assert kernel.ok("let task = tokio::spawn(async { next(4).await }); next(2).await").result == "3"
    assert kernel.ok("task.await?").result == "5"
    assert kernel.fails('let n: i32 = "x".parse()?; next(n).await').error == (
        "Error: invalid digit found in string (line 1 of the cell)"
    )
    assert "went wrong" in kernel.fails('next(1).await; panic!("went wrong")').error
    assert kernel.ok("next(count).await").result == "3"
    # A runtime of one's own is not within that of the cells.
    assert kernel.ok("tokio::runtime::Runtime::new()?.block_on(next(6))").result == "7"
    kernel.ok("fn wait() -> i32 { tokio::runtime::Runtime::new().unwrap().block_on(next(7)) }")
    assert kernel.ok("wait()").result == "8"
    # A crate more makes another library, which has a runtime of its own; the first goes on.
    kernel.ok("let later = tokio::spawn(async { tokio::task::yield_now().await; 7 });")
    assert kernel.ok(':dep itoa = "1"\nlater.await?').result == "7"
    assert kernel.ok("itoa::Buffer::new().format(next(count).await)").result == '"3"'
    within = "tokio::spawn(async { tokio::spawn(async { 4 }).await }).await??"
    assert kernel.ok(within).result == "4"
    # A copy of the process has no threads.
    kernel.ok("%undo")
    assert kernel.ok(within).result == "4"
