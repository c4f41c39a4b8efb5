"""Runs a plan over rows in worker processes: lanes, pooling, retries and accounting, once for every sandbox."""
