"""Ops on the structure of graphs: compressed columns, relabelling, unique ids, look-ups of ids and edges."""
