"""Keys: under which name a resource of a project is known to the whole machine.

Names are unique within a project. Ledgers, agents and tables know `project/name`, or the name alone in the project
`default`; requests and views show name and project apart. A reference to a resource of another project is its key.
"""

from __future__ import annotations

from collections.abc import Iterable

DEFAULT_PROJECT = "default"


def key_of(project: str, name: str) -> str:
    """The key of what is called `name` in `project`."""
    return name if project == DEFAULT_PROJECT else f"{project}/{name}"


def name_of(key: str) -> str:
    """The name within the project."""
    return key.rpartition("/")[2]


def project_of(key: str) -> str:
    return key.rpartition("/")[0] or DEFAULT_PROJECT


def resolve(reference: str, project: str) -> str:
    """The key meant by a reference in a request of `project`: a name of its own, or a key."""
    owner, _, name = reference.rpartition("/")
    return key_of(owner or project, name)


def sibling(key: str, name: str) -> str:
    """The key of another name in the same project."""
    return key_of(project_of(key), name)


def named(keys: Iterable[str], project: str) -> str:
    """Some of them in a sentence that `project` reads: its own by name, how many are of others."""
    keys = list(keys)
    own = [name_of(key) for key in keys if project_of(key) == project]
    others = len(keys) - len(own)
    return ", ".join([*own, *([f"{others} of other projects"] if others else [])])


def reference(key: str, project: str) -> str:
    """How `project` names it: by name what is its own, by key what is not (`default/a` for one of the default's)."""
    owner = project_of(key)
    return name_of(key) if owner == project else f"{owner}/{name_of(key)}"
