"""What the Placeto study found: its statistics, plots and document.

Step times are relative to the best known of each graph: the least of any fitting placement in the study. Means are
geometric over graphs; intervals are over seeds, each of which trains again, and hold 95%.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property, partial
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from evaluation.comparing.comparison import FINETUNED
from evaluation.drawing.figures import BLUE, GREEN, GREY, ORANGE
from evaluation.records.record import Record
from evaluation.records.statistics import Estimate, bootstrap_interval, estimate, geometric_mean, until
from evaluation.reporting.findings import SAME
from evaluation.studies.document import save_document
from evaluation.studies.frame import Frame
from evaluation.studies.placeto_generalisation import methods
from evaluation.studies.placeto_generalisation.methods import PLACETO, PPO, RNN, FamilyResult, Kind, PlacetoSize, Point
from graphs.op_graph import Floats

Method = tuple[Kind, str]  # the kind of work, and the placer's name in its records

NEAR = 1.05  # of the best known: what counts as found
BINS = 40  # points of a learning curve
LATEST = 0.1  # share of the updates that says how a training ended
LEARNED: dict[Method, str] = {
    ("random", "random"): "random placement",
    ("placeto", PLACETO): "Placeto, zero-shot",
    ("placeto", PLACETO + FINETUNED): "Placeto, fine-tuned",
    ("ppo", PPO): "Placeto by PPO, zero-shot",
    ("ppo", PPO + FINETUNED): "Placeto by PPO, fine-tuned",
    ("rnn", RNN): "RNN, zero-shot",
    ("rnn", RNN + FINETUNED): "RNN, fine-tuned",
    ("terminal", "terminal"): "Placeto with terminal rewards, zero-shot",
}
METHODS: dict[Method, str] = {
    **LEARNED,
    **{("rivals", name): name.replace("_", " ") for name in methods.CLASSICAL},
    ("reference", methods.SEARCH): f"{methods.SEARCH}, long",
}
OWN: tuple[Kind, ...] = ("placeto", "ppo")  # trainings of Placeto
REWARDS: dict[str, Kind] = {"improvement": "placeto", "terminal": "terminal"}
COLOURS: dict[Kind, str] = {"random": GREY, "placeto": BLUE, "ppo": GREEN, "rnn": ORANGE}


@dataclass(frozen=True)
class FamilyFindings:
    """What is done of a study, and what follows from it."""

    size: PlacetoSize
    results: Sequence[FamilyResult]

    @cached_property
    def frame(self) -> Frame:
        """Its placers are methods."""
        ordered = sorted(self.results, key=lambda result: result.seed)
        return Frame.of(((result.kind, record.placer), record) for result in ordered for record in result.records)

    @cached_property
    def problems(self) -> dict[str, set[str]]:
        """Of each family with anything done."""
        found: dict[str, set[str]] = {}
        for result in self.results:
            found.setdefault(result.family, set()).update(record.problem for record in result.records)
        return found

    @cached_property
    def columns(self) -> dict[str, list[set[str]]]:
        """The problems of each family, and of all families if there are several."""
        columns = {family: [problems] for family, problems in self.problems.items()}
        return columns | ({"all": list(self.problems.values())} if len(columns) > 1 else {})

    @cached_property
    def best_known(self) -> dict[str, float]:
        """Of each problem, the least step time of any fitting placement; NaN without one."""
        return dict(zip(self.frame.problems, self.frame.best().tolist(), strict=True))

    def standing(self, method: Method, groups: Iterable[set[str]]) -> Estimate:
        """Geometric mean of the ratios of placements that fit; its interval is over the seeds of each family."""
        return self.frame.ratio_by_seed(method, self.frame.best(), groups)

    def lag(self, kind: Kind, groups: Iterable[set[str]]) -> Estimate:
        """Zero-shot step times over those after fine-tuning on the same graph; an interval like that of `standing`."""
        return self.frame.ratio_by_seed((kind, kind), (kind, kind + FINETUNED), groups)

    def efforts(self) -> list[tuple[str, float, float]]:
        """How many simulations and episodes each kind of training took."""
        found = []
        for kind, label in (("placeto", "Placeto"), ("ppo", "Placeto by PPO"), ("rnn", "the RNN")):
            ends = [result.training[-1] for result in self.results if result.kind == kind and result.training]
            if ends:
                simulations, episodes = (
                    np.mean([getattr(end, x) for end in ends]) for x in ("simulations", "episodes")
                )
                found.append((label, float(simulations), float(episodes)))
        return found

    def trainings(self, family: str, kind: Kind) -> list[Sequence[Point]]:
        """How the training of each seed went."""
        return [result.training for result in self.results if (result.family, result.kind) == (family, kind)]

    def endings(self, family: str) -> list[tuple[str, int, float, Estimate, Estimate]]:
        """Of both rewards: episodes, simulations, and where trainings end, as they are and with equal simulations."""
        trainings = {reward: self.trainings(family, kind) for reward, kind in REWARDS.items()}
        if not all(trainings.values()):
            return []
        used = {reward: float(np.mean([each[-1].simulations for each in seeds])) for reward, seeds in trainings.items()}
        return [
            (reward, seeds[0][-1].episodes, used[reward],
             _over_seeds(ended(each) for each in seeds), _over_seeds(ended(each, min(used.values())) for each in seeds))
            for reward, seeds in trainings.items()
        ]  # fmt: skip

    def scratch(self, family: str, placer: str) -> list[Record]:
        """What learning from scratch gave, of each seed and graph."""
        of = (result for result in self.results if (result.family, result.kind) == (family, "scratch"))
        return [record for result in of for record in result.records if record.placer == placer + FINETUNED]

    def to_best(self, records: Sequence[Record]) -> float:
        """Median of the simulations until a search's best."""
        return float(np.median([until(record.curve, record.step_seconds) for record in records]))

    def to_near(self, records: Sequence[Record]) -> list[float]:
        """Simulations until a search came near the best known, of those that did."""
        near = (until(record.curve, NEAR * self.best_known[record.problem]) for record in records)
        return [simulations for simulations in near if math.isfinite(simulations)]

    def compared(self, method: Method, family: str) -> dict[str, list[tuple[str, float]]]:
        """The methods that one is slower than, as fast as, and faster than, with ratios; none without a mean."""
        own = self.standing(method, self.columns[family]).value
        others = {label: key for key, label in METHODS.items() if key[0] not in OWN}
        standings = {label: self.standing(key, self.columns[family]).value for label, key in others.items()}
        ratios = [(label, own / value) for label, value in standings.items() if math.isfinite(value)]
        words = {
            "slower than": [each for each in ratios if each[1] >= 1 + SAME],
            "as fast as": [each for each in ratios if abs(each[1] - 1) < SAME],
            "faster than": [each for each in ratios if each[1] <= 1 - SAME],
        }
        return {word: some for word, some in words.items() if some}


def ended(training: Sequence[Point], simulations: float = math.inf) -> float:
    """Geometric mean of step time over bound in the latest updates within N simulations; NaN without any."""
    within = [point for point in training if point.simulations <= simulations]
    latest = within[-max(1, int(LATEST * len(training))) :]
    return _mean(np.array([point.over_bound for point in latest if point.over_bound is not None]))


def save(found: FamilyFindings, folder: Path, command: str) -> Path:
    """Write `placeto.md` and its plots into a folder."""
    plots = {
        "placeto_distributions.png": (partial(_draw_distributions, found=found), 3.2),
        "placeto_rewards.png": (partial(_draw_rewards, found=found), 0.5 + 2.0 * len(found.problems)),
    }
    return save_document(
        "placeto_generalisation", "placeto.md", folder, plots,
        command=command, found=found, size=found.size, sizes=asdict(found.size), methods=METHODS, near=NEAR,
        seeds=len({result.seed for result in found.results if result.kind == "placeto"}),
        minutes=sum(result.seconds for result in found.results) / 60,
        own=[method for method in METHODS if method[0] in OWN], median=np.median,
    )  # fmt: skip


def _draw_distributions(figure: Figure, found: FamilyFindings) -> None:
    """A panel per family: share of the graphs and seeds by how many times the best known their step time is at most."""
    panels = figure.subplots(1, len(found.problems), sharey=True, squeeze=False)[0]
    for axes, (family, problems) in zip(panels, found.problems.items(), strict=True):
        columns = found.frame.columns(problems)
        for (kind, placer), label in LEARNED.items():
            seconds = found.frame.table((kind, placer))[:, columns]
            ratios = (seconds / found.frame.best()[columns])[~np.isnan(seconds)]
            if kind in COLOURS and len(ratios):
                finite = np.sort(ratios[np.isfinite(ratios)])
                share = np.arange(1, len(finite) + 1) / len(ratios)
                x, y = np.append(1.0, finite), np.append(0.0, share)
                style = "--" if label.endswith("zero-shot") else "-"
                axes.step(x, y, where="post", color=COLOURS[kind], linestyle=style, label=label)
        axes.set_title(family)
        axes.set_xscale("log")
        axes.set_xticks([1, 1.5, 2, 3, 5], ["1", "1.5", "2", "3", "5"], minor=False)
        axes.minorticks_off()
        axes.set_xlabel("step time / best known")
        axes.grid()
    panels[0].set_ylabel("share of graphs and seeds")
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=3, fontsize=8)


def _draw_rewards(figure: Figure, found: FamilyFindings) -> None:
    """A row per family: both rewards against simulations, and against episodes."""
    rows = figure.subplots(len(found.problems), 2, sharey="row", squeeze=False)
    for (left, right), family in zip(rows, found.problems, strict=True):
        for (reward, kind), colour in zip(REWARDS.items(), (BLUE, ORANGE), strict=True):
            if seeds := found.trainings(family, kind):
                middle, low, high = _band(seeds)
                for axes, x in ((left, _binned(seeds, "simulations")), (right, _binned(seeds, "episodes"))):
                    axes.plot(x, middle, color=colour, label=reward)
                    axes.fill_between(x, low, high, color=colour, alpha=0.2, linewidth=0)
        left.set_xscale("log")
        left.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
        left.set_ylabel(f"{family}\nstep time / bound")
        for axes in (left, right):
            axes.grid()
    for axes, name in zip(rows[-1], ("simulations", "episodes"), strict=True):
        axes.set_xlabel(name)
    rows[0][0].legend(fontsize=8)


def _band(seeds: Sequence[Sequence[Point]]) -> tuple[Floats, Floats, Floats]:
    """(bins,) geometric mean over seeds of the binned curves, and the ends of its interval."""
    curves = [[np.nan if point.over_bound is None else point.over_bound for point in training] for training in seeds]
    values = np.array([[_mean(part) for part in _parts(np.array(curve))] for curve in curves])
    ends = np.array([bootstrap_interval([column], geometric_mean) for column in values.T])
    return geometric_mean(values.T), ends[:, 0], ends[:, 1]


def _binned(seeds: Sequence[Sequence[Point]], what: str) -> Floats:
    """(bins,) mean over seeds and neighbours of a column."""
    values = np.array([[getattr(point, what) for point in training] for training in seeds], np.float64)
    return np.array([part.mean() for part in _parts(values.mean(axis=0))])


def _parts(curve: Floats) -> list[Floats]:
    """Neighbours that make one point of a plot."""
    return np.array_split(curve, min(BINS, len(curve)))


def _mean(values: Floats) -> float:
    """Geometric mean of what is there; NaN of nothing."""
    there = values[np.isfinite(values)]
    return float(geometric_mean(there)) if len(there) else math.nan


def _over_seeds(values: Iterable[float]) -> Estimate:
    """The geometric mean of a value per seed, with its interval."""
    given = np.array(list(values))
    return estimate([given[np.isfinite(given)]] if np.isfinite(given).any() else [])
