"""A case as a line of Rust."""

import re

import numpy as np

from differences.kinds import name_of

CANDLE = {"u8": "U8", "u32": "U32", "i16": "I16", "i32": "I32", "i64": "I64", "bf16": "BF16", "f16": "F16", "f32": "F32", "f64": "F64"}
VIEWS = {
    "whole": "", "transposed": ".t()?.contiguous()?.t()?", "offset": " (behind other elements of its storage)",
    "strided": " (each second element of its storage)",
}


def element(number, dtype, suffix):
    if dtype in ("bf16", "f16", "f32", "f64"):
        kind = "f64" if dtype == "f64" else "f32"
        number = float(number) if dtype == "f64" else np.float32(number)
        if np.isnan(number):
            return f"{kind}::NAN"
        if np.isinf(number):
            return f"{kind}::INFINITY" if number > 0 else f"{kind}::NEG_INFINITY"
        text = repr(float(number)) if kind == "f64" else np.format_float_positional(number, trim="0") if 1e-5 <= abs(number) < 1e16 or number == 0 \
            else np.format_float_scientific(number, trim="0", exp_digits=1)
        text = text.replace("e+", "e")
        text = text.removesuffix("0") if text.endswith(".0") else text
        return text.removesuffix(".") + f"{kind}" if suffix else text
    return f"{number}{dtype}" if suffix else f"{number}"


def nested(array, dtype, state):
    if array.ndim == 0:
        text = element(array[()], dtype, state["first"])
        state["first"] = False
        return text
    return "[" + ", ".join(nested(part, dtype, state) for part in array) + "]"


def tensor(array, view, device):
    dtype = name_of(array)
    if array.size == 0:
        return f"Tensor::zeros({shape_text(array.shape)}, DType::{CANDLE[dtype]}, {device})?"
    if array.size > 16:
        return f"<{dtype} {list(array.shape)}>"
    flat = array if array.ndim <= 2 else array.reshape(-1)
    text = nested(flat, dtype, {"first": True})
    text = f"Tensor::new({'&' if array.ndim else ''}{text}, {device})?"
    if dtype in ("bf16", "f16"):
        text += f".to_dtype(DType::{CANDLE[dtype]})?"
    if array.ndim > 2:
        text += f".reshape({shape_text(array.shape)})?"
    return text + (VIEWS[view] if array.ndim > 1 or view != "transposed" else "")


def shape_text(shape):
    return str(shape[0]) if len(shape) == 1 else "(" + ", ".join(map(str, shape)) + ")"


def number_text(kind, value):
    if kind == "dtype":
        return f"DType::{CANDLE[value]}"
    if kind == "sizes":
        return "vec!" + str(list(value))
    if kind == "text":
        return f'"{value}"'
    if kind == "flag":
        return str(value).lower()
    return element(value, "f64", False) if kind == "float" else str(value)


def line(case, text, mode):
    """The call of a case, with its inputs in their places."""
    device = "&Device::Cpu" if mode == "cpu" else "&device"
    for place, value in enumerate(case.numbers):
        text = re.sub(rf"n\.(\w+)\({place}\)", lambda found: number_text(found.group(1), value), text)
    for place, array in enumerate(case.inputs):
        text = re.sub(rf"&?x\s*\[{place}\]", lambda found: ("&" if found.group(0)[0] == "&" else "") + tensor(array, case.view, device), text)
    text = re.sub(r"\bx\b(?!\w)", "[" + ", ".join(tensor(array, case.view, device) for array in case.inputs) + "]", text)
    return re.sub(r"\s+", " ", text)


def shown(found):
    """Values as a line shows them."""
    if isinstance(found, str):
        return found
    if isinstance(found, (list, tuple)):
        parts = [shown(part) for part in found]
        return parts[0] if len(parts) == 1 else "(" + ", ".join(parts) + ")"
    if found is None:
        return "none"
    array = np.asarray(found)
    flat = array.astype(np.float64) if array.dtype.kind not in "iub" else array
    text = np.array2string(flat, threshold=12, edgeitems=3, precision=9, floatmode="maxprec", separator=", ", suppress_small=False)
    return re.sub(r"\s+", " ", text)
