"""The parts of a pod that are changed through endpoints of their own: ephemeral containers and resources in place."""

from typing import TYPE_CHECKING, Any

from matrixcontainer.kubeapi.builtin.pods import PodStrategy
from matrixcontainer.kubeapi.meta import errors
from matrixcontainer.kubeapi.meta.errors import Cause

if TYPE_CHECKING:
    from matrixcontainer.kubeapi.registry.resource import Resource

Obj = dict[str, Any]
RESIZABLE = ("resources", "resizePolicy")


class EphemeralContainers(PodStrategy):
    """Containers added to a running pod for debugging; once there they neither change nor go."""

    def prepare_update(self, new: Obj, old: Obj, resource: "Resource") -> None:
        added = (new.get("spec") or {}).get("ephemeralContainers")
        new["spec"], new["status"] = dict(old["spec"]), old.get("status", {})
        new["spec"].pop("ephemeralContainers", None)
        if added:
            new["spec"]["ephemeralContainers"] = added

    def validate(self, obj: Obj, old: Obj | None) -> list[Cause]:
        path = "spec.ephemeralContainers"
        before = {one["name"]: one for one in ((old or {}).get("spec") or {}).get("ephemeralContainers") or []}
        taken = {one["name"] for key in ("containers", "initContainers") for one in obj["spec"].get(key) or []}
        found: list[Cause] = []
        seen: set[str] = set()
        for place, one in enumerate(obj["spec"].get("ephemeralContainers") or []):
            where, name = f"{path}[{place}]", one.get("name", "")
            found += [errors.required(f"{where}.{key}") for key in ("name", "image") if not one.get(key)]
            if name and (name in taken or name in seen):
                found.append(errors.duplicate(f"{where}.name", name))
            if name in before and one != before[name]:
                why = f"existing ephemeral containers {errors.shown(name)} may not be changed"
                found.append(errors.forbidden_field(path, why))
            seen.add(name)
        for name in sorted(set(before) - seen):
            why = f"existing ephemeral containers {errors.shown(name)} may not be removed"
            found.append(errors.forbidden_field(path, why))
        return found


class Resize(PodStrategy):
    """Requests and limits of the containers of a pod, changed without starting them anew."""

    def prepare_update(self, new: Obj, old: Obj, resource: "Resource") -> None:
        wanted = {one.get("name"): one for one in (new.get("spec") or {}).get("containers") or []}
        containers = []
        for one in old["spec"].get("containers") or []:
            reported = wanted.get(one["name"], one)
            kept = {key: value for key, value in one.items() if key not in RESIZABLE}
            containers.append(kept | {key: reported[key] for key in RESIZABLE if key in reported})
        new["spec"] = old["spec"] | {"containers": containers}
        new["status"] = old.get("status", {})

    def validate(self, obj: Obj, old: Obj | None) -> list[Cause]:
        found: list[Cause] = []
        for place, (new, before) in enumerate(
            zip(obj["spec"].get("containers") or [], ((old or obj)["spec"].get("containers") or []), strict=True)
        ):
            for side in ("limits", "requests"):
                now, then = ((one.get("resources") or {}).get(side) or {} for one in (new, before))
                changed = {key for key in set(now) | set(then) if now.get(key) != then.get(key)}
                if changed - {"cpu", "memory"}:
                    path = f"spec.containers[{place}].resources.{side}"
                    found.append(errors.forbidden_field(path, "only cpu and memory resources are mutable"))
        return found


POD_PARTS: dict[str, PodStrategy] = {"ephemeralcontainers": EphemeralContainers(), "resize": Resize()}
