"""What the chart holds and the code prints: the processes it makes workloads of, and the schema of its values.

Both would otherwise repeat the catalogue and the settings classes by hand, and fall behind them.
"""

from __future__ import annotations

import json
from typing import Any

import yaml

from services.catalogue import PROCESSES
from tests.upkeep.printed import settings_class

CHART_SETS = {
    *(
        "host",
        "port",
        "state",
        "log_level",
        "seed",
        "time_scale",
        "time_anchor_wall",
        "time_anchor_emulated",
        "clock_file",
    ),
    *("tokens", "token", "database", "supernodes", "spec", "stages", "link_stages"),
    *(
        "kubeconfig",
        "identity",
        "lease_namespace",
        "kube_admin_token",
        "kube_operator_token",
        "kube_metrics_token",
        "advertise",
        "certificate_names",
    ),
    *(f"{process.name}_url" for process in PROCESSES),
}
"""Settings that the templates decide on, from values of their own or from where things are."""


def processes() -> str:
    """The catalogue, as the templates read it."""
    shown = [
        {
            "name": process.name,
            "module": process.module,
            "port": process.port,
            "scheme": process.scheme,
            "calls": list(process.calls),
            "optional": list(process.optional),
            "hasDatabase": process.has_database,
            "keepsFiles": process.keeps_files,
            "purpose": process.purpose,
        }
        for process in PROCESSES
    ]
    return "# Printed from services/catalogue.py by `make regenerate`.\n" + yaml.safe_dump(shown, sort_keys=False)


def own_settings(module: str) -> dict[str, Any]:
    """JSON schemas of the settings a user of the chart may give a process, by their names in camelCase."""
    settings = settings_class(module)
    shapes = settings.model_json_schema()["properties"]
    return {
        _camel(name): {key: value for key, value in shapes[name].items() if key not in ("title", "format", "default")}
        for name in settings.model_fields
        if name not in CHART_SETS
    }


def values_schema() -> str:
    """values.schema.json: every value with its type, nothing else allowed."""
    schema = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "$comment": "Printed from tests/charts/printed.py and the settings classes by `make regenerate`.",
        **_closed({**_COMMON, **{process.name: _process(process.name, process.module) for process in PROCESSES}}),
        "definitions": {"quantities": _QUANTITIES, "peers": _OBJECTS},
    }
    return json.dumps(schema, indent=1) + "\n"


def _process(name: str, module: str) -> dict[str, Any]:
    return _closed(
        {
            "enabled": _FLAG,
            "resources": _RESOURCES,
            "settings": _closed(own_settings(module)),
            "service": _closed({"type": {"enum": ["ClusterIP", "NodePort", "LoadBalancer"]}, "annotations": _TEXTS}),
            **_ONLY.get(name, {}),
        }
    )


def _closed(properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "additionalProperties": False, "properties": properties}


def _camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(word.capitalize() for word in others)


_TEXT = {"type": "string"}
_FLAG = {"type": "boolean"}
_NAME = {"type": "string", "pattern": "^([a-z0-9]([-a-z0-9.]*[a-z0-9])?)?$", "maxLength": 253}
_TEXTS = {"type": "object", "additionalProperties": {"type": "string"}}
_OBJECTS = {"type": "array", "items": {"type": "object"}}
_PEERS = {"$ref": "#/definitions/peers"}
_PORTS = {"type": "array", "items": {"type": "integer", "minimum": 1, "maximum": 65535}}
_ID = {"type": "integer", "minimum": 1}
_DURATION = {"type": "string", "pattern": "^([0-9]+(ms|[smhdwy]))+$"}
_SIZE = {"type": "string", "pattern": "^[0-9]+(\\.[0-9]+)?([EPTGMk]i?)?$"}
_NUMBER_OR_NONE = {"type": ["number", "null"], "minimum": 0}
_PULL = {"enum": ["Always", "IfNotPresent", "Never"]}
_QUANTITIES = {
    "type": "object",
    "additionalProperties": {"type": ["string", "number"], "pattern": "^[0-9]+(\\.[0-9]+)?(m|[EPTGMk]i?)?$"},
}
_RESOURCES = _closed({kind: {"$ref": "#/definitions/quantities"} for kind in ("requests", "limits")})

_ONLY: dict[str, dict[str, Any]] = {
    "agents": {"stages": _TEXT, "linkStages": _TEXT},
    "kube": {"existingSecret": _NAME},
    "resource": {"replicas": {"type": "integer", "minimum": 1, "maximum": 5}},
    "compute": {"replicas": {"type": "integer", "minimum": 1, "maximum": 5}},
    "operator": {
        "replicas": {"type": "integer", "minimum": 1, "maximum": 5},
        "leaseNamespace": _NAME,
        "aggregateClusterRoles": _FLAG,
    },
}

_COMMON: dict[str, Any] = {
    "global": {"type": "object", "$comment": "Helm's own, where another chart includes this one."},
    "nameOverride": _NAME,
    "fullnameOverride": {**_NAME, "maxLength": 40},
    "image": _closed(
        {
            "repository": {"type": "string", "minLength": 1},
            "tag": _TEXT,
            "digest": {"type": "string", "pattern": "^(sha256:[0-9a-f]{64})?$"},
            "pullPolicy": _PULL,
            "pullSecrets": {"type": "array", "items": _NAME},
        }
    ),
    "supernodes": {"type": "integer", "minimum": 1, "maximum": 8},
    "spec": _TEXT,
    "seed": {"type": ["integer", "null"]},
    "logLevel": {"enum": ["DEBUG", "INFO", "WARNING", "ERROR"]},
    "listen": {"type": "string", "minLength": 2},
    "time": _closed(
        {
            "scale": {"type": "number", "exclusiveMinimum": 0, "maximum": 100_000},
            "anchorWall": _NUMBER_OR_NONE,
            "anchorEmulated": _NUMBER_OR_NONE,
        }
    ),
    "tokens": _closed({"existingSecret": _NAME}),
    "database": _closed(
        {
            "mode": {"enum": ["sqlite", "external", "bundled"]},
            "url": {"type": "string", "pattern": "^(postgres(ql)?(\\+psycopg)?://[^/]+)?$"},
            "existingSecret": _NAME,
        }
    ),
    "postgres": _closed(
        {
            "image": _closed({"repository": {"type": "string", "minLength": 1}, "tag": _TEXT, "pullPolicy": _PULL}),
            "userId": _ID,
            "size": _SIZE,
            "resources": _RESOURCES,
        }
    ),
    "persistence": _closed({"enabled": _FLAG, "size": _SIZE, "storageClass": _NAME, "retain": _FLAG}),
    "podSecurityContext": _closed({"runAsUser": _ID, "runAsGroup": _ID, "fsGroup": _ID}),
    "nodeSelector": _TEXTS,
    "tolerations": _OBJECTS,
    "affinity": {"type": "object"},
    "podAnnotations": _TEXTS,
    "podLabels": _TEXTS,
    "priorityClassName": _NAME,
    "podDisruptionBudget": _closed({"enabled": _FLAG}),
    "networkPolicy": _closed(
        {
            "enabled": _FLAG,
            "from": _PEERS,
            "metricsFrom": _PEERS,
            "inferFrom": _PEERS,
            "apiServerPorts": _PORTS | {"minItems": 1},
            "webhookPorts": _PORTS,
            "webhooksTo": _PEERS,
            "databasePort": {"type": "integer", "minimum": 1, "maximum": 65535},
        }
    ),
    "monitoring": _closed(
        {
            "annotations": _FLAG,
            "serviceMonitor": _closed({"enabled": _FLAG, "interval": _DURATION, "labels": _TEXTS}),
            "dashboards": _closed({"enabled": _FLAG, "labels": _TEXTS}),
            "rules": _closed(
                {
                    "enabled": _FLAG,
                    "labels": _TEXTS,
                    "degradedFor": _DURATION,
                    "stuckFor": _DURATION,
                    "pendingFor": _DURATION,
                    "agentsLost": {"type": "integer", "minimum": 0},
                    "agentsLostFor": _DURATION,
                    "linksBelow": {"type": "integer", "minimum": 0},
                    "linksBelowFor": _DURATION,
                    "firstTokenS": {"type": "number", "exclusiveMinimum": 0},
                    "firstTokenFor": _DURATION,
                    "watcherFailures": {"type": "integer", "minimum": 0},
                    "errorShare": {"type": "number", "minimum": 0, "maximum": 1},
                    "kubeErrorShare": {"type": "number", "minimum": 0, "maximum": 1},
                    "kubeSlowS": {"type": "number", "exclusiveMinimum": 0},
                    "kubeSlowFor": _DURATION,
                    "kubeWatchLagS": {"type": "number", "exclusiveMinimum": 0},
                }
            ),
        }
    ),
    "tests": _closed({"resources": _RESOURCES}),
}
