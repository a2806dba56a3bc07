"""Papermill's parameters as Rust: `papermill -p lr 0.01` injects the cell `let lr = 0.01;`.

Papermill loads this module when it starts, because the package names an engine, which is papermill's own one. The module then
registers the translator, for which papermill has no entry point. A value without a Rust counterpart is refused with the reason.
"""

import math
import re

from papermill.engines import NBClientEngine
from papermill.models import Parameter
from papermill.translators import Translator, papermill_translators

__all__ = ["NBClientEngine", "RustTranslator"]

# `let lr: f64 = 0.01; // the learning rate`
_PARAMETER = re.compile(r"\s*let\s+(?:mut\s+)?(\w+)\s*(?::\s*([^=]+?))?\s*=\s*(.+?)\s*;\s*(?://\s*(.*))?$")
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t"}


class RustTranslator(Translator):
    """Values become `&str`, `i32` (or the larger integer that holds them), `f64`, `bool`, `Vec` and `None::<f64>`."""

    @classmethod
    def translate_str(cls, val):
        return f'"{"".join(map(_escaped, val))}"'

    translate_escaped_str = translate_str

    @classmethod
    def translate_none(cls, val):
        return "None::<f64>"

    @classmethod
    def translate_int(cls, val):
        for bits, suffix in ((32, ""), (64, "i64"), (128, "i128")):
            if -(2 ** (bits - 1)) <= val < 2 ** (bits - 1):
                return f"{val}{suffix}"
        raise ValueError(f"{val} has no Rust type; the largest integers have 128 bits")

    @classmethod
    def translate_float(cls, val):
        if math.isnan(val):
            return "f64::NAN"
        if math.isinf(val):
            return "f64::INFINITY" if val > 0 else "f64::NEG_INFINITY"
        return f"{val!r}f64"

    @classmethod
    def translate_list(cls, val):
        kinds = {type(element) for element in val}
        if kinds == {int, float}:
            val, kinds = [float(element) for element in val], {float}
        if len(kinds) != 1:
            raise ValueError(f"the list {val} has no Rust type; its elements have to be of one type, and at least one")
        widest = max((cls.translate(element) for element in val), key=len) if kinds == {int} else ""
        suffix = widest.lstrip("-0123456789")
        elements = [f"{element}{suffix}" if kinds == {int} else cls.translate(element) for element in val]
        return f"vec![{', '.join(elements)}]"

    @classmethod
    def translate_dict(cls, val):
        raise ValueError(f"the dictionary {val} has no Rust type; pass its values one by one")

    @classmethod
    def comment(cls, cmt_str):
        return f"// {cmt_str}"

    @classmethod
    def assign(cls, name, str_val):
        if not _IDENTIFIER.fullmatch(name):
            raise ValueError(f"{name!r} is not the name of a Rust variable; use letters, digits and underscores")
        return f"let {name} = {str_val};"

    @classmethod
    def inspect(cls, parameters_cell):
        found = filter(None, map(_PARAMETER.match, parameters_cell["source"].splitlines()))
        return [Parameter(it[1], it[2] or "None", it[3], it[4] or "") for it in found]


def _escaped(character):
    if character in _ESCAPES:
        return _ESCAPES[character]
    return character if character.isprintable() else f"\\u{{{ord(character):x}}}"


papermill_translators.register("ferrotune", RustTranslator)
