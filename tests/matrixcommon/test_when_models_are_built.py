"""A command builds the models that it uses; a process that serves builds all before its first request."""

from __future__ import annotations

import subprocess
import sys

UNBUILT = "[m.__name__ for m in (DeploymentRequest, ScaleRequest, DrainView) if not m.__pydantic_complete__]"
NAMES = (
    "from infer_workload.contract.deployments import DeploymentRequest\n"
    "from infer_workload.contract.roles import DrainView, ScaleRequest\n"
)
PUT_OFF = "from matrixcommon.model.resource_model import ApiModel, build_deferred, defer_builds\nbuild_when_used()\n"


def printed(code: str) -> list[str]:
    ended = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    return ended.stdout.splitlines()


def test_what_was_put_off_is_built_where_it_is_used():
    use = "ScaleRequest.model_validate({'prefillNodes': 1, 'decodeNodes': 1})\n"
    before, after = printed(f"{PUT_OFF}{NAMES}print({UNBUILT})\n{use}print({UNBUILT})")
    assert before == "['DeploymentRequest', 'ScaleRequest', 'DrainView']"
    assert after == "['DeploymentRequest', 'DrainView']"


def test_all_that_was_put_off_is_built_at_once_and_nothing_after_it_is_put_off():
    later = "class Later(ApiModel):\n    nodes: int\nprint(Later.__pydantic_complete__)"
    assert printed(f"{PUT_OFF}{NAMES}build_deferred()\nprint({UNBUILT})\n{later}") == ["[]", "True"]


def test_the_command_line_puts_off_what_it_does_not_use():
    command = "import sys\nfrom services.matrixctl.__main__ import run\nsys.argv[1:] = ['--version']\n"
    found = printed(f"{command}try:\n    run()\nexcept SystemExit:\n    pass\n{NAMES}print({UNBUILT})")
    assert "DrainView" in found[-1]
