"""Drafts of finished requests are counted over all their lives, and never fewer than before: what a loss or an earlier
priority cut short was drafted all the same."""

from __future__ import annotations

from math import inf

from infer_workload.contract.deployments import DeploymentShape
from infer_workload.engine.request import FINISHED
from infer_workload.serving.live.statistics import Statistics
from infer_workload.serving.metrics import _values
from infer_workload.timing.fabric import Fabric
from tests.infer_workload.loaded_deployment import NODES, LoadedDeployment
from tests.infer_workload.test_priorities import PLACES, make_engine, submitted


def test_drafts_of_an_aborted_attempt_count() -> None:
    engine = make_engine()
    late = submitted(engine, PLACES, priority=2, tokens_out=800)
    engine.advance(6.0)
    submitted(engine, PLACES // 2, priority=0, tokens_out=100, first=200)
    again = [request for request in late if request.attempts == 2]
    assert len(again) == PLACES // 2
    engine.advance(inf)
    assert all(request.state == FINISHED for request in late)
    statistics = Statistics()
    for request in late:
        statistics.record_finished(request)
    tokens = sum(request.output_tokens for request in late) - PLACES - len(again)
    assert statistics.drafts + statistics.drafts_accepted == tokens, "each step brings one token, and a draft another"
    assert 0 < statistics.drafts_accepted < statistics.drafts


def test_without_a_layer_that_drafts_nothing_is_drafted() -> None:
    engine = make_engine(DeploymentShape(batch_per_npu=2, mtp=False))
    requests = submitted(engine, 4)
    engine.advance(inf)
    statistics = Statistics()
    for request in requests:
        statistics.record_finished(request)
    assert (statistics.drafts, statistics.drafts_accepted) == (0, 0)


def test_what_was_counted_stays_counted_while_nothing_is_laid_out() -> None:
    """A counter that falls to nothing and comes back counts everything twice for whoever sums it up."""
    loaded = LoadedDeployment()
    before = _values(loaded.live)
    assert before["spec_decode_num_accepted_tokens"] > 0
    loaded.live.apply_view(Fabric.healthy(NODES[:1], 9), loaded.now)
    assert loaded.live.engine is None
    after = _values(loaded.live)
    for name in ("drafts", "draft_tokens", "accepted_tokens"):
        assert after[f"spec_decode_num_{name}"] == before[f"spec_decode_num_{name}"]
