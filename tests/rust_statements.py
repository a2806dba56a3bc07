"""Cuts a program in Rust between its statements, from its tokens alone. It does not check whether they are Rust."""

import re

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
_COMMENT_MARK = re.compile(r"/\*|\*/")
_ITEMS = {"fn", "struct", "enum", "union", "trait", "impl", "mod"}
_HEADED = {"if", "while", "match", "for"}
# After these, a block in the head of a statement is a part of the head.
_BEFORE_BLOCK = {"unsafe", "loop", "async", "move", "const", "=", "match", "if", "while", "in", "&&", "||", "=="}


def cut(code):
    """The statements of a program, each with the comments and attributes in front of it."""
    tokens = _tokens(code)
    cells, begin, at = [], 0, 0
    while at < len(tokens):
        at = _end_of_statement(tokens, at)
        end = tokens[at - 1][1]
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
    """The tokens that are no comments: the text and the position behind it."""
    tokens, at = [], 0
    while at < len(code):
        token = _TOKEN.match(code, at)
        at = token.end()
        if token.lastgroup == "open":
            depth = 1
            while depth and (mark := _COMMENT_MARK.search(code, at)):
                depth, at = depth + (1 if mark[0] == "/*" else -1), mark.end()
        elif token["space"] is None and token["line"] is None:
            tokens.append((token[0], at))
    return tokens


def _end_of_statement(tokens, begin):
    """The number of the first token behind the statement that begins with the token `begin`."""
    text = lambda at: tokens[at][0] if at < len(tokens) else ""
    at = begin
    while text(at) == "#":
        at = _behind_brackets(tokens, at + (2 if text(at + 1) == "!" else 1))
    if text(at) == "pub":
        at += 1
        if text(at) == "(":
            at = _behind_brackets(tokens, at)
    if text(at).startswith("'") and text(at + 1) == ":":
        at += 2
    kind = _kind(text, at)
    # Whether the next block is the body: a pattern in the head of `if let` may have braces, too.
    body, pattern = kind != "headed", False
    while at < len(tokens):
        token = text(at)
        if token == ";":
            return at + 1
        if not body:
            if token in ("let", "for"):
                pattern = True
            elif token in ("=", "in"):
                pattern = False
            elif token == "{" and not pattern and text(at - 1) not in _BEFORE_BLOCK:
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
                # The block is the beginning of an expression.
                kind = "plain"
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
        if text(after) in _ITEMS:
            return "item"
        return _kind(text, after) if text(after) in ("unsafe", "extern", "async") else "plain"
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
        depth += (tokens[at][0] in ("(", "[", "{")) - (tokens[at][0] in (")", "]", "}"))
        at += 1
        if depth == 0:
            break
    return at
