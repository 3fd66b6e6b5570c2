"""The SQL of ingest: each function returns an expression, a query or a statement, and runs nothing.

`columns` has expressions for values, `files` queries of files, and `entries` statements about the rows of a table of a
specification. `graphfeed.ingest.tables` and `graphfeed.ingest.dataset` run them. Columns are called `c0`, `c1`, ... and
rows have a number `n`, so no name or string of a user gets into SQL, except as a quoted literal.
"""
