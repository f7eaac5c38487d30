"""Quotas and limit ranges: what is counted, what is filled in, what is refused."""

from time import monotonic, sleep
from typing import Any

from tests.conformance.catalogue import case, rows
from tests.conformance.talk import Talk
from tests.conformance.things import config_map, deployment, pod

CPU = {"requests": {"cpu": "500m"}}


def container(name: str = "main", **resources: Any) -> dict[str, Any]:
    return {"name": name, "image": "example.test/image:1", "resources": resources}


def a_pod(name: str = "one", **spec: Any) -> dict[str, Any]:
    return pod(name, **spec)


def quota(talk: Talk, hard: dict[str, str], **spec: Any) -> None:
    """A quota whose use has been counted once; a real counter looks for new resources every half minute."""
    talk.until("~serviceaccounts/default", lambda reported: reported.code == 200, note=False)
    talk.until("~configmaps/kube-root-ca.crt", lambda reported: reported.code == 200, note=False)
    talk.post("~resourcequotas", {"metadata": {"name": "q"}, "spec": {"hard": hard, **spec}})

    def counted(reported: Any) -> bool:
        return set(hard) <= set((reported.body.get("status") or {}).get("used") or {})

    talk.until("~resourcequotas/q", counted, note=False, patience_s=60)


def room(talk: Talk, path: str, body: dict[str, Any]) -> None:
    """Makes the object as soon as there is room: admission may know of it a little later than the status says."""
    deadline = monotonic() + 25
    while talk.quietly("POST", path, body).code != 201:
        assert monotonic() < deadline, f"there is never room for {body}"
        sleep(0.05)


def used(talk: Talk, **wanted: str) -> None:
    """Waits until the quota says so, and notes its status."""
    names = {key.replace("_", "."): value for key, value in wanted.items()}
    reported = talk.until(
        "~resourcequotas/q", lambda reported: names.items() <= reported["status"]["used"].items(), note=False
    )
    talk.note("status", reported["status"])


@case("P1", "ResourceQuota should create a ResourceQuota and capture the life of a pod")
def quota_of_pods(talk: Talk) -> None:
    quota(talk, {"pods": "2", "requests.cpu": "1", "limits.memory": "1Gi"})
    sized = {"requests": {"cpu": "500m"}, "limits": {"memory": "512Mi"}}
    talk.post("~pods", a_pod("one", containers=[container(**sized)]))
    reported = talk.get("~resourcequotas/q")
    assert reported["status"]["used"] == {"pods": "1", "requests.cpu": "500m", "limits.memory": "512Mi"}
    greedy = {"requests": {"cpu": "501m"}, "limits": {"memory": "1Mi"}}
    reported = talk.post("~pods", a_pod("two", containers=[container(**greedy)]), want=403)
    assert "exceeded quota: q" in reported.message
    talk.post("~pods", a_pod("two", containers=[container(**sized)]))
    reported = talk.post("~pods", a_pod("three", containers=[container(**sized)]), want=403)
    talk.post("~pods", a_pod("three"), want=403)
    talk.delete("~pods/one", note=False)
    used(talk, pods="1")
    room(talk, "~pods", a_pod("three", containers=[container(**sized)]))
    used(talk, pods="2")


@case("P1", "ResourceQuota should create a ResourceQuota and capture the life of a configMap")
def quota_of_objects(talk: Talk) -> None:
    quota(talk, {"configmaps": "2", "count/configmaps": "5", "secrets": "0", "resourcequotas": "1"})
    used(talk, configmaps="1")
    talk.post("~configmaps", config_map())
    used(talk, configmaps="2")
    talk.post("~configmaps", config_map("two"), want=403)
    talk.post("~configmaps", config_map("two"), want=403, dryRun="All")
    talk.post("~secrets", {"metadata": {"name": "s"}}, want=403)
    talk.post("~resourcequotas", {"metadata": {"name": "r"}, "spec": {"hard": {"pods": "1"}}}, want=403)
    talk.put("~configmaps/one", config_map(data={"a": "b"}))
    talk.delete("~configmaps/one")
    used(talk, configmaps="1")
    talk.post("~configmaps", config_map("two"), dryRun="All")
    used(talk, configmaps="1")


@case("P1", "ResourceQuota should create a ResourceQuota and capture the life of a replica set")
def quota_of_any_kind(talk: Talk) -> None:
    quota(talk, {"count/leases.coordination.k8s.io": "1", "count/deployments.apps": "0", "count/pods": "0"})
    path = "~coordination.k8s.io/v1/leases"
    talk.post(path, {"metadata": {"name": "a"}, "spec": {}})
    talk.post(path, {"metadata": {"name": "b"}, "spec": {}}, want=403)
    talk.post("~apps/v1/deployments", deployment(), want=403)
    talk.post("~pods", a_pod(), want=403)
    talk.delete(f"{path}/a", note=False)
    room(talk, path, {"metadata": {"name": "c"}, "spec": {}})


@case("P1", "ResourceQuota should create a ResourceQuota and capture the life of a service")
def quota_of_services(talk: Talk) -> None:
    quota(talk, {"services": "2", "services.nodeports": "1", "services.loadbalancers": "0"})
    ports = [{"port": 80, "name": "a"}, {"port": 81, "name": "b"}]
    talk.post("~services", {"metadata": {"name": "a"}, "spec": {"ports": ports}}, note=False)
    reported = talk.get("~resourcequotas/q")
    assert reported["status"]["used"]["services"] == "1"
    talk.post("~services", {"metadata": {"name": "b"}, "spec": {"type": "NodePort", "ports": ports}}, want=403)
    talk.patch("~services/a", {"spec": {"type": "NodePort"}}, want=403)
    talk.post("~services", {"metadata": {"name": "b"}, "spec": {"type": "LoadBalancer", "ports": ports[:1]}}, want=403)


@case("P1", "ResourceQuota should create a ResourceQuota and capture the life of a persistent volume claim")
def quota_of_claims(talk: Talk) -> None:
    hard = {"persistentvolumeclaims": "2", "requests.storage": "3Gi"}
    quota(talk, hard | {"gold.storageclass.storage.k8s.io/requests.storage": "1Gi"})
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "2Gi"}}, "storageClassName": "none"}
    talk.post("~persistentvolumeclaims", {"metadata": {"name": "a"}, "spec": spec}, note=False)
    talk.get("~resourcequotas/q")
    talk.post("~persistentvolumeclaims", {"metadata": {"name": "b"}, "spec": spec}, want=403)
    gold = spec | {"storageClassName": "gold"}
    talk.post("~persistentvolumeclaims", {"metadata": {"name": "b"}, "spec": gold}, want=403)


@case("P1", "ResourceQuota should verify ResourceQuota with best effort scope")
def quota_scopes(talk: Talk) -> None:
    quota(talk, {"pods": "0"}, scopes=["BestEffort", "NotTerminating"])
    talk.post("~pods", a_pod("one"), want=403)
    talk.post("~pods", a_pod("two", containers=[container(**CPU)]))
    talk.post("~pods", a_pod("three", activeDeadlineSeconds=100), note=False)
    talk.get("~resourcequotas/q")


@case("P1", "ResourceQuota should be able to update and delete ResourceQuota")
def quota_life(talk: Talk) -> None:
    quota(talk, {"pods": "0"})
    talk.patch("~resourcequotas/q", {"spec": {"hard": {"pods": "1", "services": "2"}}})
    reported = talk.until(
        "~resourcequotas/q", lambda reported: reported["status"]["hard"].get("services") == "2", note=False
    )
    talk.note("status", reported["status"])
    talk.patch("~resourcequotas/q", {"spec": {"scopes": ["BestEffort"]}}, want=422)
    talk.delete("~resourcequotas/q")
    talk.post("~pods", a_pod("one"))


def refused_quota(talk: Talk, spec: dict[str, Any]) -> None:
    talk.post("~resourcequotas", {"metadata": {"name": "q"}, "spec": spec}, want=422)


rows(
    "P1",
    "quotas",
    "quota refused",
    [
        ("unknown resource", {"hard": {"wishes": "1"}}),
        ("fraction of a pod", {"hard": {"pods": "500m"}}),
        ("unknown scope", {"hard": {"pods": "1"}, "scopes": ["Sometimes"]}),
        ("conflicting scopes", {"hard": {"pods": "1"}, "scopes": ["BestEffort", "NotBestEffort"]}),
    ],
    refused_quota,
)


# ---- limit ranges


def limits(talk: Talk, *items: dict[str, Any]) -> None:
    talk.until("~serviceaccounts/default", lambda reported: reported.code == 200, note=False)
    talk.post("~limitranges", {"metadata": {"name": "l"}, "spec": {"limits": list(items)}})


@case("P1", "LimitRange should create a LimitRange with defaults and ensure pod has those defaults applied")
def limit_range_fills_in(talk: Talk) -> None:
    limits(
        talk,
        {
            "type": "Container",
            "default": {"cpu": "500m", "memory": "512Mi"},
            "defaultRequest": {"cpu": "100m"},
        },
    )
    made = talk.post("~pods", a_pod("one"))
    assert made["spec"]["containers"][0]["resources"]["limits"] == {"cpu": "500m", "memory": "512Mi"}
    partly = [container(requests={"cpu": "300m"}), container("other", limits={"memory": "1Gi"})]
    talk.post("~pods", a_pod("two", containers=partly, initContainers=[container("first")]))


def bounded(talk: Talk, item: dict[str, Any], containers: list[dict[str, Any]], code: int) -> None:
    limits(talk, item)
    talk.post("~pods", a_pod("one", containers=containers), want=code)


SMALL = container(requests={"cpu": "100m"}, limits={"cpu": "200m"})
LARGE = container("large", requests={"cpu": "2"}, limits={"cpu": "4"})
rows(
    "P1",
    "quotas",
    "limit range",
    [
        ("least", {"type": "Container", "min": {"cpu": "150m"}}, [SMALL], 403),
        ("most", {"type": "Container", "max": {"cpu": "1"}}, [LARGE], 403),
        ("most without a limit", {"type": "Container", "max": {"memory": "1Gi"}}, [SMALL], 201),
        ("ratio", {"type": "Container", "maxLimitRequestRatio": {"cpu": "1500m"}}, [SMALL], 403),
        ("ratio kept", {"type": "Container", "maxLimitRequestRatio": {"cpu": "2"}}, [SMALL], 201),
        ("of a pod", {"type": "Pod", "max": {"cpu": "4100m"}}, [SMALL, LARGE], 403),
        ("of a pod kept", {"type": "Pod", "max": {"cpu": "4200m"}, "min": {"cpu": "1"}}, [SMALL, LARGE], 201),
        ("of a pod that says nothing", {"type": "Pod", "min": {"memory": "1Gi"}}, [SMALL], 403),
    ],
    bounded,
)


@case("P1")
def limit_range_of_claims(talk: Talk) -> None:
    limits(talk, {"type": "PersistentVolumeClaim", "min": {"storage": "1Gi"}, "max": {"storage": "2Gi"}})
    for size, code in (("500Mi", 403), ("1Gi", 201), ("3Gi", 403)):
        spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}, "storageClassName": "n"}
        talk.post("~persistentvolumeclaims", {"metadata": {"name": f"c{size.lower()}"}, "spec": spec}, want=code)


def refused_limits(talk: Talk, *items: dict[str, Any]) -> None:
    talk.post("~limitranges", {"metadata": {"name": "l"}, "spec": {"limits": list(items)}}, want=422)


rows(
    "P1",
    "quotas",
    "limit range refused",
    [
        ("least over most", {"type": "Container", "min": {"cpu": "2"}, "max": {"cpu": "1"}}),
        ("default over most", {"type": "Container", "default": {"cpu": "2"}, "max": {"cpu": "1"}}),
        ("default of a pod", {"type": "Pod", "default": {"cpu": "2"}}),
        ("ratio below one", {"type": "Pod", "maxLimitRequestRatio": {"cpu": "500m"}}),
        ("type twice", {"type": "Pod", "max": {"cpu": "1"}}, {"type": "Pod", "max": {"cpu": "2"}}),
        ("claim without bounds", {"type": "PersistentVolumeClaim", "default": {"storage": "1Gi"}}),
        ("unknown resource", {"type": "Container", "max": {"wishes": "1"}}),
    ],
    refused_limits,
)
