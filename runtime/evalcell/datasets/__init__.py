"""Datasets: rows out of JSONL, JSON, CSV, Parquet, pipes and memory, as JSON text that nobody has decoded yet."""

from evalcell.datasets.formats import Format
from evalcell.datasets.opening import STDIN, Dataset, in_memory, only_rows, opened, with_first
from evalcell.datasets.row import Row

__all__ = ["STDIN", "Dataset", "Format", "Row", "in_memory", "only_rows", "opened", "with_first"]
