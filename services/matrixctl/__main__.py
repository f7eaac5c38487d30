"""`python -m services.matrixctl`: the same as the `matrixctl` command."""

from services.matrixctl.main import run

run()
