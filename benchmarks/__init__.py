"""Measures what evalcell costs and gives, each number beside a baseline of the same run. `make bench` runs it."""
