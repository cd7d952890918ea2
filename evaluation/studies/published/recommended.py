"""Rows: the plans that NVIDIA recommends for Llama 3 on H100 in BF16, as a problem and a spec of `parallel` each."""

from typing import NamedTuple

BRIDGE = "Megatron-Bridge, src/megatron/bridge"  # github.com/NVIDIA-NeMo/Megatron-Bridge
PERFORMANCE = f"{BRIDGE}/perf_recipes/llama/h100/llama3.py"
LARGEST = f"{BRIDGE}/perf_recipes/llama/h100/llama31.py"
RECIPES = f"{BRIDGE}/recipes/llama/h100/llama3.py"
BENCHMARKS = "DGX Cloud Benchmarking 25.04, Llama 3.1, README.md"
VOCABULARY = 128256
SIZES = {  # of a layer: Llama Team 2024, table 3
    "8B": "width=4096,heads=32,inner=14336,kv_heads=8",
    "70B": "width=8192,heads=64,inner=28672,kv_heads=8",
    "405B": "width=16384,heads=128,inner=53248,kv_heads=8",
}


class Row(NamedTuple):
    """A recommended plan, and how much of it is planned here; micro-batches are of one sample."""

    size: str
    layers: int
    sequence: int  # tokens
    gpus: int
    tp: int
    cp: int
    pp: int
    vp: int  # stages of each GPU
    micro_batches: int
    source: str
    key: str  # where it is in the source
    part: str = ""  # what of the recommendation is planned, if not all

    @property
    def dp(self) -> int:
        """Replicas."""
        return self.gpus // (self.tp * self.cp * self.pp)

    @property
    def divides_ops(self) -> bool:
        """Whether GPUs divide anything but the batch between them."""
        return self.tp * self.cp > 1

    @property
    def model(self) -> str:
        """The spec of the model."""
        return (
            f"llama:layers={self.layers},{SIZES[self.size]},sequence={self.sequence},"
            f"batch={self.dp * self.micro_batches},vocabulary={VOCABULARY},attention=sdpa"
        )

    @property
    def cluster(self) -> str:
        """The spec of the servers."""
        return f"dgx_h100:servers={self.gpus // 8},devices=8"

    @property
    def plan(self) -> str:
        """The recommended plan, as a placer's spec."""
        degrees = {"dp": self.dp, "tp": self.tp, "cp": self.cp, "pp": self.pp, "micro_batches": self.micro_batches}
        spec = ",".join(f"{name}={degree}" for name, degree in degrees.items())
        spec += ",sequence=true" if self.tp > 1 else ""
        spec += "" if self.divides_ops else ",zero=1"  # the distributed optimizer; no plan has it and divided ops
        if self.vp == 1:
            return f"parallel:{spec}"
        if self.layers % (self.pp * self.vp) == 0:
            return f"parallel:{spec},interleaved={self.vp}"
        # the embedding and the loss count as a layer each, as with `account_for_embedding_in_pipeline_split`
        parts = ["embedding", *(f"layers.{layer}" for layer in range(self.layers)), "norm"]
        begins = "+".join(parts[:: self.layers_of_stage][1:])
        return f"parallel:{spec},interleaved={self.vp},stages={begins}"

    @property
    def layers_of_stage(self) -> int:
        """How many each stage has, with the embedding and the loss as one each."""
        return (self.layers + 2) // (self.pp * self.vp)

    @property
    def words(self) -> str:
        """Size, tokens and GPUs."""
        return f"{self.size}, {self.sequence:,} tokens, {self.gpus} GPUs"

    @property
    def said(self) -> str:
        """The spec, with words for stages that are named one by one."""
        spec, _, begins = self.plan.partition(",stages=")
        return f"`{spec}`" + (
            f", with {self.layers_of_stage} layers in each stage, the embedding and the loss as one each"
            if begins
            else ""
        )

    @property
    def name(self) -> str:
        """Of its files."""
        degrees = (self.gpus, self.tp, self.cp, self.pp, self.vp, self.micro_batches)
        return "-".join(map(str, (self.size, self.layers, self.sequence, *degrees)))


ROWS = (
    Row("8B", 32, 8192, 8, 1, 2, 1, 1, 32, PERFORMANCE, "llama3_8b_pretrain_8gpu"),
    Row("8B", 32, 8192, 16, 1, 2, 1, 1, 8, BENCHMARKS, "8b, 16 GPUs", "a quarter of the batch"),
    Row("8B", 32, 8192, 32, 1, 2, 1, 1, 4, BENCHMARKS, "8b, 32 GPUs", "an eighth of the batch"),
    Row("8B", 32, 4096, 8, 1, 1, 1, 1, 4, PERFORMANCE, "llama3_8b_sft_8gpu"),
    Row("8B", 32, 16384, 16, 4, 2, 2, 1, 16, RECIPES, "llama3_8b_pretrain_16gpu_16k", "16 of 512 samples"),
    Row("8B", 32, 65536, 32, 4, 4, 2, 1, 32, RECIPES, "llama3_8b_pretrain_32gpu_64k", "32 of 512 samples"),
    Row("70B", 80, 4096, 32, 4, 1, 4, 5, 16, PERFORMANCE, "llama3_70b_sft_32gpu"),
    Row("70B", 80, 8192, 32, 4, 2, 4, 5, 32, PERFORMANCE, "llama3_70b_pretrain_64gpu", "half of the GPUs, 32 of 256"),
    Row("70B", 80, 16384, 32, 8, 2, 2, 1, 32, RECIPES, "llama3_70b_pretrain_32gpu_16k", "32 of 512 samples"),
    Row("405B", 8, 8192, 32, 8, 2, 1, 1, 32, BENCHMARKS, "405b-Proxy, 32 GPUs"),
    Row("405B", 30, 8192, 64, 8, 2, 4, 8, 64, BENCHMARKS, "405b-Proxy, 64 GPUs"),
    Row("405B", 126, 8192, 128, 8, 2, 8, 8, 128, LARGEST, "llama31_405b_pretrain_1024gpu", "128 GPUs, 128 of 1,536"),
)  # fmt: skip
