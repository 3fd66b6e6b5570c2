"""Generate the sources for Sphinx: pages, notebooks and cards, the API, pictures of plans, tables of measurements."""
