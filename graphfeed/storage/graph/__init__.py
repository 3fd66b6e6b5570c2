"""Sampling graphs, the subgraphs drawn from them, how they are built, and the files that they lie in."""
