"""reachability: whether traffic from one slice (or address) to another arrives, and by which rule.

Inside a slice every member reaches every other. Between slices there must be an Active peering; on UB and RDMA its
partition key decides alone. On the VPC plane traffic needs a rule that allows it: egress is free unless the sender has
egress rules, and ingress needs an ingress rule of the receiver or of a peering.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable

from matrixcommon.model.errors import InvalidField, NotFound
from matrixcommon.model.planes import Plane
from matrixlink.contract.peerings import ReachabilityView, SecurityRule, is_address_block
from matrixlink.store.store import LinkStore
from matrixlink.store.tables import PEERED, SliceRow


def evaluate_reachability(
    store: LinkStore, source: str, target: str, plane: Plane | None, protocol: str, port: int | None
) -> ReachabilityView:
    """`source` is a slice, an instance with a slice on `plane`, or an address block; `target` one of the first two.
    Raises NotFound, InvalidField."""
    with store.reading() as session:
        slices = store.slices(session)
        to = _slice(slices, target, plane, "to")
        if plane is not None and to.plane != plane:
            raise InvalidField(f"{to.name} is on {to.plane}", field="plane")
        asked = ReachabilityView(
            source=source, target=to.name, plane=Plane(to.plane), protocol=protocol, port=port, allowed=False,
            reason="", by="", message="",
        )  # fmt: skip
        if is_network(source):
            return _evaluate_external(asked, to, _network(source))
        sender = _slice(slices, source, Plane(to.plane), "from")
        asked.source = sender.name
        if sender.name == to.name:
            return _view(asked, True, "SameSlice", f"slice/{to.name}", "members of a slice reach one another")
        peerings = [row for row in store.peerings(session) if row.slices == sorted([sender.name, to.name])]
        if sender.plane != to.plane or not peerings:
            return _view(asked, False, "NotPeered", "", f"{sender.name} and {to.name} are not peered")
        active = [row for row in peerings if row.state == PEERED]  # members hold all of these
        if not active:
            first = peerings[0]
            return _view(asked, False, "PeeringNotActive", f"peering/{first.name}", f"it is {first.state}")
        if to.plane != Plane.VPC:
            key = f"partition key {active[0].isolation_key}"
            return _view(asked, True, "Peered", f"peering/{active[0].name}", f"both sides hold {key}")
        common = [(f"peering/{row.name}", _security_rules(row.security_rules)) for row in active]
        every = [*_security_rules(sender.security_rules), *(rule for _, rules in common for rule in rules)]
        out = [rule for rule in every if rule.direction == "egress"]
        if out and not any(_allows(rule, to.name, asked) for rule in out):
            return _view(asked, False, "EgressDenied", f"slice/{sender.name}", "no egress rule allows it")
        for owner, rules in ((f"slice/{to.name}", _security_rules(to.security_rules)), *common):
            for at, rule in enumerate(rules):
                if rule.direction == "ingress" and _allows(rule, sender.name, asked):
                    return _view(asked, True, "RuleAllows", f"{owner}/securityRules[{at}]", "an ingress rule allows it")
    return _view(asked, False, "IngressDenied", f"slice/{to.name}", "no ingress rule allows it")


def _evaluate_external(asked: ReachabilityView, to: SliceRow, network: ipaddress.IPv4Network) -> ReachabilityView:
    if to.plane != Plane.VPC:
        return _view(asked, False, "NotPeered", "", f"nothing outside reaches plane {to.plane}")
    for at, rule in enumerate(_security_rules(to.security_rules)):
        if rule.direction == "ingress" and _allows(rule, network, asked):
            where = f"slice/{to.name}/securityRules[{at}]"
            return _view(asked, True, "RuleAllows", where, "an ingress rule allows it")
    return _view(asked, False, "IngressDenied", f"slice/{to.name}", "no ingress rule allows it")


def _slice(slices: list[SliceRow], name: str, plane: Plane | None, field: str) -> SliceRow:
    for row in slices:
        if row.name == name:
            return row
    found = [row for row in slices if row.instance == name and plane in (None, row.plane)]
    if len(found) != 1:
        raise NotFound(
            f"{name[:80]!r} is neither a slice nor an instance with exactly one slice on that plane", field=field
        )
    return found[0]


def is_network(text: str) -> bool:
    """Whether it is meant as an address block; keys of slices contain a slash too."""
    return text.replace(".", "").replace("/", "").isdigit()


def _network(text: str) -> ipaddress.IPv4Network:
    try:
        return ipaddress.IPv4Network(text, strict=False)
    except ValueError as wrong:
        raise InvalidField(f"{text[:40]!r} is not an address block such as 10.0.0.0/8", field="from") from wrong


def _security_rules(stored: Iterable[dict[str, object]] | None) -> list[SecurityRule]:
    return [SecurityRule.from_stored(rule) for rule in stored or ()]


def _allows(rule: SecurityRule, remote: str | ipaddress.IPv4Network, asked: ReachabilityView) -> bool:
    if rule.protocol not in ("any", asked.protocol):
        return False
    if rule.ports and not any(asked.port is not None and r.first <= asked.port <= r.last for r in rule.ports):
        return False
    if rule.remote == "*" or isinstance(remote, str):
        return rule.remote in ("*", remote)
    block = ipaddress.ip_network(rule.remote, strict=False) if is_address_block(rule.remote) else None
    return isinstance(block, ipaddress.IPv4Network) and remote.subnet_of(block)


def _view(asked: ReachabilityView, allowed: bool, reason: str, by: str, message: str) -> ReachabilityView:
    return asked.model_copy(update={"allowed": allowed, "reason": reason, "by": by, "message": message})
