"""Values: each explained, none unknown, wrong ones refused with their path."""

from __future__ import annotations

import base64
import re

import pytest
import yaml

from tests.charts.rendered import CHART, HelmRefused, template


def test_every_value_has_its_comment() -> None:
    """A key with a value follows a comment, or is part of one that does; keys that only hold others need none."""
    lines = (CHART / "values.yaml").read_text().splitlines()
    explained_above: list[int] = []
    for number, line in enumerate(lines):
        found = re.match(r"( *)(\w+):(.*)", line)
        if not found:
            continue
        depth, value = len(found[1]), re.sub(r"[&]\w+", "", found[3]).strip()
        explained_above = [current for current in explained_above if current < depth]
        explained = lines[number - 1].lstrip().startswith("# -- ") or lines[number - 2].lstrip().startswith("# -- ")
        assert explained or explained_above or not value, f"values.yaml:{number + 1} says not what it is for: {line}"
        if explained and not value:
            explained_above.append(depth)


@pytest.mark.usefixtures("helm_here")
@pytest.mark.parametrize(
    ("given", "path", "why"),
    [
        ("foo=1", "''", "additional properties 'foo' not allowed"),
        ("time.scale=fast", "'/time/scale'", "got string, want number"),
        ("time.scale=0", "'/time/scale'", "exclusiveMinimum: got"),
        ("supernodes=9", "'/supernodes'", "maximum: got"),
        ("supernodes=1.5", "'/supernodes'", "want integer"),
        ("logLevel=LOUD", "'/logLevel'", "value must be one of"),
        ("database.mode=mysql", "'/database/mode'", "value must be one of"),
        ("database.url=mysql://db", "'/database/url'", "does not match pattern"),
        ("database.url=postgresql://u:p@db/name", "'/database/url'", "does not match pattern"),
        ("image.digest=latest", "'/image/digest'", "does not match pattern"),
        ("operator.replicas=0", "'/operator/replicas'", "minimum: got"),
        ("link.replicas=2", "'/link'", "additional properties 'replicas' not allowed"),
        ("resource.settings.leaseGrce=3", "'/resource/settings'", "additional properties 'leaseGrce' not allowed"),
        ("resource.settings.leaseGrace=-1", "'/resource/settings/leaseGrace'", "exclusiveMinimum: got"),
        ("compute.settings.lostPerCabinet=0", "'/compute/settings/lostPerCabinet'", "minimum: got"),
        ("compute.settings.port=1", "'/compute/settings'", "additional properties 'port' not allowed"),
        ("kube.settings.synchronous=OFF", "'/kube/settings/synchronous'", "does not match pattern"),
        ("networkPolicy.enabled=maybe", "'/networkPolicy/enabled'", "got string, want boolean"),
        ("networkPolicy.webhookPorts={0}", "'/networkPolicy/webhookPorts/0'", "minimum: got"),
        ("networkPolicy.webhooksTo=all", "'/networkPolicy/webhooksTo'", "got string, want array"),
        ("persistence.size=big", "'/persistence/size'", "does not match pattern"),
        ("podSecurityContext.runAsUser=0", "'/podSecurityContext/runAsUser'", "minimum: got"),
        ("podSecurityContext.privileged=true", "'/podSecurityContext'", "additional properties"),
        ("link.service.type=ExternalName", "'/link/service/type'", "value must be one of"),
        ("monitoring.rules.errorShare=2", "'/monitoring/rules/errorShare'", "maximum: got"),
        ("link.resources.limits.memory=lots", "'/link/resources/limits/memory'", "does not match pattern"),
    ],
)
def test_a_wrong_value_is_refused_with_its_path(given: str, path: str, why: str) -> None:
    with pytest.raises(HelmRefused) as refused:
        template("--set", given)
    text = str(refused.value)
    assert re.search(f"at {path}: .*{re.escape(why)}", text), text


@pytest.mark.usefixtures("helm_here")
@pytest.mark.parametrize(
    ("given", "why"),
    [
        ("link.enabled=false", "compute.enabled: compute calls link, which does not run"),
        ("infer.enabled=false", "operator.enabled: operator calls infer, which does not run"),
        ("compute.replicas=2,database.mode=sqlite", "compute.replicas: several need PostgreSQL"),
        ("resource.replicas=2,database.mode=sqlite", "resource.replicas: several need PostgreSQL"),
        ("database.mode=external", "database.mode: external wants database.url or database.existingSecret"),
    ],
)
def test_values_that_do_not_go_together_are_refused(given: str, why: str) -> None:
    with pytest.raises(HelmRefused, match=re.escape(why)):
        template("--set", given)


@pytest.mark.usefixtures("helm_here")
def test_an_external_database_is_a_url_per_service() -> None:
    documents = list(
        yaml.safe_load_all(template("--set", "database.mode=external,database.url=postgresql://u:p@db:5432"))
    )
    secret = next(each for each in documents if each and each["metadata"]["name"].endswith("-database"))
    urls = {key: base64.b64decode(value).decode() for key, value in secret["data"].items()}
    assert urls == {
        name: f"postgresql://u:p@db:5432/{name}" for name in ("resource", "link", "compute", "infer", "kube")
    }
