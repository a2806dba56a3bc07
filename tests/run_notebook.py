"""Runs one notebook, shows its outputs while it runs, and saves it with its outputs as .ipynb and as HTML.

Usage: python tests/run_notebook.py NOTEBOOK --output FOLDER
"""

import argparse
import pathlib
import shutil
import sys

import nbformat
from nbconvert import HTMLExporter
from nbformat import NotebookNode

import notebook_run


class Terminal:
    """Prints the notebook as lines of text; an updated display keeps its line if the terminal supports that."""

    def __init__(self, cells):
        self.codes = [index for index, cell in enumerate(cells) if cell.cell_type == "code"]
        self.cell = None
        self.line_is_open = False
        self.is_terminal = sys.stdout.isatty()

    def __call__(self, msg_type, content, index):
        if self.cell != index and msg_type == "execute_input":
            self.cell = index
            self.say(f"--- cell {self.codes.index(index) + 1} of {len(self.codes)}")
        elif msg_type == "stream":
            self.say(content["text"].rstrip("\n"))
        elif msg_type in ("display_data", "execute_result"):
            self.say(content["data"].get("text/plain", ""))
        elif msg_type == "update_display_data":
            self.update(content["data"].get("text/plain", ""))

    def say(self, text):
        if text.strip():
            print(("\n" if self.line_is_open else "") + text, flush=True)
            self.line_is_open = False

    def update(self, text):
        line = " | ".join(text.split("\n"))
        if self.is_terminal:
            width = shutil.get_terminal_size().columns - 1
            print(f"\r\x1b[2K{line[:width]}", end="", flush=True)
            self.line_is_open = True
        elif text.strip():
            print(line, flush=True)

    def end(self):
        if self.line_is_open:
            print()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("notebook", type=pathlib.Path)
    parser.add_argument("--output", type=pathlib.Path, required=True)
    arguments = parser.parse_args()

    output = arguments.output.resolve()
    if output.is_relative_to(arguments.notebook.resolve().parent):
        parser.error("--output is inside the notebook's folder, which is copied to it; name another")
    shutil.rmtree(output, ignore_errors=True)
    output.mkdir(parents=True)
    folder = notebook_run.copy_of(arguments.notebook.parent, output)
    path = folder / arguments.notebook.name

    terminal = Terminal(nbformat.read(path, as_version=4).cells)
    notebook, error = notebook_run.run(path, folder, watch=terminal)
    terminal.end()

    nbformat.write(notebook, path)
    html = path.with_suffix(".html")
    html.write_text(HTMLExporter().from_notebook_node(notebook)[0], encoding="utf-8")

    if error is not None:
        print(f"\nthe notebook failed: {error}", file=sys.stderr)
    else:
        show_best(notebook)
    print(f"notebook: {path}\nHTML:     {html}")
    return 0 if error is None else 1


def show_best(notebook: NotebookNode):
    """The outcome of the last `%best`."""
    best = [cell for cell in notebook.cells if cell.cell_type == "code" and cell.source.startswith("%best")]
    for output in best[-1].outputs if best else []:
        print(f"\nthe best trials:\n{notebook_run.text_of(output).rstrip()}\n")


if __name__ == "__main__":
    sys.exit(main())
