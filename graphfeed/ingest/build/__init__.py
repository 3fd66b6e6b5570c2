"""Data sets built from tables.

A description says which tables are nodes and edges; ids are numbered, edges sorted, features and tasks written, and
what is done is noted so that it goes on after a break. Tables are read in `graphfeed.ingest.tables`.
"""
