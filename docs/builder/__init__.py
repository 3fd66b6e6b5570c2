"""Writes what Sphinx reads: pages, notebooks with their cards, the API, pictures of plans, tables of measurements."""
