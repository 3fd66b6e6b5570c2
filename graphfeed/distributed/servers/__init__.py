"""Servers that make mini-batches for other machines.

The server with its command, health and metrics, and the clients that read from it. Channels between processes of one
machine are in `graphfeed.channels`.
"""
