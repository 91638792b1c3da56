"""The figures of design.md section 9, one file per section of ``summary.json``."""
