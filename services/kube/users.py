"""The users that have a token from the first start on.

The operator has no special rights beyond its roles (matrixcontainer/operator/rbac.py). The metrics user may only read
metrics.
"""

from __future__ import annotations

from pathlib import Path

from matrixcontainer.kubeapi.auth.authentication import User, load_tokens

USERS = {
    "admin": User("admin", ("system:masters", "system:authenticated")),
    "operator": User("cloudmatrix-operator", ("system:authenticated",)),
    "metrics": User("cloudmatrix-metrics", ("system:monitoring", "system:authenticated")),
}


def load_user_tokens(folder: Path, overrides: dict[str, str]) -> tuple[dict[str, User], bytes]:
    """(users by token, signing key) from the token file, which is created or completed.

    `overrides` sets tokens by the key in USERS; "" leaves a token as it is.
    """
    return load_tokens(folder / "tokens.json", USERS, overrides)
