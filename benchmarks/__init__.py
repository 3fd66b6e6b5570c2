"""Ratios of graphfeed to the machine's own limits and to plain NumPy, measured in one run."""
