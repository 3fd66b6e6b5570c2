"""GiGL's classes.

They read graphs that GiGL has serialized, with the signatures of GiGL, by means of `graphfeed.ingest.tfrecord`.
"""
