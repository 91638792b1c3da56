"""Importers of load logs: what other tools measured becomes bytes per interval, then arrivals.

``formats.read_log`` reads a log into a ``common.LoadLog``; ``spread.spread_loads`` turns that into
a trace that cells replay, ``profile.profile_of`` into arrays of load over time. NR-Scope logs,
which hold single grants instead of intervals, have their own importer (``testbed.ran.nr_scope``).

Pure: lines of text in, values out; whoever calls opens the files.
"""
