"""The Rust blocks of the guide run as cells, page by page, in the page's order; those that do not are listed with their reasons."""

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

# The pages whose blocks other tests take from the page.
ELSEWHERE = {
    "colab.md": "tests/test_python_extension.py",
    "data.md": "tests/test_data.py",
    "rust-api.md": "cargo xtask package",
}

# The blocks that no test runs, by their beginnings, with the reasons.
NOT_RUN = {
    "let trips = data::parquet": "reads from buckets on the network",
    "let page = HtmlRenderer": "needs a crate whose build takes a minute; tests/test_crates.py has the same lines, for those who ask for it",
    "%%rust -i x -o means": "a cell of a Python notebook, without the cell that makes its array",
    "%%rust\n%timeit": "a cell of a Python notebook, without the cell that makes its data",
    "fn model(trial: &Trial)": "a sketch: the model is the user's",
    "use ferrotune::strategy::{self, Strategy};": "a sketch: model and gradients are the user's",
    "for epoch in trial.epochs(20) {\n    let losses": "a sketch of a body of %%tune",
    "let cluster = Cluster::new": "a sketch: two hosts with cards",
    "use ferrotune::xla::{self, Options};": "a sketch: model and gradients are the user's",
    "let device = xla::open_with": "a sketch: the loss is the user's",
    "use ferrotune::xla::{self, Pipeline, Stage};": "a sketch: the blocks of the model are the user's",
}


def blocks(page):
    """The Rust blocks of a page, also those with a tag such as `ignore`."""
    return re.findall(r"^```rust[^\n]*\n(.*?)^```$", page.read_text(encoding="utf-8"), re.M | re.S)


def runnable(page):
    return [block for block in blocks(page) if not block.startswith(tuple(NOT_RUN))]


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


def test_each_exception_is_of_a_block():
    every = [block for page in GUIDE.glob("*.md") for block in blocks(page)]
    for beginning in [*BEFORE, *NOT_RUN]:
        assert [block for block in every if block.startswith(beginning)], beginning
    assert {page for page in ELSEWHERE if blocks(GUIDE / page)} == set(ELSEWHERE)
