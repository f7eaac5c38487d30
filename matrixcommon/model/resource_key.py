"""Keys: machine-wide unique identifiers of resources.

Names are unique within a project. Ledgers, agents and tables use the key `project/name`, or the name alone in the
project `default`; requests and views have name and project as separate fields. A reference to a resource of another
project is its key.
"""

from __future__ import annotations

from collections.abc import Iterable

DEFAULT_PROJECT = "default"


def key_of(project: str, name: str) -> str:
    """The key of the resource `name` in `project`."""
    return name if project == DEFAULT_PROJECT else f"{project}/{name}"


def name_of(key: str) -> str:
    """The name within the project."""
    return key.rpartition("/")[2]


def project_of(key: str) -> str:
    return key.rpartition("/")[0] or DEFAULT_PROJECT


def resolve(reference: str, project: str) -> str:
    """The key that a reference in a request of `project` stands for: a name within the project, or already a key."""
    owner, _, name = reference.rpartition("/")
    return key_of(owner or project, name)


def sibling_key(key: str, name: str) -> str:
    """The key of another name in the same project."""
    return key_of(project_of(key), name)


def names_shown_to(keys: Iterable[str], project: str) -> str:
    """List keys in a text shown to `project`: its own by name, those of other projects only as a count."""
    keys = list(keys)
    own = [name_of(key) for key in keys if project_of(key) == project]
    others = len(keys) - len(own)
    return ", ".join([*own, *([f"{others} of other projects"] if others else [])])


def reference_to(key: str, project: str) -> str:
    """How `project` refers to a key: by name if it is its own, else as `owner/name` (also `default/a`)."""
    owner = project_of(key)
    return name_of(key) if owner == project else f"{owner}/{name_of(key)}"
