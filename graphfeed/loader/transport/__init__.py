"""What crosses a cut: between threads, streams and processes."""
