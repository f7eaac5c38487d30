"""Impersonation: the Impersonate-* headers, for users with the verb `impersonate` on the identities that they name.

Users, groups and service accounts are resources of the core group here; uids and extra values are in
authentication.k8s.io. Contract: public documentation "Authenticating", section "User impersonation".
"""

from urllib.parse import unquote

from matrixcontainer.kubeapi.auth.authentication import User, service_account_groups
from matrixcontainer.kubeapi.auth.authorizer import Attributes, Authorizer
from matrixcontainer.kubeapi.meta.errors import MalformedRequest

AUTHENTICATION = "authentication.k8s.io"
VERSION = f"{AUTHENTICATION}/v1"
AUTHENTICATED, UNAUTHENTICATED, ANONYMOUS = "system:authenticated", "system:unauthenticated", "system:anonymous"
ACCOUNT = "system:serviceaccount:"
EXTRA = "impersonate-extra-"


def impersonated_user(user: User, headers: dict[str, str], authorizer: Authorizer) -> User:
    """The user that a request acts as. Repeated headers are joined by newlines. Raises 403, or 500 without a user."""
    name = headers.get("impersonate-user", "")
    groups = _values(headers, "impersonate-group")
    uid = headers.get("impersonate-uid", "")
    extra = {unquote(key[len(EXTRA) :]): _values(headers, key) for key in headers if key.startswith(EXTRA)}
    if not name:
        if not (groups or uid or extra):
            return user
        raise MalformedRequest(f"requested {_references(groups, uid, extra)} without impersonating a user")
    for attributes in _impersonation_attributes(name, groups, uid, extra):
        authorizer.require(user, attributes)
    return User(name, _effective_groups(name, groups), uid, extra)


def _references(groups: list[str], uid: str, extra: dict[str, list[str]]) -> str:
    """The requested identities as Go prints object references: kind, namespace, name, uid, version, field."""
    found = [f"{{Group  {group}    }}" for group in groups]
    found += [f"{{UserExtra  {value}  {VERSION}  {key}}}" for key, values in extra.items() for value in values]
    found += [f"{{UID  {uid}  {VERSION}  }}"] if uid else []
    return f"[{' '.join(found)}]"


def _values(headers: dict[str, str], key: str) -> list[str]:
    return headers[key].split("\n") if key in headers else []


def _impersonation_attributes(name: str, groups: list[str], uid: str, extra: dict[str, list[str]]) -> list[Attributes]:
    where, _, account = name.removeprefix(ACCOUNT).partition(":")
    if name.startswith(ACCOUNT) and where and account:
        requests = [Attributes("impersonate", "", "serviceaccounts", namespace=where, name=account)]
    else:
        requests = [Attributes("impersonate", "", "users", name=name)]
    requests += [Attributes("impersonate", "", "groups", name=group) for group in groups]
    for key, values in extra.items():
        requests += [Attributes("impersonate", AUTHENTICATION, "userextras", key, name=value) for value in values]
    return requests + ([Attributes("impersonate", AUTHENTICATION, "uids", name=uid)] if uid else [])


def _effective_groups(name: str, groups: list[str]) -> tuple[str, ...]:
    """The named groups plus those that every such user belongs to."""
    where, _, account = name.removeprefix(ACCOUNT).partition(":")
    if name.startswith(ACCOUNT) and where and account and not groups:
        return service_account_groups(where)
    wanted = UNAUTHENTICATED if name == ANONYMOUS else AUTHENTICATED
    return tuple(groups if {AUTHENTICATED, UNAUTHENTICATED} & set(groups) else [*groups, wanted])
