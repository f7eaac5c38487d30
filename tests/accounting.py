"""An accountant who reads REST alone and says every promise that is broken, each as a sentence.

`audit` judges lists that `fetch` (async, such as `stack.http`) or `fetch_over_http` (real processes, with a token) has
read, and knows nothing else. What one service shows holds at every moment. What two services show of one another holds
once everything has settled: between a verb and its consequences they differ, and are meant to.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

from matrixcommon.model.resource_key import key_of, resolve
from tests.accounting_promises import DIES, SLACK, holds, reserved_once, within_quotas
from tests.accounting_scaling import scale_owners, within_bounds
from tests.rest_lists import Item, Lists, fetch, fetch_over_http

__all__ = ["Acknowledged", "Lists", "audit", "fetch", "fetch_over_http"]

PLANES = {"ub", "rdma", "vpc"}
OWNER_LABEL = "cloudmatrix.io/instance"
DEPLOYMENT_LABEL = "cloudmatrix.io/deployment"
DRAM_GIB = 2048
"""Of a node of the built-in supernode."""
WAITING = ("InsufficientCapacity", "ExceedsDomain", "InsufficientBandwidth", "QuotaExceeded", "InvalidField")
"""Reasons for which an instance stays as it was: somebody has to leave, or to ask for something else."""
OF_NO_INSTANCE = {"defragment", "move-member", "drain-elements"}
"""Verbs of operations of MatrixResource and MatrixLink."""


@dataclass
class Acknowledged:
    """What a caller was told has happened and nobody has undone since: what there must be, and what there must not.

    By collection (`allocations`), keys with the fields that were acknowledged; None where the deletion was. What ends
    by itself (by a lease, by being preempted) is the caller's to leave out.
    """

    of: dict[str, dict[str, Item | None]] = field(default_factory=dict)

    def wrote(self, collection: str, key: str, fields: Item | None) -> None:
        self.of.setdefault(collection, {})[key] = fields

    def forget(self, collection: str, key: str) -> None:
        self.of.get(collection, {}).pop(key, None)


def audit(
    lists: Lists, *, settled: bool = False, acknowledged: Acknowledged | None = None, before: Lists | None = None
) -> list[str]:
    """Every promise that is broken. `settled`: no fault is left and nothing is under way, so more must hold.
    `before`: as it was a moment ago, to tell who went above a quota from who was above it when it was lowered."""
    broken: list[str] = []
    if "resource" not in lists.torn:
        broken += [
            *_holders(lists),
            *_ranks(lists),
            *_counts(lists),
            *reserved_once(lists),
            *within_quotas(lists, before),
        ]
        broken += _memory(lists)
    if "link" not in lists.torn:
        broken += [*_floors(lists), *_isolation(lists)]
    if "compute" not in lists.torn:
        broken += [*_operations(lists), *_sizes(lists), *scale_owners(lists)]
    written = acknowledged or Acknowledged()
    broken += _lost_writes(lists, written)
    if settled:
        broken += [f"{service} went on changing while it was read" for service in sorted(lists.torn)]
        broken += [*_cache_memory(lists), *_owners(lists), *_active(lists), *_programs(lists), *_at_rest(lists)]
        broken += [*within_bounds(lists), *_not_deleted(lists, written)]
    return broken


def _holders(lists: Lists) -> Iterator[str]:
    """No die has two holders, and nodes and allocations say the same of who holds what."""
    allocated: dict[tuple[str, int], str] = {}
    whole: dict[str, str] = {}
    for key, member, dies in holds(lists):
        for die in sorted(dies):
            other = allocated.setdefault((member["node"], die), key)
            if other != key:
                yield f"NPU {die // 2} of {member['node']} (die {die}) is allocated by {other} and by {key}"
        if len(dies) == DIES and member.get("npus") is None:
            whole[member["node"]] = key
    if "nodes" in lists.of:
        for node in lists["nodes"]:
            shown, listed = node.get("allocation"), whole.get(node["name"])
            if shown != listed:
                yield f"{node['name']} says it is allocated by {shown}, allocations say by {listed}"
            if shown is not None and shown not in lists.keyed("allocations"):
                yield f"{node['name']} is allocated by {shown}, which is not there"


def _ranks(lists: Lists) -> Iterator[str]:
    for key, allocation in lists.keyed("allocations").items():
        ranks = Counter(member["rank"] for member in allocation["members"] if member["role"] == "member")
        if twice := [rank for rank, times in ranks.items() if times > 1]:
            yield f"{key} gives rank {twice[0]} twice"
        if allocation["state"] != "Releasing" and ranks.total() != allocation["nodes"]:
            yield f"{key} says it has {allocation['nodes']} members and lists {ranks.total()}"


def _counts(lists: Lists) -> Iterator[str]:
    """Free and allocated and faulty are all there are, counted by node, by supernode and by domain."""
    nodes = lists["nodes"]
    for supernode in lists["supernodes"]:
        own = [node for node in nodes if node["supernode"] == supernode["name"]]
        for field_, counted in (
            ("nodes", len(own)),
            ("availableNodes", sum(node["schedulable"] for node in own)),
            ("allocatedNodes", sum(node.get("allocation") is not None for node in own)),
            ("lostNodes", sum(node["agent"] == "Lost" for node in own)),
        ):
            if supernode[field_] != counted:
                yield f"{supernode['name']} shows {field_} {supernode[field_]}, its nodes count {counted}"
    if lists.capacity is None:
        return
    parted = {member["node"] for _, member, dies in holds(lists) if dies}
    # Parts of which all went to who preempted them: they are there until they are wiped, and hold nothing.
    yielded = Counter(
        member["node"]
        for _, member, dies in holds(lists)
        if not (dies or member.get("cpus") or member.get("memoryGib"))
    )
    for level in ("supernode", "cabinet"):
        for domain in lists.capacity[f"{level}s"]:
            own = [node for node in nodes if node[level] == domain["domain"]]
            allocated = sum(
                node.get("allocation") is not None or node["sharedBy"] > yielded[node["name"]] for node in own
            )
            free = sum(node["schedulable"] for node in own)
            # Where no NPU has a holder, sockets and memory are lent, or wiped after that: NPUs may be free beside them.
            lending = sum(n.get("unschedulableReason") == "PartlyHeld" and n["name"] not in parted for n in own)
            counted = domain["nodes"] == len(own) and domain["allocated"] == allocated
            if not counted or not free <= domain["free"] <= free + lending:
                yield (
                    f"{domain['domain']} shows {domain['free']} free and {domain['allocated']} allocated of "
                    f"{domain['nodes']}, its nodes count {free}, {allocated} and {len(own)}: "
                    + ", ".join(f"{node['name']} {node.get('unschedulableReason')}" for node in own)
                )


def _memory(lists: Lists) -> Iterator[str]:
    """No node lends more memory than it has."""
    lent: Counter[str] = Counter()
    for allocation in lists["allocations"]:
        for member in allocation["members"]:
            lent[member["node"]] += member.get("memoryGib") or 0
    for node, gib in lent.items():
        if gib > DRAM_GIB:
            yield f"{node} lends {gib} GiB of its {DRAM_GIB}"


def _floors(lists: Lists) -> Iterator[str]:
    """No link is promised more than it has; one that lost lanes after the promise says so by what it still carries."""
    for link in lists["links"]:
        if link["floorsGbps"] > link["builtGbps"] + SLACK:
            yield f"link {link['name']} of {link['builtGbps']} GB/s is promised {link['floorsGbps']}"
        elif link["floorsGbps"] > link["gbps"] + SLACK and link["gbps"] >= link["builtGbps"]:
            yield f"link {link['name']} carries {link['gbps']} GB/s and is promised {link['floorsGbps']}"
    uplinks = {plane["name"]: plane["uplinkGbps"] * plane["subPlanes"] for plane in lists["planes"]}
    sums: Counter[tuple[str, str]] = Counter()
    kept = {key: _share_kept(each) for key, each in lists.keyed("slices").items()}
    for program in lists["programs"]:
        if program["action"] == "program" and len(program["peers"]) > 0:
            sums[program["node"], program["plane"]] += program["floorGbps"] * kept.get(program["slice"], 0.0)
    for (node, plane), gbps in sums.items():
        if plane in uplinks and gbps > uplinks[plane] * (1 + SLACK):
            yield f"floors on {node} are {gbps} GB/s of the {uplinks[plane]} of its {plane} uplinks"


def _share_kept(slice: Item) -> float:
    return slice["floorKeptGbpsPerNpu"] / slice["floorGbpsPerNpu"] if slice["floorGbpsPerNpu"] else 0.0


def _isolation(lists: Lists) -> Iterator[str]:
    keys: dict[tuple[str, int], str] = {}
    for name, each in lists.keyed("slices").items():
        other = keys.setdefault((each["plane"], each["isolationKey"]), name)
        if other != name:
            yield f"slices {other} and {name} share {each['isolation']} {each['isolationKey']} on {each['plane']}"


def _operations(lists: Lists) -> Iterator[str]:
    """An operation under way is of an instance that is there, and of one that no other is under way for."""
    running: dict[str, str] = {}
    instances = lists.keyed("instances")
    for name, operation in lists.keyed("operations").items():
        if operation["done"] or operation["verb"] in OF_NO_INSTANCE:
            continue
        target = key_of(operation["project"], operation["target"])
        if target not in instances and operation["step"] != "mark_deleted":  # which has just made it go
            yield f"operation {name} is under way for instance {target}, which is not there"
        if (other := running.setdefault(target, name)) != name:
            yield f"operations {other} and {name} are both under way for instance {target}"


def _sizes(lists: Lists) -> Iterator[str]:
    """An instance that is as it was asked for has no fewer members than its floor, and no more than its nodes. One whose
    nodes went to somebody of higher priority shows that none is ready, until it is seen that it is to wait: of its
    members those are left that are still being cleaned."""
    for key, instance in lists.keyed("instances").items():
        settled = instance["state"] == "Active" and instance["generation"] == instance["observedGeneration"]
        members = sum(member["role"] == "member" for member in instance["members"])
        floor = instance.get("minNodes", instance["nodes"])
        fewer = members < floor and instance["readyNodes"] > 0
        if settled and (fewer or members > instance["nodes"]):
            yield f"instance {key} is Active with {members} members, its floor is {floor} of {instance['nodes']}"


def _lost_writes(lists: Lists, acknowledged: Acknowledged) -> Iterator[str]:
    for collection, written in acknowledged.of.items():
        if collection not in lists.of:
            continue
        shown = lists.keyed(collection)
        for key, fields in sorted(written.items()):
            if fields is not None and key not in shown:
                yield f"{collection} {key} was acknowledged and is not there"
            for name, value in (fields or {}).items() if key in shown else ():
                if shown[key].get(name) != value:
                    yield f"{collection} {key}: {name} was acknowledged as {value} and is {shown[key].get(name)}"


# -- once settled ------------------------------------------------------------------------------------------------------


def _cache_memory(lists: Lists) -> Iterator[str]:
    """The memory that caches hold is a deployment's that is there, of the nodes that it caches on, as it says."""
    if "deployments" not in lists.of:
        return
    deployments, allocations = lists.keyed("deployments"), lists.keyed("allocations")
    lent_to = {
        each["labels"][DEPLOYMENT_LABEL]: each for each in allocations.values() if DEPLOYMENT_LABEL in each["labels"]
    }
    for owner, allocation in lent_to.items():
        if owner not in deployments:
            yield f"allocation {allocation['name']} is of deployment {owner}, which is gone"
    for key, deployment in deployments.items():
        if not any(each["type"] == "CacheMemory" for each in deployment["conditions"]):
            continue
        lending = {member["node"] for member in lent_to[key]["members"]} if key in lent_to else set()
        if len(lending) != deployment["pools"]["cachingNodes"]:
            yield f"{key} caches on {deployment['pools']['cachingNodes']} nodes and holds memory of {len(lending)}"
        if outside := sorted(lending - set(deployment["roles"])):
            yield f"{key} holds memory of {outside[0]}, which plays no role in it"


def _owners(lists: Lists) -> Iterator[str]:
    """Nothing outlives whose it is."""
    instances, allocations = lists.keyed("instances"), lists.keyed("allocations")
    for key, allocation in allocations.items():
        owner = allocation["labels"].get(OWNER_LABEL)
        if owner is not None and owner not in instances:
            yield f"allocation {key} is of instance {owner}, which is gone"
        if allocation["state"] == "Releasing":
            yield f"allocation {key} is still being released"
    for key, slice in lists.keyed("slices").items():
        if OWNER_LABEL not in slice["labels"]:
            continue  # made by hand, and whoever made it takes it back
        instance, allocation_key = (resolve(slice[each], slice["project"]) for each in ("instance", "allocation"))
        if instance not in instances:
            yield f"slice {key} is of instance {instance}, which is gone"
        if allocation_key not in allocations:
            yield f"slice {key} is of allocation {allocation_key}, which is gone"
        else:
            nodes = {member["node"] for member in allocations[allocation_key]["members"]}
            if outside := sorted(set(slice["members"]) - nodes):
                yield f"slice {key} has member {outside[0]}, which is no node of allocation {allocation_key}"
    for key, reservation in lists.keyed("reservations").items():
        if reservation["state"] == "Active" and key not in allocations:
            yield f"reservation {key} is allocated by no allocation"


def _active(lists: Lists) -> Iterator[str]:
    """An instance that is Active has what it shows: its allocation's members, a slice on every plane for all of them."""
    allocations = lists.keyed("allocations")
    planes: dict[str, dict[str, list[Item]]] = defaultdict(lambda: defaultdict(list))
    for slice in lists["slices"]:
        planes[slice["labels"].get(OWNER_LABEL, "")][slice["plane"]].append(slice)
    for key, instance in lists.keyed("instances").items():
        if instance["state"] != "Active":
            continue
        allocation = allocations.get(resolve(instance["allocation"], instance["project"]))
        if allocation is None:
            yield f"instance {key} is Active and has no allocation"
            continue
        mine, theirs = (
            {(m["node"], m["role"], m.get("rank")) for m in each["members"]} for each in (instance, allocation)
        )
        if mine != theirs:
            yield f"instance {key} shows members {sorted(map(str, mine ^ theirs))} otherwise than its allocation"
        members = sorted(member["node"] for member in allocation["members"] if member["role"] == "member")
        goes_without = any(each["reason"] == "MembersMissing" for each in instance["conditions"])
        fewest = instance.get("minNodes", instance["nodes"]) if goes_without else instance["nodes"]
        other_size = not fewest <= len(members) <= instance["nodes"] and not waits(instance)
        if other_size or instance["readyNodes"] != len(members):
            yield f"instance {key} is Active with {len(members)} members, {instance['readyNodes']} ready, of {instance['nodes']}"
        if missing := sorted(PLANES - planes[key].keys()):
            yield f"instance {key} is Active without a slice on {', '.join(missing)}"
        for plane, slices in planes[key].items():
            if sorted(member for slice in slices for member in slice["members"]) != members:
                yield f"instance {key}: its slices on {plane} have other members than the allocation"
            for slice in slices:
                if slice["state"] != "Active":
                    yield f"instance {key} is Active, its slice {slice['name']} is {slice['state']}"


def waits(instance: Item) -> bool:
    """Whether what was asked of it last does not fit, and says so: it is as it was, and tries again."""
    refused = any(each["type"] == "Progressing" and each["reason"] in WAITING for each in instance["conditions"])
    return refused and instance["observedGeneration"] < instance["generation"]


def _programs(lists: Lists) -> Iterator[str]:
    """Agents hold a program for each member of each slice, and no other."""
    slices = lists.keyed("slices")
    programmed: dict[str, set[str]] = defaultdict(set)
    for program in lists["programs"]:
        programmed[program["slice"]].add(program["node"])
        if program["slice"] not in slices:
            yield f"{program['node']} is asked to {program['action']} slice {program['slice']}, which is gone"
    for key, slice in slices.items():
        # Of one that was made by hand somebody has yet to ask that it is programmed.
        if slice["state"] != "Admitted" and programmed[key] != set(slice["members"]):
            yield f"slice {key} is programmed on {sorted(programmed[key])}, its members are {sorted(slice['members'])}"


def _at_rest(lists: Lists) -> Iterator[str]:
    for key, instance in lists.keyed("instances").items():
        if instance["state"] not in ("Active", "Stopped", "Suspended", "Pending", "Failed"):
            yield f"instance {key} is still {instance['state']}"
    for key, operation in lists.keyed("operations").items():
        if not operation["done"] and instance_of(operation, lists).get("state") != "Pending":
            yield f"operation {key} is still under way at {operation['step']}"
    for key, maintenance in lists.keyed("maintenances").items():
        if maintenance["state"] not in ("Completed", "Failed", "Aborted", "Expired"):
            yield f"maintenance {key} is still {maintenance['state']}"
    for key, peering in lists.keyed("peerings").items():
        if peering["state"] not in ("Active", "PendingAcceptance"):
            yield f"peering {key} is still {peering['state']}"


def instance_of(operation: Item, lists: Lists) -> Item:
    return lists.keyed("instances").get(key_of(operation["project"], operation["target"]), {})


def _not_deleted(lists: Lists, acknowledged: Acknowledged) -> Iterator[str]:
    """What is let go takes its time, and is gone in the end."""
    for collection, written in acknowledged.of.items():
        for key in sorted(key for key, fields in written.items() if fields is None):
            if key in lists.keyed(collection):
                yield f"{collection} {key} was acknowledged as deleted and is there"
