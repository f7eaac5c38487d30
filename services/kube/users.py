"""Whom the API knows by a token from its first start on.

The operator is nobody special: it may do what its roles say (matrixcontainer/operator/rbac.py). Who reads metrics may
read those and nothing else.
"""

from __future__ import annotations

from pathlib import Path

from matrixcontainer.kubeapi.auth.authentication import User, load_tokens

USERS = {
    "admin": User("admin", ("system:masters", "system:authenticated")),
    "operator": User("cloudmatrix-operator", ("system:authenticated",)),
    "metrics": User("cloudmatrix-metrics", ("system:monitoring", "system:authenticated")),
}


def tokens_of(folder: Path, given: dict[str, str]) -> tuple[dict[str, User], bytes]:
    """(users by token, signing key) of the token file, which is made or completed.

    `given` fixes tokens by the key of the user here; "" leaves one as it is.
    """
    return load_tokens(folder / "tokens.json", USERS, given)
