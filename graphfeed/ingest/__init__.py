"""Files in: from the formats that people have to tensors, graphs and data sets.

This room is optional, and nothing below it imports it. What it makes, and how that lies on disk, belongs to
`graphfeed.storage`. Objects of other libraries, rather than files, belong to `graphfeed.interop`.
"""
