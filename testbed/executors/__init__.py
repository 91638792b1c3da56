"""The real work of a node, in a child process of its host: PHY kernels, training, the store.

The only package that may import torch, and only in the modules that compute: ``timer``, ``clock``,
``link``, ``config``, ``gate_costs`` and ``gate_engine`` are free of it and of import cost.
"""
