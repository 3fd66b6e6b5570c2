"""Data sets built from tables, by a description that says which tables are nodes and edges.

What is done is noted so that it goes on after a break. Tables are read in `graphfeed.ingest.tables`.
"""
