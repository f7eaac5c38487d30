"""Run one sweep in a separate process: `python -m benchmarks.infer_sweep.process WORKERS`."""

import sys

from benchmarks.infer_sweep import swept_here

if __name__ == "__main__":
    swept_here(int(sys.argv[1]))
