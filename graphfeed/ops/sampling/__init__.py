"""Ops that draw: neighbours, whole mini-batches of them, negatives, orders; and what they read from a graph."""
