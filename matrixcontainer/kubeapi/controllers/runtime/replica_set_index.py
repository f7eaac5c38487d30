"""ReplicaSetInfo: the part of a ReplicaSet that controllers need, indexed by namespace and owner."""

from dataclasses import dataclass, field
from typing import Any

from matrixcontainer.kubeapi.kubelet.pod_info import Indexer, Name, controller_of
from matrixcontainer.kubeapi.storage.objects import Record


@dataclass(slots=True)
class ReplicaSetInfo:
    key: Name
    uid: str
    labels: dict[str, str] | None
    deleting: bool
    owner_uid: str
    owner_name: str
    selector: dict[str, Any] | None = field(default=None)


def _parse_info(record: Record) -> ReplicaSetInfo:
    obj = record.obj
    meta = obj["metadata"]
    owner = controller_of(meta) or {}
    return ReplicaSetInfo(
        record.key[1:],
        record.uid,
        meta.get("labels") or {},
        "deletionTimestamp" in meta,
        owner.get("uid", ""),
        owner.get("name", "") if owner.get("kind") == "Deployment" else "",
        obj["spec"].get("selector"),
    )


class ReplicaSetIndex(Indexer[ReplicaSetInfo]):
    def __init__(self) -> None:
        super().__init__(_parse_info, lambda rs: [("namespace", rs.key[0]), ("owner", rs.owner_uid)])

    def in_namespace(self, namespace: str) -> list[ReplicaSetInfo]:
        return self.by_index("namespace", namespace)

    def owned_by(self, uid: str) -> list[ReplicaSetInfo]:
        return self.by_index("owner", uid)

    def ownerless(self, namespace: str) -> list[ReplicaSetInfo]:
        return [info for info in self.owned_by("") if info.key[0] == namespace]
