"""What a turn costs: `python -m bench` prints ratios measured in one run. docs/benchmarks.md says how to read them."""
