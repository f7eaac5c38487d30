"""Plans, quotas, reservations and leases on the command line, against MatrixResource itself."""

from __future__ import annotations

import json

import pytest

from matrixcommon.model.errors import InvalidField
from services.matrixctl.commands.capacity.allocation_options import AllocationOptions
from tests.services.matrixctl.inprocess import run_line
from tests.services.matrixctl.test_machine import here

__all__ = ["here"]


def test_every_option_reaches_the_request():
    reported = {
        "nodes": 24, "npus_per_node": 4.0, "spares": 2, "policy": "spread", "level": "supernode", "required": True,
        "max_per_domain": 12, "block": ["8", "2@cabinet"], "affinity": ["db@supernode"], "anti_affinity": ["web", "api@node"],
        "priority": 9, "exclude": ["sn0-c00-n0"],
    }  # fmt: skip
    assert AllocationOptions(**reported).request(preemption="LowerPriority", leaseS=60.0, topologyVersion="") == {
        "nodes": 24,
        "npusPerNode": 4.0,
        "spares": 2,
        "placement": {
            "policy": "spread",
            "level": "supernode",
            "required": True,
            "maxPerDomain": 12,
            "blocks": [{"nodes": 8, "level": "supernode"}, {"nodes": 2, "level": "cabinet"}],
        },
        "affinity": {"allocations": ["db"], "level": "supernode"},
        "antiAffinity": {"allocations": ["web", "api"], "level": "node"},
        "priority": 9,
        "preemption": "LowerPriority",
        "leaseS": 60.0,
        "excludeNodes": ["sn0-c00-n0"],
    }


@pytest.mark.parametrize(
    ("declared", "flag"), [({"block": ["x"]}, "--block"), ({"affinity": ["a@node", "b@cabinet"]}, "--affinity")]
)
def test_what_cannot_be_read_is_refused_by_its_flag(declared, flag):
    with pytest.raises(InvalidField) as refused:
        AllocationOptions(**declared).request()
    assert refused.value.field == flag


def test_quotas_are_set_shown_and_taken_away(here: None, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_line(capsys, "quota set ml --npus 64") == (0, "ml may hold 64 npus (0 held)\n")
    code, text = run_line(capsys, "get quotas")
    assert (code, text.split()[-7:]) == (0, ["ml", "64", "0", "-", "0", "-", "0"])
    assert run_line(capsys, "quota delete ml") == (0, "ml has no limit\n")
    assert run_line(capsys, "quota set ml")[0] == 2


def test_a_plan_names_what_stands_in_the_way_and_a_reservation_is_refused_alike(
    here: None, capsys: pytest.CaptureFixture[str]
) -> None:
    code, text = run_line(capsys, "plan --npus 2 --priority 3 --preempt --affinity nobody -o json")
    assert code == 1
    answer = json.loads(text)
    assert (answer["fits"], answer["npus"]) == (False, 2)
    code, text = run_line(capsys, "reserve later --at 2030-01-01T00:00:00Z --for 3600 --nodes 2")
    assert code == 1
    assert "InsufficientCapacity" in text
    assert run_line(capsys, "allocation renew nobody --lease 60")[0] == 1
