"""Other libraries: names that exist only for programs of GraphBolt's, and DGL's graphs and blocks.

This room is optional, and nothing below it imports it. What is useful without the other library belongs to
`graphfeed.datapipes` or `graphfeed.storage`; PyG has a room of its own, `graphfeed.pyg`.
"""
