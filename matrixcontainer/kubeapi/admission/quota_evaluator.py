"""How much of which quota an object takes, and what a full quota says.

Pure decisions on plain objects; who asks them is `admission/resource_quota.py`. Amounts keep the form they were written
in, so that 1Gi and 1Gi are 2Gi. Rules: public documentation "Resource Quotas".
"""

from fractions import Fraction
from typing import Any

from matrixcontainer.kubeapi.builtin.pods import qos_class
from matrixcontainer.kubeapi.builtin.resource_names import CONTAINER, HUGE_PAGES, is_extended
from matrixcontainer.kubeapi.meta.quantities import parse, spelled
from matrixcontainer.kubeapi.meta.timestamps import parse_timestamp

Obj = dict[str, Any]
Amount = tuple[Fraction, str]  # number, form
Amounts = dict[str, Amount]

ONE: Amount = (Fraction(1), "decimal")
ZERO: Amount = (Fraction(0), "decimal")
ALIASES = {  # counted under their own name too
    "configmaps": "configmaps",
    "resourcequotas": "resourcequotas",
    "replicationcontrollers": "replicationcontrollers",
    "secrets": "secrets",
}
DEMANDED = ("cpu", "memory", "requests.cpu", "requests.memory", "limits.cpu", "limits.memory")
BY_CLASS = ".storageclass.storage.k8s.io/"


def amounts(listed: Obj | None) -> Amounts:
    return {name: parse(str(text)) for name, text in (listed or {}).items()}


def add(one: Amounts, other: Amounts) -> Amounts:
    """Sums; a form is that of the first amount that is not nothing."""
    total = dict(one)
    for name, (number, form) in other.items():
        current, current_form = total.get(name, ZERO)
        total[name] = (current + number, current_form if current else form)
    return total


def amounts_text(listed: Amounts) -> str:
    """`cpu=1,pods=2`, as refusals say it."""
    return ",".join(f"{name}={spelled(*listed[name])}" for name in sorted(listed))


def spelled_out(listed: Amounts) -> dict[str, str]:
    return {name: spelled(*listed[name]) for name in sorted(listed)}


# ---- what an object takes


def usage(storage: str, obj: Obj, now: float) -> Amounts:
    """Everything an object of this resource is counted for."""
    count = {f"count/{storage}": ONE}
    if storage == "pods":
        return count | (_pod(obj["spec"]) if _is_counted(obj, now) else {})
    if storage == "services":
        return count | _service(obj["spec"])
    if storage == "persistentvolumeclaims":
        return count | _claim(obj)
    return count | ({ALIASES[storage]: ONE} if storage in ALIASES else {})


def _is_counted(pod: Obj, now: float) -> bool:
    """A pod that has ended, or should be gone by now, takes nothing any more."""
    meta = pod["metadata"]
    if (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed"):
        return False
    grace = meta.get("deletionGracePeriodSeconds")
    return grace is None or now <= parse_timestamp(meta.get("deletionTimestamp", "")) + grace


def pod_totals(spec: Obj, side: str) -> Amounts:
    """Requests or limits of a whole pod: all containers together, or the greediest of those that go before."""
    total: Amounts = {}
    for container in spec.get("containers") or []:
        total = add(total, amounts((container.get("resources") or {}).get(side)))
    beside: Amounts = {}
    first: Amounts = {}
    for container in spec.get("initContainers") or []:
        asked = amounts((container.get("resources") or {}).get(side))
        if container.get("restartPolicy") == "Always":
            beside = add(beside, asked)
            asked = beside
        else:
            asked = add(asked, beside)
        first = {name: max(first.get(name, ZERO), asked.get(name, ZERO)) for name in {*first, *asked}}
    total = add(total, beside)
    total = {name: max(total.get(name, ZERO), first.get(name, ZERO)) for name in {*total, *first}}
    overhead = amounts(spec.get("overhead"))
    return add(total, overhead if side == "requests" else {name: overhead[name] for name in overhead if name in total})


def _pod(spec: Obj) -> Amounts:
    return {"pods": ONE} | counted(pod_totals(spec, "requests"), pod_totals(spec, "limits"))


def counted(requests: Amounts, limits: Amounts) -> Amounts:
    """Requests and limits under the names that quotas know."""
    found: Amounts = {}
    for name, amount in requests.items():
        if name in CONTAINER or name.startswith(HUGE_PAGES):
            found[name] = found[f"requests.{name}"] = amount
        elif is_extended(name):
            found[f"requests.{name}"] = amount
    return found | {f"limits.{name}": amount for name, amount in limits.items() if name in CONTAINER}


def _service(spec: Obj) -> Amounts:
    ports, kind = spec.get("ports") or [], spec.get("type")
    taken = len(ports) if kind in ("NodePort", "LoadBalancer") else 0
    if kind == "LoadBalancer" and spec.get("allocateLoadBalancerNodePorts") is False:
        taken = sum(bool(port.get("nodePort")) for port in ports)
    balanced = ONE if kind == "LoadBalancer" else ZERO
    node_ports: Amount = (Fraction(taken), "decimal")
    return {"services": ONE, "services.loadbalancers": balanced, "services.nodeports": node_ports}


def _claim(obj: Obj) -> Amounts:
    spec = obj.get("spec") or {}
    found = {"persistentvolumeclaims": ONE}
    asked = amounts((spec.get("resources") or {}).get("requests"))
    if "storage" in asked:
        found["requests.storage"] = asked["storage"]
    if name := spec.get("storageClassName"):
        found |= {f"{name}{BY_CLASS}{key}": amount for key, amount in list(found.items())}
    return found


# ---- which quota is meant


def concerned(storage: str, names: list[str]) -> list[str]:
    """Those of a quota's resources that objects of this resource are counted for."""
    found = [name for name in names if name == f"count/{storage}" or ALIASES.get(storage) == name]
    if storage == "pods":
        known = {"pods", *CONTAINER, *(f"{side}.{one}" for side in ("requests", "limits") for one in CONTAINER)}
        found += [name for name in names if name in known or _is_special(name)]
    elif storage == "services":
        found += [name for name in names if name == "services" or name.startswith("services.")]
    elif storage == "persistentvolumeclaims":
        plain = ("persistentvolumeclaims", "requests.storage")
        found += [name for name in names if name in plain or name.partition(BY_CLASS)[2] in plain]
    return found


def _is_special(name: str) -> bool:
    asked = name.removeprefix("requests.")
    return asked.startswith(HUGE_PAGES) or (name != asked and is_extended(asked))


def in_scope(quota: Obj, storage: str, obj: Obj) -> bool:
    """Whether every scope of the quota takes the object in; only pods have scopes."""
    spec = quota.get("spec") or {}
    terms = [{"scopeName": scope, "operator": "Exists"} for scope in spec.get("scopes") or []]
    terms += (spec.get("scopeSelector") or {}).get("matchExpressions") or []
    return all(storage == "pods" and _matches(term, obj["spec"]) for term in terms)


def _matches(term: Obj, spec: Obj) -> bool:
    scope, name = term["scopeName"], spec.get("priorityClassName", "")
    if scope in ("Terminating", "NotTerminating"):
        return (spec.get("activeDeadlineSeconds") is not None) == (scope == "Terminating")
    if scope in ("BestEffort", "NotBestEffort"):
        return (qos_class(spec) == "BestEffort") == (scope == "BestEffort")
    if scope != "PriorityClass":
        return False
    values = term.get("values") or []
    return {
        "In": name in values,
        "NotIn": name not in values,
        "Exists": bool(name),
        "DoesNotExist": not name,
    }.get(term.get("operator", ""), False)


# ---- judging


def missing_amounts(names: list[str], spec: Obj) -> str:
    """Why a pod cannot be counted: containers that do not say what the quota is over; "" when all do."""
    lacking: dict[str, set[str]] = {}
    for group in ("containers", "initContainers"):
        for container in spec.get(group) or []:
            resources = container.get("resources") or {}
            reported = counted(amounts(resources.get("requests")), amounts(resources.get("limits")))
            for name in set(names) & set(DEMANDED) - set(reported):
                lacking.setdefault(name, set()).add(container.get("name", ""))
    if not lacking:
        return ""
    return "must specify " + "; ".join(f"{name} for: {','.join(sorted(lacking[name]))}" for name in sorted(lacking))


def exceeded(name: str, asked: Amounts, used: Amounts, hard: Amounts) -> str:
    """Why what is asked does not fit; "" when it does."""
    after = add(used, asked)
    over = sorted(key for key in asked if key in hard and after[key][0] > hard[key][0])
    if not over:
        return ""
    parts = (amounts_text({key: listed.get(key, ZERO) for key in over}) for listed in (asked, used, hard))
    return "exceeded quota: {}, requested: {}, used: {}, limited: {}".format(name, *parts)
