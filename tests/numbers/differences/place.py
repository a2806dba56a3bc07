"""Where the suite finds the repository and what is built."""

import pathlib

ROOT = pathlib.Path(__file__).resolve().parents[3]
TARGET = ROOT / "target"
