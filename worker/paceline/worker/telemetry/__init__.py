"""One trace a run, told by whoever writes to its record. See docs/tracing.md."""
