"""What no scheduler can beat: offline upper bounds of the usable spare share of a GPU.

Pure: arrays in, a proven figure out (``bound.bound``). Nothing here knows of policies, nodes or
tables, and no run's result enters but the arrivals and, if wanted, their deadlines.
"""
