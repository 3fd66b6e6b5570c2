"""Construction of data sets from tables, by a specification of which tables have nodes and edges.

A column of a table goes through four objects. A `TableSpec` (`spec`) says that it has ids, a feature, a label, a split,
a weight or a time. A `Relation` of `graphfeed.ingest.tables` is the rows of the table, with the types of the columns
that are needed. A `Query` (`query`) is SQL for the values to write, and the rules that rows may break, from `values`.
`BadRows` reports invalid rows, or counts them. The steps for nodes, edges and fixed negatives then write arrays with a
`DatasetWriter`, and `dataset_builder` runs these steps, sorts the edges and writes the metadata. A journal of the
finished steps lets an interrupted build continue.
"""
