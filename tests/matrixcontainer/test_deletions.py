"""What is shown of a resource that is being deleted, and what becomes of what stood behind one that is gone."""

from __future__ import annotations

from typing import Any, ClassVar

from matrixcontainer.operator.reconciler import DELETION_POLL_WALL_S, FINALIZER
from tests.matrixcontainer.test_reconcilers import Echo, OneResource


async def test_resource_being_deleted_is_not_ready() -> None:
    class Leaving(Echo):
        """What stands behind it takes a while."""

        async def converge(self, key: str, body: dict[str, Any]) -> float | None:
            return (
                await super().converge(key, body)
                if "deletionTimestamp" not in body["metadata"]
                else DELETION_POLL_WALL_S
            )

    kube = OneResource()
    reconciler = Leaving(kube, lambda: 0.0)  # type: ignore[arg-type]
    await reconciler.reconcile("one")
    assert kube.body["status"]["conditions"][0]["status"] == "True"
    kube.body["metadata"]["deletionTimestamp"] = "now"
    assert await reconciler.reconcile("one") == DELETION_POLL_WALL_S
    (ready,) = kube.body["status"]["conditions"]
    assert (kube.body["status"]["state"], ready["status"], ready["reason"]) == ("Deleting", "False", "Deleting")
    written = kube.body["metadata"]["resourceVersion"]
    assert await reconciler.reconcile("one") == DELETION_POLL_WALL_S
    assert kube.body["metadata"]["resourceVersion"] == written, "once"


class Owned(Echo):
    """With something behind the resource, which takes one more look to go."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.behind = 0

    async def converge(self, key: str, body: dict[str, Any]) -> float | None:
        if body["metadata"].get("deletionTimestamp"):
            self.behind = max(0, self.behind - 1)
            return DELETION_POLL_WALL_S if self.behind else None
        self.behind = 2
        return await super().converge(key, body)


async def test_resource_kept_by_foreign_finalizers_is_shown_as_deleted() -> None:
    """Nobody looks at it afterwards: it showed the members it had last, and that it was being deleted."""

    class Shown(Owned):
        deleted_status: ClassVar[dict[str, Any]] = {"members": []}

    kube = OneResource()
    reconciler = Shown(kube, lambda: 0.0)
    await reconciler.reconcile("one")
    kube.body["metadata"] |= {"deletionTimestamp": "now", "finalizers": [FINALIZER, "ex.com/hold"]}
    kube.body["status"]["members"] = ["sn0-c00-n0"]
    assert await reconciler.reconcile("one") == DELETION_POLL_WALL_S
    assert (kube.body["status"]["state"], kube.body["status"]["members"]) == ("Deleting", ["sn0-c00-n0"])
    assert await reconciler.reconcile("one") is None
    status = kube.body["status"]
    assert (status["state"], status["members"], status["conditions"][0]["reason"]) == ("Deleted", [], "Deleted")
    assert status["conditions"][0]["message"] == "cleanup is done; waiting for other finalizers: ex.com/hold"


class Gone(OneResource):
    """Its finalizers were taken away by hand, so the resource is gone at once."""

    gone = False

    async def find(self, *which: Any) -> dict[str, Any] | None:
        return None if self.gone else await super().find(*which)


async def test_cleanup_after_the_finalizer_was_removed() -> None:
    kube = Gone()
    reconciler = Owned(kube, lambda: 0.0)
    await reconciler.reconcile("one")
    last = kube.body
    kube.gone = True
    assert await reconciler.reconcile("one") is None, "there is nothing to reconcile any more"
    assert reconciler.behind == 2
    assert await reconciler.clean_up("one", last) == DELETION_POLL_WALL_S
    assert await reconciler.clean_up("one", last) is None
    assert reconciler.behind == 0


async def test_no_cleanup_of_a_deleted_or_recreated_resource() -> None:
    kube = Gone()
    reconciler = Owned(kube, lambda: 0.0)
    await reconciler.reconcile("one")
    assert await reconciler.clean_up("one", kube.body) is None, "another one has the name"
    assert reconciler.behind == 2
    kube.body["metadata"]["deletionTimestamp"] = "now"
    while await reconciler.reconcile("one") is not None:
        pass
    kube.gone, reconciler.behind = True, 2
    assert await reconciler.clean_up("one", kube.body) is None
    assert reconciler.behind == 2, "somebody has made that since"
