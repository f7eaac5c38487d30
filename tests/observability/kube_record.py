"""Records the embedded Kubernetes API while its disk is full, and while nothing is: `python -m tests.observability.kube_record`.

The process is a real one, and its disk is full because it may write no more (RLIMIT_FSIZE). A scrape stands for half a
minute; between two of them a client makes the same requests each time.
"""

from __future__ import annotations

import resource
from collections import defaultdict
from collections.abc import Callable

from prometheus_client.parser import text_string_to_metric_families

from services.testing.kubernetes import KubernetesApi
from tests.observability.record import INTERVAL_S, READ, RECORDED, Fires, Story, document, nothing

PATH = "/api/v1/namespaces/default/configmaps"
BEFORE, AFTER = 10, 40
"""Scrapes before the failure and after it."""

STORIES = {
    "kube-healthy": Story("the embedded Kubernetes API is asked and answers", nothing, nothing, ()),
    "kube-disk-full": Story(
        "the embedded Kubernetes API cannot write any more",
        nothing,
        nothing,
        (Fires("CloudMatrixKubeErrors", 270, 480),),
    ),
}


def fill_disk(kubernetes: KubernetesApi) -> None:
    """Let the process write no byte to any file from now on."""
    assert kubernetes.process_id is not None
    resource.prlimit(kubernetes.process_id, resource.RLIMIT_FSIZE, (0, 0))


FAILURES: dict[str, Callable[[KubernetesApi], None]] = {"kube-disk-full": fill_disk}


def play(name: str) -> dict[str, dict[int, float]]:
    """The series of every metric that an alert reads."""
    series: dict[str, dict[int, float]] = defaultdict(dict)
    with KubernetesApi() as kubernetes, kubernetes.client.http.stream("GET", PATH, params={"watch": "true"}):
        for at in range(BEFORE + AFTER):
            if at == BEFORE and name in FAILURES:
                FAILURES[name](kubernetes)
            for each in range(10):
                body = {"metadata": {"name": f"map-{at}-{each}"}, "data": {"a": "b"}}
                kubernetes.client.http.post(PATH, json=body)
                kubernetes.client.http.get(PATH, params={"limit": 5})
            scrape(kubernetes, series, at)
    return series


def scrape(kubernetes: KubernetesApi, series: dict[str, dict[int, float]], at: int) -> None:
    where = 'instance="kube",job="cloudmatrix",pod="kube-0",service="kube"'
    text = kubernetes.client.http.get("/metrics").raise_for_status().text
    for family in text_string_to_metric_families(text):
        if not READ & {family.name, f"{family.name}_total"}:
            continue
        for sample in family.samples:
            labels = ",".join(f'{name}="{value}"' for name, value in sorted(sample.labels.items()))
            series[f"{sample.name}{{{','.join(filter(None, (labels, where)))}}}"][at] = sample.value


if __name__ == "__main__":
    for each, story in STORIES.items():
        text = document(story, play(each), BEFORE + AFTER, BEFORE)
        text = text.replace("tests.observability.record`", "tests.observability.kube_record`", 1)
        (RECORDED / f"{each}.yaml").write_text(text)
        print(f"{each}: {len(text) // 1000} kB, {INTERVAL_S} s a scrape")
