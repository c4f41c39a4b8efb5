"""The `evalcell` command: a thin face of the core."""
