"""Rust cells in a Python notebook: `%load_ext ferrotune`, then `%%rust`. Importing this starts nothing."""

from .arrays import empty

__version__ = "0.1.0"

__all__ = ["empty", "load_ipython_extension", "unload_ipython_extension"]

_extension = None


def load_ipython_extension(shell):
    """IPython calls this for `%load_ext ferrotune`."""
    global _extension
    from .extension import Extension

    _extension = Extension(shell)
    _extension.load()


def unload_ipython_extension(shell):
    """IPython calls this for `%unload_ext ferrotune`."""
    global _extension
    _extension.unload()
    _extension = None
