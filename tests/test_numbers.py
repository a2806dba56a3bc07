"""The numbers are right: each public operation of candle and of ferrotune's optimisers against NumPy, SciPy and JAX in f64, on the
CPU and on XLA:CPU, lazily and compiled. The suite is `tests/numbers`; this runs it.
"""

import os
import pathlib
import subprocess
import sys

import pytest
from differences import listing, not_numerical, program, purposes, suite
from differences.operation import TABLE

ROOT = pathlib.Path(__file__).parent.parent
NUMBERS = ROOT / "tests/numbers"
# Three times what it takes where nothing is compiled yet and the other tests have the processors.
TIMEOUT_S = 580


@pytest.fixture(scope="module")
def table():
    suite.load()
    return TABLE


def test_every_public_operation_has_right_values_or_a_reason_why_not(table):
    public = listing.public_operations()
    covered = {suite.base_of(name) for name in table}
    assert covered - public == set(), "the table has what candle does not have"
    assert not_numerical.stale(public) == []
    forgotten = sorted(name for name in public - covered if not not_numerical.is_here(name))
    assert forgotten == [], "add a row to tests/numbers/differences/tables, or a reason to not_numerical.py"
    assert [name for name in covered if not_numerical.is_here(name)] == []


def test_a_new_operation_would_be_noticed():
    source = """
        macro_rules! unary_op { ($fn_name:ident, $op_name:ident) => { pub fn $fn_name(&self) -> Result<Self> { todo!() } }; }
        impl Tensor {
            unary_op!(exp, Exp); // unary_op!(gone, Gone);
            /// "pub fn text() {"
            pub fn new_one<S: Into<Shape>>(&self, shape: S) -> Result<Self> { let c = '{'; inner(c) }
            pub(crate) fn hidden(&self) {}
            fn own(&self) {}
        }
        impl<T> IndexOp<T> for Tensor where Tensor: Sized { fn i(&self, index: T) -> Result<Tensor> {} }
        bin_trait!(Add, add, |_| 1., |v| v);
        impl std::ops::Sub<&Tensor> for f64 { fn sub(self, rhs: &Tensor) -> Self::Output {} }
        #[cfg(test)]
        mod tests { impl Tensor { pub fn of_a_test() {} } }
    """
    names = {"Tensor::exp", "Tensor::new_one", "Tensor::i", "Tensor + Tensor", "Tensor + f64", "f64 - Tensor"}
    assert listing.of_tensor_in(source) == names


def test_the_program_has_each_operation_of_the_table(table):
    texts = program.texts()
    assert [name for name in table if name not in texts and suite.base_of(name) not in texts] == []
    suite.call_by_program(texts)
    assert sorted(set(texts) - {operation.call for operation in table.values()}) == []


def test_what_differs_on_purpose_is_in_the_documentation():
    _, section = (ROOT / "docs/candle.md").read_text().split("## Where values differ on purpose\n")
    section = section.split("\n## ")[0]
    assert purposes.table() in section


@pytest.mark.parametrize("mode", program.MODES)
def test_values_and_gradients_are_right(mode):
    environment = {**os.environ, "PYTHONPATH": str(NUMBERS)}
    command = [sys.executable, "-m", "differences", "--mode", mode]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, env=environment)
    # Shown with a failure: the seed, and a line of Rust for each difference.
    print(ran.stdout)
    assert ran.returncode == 0, ran.stdout + ran.stderr
