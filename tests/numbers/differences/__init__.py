"""The suite of differences: every public operation of candle and of ferrotune's optimisers against NumPy, SciPy and JAX in f64.

`PYTHONPATH=tests/numbers python -m differences` runs it; `tests/test_numbers.py` does in `cargo xtask test`. `src/` is the program that
calls candle.
"""
