"""A command builds the models that it uses; a process that serves builds all before its first request."""

from __future__ import annotations

import subprocess
import sys

PRINT_UNBUILT_MODELS = (
    "[m.__name__ for m in (DeploymentRequest, ScaleRequest, DrainView) if not m.__pydantic_complete__]"
)
NAMES = (
    "from infer_workload.contract.deployments import DeploymentRequest\n"
    "from infer_workload.contract.roles import DrainView, ScaleRequest\n"
)
DEFER_BUILDS = "from matrixcommon.model.resource_model import ApiModel, build_deferred, defer_builds\ndefer_builds()\n"


def run_python(code: str) -> list[str]:
    ended = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    return ended.stdout.splitlines()


def test_a_deferred_model_is_built_on_first_use():
    use = "ScaleRequest.model_validate({'prefillNodes': 1, 'decodeNodes': 1})\n"
    before, after = run_python(
        f"{DEFER_BUILDS}{NAMES}print({PRINT_UNBUILT_MODELS})\n{use}print({PRINT_UNBUILT_MODELS})"
    )
    assert before == "['DeploymentRequest', 'ScaleRequest', 'DrainView']"
    assert after == "['DeploymentRequest', 'DrainView']"


def test_building_deferred_models_ends_the_deferral():
    later = "class Later(ApiModel):\n    nodes: int\nprint(Later.__pydantic_complete__)"
    assert run_python(f"{DEFER_BUILDS}{NAMES}build_deferred()\nprint({PRINT_UNBUILT_MODELS})\n{later}") == [
        "[]",
        "True",
    ]


def test_the_command_line_defers_unused_models():
    command = "import sys\nfrom services.matrixctl.__main__ import run\nsys.argv[1:] = ['--version']\n"
    found = run_python(f"{command}try:\n    run()\nexcept SystemExit:\n    pass\n{NAMES}print({PRINT_UNBUILT_MODELS})")
    assert "DrainView" in found[-1]
