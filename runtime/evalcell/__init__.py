"""Runs anyone's evaluate(output, reference) safely on every row of an experiment."""
