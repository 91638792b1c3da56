"""The figures of a run, one file per section of ``summary.json``."""
