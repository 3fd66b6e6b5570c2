"""Who computes: processes that are replaced when they die, behind the interface of concurrent.futures."""
