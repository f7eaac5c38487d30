"""The operator's roles hold what its code uses, and nothing more."""

from __future__ import annotations

from typing import Any

import pytest

from matrixcontainer.operator.crds import custom_resource_definitions
from matrixcontainer.operator.rbac import CLUSTER_RULES, LEADER_RULES, NODE_LEASE_RULES, user_roles
from tests.charts.operator_rights import Right, needed
from tests.charts.rendered import component, of_kind

rendered = pytest.mark.usefixtures("helm_here")

CRDS = "customresourcedefinitions"


def operator_role() -> dict[str, Any]:
    (role,) = (each for each in of_kind("default", "ClusterRole") if each["metadata"]["name"].endswith("-operator"))
    return role


def granted(role: dict[str, Any]) -> set[Right]:
    return {
        Right(group, resource, verb)
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def test_the_embedded_api_grants_what_the_code_uses_and_nothing_more() -> None:
    everything = granted({"rules": [*CLUSTER_RULES, *LEADER_RULES, *NODE_LEASE_RULES]})
    assert everything - needed() == set(), "granted, and used by nobody"
    assert needed() - everything == set(), "used, and not granted"


@rendered
def test_roles_grant_what_the_code_uses_and_nothing_more() -> None:
    cluster, local = operator_role(), of_kind("default", "Role")
    everything = granted(cluster).union(*map(granted, local))
    assert everything - needed() == set(), "granted, and used by nobody"
    assert needed() - everything == set(), "used, and not granted"
    assert {each.resource for role in local for each in granted(role)} == {"leases"}
    assert not {each for each in granted(cluster) if each.resource == "leases"}


@rendered
def test_the_embedded_api_gives_it_the_same() -> None:
    cluster, local = operator_role(), of_kind("default", "Role")
    assert granted({"rules": CLUSTER_RULES}) == granted(cluster)
    ours = [granted({"rules": rules}) for rules in (LEADER_RULES, NODE_LEASE_RULES)]
    assert all(granted(role) in ours for role in local)
    named = {tuple(sorted(rule.get("resourceNames", []))) for rule in cluster["rules"]}
    assert named == {tuple(sorted(rule.get("resourceNames", []))) for rule in CLUSTER_RULES}


@rendered
def test_nothing_is_granted_by_wildcard() -> None:
    for role in of_kind("default", "ClusterRole", "Role"):
        for rule in role["rules"]:
            assert "*" not in [*rule["apiGroups"], *rule["resources"], *rule["verbs"]]
            assert "nonResourceURLs" not in rule


@rendered
def test_definitions_may_be_written_by_name_only_and_only_when_wanted() -> None:
    writing = [rule for rule in operator_role()["rules"] if rule["resources"] == [CRDS] and "patch" in rule["verbs"]]
    names = [each["metadata"]["name"] for each in custom_resource_definitions()]
    assert [sorted(rule["resourceNames"]) for rule in writing] == [sorted(names)]


@rendered
def test_only_the_operator_is_bound_and_only_where_it_serves_the_cluster() -> None:
    for binding in of_kind("default", "ClusterRoleBinding", "RoleBinding"):
        assert [(each["kind"], each["name"]) for each in binding["subjects"]] == [
            ("ServiceAccount", "cm-cloudmatrix-operator")
        ]
        assert component(binding) == "operator"
    assert not of_kind("everything", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding")


@rendered
def test_the_clusters_own_roles_aggregate_what_the_embedded_api_gives_users() -> None:
    roles = [each for each in of_kind("default", "ClusterRole") if each != operator_role()]
    ours = user_roles()
    assert [granted(role) for role in roles] == [granted(role) for role in ours]
    for role, our in zip(roles, ours, strict=True):
        assert our["metadata"]["labels"].items() <= role["metadata"]["labels"].items()


def test_users_roles_hold_every_kind_of_their_namespaces() -> None:
    view, edit = user_roles()
    namespaced = {
        crd["spec"]["names"]["plural"] for crd in custom_resource_definitions() if crd["spec"]["scope"] == "Namespaced"
    }
    assert {each.resource for each in granted(edit)} == {*namespaced, "cloudmatrixinstances/scale"}
    assert {each.resource for each in granted(view)} > {each.resource for each in granted(edit)}
