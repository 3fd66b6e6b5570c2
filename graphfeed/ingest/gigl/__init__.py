"""GiGL's classes.

They read graphs that GiGL has serialized, with the signatures that its programs use, by `graphfeed.ingest.tfrecord`.
"""
