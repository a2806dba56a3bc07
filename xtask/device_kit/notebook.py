"""Runs a notebook on a plugin: `notebook.py PLUGIN NOTEBOOK`.

The kernel connects the plugin first. Then all cells run as they are, but for the notebook's own line of `%tpu_connect`, which names the
plugin of another machine. The first cell that fails ends the run with exit status 1.
"""

import json
import os
import pathlib
import sys
import tempfile

from cells import Kernel


def main():
    plugin, path = sys.argv[1:]
    cells = json.loads(pathlib.Path(path).read_text(encoding="utf-8"))["cells"]
    codes = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    codes = [code for code in codes if not code.startswith("%tpu_connect")]
    with tempfile.TemporaryDirectory() as folder:
        # What the notebook writes goes here.
        os.chdir(folder)
        with Kernel(plugin) as kernel:
            for code in codes:
                kernel.run(code)
        os.chdir("/")
    print(f"{len(codes)} cells ran")


if __name__ == "__main__":
    main()
