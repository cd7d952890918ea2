"""One policy that several processes train: the same as one process alone, also when one of them is killed."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from msgspec.structs import replace
from safetensors.torch import load_file

from graphs.foundation.errors import InputError
from graphs.problem import Problem
from placers.learned.sequential.policy import SequentialPolicy
from placers.learned.settings import Imitation, Ppo, Settings
from tests.forked import ended
from tests.oracle.toys import random_graph, toy_cluster
from tests.training.metrics_lines import metrics_lines
from tests.training.small_problems import NETWORK, PROBLEMS
from training.learning.ppo import PpoTrainer
from training.learning.ranks import Ranks
from training.learning.reinforce import ReinforceTrainer
from training.learning.shard import PartReport, ProblemShard
from training.problems.random.renewed import RenewedProblems
from training.problems.random.settings import World
from training.recipe import OrderStage, Recipe, Validation
from training.runs.train import train

RECIPE = Recipe(
    placer="sequential",
    network=f"{NETWORK},orders=true",
    problems=PROBLEMS,
    validation=Validation(every=2, problems=3, averaging=0.5),
    ppo=Ppo(updates=4, problems_per_update=3, samples=4, reward="log", shards=2),
    imitation=Imitation(simulations=20, updates=2, weight=0.1, again=1),
    order=OrderStage(updates=2),
)
# What torchrun does: a checkpoint every second update, and rank 1 killed in the fourth, the first time.
SCRIPT = """
import os
import signal
import sys
from pathlib import Path

from torch.distributed.launcher.api import LaunchConfig, elastic_launch

import placelab
from training.runs import train
from training.learning.ppo import PpoTrainer

update = PpoTrainer.update


def killed(self):
    if self.updates == 3 and self.ranks.rank == 1 and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
        Path("killed").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return update(self)


def trained():
    train.CHECKPOINT_EVERY = 2
    PpoTrainer.update = killed
    sys.argv = ["placelab", "train", "recipe.toml", "--out", "ranks", "--seed", "3"]
    placelab.main()


config = LaunchConfig(
    1, 1, 2, run_id="two", rdzv_backend="c10d", rdzv_endpoint="localhost:0", max_restarts=1, start_method="fork"
)
elastic_launch(config, trained)()
"""


def random_problems(count: int) -> list[Problem]:
    return [Problem(random_graph(ops, seed=ops), toy_cluster(2, memory=1e4)) for ops in range(6, 6 + count)]


def test_two_processes_of_which_one_is_killed_end_as_one_process_does(tmp_path: Path) -> None:
    alone = train(RECIPE, out=tmp_path / "alone", seed=3)
    (tmp_path / "recipe.toml").write_text(RECIPE.to_toml())
    done = ended(SCRIPT, tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
    assert (tmp_path / "killed").exists()
    assert done.stdout == "sequential:checkpoint=ranks\n", "the first process alone prints the result"
    wanted, found = (load_file(tmp_path / run / "trainer.safetensors") for run in ("alone", "ranks"))
    assert wanted.keys() == found.keys()
    assert [name for name, value in wanted.items() if not torch.equal(found[name], value)] == []
    lines = [metrics_lines(tmp_path / run) for run in ("alone", "ranks")]
    assert lines[0] == lines[1]
    assert len(lines[0]) == 4
    kept, weights = load_file(tmp_path / "ranks" / "policy.safetensors"), alone.policy
    assert weights is not None
    assert [name for name, value in weights.state_dict().items() if not torch.equal(kept[name], value)] == []


@pytest.mark.parametrize("shards", [1, 2, 3])
def test_every_problem_is_in_one_shard_and_updates_meet_as_many(shards: int) -> None:
    problems, world = random_problems(7), RenewedProblems(World(problems=6, units=(8, 9), devices=(2, 2)), 0)
    policy, ppo = SequentialPolicy.new(NETWORK, 0), Ppo(problems_per_update=5, shards=shards)
    dealt: list[ProblemShard[Any]] = [ProblemShard(number, shards, policy, problems, world) for number in range(shards)]
    assert sorted(number for shard in dealt for number in shard.stay) == list(range(7))
    for number in range(30):
        assert sum(shard.holds(number) for shard in dealt) == 1
    for update in range(10):
        chosen = [shard.chosen(ppo, update, update, *shard.seed(0), update)[0] for shard in dealt]
        assert sum(map(len, chosen)) == 5
        assert len({id(each) for part in chosen for each in part}) == 5
    for shard in dealt:
        assert all(shard.holds(number) and shard.numbered(number) is each for number, each in shard.known().items())


def test_a_part_counts_by_its_units() -> None:
    reports = [PartReport(0, 30, 0), PartReport(1, 10, 0)]
    assert [each.share(reports) for each in reports] == [0.75, 0.25]


@dataclass(frozen=True)
class Told(Ranks):
    """A rank of two that hears its own words from the other."""

    def gathered(self, mine: Any) -> list[Any]:
        return [mine, mine]


@pytest.mark.parametrize(
    ("changes", "ranks", "message"),
    [
        ({}, Told(0, 2), "2 processes cannot share 1 part of the problems; set ppo.shards to 2 or more"),
        ({"shards": 2}, Told(0, 3), "3 processes cannot share 2 parts of the problems; set ppo.shards to 3 or more"),
        ({"shards": 9, "problems_per_update": 9}, Ranks(), "ppo.shards is 9, with 4 problems to deal out"),
        ({"shards": 3, "problems_per_update": 2}, Ranks(), "ppo.shards is 3, with 2 problems to deal out"),
    ],
)
def test_what_cannot_be_dealt_out_is_refused(changes: dict[str, int], ranks: Ranks, message: str) -> None:
    with pytest.raises(InputError, match=message):
        PpoTrainer(SequentialPolicy.new(NETWORK, 0), random_problems(4), replace(Ppo(), **changes), 0, ranks=ranks)


def test_episodes_are_learned_from_in_one_process() -> None:
    with pytest.raises(InputError, match="REINFORCE learns in one process; start it without torchrun"):
        ReinforceTrainer.of(None, random_problems(1), Settings(), 0, ranks=Ranks(0, 2))  # type: ignore[arg-type]
