"""Runs anyone's evaluate(output, reference) safely on every row of an experiment."""

from evalcell.version import __version__

__all__ = ["__version__"]
