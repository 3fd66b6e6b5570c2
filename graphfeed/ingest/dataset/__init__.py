"""Construction of data sets from tables, by a specification of which tables have nodes and edges.

A journal of the finished steps lets an interrupted build continue. `graphfeed.ingest.tables` reads the tables.
"""
