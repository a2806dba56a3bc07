"""Each Rust block of the guide runs as a cell, page by page, in the page's order."""

import pathlib
import re

import pytest

GUIDE = pathlib.Path(__file__).parent.parent / "docs"

# What a block takes from its surroundings, by the beginning of the block.
BEFORE = {
    "for epoch in ferrotune::progress(0..10)": "let batches = vec![1, 2];",
    "let device = ferrotune::device::current()?;\nlet x = Tensor::randn": "use candle_core::Tensor;",
    "let mut step = ferrotune::compile(move": """use candle_core::{DType, Device};
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

# The pages whose blocks run elsewhere, and the blocks that are sketches of programs that do.
ELSEWHERE = {
    "colab.md": "tests/test_python_extension.py",
    "data.md": "tests/test_data.py",
    "python.md": "tests/test_python_extension.py",
    "rust-api.md": "cargo xtask package",
    "strategies.md": "tests/test_strategy_cores.py, devices/tests/it/strategies.rs, xla/tests/it/sharding.rs and pipeline.rs",
}
SKETCHES = {
    "fn model(trial: &Trial)": "tests/test_results.py",
    "let page = HtmlRenderer": "tests/test_crates.py",
}


def blocks(page):
    """The Rust blocks of a page."""
    return re.findall(r"^```rust\n(.*?)^```$", page.read_text(encoding="utf-8"), re.M | re.S)


PAGES = [page.name for page in sorted(GUIDE.glob("*.md")) if page.name not in ELSEWHERE and blocks(page)]


@pytest.mark.parametrize("name", PAGES)
def test_blocks_of_a_page_run_as_cells(start, name):
    kernel = start()
    for block in blocks(GUIDE / name):
        if any(block.startswith(sketch) for sketch in SKETCHES):
            continue
        for beginning, cell in BEFORE.items():
            if block.startswith(beginning):
                kernel.ok(cell)
        reply, messages = kernel.execute(block)
        assert reply["status"] == "ok", f"{block}\n{reply}"


def test_each_exception_is_of_a_block():
    every = [block for page in GUIDE.glob("*.md") for block in blocks(page)]
    for beginning in [*BEFORE, *SKETCHES]:
        assert [block for block in every if block.startswith(beginning)], beginning
    assert {page for page in ELSEWHERE if blocks(GUIDE / page)} == set(ELSEWHERE)
