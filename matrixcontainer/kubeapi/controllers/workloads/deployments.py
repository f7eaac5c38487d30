"""Deployments: ReplicaSets by template hash, scaled step by step as rollout.py decides; status by rollout_status.py."""

from typing import Any

from matrixcontainer.kubeapi.controllers.runtime.replica_set_index import ReplicaSetInfo
from matrixcontainer.kubeapi.controllers.runtime.workqueue import WorkloadController
from matrixcontainer.kubeapi.controllers.workloads import controller_ref, rollout
from matrixcontainer.kubeapi.controllers.workloads.rollout import Obj, RolloutSets, desired_size, revision_of
from matrixcontainer.kubeapi.controllers.workloads.rollout_status import deployment_status, seconds_left
from matrixcontainer.kubeapi.kubelet.pod_info import Name, PodInfo
from matrixcontainer.kubeapi.meta.errors import ApiError
from matrixcontainer.kubeapi.meta.selectors import matches_label_selector
from matrixcontainer.kubeapi.registry.options import Deletion
from matrixcontainer.kubeapi.schema.structural import copy_json

DEADLINE_MARGIN_S = 1.0


class DeploymentController(WorkloadController):
    storage = "deployments.apps"
    account = "deployment-controller"

    def on_replica_set(self, before: ReplicaSetInfo | None, rs: ReplicaSetInfo | None) -> None:
        for info in (before, rs):
            if info is not None and info.owner_name:
                self.enqueue((info.key[0], info.owner_name))
        if rs is not None and not rs.owner_uid and (before is None or before.labels != rs.labels or before.owner_uid):
            for record in self.core.store.objects_of(self.storage, rs.key[0]):
                if matches_label_selector(record.obj["spec"].get("selector"), rs.labels or {}):
                    self.enqueue(record.key[1:])

    def on_pod(self, before: PodInfo | None, pod: PodInfo | None) -> None:
        """Recreate waits until the last old pod is gone, which no ReplicaSet's status shows."""
        gone = before is not None and (pod is None or (pod.ended and not before.ended))
        if gone and before is not None and before.owner_kind == "ReplicaSet":
            rs = self.informers.replica_sets.get((before.key[0], before.owner_name))
            if rs is not None and rs.owner_name:
                self.enqueue((rs.key[0], rs.owner_name))

    async def reconcile(self, key: Name) -> float | None:
        record = self.record(key)
        if record is None:
            return None
        deployment = record.obj
        sets_index = self.informers.replica_sets
        owned, ownerless = sets_index.owned_by(record.uid), sets_index.ownerless(key[0])
        if await controller_ref.claim(self, self.informers.replica_set_resource, deployment, owned, ownerless):
            self.enqueue(key)
        sets = self._sets(deployment)
        event = None
        if "deletionTimestamp" not in deployment["metadata"]:
            sets, event = await self._advance(deployment, sets)
            latest = self.record(key)
            if latest is None or latest.uid != record.uid:
                return None
            deployment = latest.obj
        return await self._write_status(key, deployment, sets, event)

    def _sets(self, deployment: Obj) -> RolloutSets:
        meta = deployment["metadata"]
        records = self.informers.replica_sets_of(meta["namespace"], meta["uid"])
        return rollout.split_by_template(deployment, [record.obj for record in records])

    # ---- one step of a rollout

    async def _advance(self, deployment: Obj, sets: RolloutSets) -> tuple[RolloutSets, tuple[str, str] | None]:
        """Do the next step of the rollout; return the resulting sets and the event about the new one, if any."""
        paused = bool(deployment["spec"].get("paused"))
        recreate = (deployment["spec"].get("strategy") or {}).get("type") == "Recreate"
        event = None
        if sets.new is not None:
            await self._set_revision(deployment, sets)
            if not paused and not any(
                c["type"] == "Progressing" for c in (deployment.get("status") or {}).get("conditions") or []
            ):
                event = "FoundNewReplicaSet", f'Found new replica set "{sets.new["metadata"]["name"]}"'
            sets = self._sets(deployment)
        if paused or rollout.spec_changed(deployment, sets):
            await self._resize(deployment, sets, rollout.proportional_sizes(deployment, sets))
            await self._annotate(deployment, sets)
            if paused:
                await self._clean_up(deployment, sets)
            return self._sets(deployment), event
        if recreate and any(map(desired_size, sets.old)):
            await self._resize(deployment, sets, {rs["metadata"]["name"]: 0 for rs in sets.old if desired_size(rs)})
            return self._sets(deployment), event
        if recreate and self._old_pods_remain(sets):
            return sets, event
        if sets.new is None:
            created = await self._create_set(deployment, sets)
            if created is None:
                return self._sets(deployment), None
            event = created
            sets = self._sets(deployment)
            if sets.new is None:  # garbage-collected already, as its owner is gone
                return sets, event
        await self._roll_over(deployment, sets)
        return self._sets(deployment), event

    async def _roll_over(self, deployment: Obj, sets: RolloutSets) -> None:
        assert sets.new is not None
        wanted = rollout.new_set_size(deployment, sets)
        if wanted != desired_size(sets.new):
            await self._resize(deployment, sets, {sets.new["metadata"]["name"]: wanted})
            return
        if smaller := rollout.old_set_sizes(deployment, sets):
            await self._resize(deployment, sets, smaller)
            return
        await self._annotate(deployment, sets)
        if not any(map(desired_size, sets.old)):
            await self._clean_up(deployment, sets)

    def _old_pods_remain(self, sets: RolloutSets) -> bool:
        return any(not pod.ended for rs in sets.old for pod in self.informers.pods.owned_by(rs["metadata"]["uid"]))

    async def _create_set(self, deployment: Obj, sets: RolloutSets) -> tuple[str, str] | None:
        """Create the ReplicaSet of the current template; None if its name is taken by another template."""
        meta, spec = deployment["metadata"], deployment["spec"]
        collisions = (deployment.get("status") or {}).get("collisionCount") or 0
        template_hash = rollout.template_hash(spec["template"], collisions)
        template = copy_json(spec["template"])
        template.setdefault("metadata", {}).setdefault("labels", {})[rollout.HASH_LABEL] = template_hash
        selector = copy_json(spec["selector"])
        selector.setdefault("matchLabels", {})[rollout.HASH_LABEL] = template_hash
        size = rollout.new_set_size(deployment, sets)
        name = f"{meta['name'][:242]}-{template_hash}"
        revision = max([0, *map(revision_of, sets.old)]) + 1
        body: Obj = {
            "metadata": {
                "name": name,
                "labels": template["metadata"]["labels"],
                "annotations": self._with_deployment_annotations(deployment, {})
                | self._size_annotations(deployment)
                | {rollout.REVISION: str(revision)},
                "ownerReferences": [controller_ref.owner_reference(deployment)],
            },
            "spec": {"replicas": size, "selector": selector, "template": template},
        }
        if spec.get("minReadySeconds"):
            body["spec"]["minReadySeconds"] = spec["minReadySeconds"]
        try:
            await self.core.verbs.create(self.informers.replica_set_resource, meta["namespace"], body, self.options())
        except ApiError as failure:
            if failure.reason != "AlreadyExists":
                text = f"Failed to create new replica set {name!r}: {failure}"
                self.events.event(deployment, "ReplicaSetCreateError", text, self.account, warning=True)
                raise
            await self._count_collision(deployment, collisions)
            return None
        await self._mark_revision(deployment, revision)
        self._record_scaling(deployment, name, 0, size)
        return "NewReplicaSetCreated", f'Created new replica set "{name}"'

    async def _count_collision(self, deployment: Obj, collisions: int) -> None:
        """Record that the name is taken, so that the next reconcile tries another."""

        def change(obj: Obj) -> Obj:
            obj.setdefault("status", {})["collisionCount"] = collisions + 1
            return obj

        await self.modify(_key(deployment), change, "status")

    # ---- revisions and annotations

    async def _set_revision(self, deployment: Obj, sets: RolloutSets) -> None:
        """Give the set of the current template the highest revision, and copy it to the Deployment."""
        assert sets.new is not None
        newest = max([0, *map(revision_of, sets.old)])
        current = revision_of(sets.new)
        revision = max(current, newest + 1) if current <= newest or not current else current
        annotations = dict(sets.new["metadata"].get("annotations") or {})
        wanted = self._with_deployment_annotations(deployment, annotations)
        if revision != current:
            if current:
                history = [text for text in annotations.get(rollout.REVISION_HISTORY, "").split(",") if text]
                wanted[rollout.REVISION_HISTORY] = ",".join([*history, str(current)])
            wanted[rollout.REVISION] = str(revision)
        wait_s = deployment["spec"].get("minReadySeconds") or 0
        if wanted != annotations or (sets.new["spec"].get("minReadySeconds") or 0) != wait_s:

            def change(obj: Obj) -> Obj:
                obj["metadata"]["annotations"] = wanted
                if (obj["spec"].get("minReadySeconds") or 0) != wait_s:
                    obj["spec"]["minReadySeconds"] = wait_s
                return obj

            await self._modify_set(sets.new, change)
        await self._mark_revision(deployment, revision)

    def _with_deployment_annotations(self, deployment: Obj, annotations: dict[str, str]) -> dict[str, str]:
        """A set's annotations, merged with its Deployment's."""
        own = deployment["metadata"].get("annotations") or {}
        return annotations | {key: value for key, value in own.items() if key not in rollout.NOT_COPIED}

    def _size_annotations(self, deployment: Obj) -> dict[str, str]:
        wanted = desired_size(deployment)
        return {
            rollout.DESIRED: str(wanted),
            rollout.MAXIMUM: str(wanted + rollout.surge_and_unavailable(deployment)[0]),
        }

    async def _mark_revision(self, deployment: Obj, revision: int) -> None:
        if revision_of(deployment) == revision:
            return

        def change(obj: Obj) -> Obj:
            obj["metadata"].setdefault("annotations", {})[rollout.REVISION] = str(revision)
            return obj

        await self.modify(_key(deployment), change)

    # ---- writing

    async def _modify_set(self, rs: Obj, change: Any) -> None:
        await self.core.verbs.modify(self.informers.replica_set_resource, *_key(rs), change, self.options())

    async def _resize(self, deployment: Obj, sets: RolloutSets, sizes: dict[str, int]) -> None:
        annotations = self._size_annotations(deployment)
        for rs in sets.all:
            name = rs["metadata"]["name"]
            if (size := sizes.get(name)) is None:
                continue

            def change(obj: Obj, size: int = size) -> Obj:
                obj["spec"]["replicas"] = size
                obj["metadata"].setdefault("annotations", {}).update(annotations)
                return obj

            await self._modify_set(rs, change)
            self._record_scaling(deployment, name, desired_size(rs), size)

    async def _annotate(self, deployment: Obj, sets: RolloutSets) -> None:
        """Annotate every set that has or will have pods with the desired size that it was scaled for."""
        annotations = self._size_annotations(deployment)

        def change(obj: Obj) -> Obj:
            obj["metadata"].setdefault("annotations", {}).update(annotations)
            return obj

        annotated = {rs["metadata"]["name"]: rs for rs in (*sets.active, *([sets.new] if sets.new else []))}
        for rs in annotated.values():
            if not annotations.items() <= (rs["metadata"].get("annotations") or {}).items():
                await self._modify_set(rs, change)

    async def _clean_up(self, deployment: Obj, sets: RolloutSets) -> None:
        for rs in rollout.sets_to_delete(deployment, sets):
            request = Deletion(propagation="Background", uid=rs["metadata"]["uid"])
            await self.delete_object(self.informers.replica_set_resource, *_key(rs), request)

    async def _write_status(
        self, key: Name, deployment: Obj, sets: RolloutSets, event: tuple[str, str] | None
    ) -> float | None:
        now = self.core.now()
        status = deployment_status(deployment, sets, now, event)
        if status != (deployment.get("status") or {}):

            def change(obj: Obj) -> Obj:
                collisions = (obj.get("status") or {}).get("collisionCount")
                return obj | {"status": status | ({"collisionCount": collisions} if collisions else {})}

            await self.modify(key, change, "status")
        left = seconds_left(deployment, status, now)
        return None if left is None else left + DEADLINE_MARGIN_S

    def _record_scaling(self, deployment: Obj, name: str, before: int, after: int) -> None:
        direction = "up" if after > before else "down"
        text = f"Scaled {direction} replica set {name} from {before} to {after}"
        self.events.event(deployment, "ScalingReplicaSet", text, self.account)


def _key(obj: Obj) -> Name:
    return obj["metadata"]["namespace"], obj["metadata"]["name"]
