"""The `matrixctl` command; `python -m services.matrixctl` is the same."""

import gc

from matrixcommon.model.resource_model import defer_builds
from services.chassis.interpreter import block_modules


def run() -> None:
    """Run the command line and exit with its code."""
    gc.disable()  # modules loaded now never become garbage; collecting took a tenth of the start-up time
    block_modules()
    defer_builds()
    from services.matrixctl.main import run as run_command  # after: it declares all models

    gc.freeze()
    gc.enable()
    run_command()


if __name__ == "__main__":
    run()
