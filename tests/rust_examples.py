"""The examples in the documentation of Rust's standard library, as rustdoc finds them, and their statements.

It reads the sources that rustup's component `rust-src` installs. It does not know which examples compile: rustdoc says that.
"""

import dataclasses
import hashlib
import pathlib
import re
import subprocess

CRATES = ("core", "alloc", "std")
TARGET = "x86_64-unknown-linux-gnu"

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


# ---- statements

_TOKEN = re.compile(
    r"""(?P<space>\s+)
    |(?P<line>//[^\n]*)
    |(?P<open>/\*)
    |(?P<raw>[bc]?r(?P<hashes>\#*)".*?"(?P=hashes))
    |(?P<text>[bc]?"(?:\\.|[^"\\])*")
    |(?P<char>b?'(?:\\(?:x[0-9a-fA-F]{2}|u\{[^}]*\}|.)|[^\\'])')
    |(?P<life>'\w+)
    |(?P<word>(?:r\#)?\w+)
    |(?P<sign>=>|->|::|==|!=|<=|>=|&&|\|\||\.\.|.)""",
    re.VERBOSE | re.DOTALL,
)
_ITEMS = {"fn", "struct", "enum", "union", "trait", "impl", "mod"}
_HEADED = {"if", "while", "match", "for"}
_BEFORE_BLOCK = {"unsafe", "loop", "async", "move", "const", "=", "match", "if", "while", "in", "&&", "||", "=="}


def cut(code):
    """The statements of a program, each with the comments and attributes in front of it."""
    tokens = _tokens(code)
    cells, begin, at = [], 0, 0
    while at < len(tokens):
        at = _end_of_statement(tokens, at)
        end = tokens[at - 1][2]
        # A comment on the line on which a statement ends belongs to it.
        line_end = code.find("\n", end)
        rest = code[end : line_end if line_end >= 0 else len(code)]
        if rest.strip().startswith("//") or at == len(tokens):
            end += len(rest)
        if cells and code[begin:end].strip() == ";":
            cells[-1] += code[begin:end]
        else:
            cells.append(code[begin:end].strip("\n"))
        begin = end
    if cells and code[begin:].strip():
        cells[-1] += code[begin:].rstrip()
    return cells


def _tokens(code):
    """The tokens that are no comments: kind, text, and the position of the end."""
    tokens, at = [], 0
    while at < len(code):
        token = _TOKEN.match(code, at)
        at = token.end()
        if token.lastgroup == "open":
            depth = 1
            while depth and (mark := re.compile(r"/\*|\*/").search(code, at)):
                depth, at = depth + (1 if mark[0] == "/*" else -1), mark.end()
        elif token["space"] is None and token["line"] is None:
            tokens.append(("word" if token["word"] else "sign" if token["sign"] else "value", token[0], at))
    return tokens


def _end_of_statement(tokens, begin):
    """The number of the first token behind a statement."""
    text = lambda at: tokens[at][1] if at < len(tokens) else ""
    at = begin
    while text(at) == "#":
        at = _behind_brackets(tokens, at + (2 if text(at + 1) == "!" else 1))
        if text(begin + 1) == "!":
            begin = at
    if text(at) == "pub":
        at += 1
        if text(at) == "(":
            at = _behind_brackets(tokens, at)
    if text(at).startswith("'") and text(at + 1) == ":":
        at += 2
    kind = _kind(text, at)
    headed, body = kind == "headed", kind != "headed"
    pattern = False
    while at < len(tokens):
        token = text(at)
        if token == ";":
            return at + 1
        if headed and not body:
            if token in ("let", "for"):
                pattern = True
            elif token in ("=", "in"):
                pattern = False
            elif token == "{" and not pattern and (text(at - 1) not in _BEFORE_BLOCK or at == begin):
                body = True
        if token in ("(", "[", "{"):
            at = _behind_brackets(tokens, at)
            if token != "{" or kind == "plain" or not body:
                continue
            if text(at) == "else":
                body = text(at + 1) != "if"
                at += 1
                continue
            if kind != "item" and text(at) in (".", "?"):
                kind, headed = "plain", False
                continue
            if text(at) == ";" and kind != "item":
                at += 1
            return at
        at += 1
    return at


def _kind(text, at):
    """What ends a statement: its first block (item, block), the block behind its head (headed), or a semicolon (plain)."""
    word = text(at)
    if word in _ITEMS and not (word == "union" and text(at + 2) not in ("{", "<")):
        return "item"
    if word in _HEADED:
        return "headed"
    if word in ("{", "loop"):
        return "block"
    if word in ("unsafe", "async", "const", "extern", "default", "auto"):
        after = at + 1
        if word == "extern" and text(after).startswith('"'):
            after += 1
        if word == "async" and text(after) == "move":
            after += 1
        if text(after) == "{":
            return "item" if word == "extern" else "block"
        if text(after) in _ITEMS or text(after) in ("unsafe", "extern", "async") and word != "auto":
            return "item" if text(after) in _ITEMS else _kind(text, after)
        return "plain"
    while text(at + 1) == "::":
        at += 2
    if text(at + 1) == "!":
        name = at + 2 + (text(at + 2) not in ("(", "[", "{"))
        if text(name) == "{":
            return "item" if text(at) == "macro_rules" else "block"
    return "plain"


def _behind_brackets(tokens, at):
    """The number of the token behind the bracket that closes the one at `at`."""
    depth = 0
    while at < len(tokens):
        depth += (tokens[at][1] in ("(", "[", "{")) - (tokens[at][1] in (")", "]", "}"))
        at += 1
        if depth == 0:
            break
    return at
