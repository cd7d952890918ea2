"""What `--precision` makes of a model: bytes of a parameter, what is moved and sent, and what is refused."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from envs.costs.costs import timed
from envs.simulation.simulator import Simulator, simulate
from graphs.cluster import Cluster, Device
from graphs.files.graph_source import graph_source
from graphs.files.load import load_cluster, load_graph
from graphs.formats.graph_file import load_graph_file, save_graph
from graphs.foundation import by_name
from graphs.foundation.errors import InputError
from graphs.op_graph import OpGraph, Phase
from graphs.op_graph.precision import BYTES
from graphs.problem import Problem
from graphs.transforms.mixed_precision import PRECISIONS
from placelab import capture, place
from placers.data_parallel import DataParallel

ROWS, WIDTH, LAYERS = 4, 64, 3
PARAMETERS = LAYERS * WIDTH * WIDTH
# Bytes of a parameter with Adam: Megatron Core's user guide has 18 for BF16 with gradients in FP32, and 16 for FP32;
# Rajbhandari et al. (2020), section 3.1, 16 for mixed precision in FP16.
BYTES_OF_A_PARAMETER = {
    "auto": 16, "fp32": 16, "tf32": 16, "tf32-cudnn": 16, "bf16-mixed": 16, "fp16-mixed": 16, "bf16": 18, "fp16": 16,
    "fp8": 18, "bf16-true": 8, "fp16-true": 8,
}  # fmt: skip
GPU = Device("gpu", "gpu", 1e12, 1e12, 1e9, flops_by_precision={"tf32": 4e12, "bf16": 1.6e13, "fp16": 1.6e13})


def layers() -> tuple[nn.Module, tuple[Tensor, ...]]:
    chain = nn.Sequential(*(nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(LAYERS))).to("meta")
    return chain, (torch.zeros(ROWS, WIDTH, device="meta"),)


def captured(word: str, model: Any = None, *, training: bool = True) -> OpGraph:
    return load_graph(graph_source(model or layers()).in_precision(word), training=training)


def on_gpus(graph: OpGraph, count: int = 1, optimizer: str = "adam") -> Problem:
    cluster = Cluster.uniform("gpus", GPU, count, latency=0, bandwidth=1e9, shared_out=False)
    return timed(Problem(graph, cluster, optimizer), "roofline")


def test_every_word_has_its_bytes_of_a_parameter() -> None:
    assert BYTES_OF_A_PARAMETER.keys() == PRECISIONS.keys()


def test_the_page_has_these_bytes() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "how-to" / "precision.md").read_text()
    rows = re.findall(r"^\| `([\w-]+)` \|(?:[^|]*\|){5} (\d+) \|", page, re.MULTILINE)
    assert {word: int(size) for word, size in rows} | {"auto": 16} == BYTES_OF_A_PARAMETER


@pytest.mark.parametrize(("word", "expected"), BYTES_OF_A_PARAMETER.items())
def test_adam_holds_the_bytes_of_a_parameter_that_are_published(word: str, expected: float) -> None:
    problem = on_gpus(captured(word))
    assert problem.weight_state_bytes.sum() == expected * PARAMETERS
    memory = problem.weight_memory
    assert memory.bytes.sum() + memory.gradient_bytes.sum() == expected * PARAMETERS
    timeline = Simulator(problem).timeline(np.zeros(problem.graph.num_units, np.int64))
    activations = 4 * ROWS * WIDTH * (LAYERS + 4)  # at most, with those that are passed on
    copies = 2 * PARAMETERS if word.endswith("mixed") else 0  # of weights, by `autocast`
    assert expected * PARAMETERS <= timeline.peak_bytes[0] <= expected * PARAMETERS + activations + copies


@pytest.mark.parametrize(
    ("optimizer", "word", "expected"),
    [
        ("sgd", "fp32", 8), ("sgd", "bf16-true", 4), ("sgd", "fp16", 8), ("momentum", "fp32", 12),
        ("momentum", "bf16-true", 6), ("momentum", "fp16", 12), ("momentum", "bf16", 14), ("adam8bit", "fp32", 10),
        ("adam8bit", "bf16-true", 6), ("adam8bit", "fp16", 10), ("none", "bf16", 2),
    ],
)  # fmt: skip
def test_other_optimizers_keep_less(optimizer: str, word: str, expected: float) -> None:
    assert on_gpus(captured(word), optimizer=optimizer).weight_state_bytes.sum() == expected * PARAMETERS


@pytest.mark.parametrize(("word", "expected"), [("fp32", 28), ("bf16", 30), ("fp16", 28), ("bf16-true", 14)])
def test_adam_reads_gradient_and_state_and_writes_state_and_weight(word: str, expected: float) -> None:
    graph = captured(word)
    assert graph.bytes_accessed[graph.phase == Phase.UPDATE].sum() == expected * PARAMETERS


@pytest.mark.parametrize(("word", "expected"), [("fp32", 4), ("bf16", 4), ("fp16", 2), ("bf16-true", 2)])
def test_gradients_are_made_and_summed_in_their_own_precision(word: str, expected: float) -> None:
    graph = captured(word)
    made = np.array([kind.endswith(".grad_weight") for kind in graph.kinds])
    assert graph.output_bytes[made].sum() == expected * PARAMETERS
    problem = on_gpus(graph, 2)
    placed = DataParallel().place(problem, seed=0, budget=0)
    assert placed.plan is not None
    timeline = simulate(problem, placed.plan)
    crossing = timeline.placement[timeline.problem.graph.edges]
    sent = timeline.problem.graph.carried_bytes[crossing[:, 0] != crossing[:, 1]].sum()
    assert sent == 2 * expected * PARAMETERS  # of a ring of two: each sends half of it, twice


@pytest.mark.parametrize(("word", "peak"), [("fp32", 1e12), ("tf32", 4e12), ("bf16", 1.6e13), ("fp16-true", 1.6e13)])
def test_a_chain_of_products_takes_its_flops_at_the_peak_of_the_word(word: str, peak: float) -> None:
    module = nn.Sequential(*(nn.Linear(2048, 2048, bias=False) for _ in range(LAYERS))).to("meta")
    graph = captured(word, (module, (torch.zeros(2048, 2048, device="meta"),)), training=False)
    single = captured("fp32", (module, (torch.zeros(2048, 2048, device="meta"),)), training=False)
    seconds = Simulator(on_gpus(graph)).timeline(np.zeros(graph.num_units, np.int64)).step_seconds
    assert seconds == pytest.approx(LAYERS * 2 * 2048**3 / peak)
    share = 1 if word in ("fp32", "tf32") else 2
    for key in ("weights", "output_bytes", "bytes_accessed"):
        assert (getattr(graph, key) * share).tolist() == getattr(single, key).tolist()


def test_fp8_is_that_of_products_with_weights_alone() -> None:
    example = WithItself(), (torch.zeros(WIDTH, WIDTH, device="meta"),)
    graph = captured("fp8", example)
    found = {op for op in zip(graph.kinds, graph.precisions, graph.flops > 0, strict=True) if op[2]}
    assert {kind.split(".")[1]: precision for kind, precision, _ in found} == {"addmm": "fp8", "mm": "bf16"}
    assert graph.output_bytes.tolist() == captured("bf16", example).output_bytes.tolist()


def test_a_model_in_single_precision_is_the_same_graph_in_fp32() -> None:
    assert captured("auto").fingerprint == captured("fp32").fingerprint
    assert captured("tf32-cudnn").fingerprint == captured("fp32").fingerprint  # no convolution
    assert len({captured(word).fingerprint for word in PRECISIONS}) == len(PRECISIONS) - 2


def test_cudnn_computes_convolutions_alone_in_tf32() -> None:
    module = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(144, 2)).to("meta")
    example = module, (torch.zeros(2, 3, 8, 8, device="meta"),)
    graph = captured("tf32-cudnn", example)
    found = {(kind, precision) for kind, precision in zip(graph.kinds, graph.precisions, strict=True) if "." in kind}
    assert {kind for kind, precision in found if precision == "tf32"} == {
        "aten.convolution",
        "aten.convolution.grad_weight",
    }
    assert ("aten.addmm", "") in found
    assert graph.bytes_accessed.tolist() == captured("fp32", example).bytes_accessed.tolist()


def test_the_given_module_stays_as_it_is_and_so_do_the_settings_of_torch() -> None:
    module = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
    kept = [each.clone() for each in module.state_dict().values()]
    for word in ("bf16", "bf16-mixed"):
        captured(word, (module, (torch.zeros(2, 4),)))
    assert [each.dtype for each in module.state_dict().values()] == [each.dtype for each in kept]
    assert all(torch.equal(one, other) for one, other in zip(module.state_dict().values(), kept, strict=True))
    assert torch.get_default_dtype() == torch.float32
    assert not torch.is_autocast_enabled("cuda")


class WithItself(nn.Module):
    """A product with a weight, and one without."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(WIDTH, WIDTH, device="meta")

    def forward(self, x: Tensor) -> Tensor:
        made: Tensor = self.layer(x)
        return made @ made


class MakesItsOwn(nn.Module):
    """Its hidden state is made by its code, in the default type."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        state = torch.zeros(x.shape[0], WIDTH, device=x.device)
        made: Tensor = self.cell(x + state)
        return made


class CastsItself(MakesItsOwn):
    """Computes in single precision, whatever it is given."""

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.linear(x.float(), self.cell.weight.float())


def test_what_code_makes_in_the_default_type_is_in_the_precision_too() -> None:
    graph = captured("bf16", (MakesItsOwn().to("meta"), (torch.zeros(ROWS, WIDTH, device="meta"),)))
    assert {precision for precision, flops in zip(graph.precisions, graph.flops, strict=True) if flops} == {"bf16"}


def test_running_statistics_in_half_precision_are_recorded_without_a_word(caplog: pytest.LogCaptureFixture) -> None:
    module = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8)).to("meta")
    graph = captured("bf16", (module, (torch.zeros(2, 3, 8, 8, device="meta"),)))
    assert graph.kinds[:2] == ("aten.convolution", "aten._native_batch_norm_legit_functional")
    assert "aten._to_copy" not in graph.kinds
    assert not caplog.messages


def test_a_module_that_casts_all_of_its_products_itself_is_refused() -> None:
    with pytest.raises(
        InputError, match=r"CastsItself:4.16k: `precision='bf16'` leaves all of its products in other types"
    ):
        captured("bf16", (CastsItself().to("meta"), (torch.zeros(ROWS, WIDTH, device="meta"),)))


def test_a_graph_file_keeps_masters_and_gradients_and_takes_tf32_alone(tmp_path: Path) -> None:
    file = tmp_path / "half.graph.json"
    save_graph(captured("bf16"), file)
    assert load_graph_file(file).fingerprint == captured("bf16").fingerprint
    assert on_gpus(load_graph_file(file)).weight_state_bytes.sum() == 18 * PARAMETERS
    with pytest.raises(InputError, match=r"half\.graph\.json: a graph keeps the types of tensors that it was captured"):
        graph_source(file).in_precision("fp16")
    save_graph(captured("fp32"), file)
    assert load_graph(graph_source(file).in_precision("tf32")).fingerprint == captured("tf32").fingerprint


def test_verbs_take_it_and_name_what_there_is(tmp_path: Path) -> None:
    model, cluster = "vgg:layers=11,image=32", "mixed:h100"
    found = {
        word: place(model, cluster=cluster, placer="single_device", precision=word, runtime="ideal")
        for word in ("auto", "bf16", "tf32", "auto")  # without a host, which so small a model waits for
    }
    assert (
        found["bf16"].timeline.step_seconds < found["tf32"].timeline.step_seconds < found["auto"].timeline.step_seconds
    )
    assert capture(model, precision="bf16", out=tmp_path / "half.graph.json")
    assert set(load_graph_file(tmp_path / "half.graph.json").weight_precisions) == {"bf16"}
    with pytest.raises(InputError, match=r"unknown precision 'bf61'; did you mean 'bf16'\? there are: auto, fp32"):
        place(model, cluster=cluster, precision="bf61")


def test_a_device_without_a_peak_in_bf16_takes_that_of_fp32_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    cluster = load_cluster("mixed:v100")
    timed(Problem(captured("fp16"), cluster))
    assert not caplog.messages
    timed(Problem(captured("bf16"), cluster.with_each_device(memory_bytes=1e9)))
    assert len(caplog.messages) <= 1  # once in a process
    peak = cluster.devices[0]
    assert (peak.peak("bf16"), peak.peak("fp16")) == (15.7e12, 125e12)


def test_elements_have_the_bytes_of_their_type() -> None:
    for name, size in {"fp64": 8, "fp32": 4, "": 4, "fp16": 2, "bf16": 2, "fp8": 1, "int8": 1}.items():
        assert BYTES[name] == size


@pytest.mark.slow
@pytest.mark.parametrize("word", ["bf16", "bf16-mixed"])
@pytest.mark.parametrize("family", by_name.built_in("graphs.families"))
def test_every_family_is_captured_in_half_precision_without_a_word(
    family: str, word: str, caplog: pytest.LogCaptureFixture
) -> None:
    graph = captured(word, family)
    assert set(graph.precisions) <= {"", "bf16"}
    assert "bf16" in graph.precisions
    assert not caplog.messages
