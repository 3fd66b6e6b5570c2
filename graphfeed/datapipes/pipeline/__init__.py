"""What supports the stages: fluent names and their types, walks over a pipeline, its text, and estimates of size.

Nothing here is a stage, and nothing here runs one. Rewriting a pipeline in order to run it is the task of the rules in
`graphfeed.loader`.
"""
