"""Runs notebooks through nbclient, over tcp or ipc, and shows their outputs while they run.

Used by the tests and by `run_notebook.py`; changes nothing in the notebook's own folder.
"""

import pathlib
import shutil
import sys
import tempfile

import nbformat
from nbclient import NotebookClient

# The longest cell is a search.
CELL_TIMEOUT_S = 600


class ShownNotebookClient(NotebookClient):
    """Passes each message of a notebook to `watch` at once."""

    watch = None

    def process_message(self, msg, cell, cell_index):
        if self.watch:
            self.watch(msg["msg_type"], msg["content"], cell_index)
        return super().process_message(msg, cell, cell_index)


def run(path, folder, transport="tcp", watch=None):
    """Runs the notebook with `folder` as its working folder; returns it with its outputs, and the error or None.

    A cell that fails ends the run; what came before it is in the notebook that is given back.
    """
    notebook = nbformat.read(path, as_version=4)
    client = ShownNotebookClient(
        notebook,
        timeout=CELL_TIMEOUT_S,
        kernel_name=notebook.metadata.kernelspec.name,
        resources={"metadata": {"path": str(folder)}},
    )
    client.watch = watch
    manager = client.create_kernel_manager()
    # The path of a socket has to be short, so it cannot be near the notebook.
    sockets = tempfile.mkdtemp(prefix="nb-")
    if transport == "ipc":
        manager.transport = "ipc"
        manager.connection_file = f"{sockets}/kernel.json"
        manager.ip = f"{sockets}/socket"
    try:
        client.execute()
        error = None
    except Exception as reason:  # noqa: BLE001: whatever it is, it is the notebook's outcome
        error = reason
    finally:
        shutil.rmtree(sockets, ignore_errors=True)
    return notebook, error


def copy_of(notebooks, folder):
    """Copies the notebooks and their data, without studies beside them."""
    target = pathlib.Path(folder) / "notebooks"
    shutil.copytree(notebooks, target, ignore=shutil.ignore_patterns("studies", ".ipynb_checkpoints"))
    return target


def text_of(output):
    """The plain text of an output."""
    if output.output_type == "stream":
        return output.text
    if output.output_type == "error":
        return f"{output.ename}: {output.evalue}"
    return output.data.get("text/plain", "")


def cell_of(notebook, source):
    """The one code cell that begins with `source`."""
    found = [cell for cell in notebook.cells if cell.cell_type == "code" and cell.source.startswith(source)]
    if len(found) != 1:
        sys.exit(f"{len(found)} cells begin with {source!r}")
    return found[0]
