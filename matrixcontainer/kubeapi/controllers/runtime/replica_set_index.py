"""SetFacts: the part of a ReplicaSet that controllers need, indexed by namespace and owner."""

from dataclasses import dataclass, field
from typing import Any

from matrixcontainer.kubeapi.kubelet.pod_info import FactsIndex, Name, controller_of
from matrixcontainer.kubeapi.storage.objects import Record


@dataclass(slots=True)
class SetFacts:
    key: Name
    uid: str
    labels: dict[str, str] | None
    deleting: bool
    owner_uid: str
    owner_name: str
    selector: dict[str, Any] | None = field(default=None)


def _facts_of(record: Record) -> SetFacts:
    obj = record.obj
    meta = obj["metadata"]
    owner = controller_of(meta) or {}
    return SetFacts(
        record.key[1:],
        record.uid,
        meta.get("labels") or {},
        "deletionTimestamp" in meta,
        owner.get("uid", ""),
        owner.get("name", "") if owner.get("kind") == "Deployment" else "",
        obj["spec"].get("selector"),
    )


class SetIndex(FactsIndex[SetFacts]):
    def __init__(self) -> None:
        super().__init__(_facts_of, lambda rs: [("namespace", rs.key[0]), ("owner", rs.owner_uid)])

    def in_namespace(self, namespace: str) -> list[SetFacts]:
        return self.at("namespace", namespace)

    def owned_by(self, uid: str) -> list[SetFacts]:
        return self.at("owner", uid)

    def ownerless(self, namespace: str) -> list[SetFacts]:
        return [facts for facts in self.owned_by("") if facts.key[0] == namespace]
