"""The slot bench: one gNB and its GPU slot by slot, in arrays, without messages.

What the node simulator gives for the same topology and seed, bit for bit, many times faster.
"""
