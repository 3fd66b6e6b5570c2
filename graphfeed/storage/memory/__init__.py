"""Memory that processes share, memory that a GPU's streams take turns in, and tensors as text."""
