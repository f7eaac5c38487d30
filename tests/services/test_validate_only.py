"""`validateOnly` on every mutating route of every service: it answers, and the databases are as they were."""

from __future__ import annotations

import pytest

from tests.services.every_route import ask, differences, every_request, remembered
from tests.services.furnished import MARK, furnished_stack

pytestmark = [pytest.mark.looptime, pytest.mark.timeout(300)]


async def test_nothing_is_changed_by_what_is_only_validated(tmp_path):
    async with furnished_stack(tmp_path) as (stack, names):
        admin = stack.token("admin", "default")
        answered, refused = 0, []
        before = remembered(stack)
        for request in every_request(stack, names):
            if not request.rule.mutates:
                continue
            for project in (MARK, None):
                named = request.of(project) if project else {}
                answer = await ask(stack, request, admin, validateOnly="true", **named)
                assert answer.status_code < 500, f"{request}: {answer.text}"
                assert '"1970-01-01T' not in answer.text, f"{request} shows what it would make as of no time"
                after = remembered(stack)
                assert not differences(before, after), f"{request} changed {differences(before, after)}"
                before = after
                if project:
                    answered += answer.is_success
                    refused += [] if answer.is_success else [f"{request}: {answer.status_code} {answer.text[:160]}"]
        assert answered >= 30, "\n".join(refused)
        really = await stack.apply("really", 1)
        assert really.state in ("Pending", "Provisioning"), "and the services go on"
