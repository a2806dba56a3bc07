"""The Rust blocks of the guide run as cells, page by page, in the page's order; the others are listed with their reasons."""

import json
import pathlib
import re

import pytest

from test_devices_xla import XLA_CPU, xla_cpu  # noqa: F401

GUIDE = pathlib.Path(__file__).parent.parent / "docs"

# What a block takes from its surroundings, by the beginning of the block.
BEFORE = {
    "for epoch in ferrotune::progress(0..10)": "let batches = vec![1, 2];",
    "let device = ferrotune::device::current()?;\nlet x = Tensor::randn": "use candle_core::Tensor;",
    "let mut step = ferrotune::compile(move": """use candle_core::{DType, Device, Tensor};
use candle_nn::{Module, Optimizer, VarBuilder, VarMap};
let map = VarMap::new();
let model = candle_nn::linear(4, 2, VarBuilder::from_varmap(&map, DType::F32, &Device::Cpu))?;
let mut optimiser = ferrotune::AdamW::new_lr(map.all_vars(), 1e-3)?;
let batches = vec![(Tensor::ones((3, 4), DType::F32, &Device::Cpu)?, Tensor::zeros(3, DType::U32, &Device::Cpu)?)];""",
    "struct Digits { images": "use candle_core::Tensor;",
    "let mut optimiser = ferrotune::AdamW::new(vars": """use candle_core::{DType, Device, Tensor, Var};
use candle_nn::{Optimizer, ParamsAdamW, VarMap};
use ferrotune::Trial;
let vars = VarMap::new();
vars.get(3, "w", candle_nn::init::ONE, DType::F32, &Device::Cpu)?;
let trial = Trial::of([("units", 3.into())]);""",
    "use ferrotune::optim::{Schedule": """let loss = vars.all_vars()[0].sqr()?.sum_all()?;
let step = 3u64;""",
}

# The pages whose blocks other tests take from the page.
ELSEWHERE = {
    "colab.md": "tests/test_python_extension.py",
    "data.md": "tests/test_data.py",
    "rust-api.md": "cargo xtask package",
}

# The blocks that are compiled and not run, by their beginnings, with the reasons.
COMPILED = {"let trips = data::parquet": "reads from buckets on the network"}

# The blocks that this file does not run, by their beginnings, with the reasons.
NOT_RUN = {
    "use candle_core::{DType, Device, Result, Tensor};\nuse candle_nn::{Activation": "tests/test_fit.py runs this program",
    ":dep charming": "the build of the crate takes a minute; tests/test_crates.py runs this block, for those who ask for it",
}


def blocks(page):
    """The Rust blocks of a page, also those with a tag such as `ignore`."""
    return re.findall(r"^```rust[^\n]*\n(.*?)^```$", page.read_text(encoding="utf-8"), re.M | re.S)


def every_block():
    return [block for page in GUIDE.glob("*.md") for block in blocks(page)]


def runnable(page):
    return [block for block in blocks(page) if not block.startswith((*COMPILED, *NOT_RUN))]


PAGES = [page.name for page in sorted(GUIDE.glob("*.md")) if page.name not in ELSEWHERE and runnable(page)]


@pytest.mark.parametrize("name", PAGES)
def test_blocks_of_a_page_run_as_cells(start, name):
    kernel = start()
    for block in runnable(GUIDE / name):
        for beginning, cell in BEFORE.items():
            if block.startswith(beginning):
                kernel.ok(cell)
        reply, _ = kernel.execute(block)
        assert reply["status"] == "ok", f"{block}\n{reply}"


@pytest.mark.parametrize("beginning", COMPILED)
def test_other_blocks_compile(start, beginning):
    (block,) = [block for block in every_block() if block.startswith(beginning)]
    start().ok(f"use ferrotune::data;\nfn never_called() -> ferrotune::Result<()> {{\n{block}Ok(())\n}}")


def test_functions_for_the_cores_of_a_plugin_train(start, xla_cpu):  # noqa: F811
    kernel = start()
    for block in runnable(GUIDE / "strategies.md"):
        kernel.ok(block)
    plugin = f"std::path::Path::new({json.dumps(XLA_CPU)})"
    for function in ("on_four_cores", "on_a_mesh"):
        losses = json.loads(kernel.ok(f"{function}({plugin})?").result)
        assert len(losses) == 20 and losses[-1] < 0.5 * losses[0], (function, losses)


def test_each_exception_is_of_a_block():
    for beginning in [*BEFORE, *COMPILED, *NOT_RUN]:
        assert [block for block in every_block() if block.startswith(beginning)], beginning
    assert {page for page in ELSEWHERE if blocks(GUIDE / page)} == set(ELSEWHERE)
