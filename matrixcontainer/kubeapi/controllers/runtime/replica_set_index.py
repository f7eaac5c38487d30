"""ReplicaSets in brief, found by the Deployment that owns them; rebuilt from the store at every start."""

from dataclasses import dataclass, field
from typing import Any

from matrixcontainer.kubeapi.kubelet.pod_info import Name, controller_of
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


class SetIndex:
    def __init__(self) -> None:
        self._facts: dict[Name, SetFacts] = {}
        self._by_namespace: dict[str, set[Name]] = {}
        self._owned: dict[str, set[Name]] = {}

    def put(self, record: Record) -> tuple[SetFacts | None, SetFacts]:
        before = self.drop(record.key[1:])
        obj = record.obj
        meta = obj["metadata"]
        owner = controller_of(meta) or {}
        facts = SetFacts(
            record.key[1:],
            record.uid,
            meta.get("labels") or {},
            "deletionTimestamp" in meta,
            owner.get("uid", ""),
            owner.get("name", "") if owner.get("kind") == "Deployment" else "",
            obj["spec"].get("selector"),
        )
        self._facts[facts.key] = facts
        self._by_namespace.setdefault(facts.key[0], set()).add(facts.key)
        self._owned.setdefault(facts.owner_uid, set()).add(facts.key)
        return before, facts

    def drop(self, key: Name) -> SetFacts | None:
        facts = self._facts.pop(key, None)
        if facts is not None:
            for index, where in ((self._by_namespace, key[0]), (self._owned, facts.owner_uid)):
                index[where].discard(key)
                if not index[where]:
                    del index[where]
        return facts

    def get(self, key: Name) -> SetFacts | None:
        return self._facts.get(key)

    def in_namespace(self, namespace: str) -> list[SetFacts]:
        return [self._facts[key] for key in sorted(self._by_namespace.get(namespace, ()))]

    def owned_by(self, uid: str) -> list[SetFacts]:
        return [self._facts[key] for key in sorted(self._owned.get(uid, ()))]

    def ownerless(self, namespace: str) -> list[SetFacts]:
        return [facts for facts in self.owned_by("") if facts.key[0] == namespace]
