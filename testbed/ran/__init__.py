"""The radio side of a cell site: numerology, transport blocks, traffic, channel, MAC and HARQ.

Pure: no process, socket, clock, file or global random state. Emulated time is integer microseconds.
"""
