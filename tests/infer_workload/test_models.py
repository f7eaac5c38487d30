"""Models and machines are files: served by name, refused with the field that is wrong."""

import pytest

from infer_workload.contract.deployments import DeploymentShape
from infer_workload.experiments.experiment import healthy_fabric
from infer_workload.layout.deployment import DoesNotFit, lay_out
from infer_workload.timing.calibration import load_calibration
from infer_workload.timing.data_files import BadDataFile, list_packaged, locate
from infer_workload.timing.model import catalogue, load_model, read_model
from services.infer.main import InferSettings, build
from tests.infer_workload.conftest import NODES, FakeFabricViews, InferServer

CALIBRATION = load_calibration()


def laid_out(model, nodes=8, **shape):
    return lay_out(healthy_fabric(nodes), load_model(model), CALIBRATION, DeploymentShape(**shape))


def test_the_models_and_machines_that_are_carried_along():
    assert {"deepseek-r1", "deepseek-v3", "kimi-k2", "llama-3.1-70b", "qwen3-235b"} <= set(catalogue())
    assert {"cloudmatrix384", "atlas-800i-a2", "atlas-950"} <= set(list_packaged("machines"))


def test_a_dense_model_is_split_over_the_dies_of_a_group():
    llama = load_model("llama-3.1-70b")
    heads = 2 * llama.head_parameters
    split = (llama.die_weight_bytes(0) - heads * llama.head_bytes) * llama.tensor_parallel
    assert split == pytest.approx((llama.parameters_total - heads) * llama.weight_bytes, rel=0.01)
    deployment = laid_out("llama-3.1-70b")
    decode, prefill = deployment.decode_timing(), deployment.prefill_timing(0)
    kinds, _ = decode.operators(16, 16 * 4096)
    gemms = [
        operator
        for kind in kinds
        for operator in (*kind.attention, *kind.experts)
        if operator.rate == "gemm_efficiency"
    ]
    counted = sum(operator.operations for operator in gemms) * llama.layers
    layers = llama.parameters_total - 2 * llama.head_parameters
    assert counted == pytest.approx(2 * layers * 16, rel=0.01), "two operations a parameter and token, split or not"
    assert decode.tokens_per_step == 1.0, "it has no layer that drafts"
    reduced = [each for kind in kinds for each in (*kind.attention, *kind.experts) if each.name == "all-reduce"]
    assert [each.wire_bytes for each in reduced] == [2 * 7 * 16 * 8192 * 2] * 2
    assert decode.leaving_bytes(16) == 0, "a group of eight dies is in one node"
    assert decode.step_s(32, 32 * 4096) > decode.step_s(16, 16 * 4096) > 0
    read_s = llama.die_weight_bytes(0) / 1.6e12
    assert decode.step_s(1, 128) > read_s, "no step is shorter than reading the weights once"
    assert prefill.exact_chunk_s([(8192, 0)]) > prefill.exact_chunk_s([(4096, 0)])
    assert prefill.exact_chunk_s([(4096, 4096)]) > prefill.exact_chunk_s([(4096, 0)]), "earlier tokens are attended to"


@pytest.mark.parametrize("model", sorted(catalogue()))
def test_every_model_is_laid_out_or_refused_with_what_is_in_the_way(model):
    deployment = laid_out(model)
    assert deployment.kv_tokens_per_die > 4096
    assert 0 < deployment.decode_timing().step_s(8, 8 * 4096) < 1
    assert deployment.drafts == (load_model(model).draft_layers > 0)
    if load_model(model).parameters_total > 900e9:
        with pytest.raises(DoesNotFit):
            laid_out(model, nodes=2)


async def test_several_models_are_served_at_once_and_asked_for_by_name(server):
    for name, model in (("r1", "deepseek-r1"), ("llama", "llama-3.1-70b"), ("kimi", "kimi-k2")):
        answer = await server.ensure(name, model=model)
        assert answer.status_code == 200, answer.text
    for name in ("r1", "llama", "kimi"):
        await server.until("Serving", name)
    listed = {model.id: model.root async for model in server.openai.models.list()}
    assert listed == {
        "r1": "deepseek-r1", "llama": "llama-3.1-70b", "kimi": "kimi-k2",
        "deepseek-r1": "deepseek-r1", "llama-3.1-70b": "llama-3.1-70b", "kimi-k2": "kimi-k2",
    }  # fmt: skip
    for model in ("llama-3.1-70b", "kimi"):
        answer = await server.openai.completions.create(model=model, prompt="hello", max_tokens=4)
        assert answer.model == model
    used = (await server.http.get("/v1/usage", params={"groupBy": "model"})).json()["items"]
    assert [each["model"] for each in used] == ["kimi-k2", "llama-3.1-70b"]
    refused = await server.ensure("x", model="gpt-7")
    assert (refused.status_code, refused.json()["field"]) == (422, "model")
    assert "kimi-k2" in refused.json()["detail"]


def changed(folder, name="own", **fields):
    """A copy of the Llama's file in that folder, with other lines."""
    text = locate("models", "llama-3.1-70b").read_text().replace("name: llama-3.1-70b", f"name: {name}")
    for field, value in fields.items():
        lines = [line for line in text.splitlines() if not line.startswith(f"{field}:")]
        text = "\n".join([*lines, f'{field}: {{value: {value}, source: "a test"}}']) + "\n"
    (folder / f"{name}.yaml").write_text(text)


async def test_a_folder_of_ones_own_models_is_served(tmp_path, fresh):
    changed(tmp_path, layers=40, dense_layers=40, parameters_total=35e9, parameters_active=35e9)
    async with InferServer(fresh, models=tmp_path) as server:
        await server.ensure(model="own")
        view = await server.until("Serving")
        assert view["model"] == "own"


async def test_a_deployment_is_timed_on_the_machine_of_its_supernode(tmp_path, fresh):
    text = locate("machines", "cloudmatrix384").read_text().replace("name: cloudmatrix384", "name: hall-9")
    (tmp_path / "mine.yaml").write_text(text.replace("hbm_gbps: {value: 1600.0", "hbm_gbps: {value: 3200.0"))
    async with InferServer(fresh, machines=tmp_path) as server:
        unknown = await server.ensure(machine="abacus")
        assert (unknown.status_code, unknown.json()["field"]) == (422, "machine")
        assert "atlas-800i-a2, atlas-950, cloudmatrix384, hall-9" in unknown.json()["detail"]
        other = await server.ensure(machine="hall-9")
        assert (other.status_code, other.json()["field"]) == (422, "machine")
        assert "a supernode of CloudMatrix384: the machine must be cloudmatrix384" in other.json()["detail"]
        assert (await server.http.get("/v1/deployments/r1")).status_code == 404
        await server.ensure()
        usual = await server.until("Serving")
        assert usual["machine"] == "cloudmatrix384"
        usual_s = step_s(server)

        server.views.machine = "Hall 9"
        server.views.generation += 1
        lost = await server.until("Unavailable")
        assert "a supernode of Hall 9: the machine must be hall-9" in lost["conditions"][0]["message"]
        kept = await server.ensure(machine="hall-9")
        assert (kept.status_code, kept.json()["field"]) == (409, "machine")
        await server.ensure("faster", machine="hall-9")
        await server.until("Serving", "faster")
        assert step_s(server, "faster") < usual_s


def step_s(server, name="r1"):
    return server.app.state.serving.live[name].engine.pool.timing.step_s(8, 8 * 4096)


async def test_a_deployment_that_names_no_machine_is_of_that_of_its_supernode(fresh):
    async with InferServer(fresh) as server:
        await server.ensure("usual")
        assert (await server.until("Serving", "usual"))["machine"] == "cloudmatrix384"
        usual_s = step_s(server, "usual")
        server.views.machine = "Atlas 950"
        asked = await server.ensure()
        assert (asked.status_code, asked.json()["machine"]) == (200, "atlas-950")
        assert (await server.until("Serving"))["generation"] == 1
        assert step_s(server) != usual_s
        again = (await server.ensure()).json()
        assert (again["generation"], again["machine"]) == (1, "atlas-950"), "left out it is what it was"
        other = await server.ensure(machine="cloudmatrix384")
        assert (other.status_code, other.json()["field"]) == (409, "machine")
        changed = (await server.ensure(batchPerNpu=48)).json()
        assert (changed["generation"], changed["machine"]) == (2, "atlas-950")

        server.views.machine = "Hall 9"
        nowhere = await server.ensure("none")
        assert (nowhere.status_code, nowhere.json()["field"]) == (422, "machine")
        there_are = "unknown machine hall-9; known are atlas-800i-a2, atlas-950, cloudmatrix384"
        assert there_are in nowhere.json()["detail"]


async def test_a_machine_that_cannot_be_told_yet_is_found_with_the_first_view_and_kept(fresh):
    views = FakeFabricViews(nodes=[])
    async with InferServer(fresh, views) as server:
        for name in ("r1", "named"):
            assert "machine" not in (await server.ensure(name)).json()
        named = (await server.ensure("named", machine="atlas-950")).json()
        assert (named["state"], named["machine"]) == ("Pending", "atlas-950"), "it may still be named"
        views.machine = "Atlas 950"
        views.gain(*NODES)
        found = await server.until("Serving")
        assert (found["machine"], found["generation"]) == ("atlas-950", 1)
        await server.until("Serving", "named")
        on_it = load_calibration("atlas-950")
        for name in ("r1", "named"):
            live = server.app.state.serving.live[name]
            assert live.engine.deployment.calibration == live.layout.weights.calibration == on_it
    views.machine = "CloudMatrix384"
    async with InferServer(fresh, views) as server:
        live = server.app.state.serving.live["r1"]
        await server.app.state.serving.watchers.observe_fabric()
        assert (live.spec.machine, live.engine) == ("atlas-950", None), "the next life of the process knows it"
        assert "the machine must be cloudmatrix384, not atlas-950" in live.why


def test_a_machine_file_with_an_error_keeps_the_process_from_starting(tmp_path):
    text = locate("machines", "cloudmatrix384").read_text()
    (tmp_path / "mine.yaml").write_text(text.replace("cube_cores: {value: 24", "cube_cores: {value: none"))
    with pytest.raises(SystemExit, match=r"--machines .*mine\.yaml: cube_cores"):
        build(InferSettings(machines=tmp_path, agents_url=""), None, FakeDatabase())


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("tensor_parallel", 7),
        ("heads", 0),
        ("dense_layers", 3),
        ("shared_experts", 1),
        ("colour", 1),
        ("attention", "no"),
    ],
)
def test_a_file_with_an_error_is_refused_with_its_field(tmp_path, field, value):
    changed(tmp_path, **{field: value})
    with pytest.raises(BadDataFile) as wrong:
        read_model(str(tmp_path / "own.yaml"))
    assert wrong.value.field == field
    with pytest.raises(SystemExit, match=field):
        build(InferSettings(models=tmp_path, agents_url=""), None, FakeDatabase())


class FakeDatabase:
    sessions, shared = None, False
