"""The command `python -m graphfeed.cuda_check`: prints what `graphfeed.cuda_check()` returns.

It exits with 1 if something is missing or failed. The function is in `graphfeed.cuda_report`: import it from there, for
importing this module gives `graphfeed` the module in place of the function.
"""

import sys

from graphfeed.cuda_report import cuda_check

if __name__ == "__main__":
    report = cuda_check()
    sys.stdout.write(f"{report}\n")
    sys.exit(not report.ok)
