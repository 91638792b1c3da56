"""The spare-compute controller: MAC scheduling that keeps the RAN's share of a GPU steady."""
