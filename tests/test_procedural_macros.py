"""What procedural macros define, and what build scripts generate, is known to later cells as what is written is."""

import pathlib

import pytest
from session import wait_for
from test_dependencies import crate

MACROS = """use proc_macro::TokenStream;

fn code(text: String) -> TokenStream {
    text.parse().unwrap()
}

/// The word that comes after another one.
fn after(tokens: TokenStream, before: &str) -> String {
    let words: Vec<String> = tokens.into_iter().map(|token| token.to_string()).collect();
    let place = words.iter().position(|word| word == before).unwrap();
    words[place + 1].clone()
}

#[proc_macro_derive(Zero)]
pub fn derive_zero(item: TokenStream) -> TokenStream {
    let name = after(item, "struct");
    code(format!("impl {name} {{ pub fn zero() -> Option<{name}> {{ Some({name}(0)) }} }}"))
}

#[proc_macro]
pub fn year(input: TokenStream) -> TokenStream {
    code(format!("::std::time::Duration::from_secs({input} * 31_556_952)"))
}

#[proc_macro]
pub fn counter(input: TokenStream) -> TokenStream {
    code(format!("pub struct {input}(pub u32); impl {input} {{ fn next(self) -> {input} {{ {input}(self.0 + 1) }} }}"))
}

#[proc_macro_attribute]
pub fn doubled(_: TokenStream, item: TokenStream) -> TokenStream {
    let name = after(item.clone(), "fn");
    let twice = code(format!("fn twice_{name}() -> Option<u32> {{ Some({name}() * 2) }}"));
    item.into_iter().chain(twice).collect()
}

#[proc_macro]
pub fn ends_its_process(_: TokenStream) -> TokenStream {
    std::process::abort()
}

#[proc_macro]
pub fn fails(_: TokenStream) -> TokenStream {
    panic!("there is no such year")
}
"""

GENERATED = 'include!(concat!(env!("OUT_DIR"), "/generated.rs"));\n#[cfg(has_size)]\npub fn size() -> Size { Size(7) }\n'

WRITES_CODE = """fn main() {
    println!("cargo::rustc-cfg=has_size");
    let folder = std::env::var("OUT_DIR").unwrap();
    std::fs::write(format!("{folder}/generated.rs"), "#[derive(Debug)] pub struct Size(pub u8);").unwrap();
}
"""


@pytest.fixture
def with_macros(start, tmp_path):
    return notebook_with_macros(start(), tmp_path)


def notebook_with_macros(kernel, folder):
    """A notebook with the crate above."""
    root = crate(folder, "years", MACROS)
    manifest = root / "Cargo.toml"
    manifest.write_text(f"{manifest.read_text()}\n[lib]\nproc-macro = true\n")
    kernel.ok(f':dep years = {{ path = "{root}" }}\nuse years::*;')
    return kernel


def test_value_that_a_procedural_macro_makes_is_kept(with_macros):
    kernel = with_macros
    kernel.ok("let two = year!(2);")
    assert kernel.ok("two.as_secs()").result == "63113904"
    kernel.ok("#[derive(Zero, Debug)]\nstruct Metres(u32);\nlet none = Metres::zero();")
    assert kernel.ok("none").result == "Some(Metres(0))"


def test_items_of_procedural_macros_stay(with_macros):
    kernel = with_macros
    kernel.ok("counter!(Steps);")
    kernel.ok("let steps = Steps(4).next();")
    assert kernel.ok("steps.next().0").result == "6"
    kernel.ok("#[doubled]\nfn five() -> u32 { 5 }")
    kernel.ok("let ten = twice_five();")
    assert kernel.ok("ten").result == "Some(10)"


def test_macro_that_fails_is_an_error_of_its_cell(with_macros):
    kernel = with_macros
    kernel.ok("let kept = year!(1);")
    assert "there is no such year" in kernel.fails("let other = fails!();").traceback
    assert kernel.ok("kept.as_secs()").result == "31556952"


def test_macro_that_ends_its_process_costs_one_cell(with_macros):
    kernel = with_macros
    kernel.ok("let kept = year!(1);")
    kernel.fails("let other = ends_its_process!();")
    kernel.ok("let two = year!(2);")
    assert kernel.ok("(two - kept).as_secs()").result == "31556952"


def test_process_that_expands_macros_ends_with_the_kernel(with_macros):
    kernel = with_macros
    kernel.ok("let two = year!(2);")
    assert "as_secs" in [text.split("(")[0] for text in kernel.complete("two.as_s")["matches"]]
    (server,) = servers_of(kernel)
    kernel.close()
    wait_for(lambda: not server.exists(), "end of the process")


def test_macros_are_known_again_after_an_idle_time(start, tmp_path):
    kernel = notebook_with_macros(start(env={"FERROTUNE_COMPLETION_IDLE": "8s"}), tmp_path)
    kernel.ok("let two = year!(2);")
    wait_for(lambda: not servers_of(kernel), "end of the process after the idle time")
    assert "as_secs" in [text.split("(")[0] for text in kernel.complete("two.as_s")["matches"]]
    assert len(servers_of(kernel)) == 1
    kernel.ok("#[derive(Zero, Debug)]\nstruct Metres(u32);\nlet none = Metres::zero();")
    wait_for(lambda: not servers_of(kernel), "end of the process after the idle time")
    kernel.ok("%undo")
    kernel.ok("counter!(Steps);\nlet three = year!(3);")
    assert kernel.ok("(three - two).as_secs()").result == "31556952"
    kernel.ok("let steps = Steps(4).next();")
    assert kernel.ok("steps.0").result == "5"


def servers_of(kernel):
    """The processes that expand macros for a kernel."""
    pid = kernel.manager.provisioner.process.pid
    return [process for process in pathlib.Path("/proc").glob("[0-9]*") if is_server_of(process, pid)]


def is_server_of(process, kernel):
    """Whether a process expands macros and is a child of the kernel."""
    try:
        words = (process / "stat").read_text().rsplit(")", 1)[1].split()
        return int(words[1]) == kernel and b"proc-macro-srv" in (process / "cmdline").read_bytes()
    except OSError:
        return False


def test_type_that_a_build_script_generates_is_known(start, tmp_path):
    root = crate(tmp_path, "sizes", GENERATED, build=WRITES_CODE)
    kernel = start()
    kernel.ok(f':dep sizes = {{ path = "{root}" }}\nlet size = sizes::size();')
    assert kernel.ok("size").result == "Size(7)"
