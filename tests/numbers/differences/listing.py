"""Lists the public operations of candle and of ferrotune's optimisers from their sources, so that no new one is forgotten.

A documentation build would take a minute. A scanner of braces takes no second, and knows candle's macros.
"""

import os
import pathlib
import re

from differences.place import ROOT

SYMBOLS = {"Add": "+", "Sub": "-", "Mul": "*", "Div": "/"}
TRAITS = ("Module", "ModuleT", "RNN", "Optimizer", "IndexOp")
SKIPPED = re.compile(r'//[^\n]*|/\*.*?\*/|b?r#*".*?"#*|b?"(?:\\.|[^"\\])*"|b?\'(?:\\.[^\']*|[^\'\\])\'', re.DOTALL)
TOKEN = re.compile(
    r"(?P<test>#\[cfg\(test\)\])"
    r"|(?P<module>(?:pub\s+)?mod\s+\w+\s*\{)"
    r"|(?P<impl>\bimpl\b[^{;]*\{)"
    r"|(?P<trait>(?:pub\s+)?trait\s+\w+[^{;]*\{)"
    r"|(?P<macro>macro_rules!\s*\w+\s*\{)"
    r"|(?P<function>(?P<public>\bpub\s+)?(?:const\s+)?(?:unsafe\s+)?\bfn\s+(?P<name>\w+)[^{;]*[{;])"
    r"|(?P<call>\b(?P<called>\w+)!\s*\(\s*(?P<first>\w+)[^;]*?\)\s*;)"
    r"|(?P<open>\{)|(?P<close>\})",
    re.DOTALL,
)


def without_text(source):
    """A source without comments and literals, in which braces and words might stand."""
    return SKIPPED.sub(lambda found: " " if found.group(0)[0] == "/" else '""', source)


def scanned(source):
    """Each function as the headers of the blocks that it is in, its name, and whether it is `pub`."""
    blocks, is_test = [], False
    for token in TOKEN.finditer(without_text(source)):
        kind, text = token.lastgroup, token.group(0)
        kind = next(name for name in ("test", "module", "impl", "trait", "macro", "function", "call", "open", "close") if token.group(name))
        if kind == "test":
            is_test = True
            continue
        in_code = any(header in ("macro", "test", "body") for header in blocks)
        if kind == "function" and not in_code and not is_test:
            yield list(blocks), token.group("name"), bool(token.group("public"))
        if kind == "call" and not in_code and not is_test:
            yield list(blocks), (token.group("called"), token.group("first")), True
        if text.endswith("{"):
            header = {"macro": "macro", "function": "body", "open": "body"}.get(kind, re.sub(r"\s+", " ", text[:-1]).strip())
            blocks.append("test" if is_test else header)
        elif kind == "close" and blocks:
            blocks.pop()
        is_test = False


def plain(header):
    """`impl<'a> Module for Func<'a>` as the trait and the type without parameters."""
    header = re.sub(r"^impl\s*", "", header)
    while (shorter := re.sub(r"<[^<>]*>", "", header)) != header:
        header = shorter
    header = header.split(" where ")[0]
    trait, _, kind = header.rpartition(" for ")
    return trait.strip().split("::")[-1], kind.strip()


def of_tensor(sources):
    """The methods and operators of `Tensor` in a folder."""
    texts = (path.read_text() for path in sources.rglob("*.rs"))
    return set().union(*(of_tensor_in(text) for text in texts if re.search(r"\bfor Tensor\b|\bimpl Tensor\b|\bTensor> for f64", text)))


def of_tensor_in(source):
    names = set()
    for blocks, name, is_public in scanned(source):
        trait, kind = plain(blocks[-1]) if blocks and blocks[-1].startswith("impl") else ("", "")
        if isinstance(name, tuple):
            called, first = name
            if called == "bin_trait":
                names |= {f"Tensor {SYMBOLS[first]} Tensor", f"Tensor {SYMBOLS[first]} f64"}
            elif kind == "Tensor" and not trait:
                names.add(f"Tensor::{first}")
        elif kind == "Tensor" and (is_public and not trait or trait == "IndexOp"):
            names.add(f"Tensor::{name}")
        elif kind == "f64" and trait in SYMBOLS:
            names.add(f"f64 {SYMBOLS[trait]} Tensor")
    return names


def of_crate(sources, root):
    """The public functions, methods, and methods of candle's traits in a folder of modules."""
    names = set()
    for path in sorted(sources):
        module = module_of(path, root)
        for blocks, name, is_public in scanned(path.read_text()):
            modules = [block.split()[-1] for block in blocks if re.match(r"(pub )?mod ", block)]
            inside = [block for block in blocks if not re.match(r"(pub )?mod ", block)]
            if isinstance(name, tuple) or len(inside) > 1:
                continue
            path_of = "::".join([*module, *modules])
            if not inside:
                names |= {f"{path_of}::{name}"} if is_public else set()
            elif inside[0].startswith("pub trait"):
                names.add(f"{path_of}::{inside[0].removeprefix('pub trait ').split(':')[0].strip()}::{name}")
            elif inside[0].startswith("impl"):
                trait, kind = plain(inside[0])
                if (is_public and not trait) or trait in TRAITS:
                    names.add(f"{path_of}::{kind}::{name}")
    return names


def module_of(path, root):
    parts = list(path.relative_to(root).with_suffix("").parts)
    return [part for part in parts if part not in ("lib", "mod")]


def candle_nn():
    """The sources of candle-nn: ours, or those of the package."""
    version = re.search(r'name = "candle-nn"\nversion = "([^"]+)"', (ROOT / "Cargo.lock").read_text()).group(1)
    own = ROOT / "patched/candle/candle-nn/src"
    if own.is_dir():
        return own
    home = pathlib.Path(os.environ.get("CARGO_HOME", pathlib.Path.home() / ".cargo"))
    found = sorted(home.glob(f"registry/src/*/candle-nn-{version}/src"))
    assert found, f"candle-nn {version} is not in {home}"
    return found[-1]


def public_operations():
    """The name of each public operation."""
    names = of_tensor(ROOT / "patched/candle/candle-core/src")
    sources = candle_nn()
    names |= {f"candle_nn::{name}" for name in of_crate(sources.rglob("*.rs"), sources)}
    folder = ROOT / "tuner/trial/src"
    of_optim = of_crate([folder / "optim.rs", *(folder / "optim").glob("*.rs")], folder)
    exported = set(re.findall(r"\w+", " ".join(re.findall(r"pub use ([^;]+);", (folder / "optim.rs").read_text()))))
    for name in of_optim:
        last = name.split("::")[2:]
        if last and last[0] in exported:
            names.add("ferrotune_trial::optim::" + "::".join(last))
    return names
