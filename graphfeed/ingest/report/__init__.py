"""What is known of tables and data sets.

Counts, degrees and examples, as text, and the command that prints them. Reports of partitions are in
`graphfeed.distributed.partition`.
"""
