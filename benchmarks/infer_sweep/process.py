"""Run one sweep in a separate process: `python -m benchmarks.infer_sweep.process WORKERS`."""

import sys

from benchmarks.infer_sweep import sweep_locally

if __name__ == "__main__":
    sweep_locally(int(sys.argv[1]))
