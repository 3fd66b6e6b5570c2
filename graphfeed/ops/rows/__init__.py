"""Operations on the rows of tensors and files: gather, copy, read, delete; and which rows a cache keeps.

They move rows and don't look at the values. The features and caches that use them are in `graphfeed.storage.features`.
"""
