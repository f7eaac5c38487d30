"""The registry of generated texts: what each package prints, and where it stands."""

from __future__ import annotations

from tests.golden import Generated
from tests.screenshots.studio import SHOTS, Picture
from tests.upkeep.rooms import PACKAGES

PRINTED = "tests.upkeep.printed"
INFER = "tests.upkeep.infer_pictures"
CHART = "tests.charts.printed"
RENDERED = "tests.charts.rendered:golden"
HELM = "tests.charts.helm.build:missing"

GENERATED: tuple[Generated | Picture, ...] = (
    Generated("README.md", f"{PRINTED}:process_table", "processes"),
    *(
        Generated(f"{package.replace('.', '/')}/README.md", "tests.upkeep.rooms:picture", "rooms", arguments=(package,))
        for package in PACKAGES
    ),
    Generated("docs/reference/authorization.md", f"{PRINTED}:authorization", "authorization"),
    Generated("docs/explanation/emulated.md", f"{PRINTED}:fault_kinds", "fault-kinds"),
    Generated("matrixresource/README.md", f"{PRINTED}:allocation_states", "allocation-states"),
    Generated("matrixresource/README.md", f"{PRINTED}:node_states", "node-states"),
    Generated("matrixresource/README.md", f"{PRINTED}:defragmentation_states", "defragmentation-states"),
    Generated("matrixresource/topology/README.md", "tests.upkeep.supernode_picture:picture", "supernode"),
    Generated("matrixlink/README.md", "tests.upkeep.link_tables:printed", "matrixlink"),
    Generated("matrixcompute/README.md", f"{PRINTED}:instance_states", "instance-states"),
    Generated("infer_workload/README.md", f"{INFER}:pools_picture", "pools"),
    Generated("infer_workload/README.md", f"{INFER}:sizes_table", "layouts"),
    Generated("infer_workload/README.md", f"{INFER}:request_states", "request-states"),
    Generated("infer_workload/README.md", f"{INFER}:deployment_states", "deployment-states"),
    Generated("docs/explanation/timing.md", f"{PRINTED}:published_figures", "figures"),
    Generated("docs/how-to/maintenance.md", f"{PRINTED}:maintenance_states", "maintenance-states"),
    Generated("docs/how-to/scenarios.md", f"{PRINTED}:scenario_run_states", "scenario-run-states"),
    Generated("services/node_agent/README.md", f"{PRINTED}:stages", "stages"),
    Generated("services/node_agent/README.md", f"{PRINTED}:fault_kinds", "faults"),
    Generated("charts/cloudmatrix/crds/cloudmatrix.yaml", "matrixcontainer.operator.crds:as_yaml"),
    Generated("charts/cloudmatrix/templates/alerts.yaml", "services.observability.alerts:for_the_chart"),
    Generated("docs/reference/alerts.rules.yaml", "services.observability.alerts:for_any_prometheus"),
    *(
        Generated(
            f"charts/cloudmatrix/files/dashboards/{name}.json",
            "tests.observability.dashboards:printed",
            arguments=(name,),
        )
        for name in ("machine", "fabric", "instances", "processes")
    ),
    *(Picture(name) for name in SHOTS),
    Generated("docs/pictures/supernode.svg", "tests.docs.picture:supernode_svg"),
    Generated("docs/reference/metrics.md", "tests.observability.page:printed"),
    Generated("charts/cloudmatrix/files/processes.yaml", f"{CHART}:processes"),
    Generated("charts/cloudmatrix/values.schema.json", f"{CHART}:values_schema"),
    *(
        Generated(f"tests/golden/chart/{values}.yaml", RENDERED, arguments=(values,), needs=HELM)
        for values in ("default", "postgres", "minimal", "everything")
    ),
    *(
        Generated(f"docs/reference/openapi/{service}.json", f"{PRINTED}:openapi", arguments=(service,))
        for service in ("resource", "link", "compute", "infer", "agents")
    ),
    Generated("docs/reference/matrixctl.md", f"{PRINTED}:command_reference"),
    Generated("docs/pictures/matrixctl-top.svg", "tests.upkeep.terminal_pictures:top"),
    Generated("docs/pictures/matrixctl-plan.svg", "tests.upkeep.terminal_pictures:plan"),
    Generated("docs/reference/reasons.md", f"{PRINTED}:reasons_reference"),
    Generated("docs/reference/kube-differences.md", "tests.conformance.differences:page"),
    Generated("docs/reference/settings.md", f"{PRINTED}:settings_reference"),
    Generated("tests/golden/workflow-steps.json", "tests.upkeep.workflow_steps:printed"),
    Generated("tests/golden/workflow-definitions.json", "tests.upkeep.workflow_steps:definitions"),
)
