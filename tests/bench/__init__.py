"""Measurements: `python -m tests.bench`. They never gate anything; a table and `results/bench.json` come out."""
