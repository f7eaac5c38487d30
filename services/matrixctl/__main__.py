"""The `matrixctl` command; `python -m services.matrixctl` is the same."""

from matrixcommon.model.resource_model import build_when_used


def run() -> None:
    """Run what the command line says, and end with its exit code."""
    build_when_used()
    from services.matrixctl.main import run as run_command  # after: it declares all models

    run_command()


if __name__ == "__main__":
    run()
