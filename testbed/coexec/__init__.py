"""Weave: which RL jobs share GPUs, in what order they run, and what it costs.

Pure: no I/O, no clock, no global randomness. The coordinator, the replay and ``plan`` call the same
functions: a planner (``policies``) maps a plan, an event and the jobs' standings to a new plan and
its reasons.
"""
