"""The examples in the documentation of Rust's standard library, as rustdoc finds them.

It reads the sources that rustup's component `rust-src` installs. It does not know which examples compile: rustdoc says that.
"""

import dataclasses
import hashlib
import pathlib
import platform
import re
import subprocess

from rust_statements import cut

CRATES = ("core", "alloc", "std")
TARGET = f"{platform.machine()}-unknown-linux-gnu"

_FENCE = re.compile(r"( *)(`{3,}|~{3,})(.*)$")
_DOC = re.compile(r"\s*(///|//!)(?!/)(.*)$")
_GENERATED = re.compile(r"\s*#!?\[doc\s*=")
_RUST_TAG = re.compile(r"rust|should_panic|test_harness|standalone(_crate)?|edition20\d\d|E\d{4}")
_NOT_RUN = re.compile(r"no_run|compile_fail")
_FEATURE = re.compile(r"#!\[\s*feature\s*\(")
_MAIN = re.compile(r"^\s*(pub\s+)?(async\s+)?fn\s+main\s*\(\s*\)([^{]*)\{", re.MULTILINE)


@dataclasses.dataclass
class Example:
    """A block of Rust in the documentation that rustdoc runs, unless it is for another platform."""

    # The file below `library/` and the line of the fence.
    place: str
    # What stands behind the fence.
    info: str
    # The lines as they stand in the documentation, with the marks of those that readers do not see.
    text: str

    @property
    def name(self):
        """A name that stays when other lines of the file change."""
        return f"{self.place.rpartition(':')[0]}#{self.digest()[:8]}"

    def digest(self, seed=""):
        return hashlib.sha256(f"{seed}{self.place.rpartition(':')[0]}{self.info}{self.text}".encode()).hexdigest()

    @property
    def panics(self):
        """Whether the example has to panic."""
        return "should_panic" in self.info

    @property
    def code(self):
        """The program. As `%run` does, it calls a function `main` that nobody would call in a cell."""
        lines = []
        for line in self.text.splitlines():
            bare = line.strip()
            if bare == "#" or bare.startswith("# "):
                line = bare[2:]
            elif bare.startswith("##"):
                line = line.replace("##", "#", 1)
            lines.append(line)
        code = "\n".join(lines)
        if main := _MAIN.search(code):
            code += "\nmain()?;" if "Result" in main[3] else "\nmain();"
        return code

    @property
    def cells(self):
        """The program with each statement in a cell of its own."""
        return cut(self.code)


@dataclasses.dataclass
class Library:
    """The examples of the standard library, and the numbers of those that are left out."""

    examples: list
    # They use unstable features.
    unstable: int = 0
    # rustdoc does not run them: `no_run`, `compile_fail`, `ignore`.
    not_run: int = 0
    # They are in another language.
    other: int = 0
    # A macro makes a part of their text.
    generated: int = 0
    # The same text was in the same file before.
    repeated: int = 0


def sources():
    """The folder of the standard library's sources."""
    sysroot = subprocess.run(["rustc", "--print", "sysroot"], capture_output=True, text=True, check=True).stdout.strip()
    folder = pathlib.Path(sysroot) / "lib/rustlib/src/rust/library"
    assert folder.is_dir(), f"{folder} is missing: rustup component add rust-src"
    return folder


def library(folder=None):
    """All examples of the standard library that are stable programs."""
    folder, found = folder or sources(), Library([])
    for crate in CRATES:
        for path in sorted((folder / crate / "src").rglob("*.rs")):
            _add(found, str(path.relative_to(folder)), path.read_text())
    first = {}
    for example in found.examples:
        first.setdefault(example.name, example)
    found.repeated = len(found.examples) - len(first)
    found.examples = list(first.values())
    return found


def sample(examples, number, seed):
    """Some examples in a random order; a larger sample of the same seed has those of a smaller one, also of another version of Rust."""
    return sorted(examples, key=lambda example: example.digest(f"{seed}:"))[:number]


def _add(found, file, text):
    """Adds the examples of one file."""
    for place, info, code in _blocks(file, text):
        tags = [tag for tag in re.split(r"[\s,]+", info) if tag]
        ignored = [tag for tag in tags if tag.startswith("ignore")]
        ignored = any(tag == "ignore" or tag.removeprefix("ignore-") in TARGET for tag in ignored)
        rest = [tag for tag in tags if not tag.startswith("ignore") and not _NOT_RUN.fullmatch(tag)]
        if code is None:
            found.generated += 1
        elif not all(_RUST_TAG.fullmatch(tag) for tag in rest) and "rust" not in tags:
            found.other += 1
        elif ignored or any(_NOT_RUN.fullmatch(tag) for tag in tags):
            found.not_run += 1
        elif _FEATURE.search(code):
            found.unstable += 1
        else:
            found.examples.append(Example(place, info, code))


def _blocks(file, text):
    """The fenced blocks of a file's documentation: place, info and text, which is none if a macro makes a part of it."""
    block, indent, fence, lines = None, "", "", []
    previous = None
    for number, kind, content in _documentation(text):
        if kind != previous:
            # Documentation ends, and so does a block that nothing has closed.
            block, previous = None, kind
        if kind is None:
            continue
        marked = _FENCE.match(content or "")
        if not block:
            if marked:
                indent, fence, info = marked.groups()
                block, lines = (f"{file}:{number}", info.strip()), []
        elif marked and marked[2].startswith(fence) and not marked[3].strip():
            yield *block, None if None in lines else "\n".join(lines)
            block = None
        else:
            lines.append(content if content is None else content.removeprefix(indent))


def _documentation(text):
    """The lines of a file as number, `//!` or `///` or none, and content, which is none where a macro makes it."""
    generated = ""
    for number, line in enumerate(text.splitlines(), 1):
        if generated or _GENERATED.match(line):
            generated += line
            if generated.count("[") <= generated.count("]"):
                fence = _FENCE.match("".join(re.findall(r'"((?:[^"\\]|\\.)*)"', generated)).strip())
                yield number, "///", fence[0] if fence else None
                generated = ""
        elif doc := _DOC.match(line):
            yield number, doc[1], doc[2].removeprefix(" ")
        else:
            yield number, None, None
