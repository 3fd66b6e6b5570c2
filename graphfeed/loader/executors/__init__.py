"""Who computes: worker processes behind the interface of `concurrent.futures.Executor`.

`process_executor` is what the loader and users submit calls to. Its `dispatcher`, a thread, gives the calls to workers
and replaces workers that die; `worker_process` is a worker as that thread sees it, `worker_main` what runs inside it.
Any other executor of the same interface can take its place.
"""
