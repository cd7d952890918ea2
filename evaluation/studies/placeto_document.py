"""What the Placeto study found: its statistics, plots and document, from the pieces that are done.

Step times are relative to the best known of each graph: the least of any fitting placement in the study. Means are
geometric over graphs; intervals are over seeds, each of which trains anew, and hold 95%.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path

import msgspec
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from evaluation.drawing.figures import BLUE, GREEN, GREY, ORANGE, drawn
from evaluation.record import Record
from evaluation.reporting.findings import SAME
from evaluation.statistics import Estimate, bootstrap_interval, estimate, geometric_mean, until
from evaluation.studies.markdown import estimated, row
from evaluation.studies.placeto_pieces import PLACETO, PPO, RIVALS, RNN, SEARCH, Kind, Piece, Point, Settings
from graphs.foundation.files import write_whole
from graphs.op_graph import Floats

NEAR = 1.05  # of the best known: what counts as found
BINS = 40  # points of a learning curve
LATEST = 0.1  # share of the updates that says how a training ended
METHODS: dict[tuple[Kind, str], str] = {
    ("random", "random"): "random placement",
    ("placeto", PLACETO): "Placeto, zero-shot",
    ("placeto", f"{PLACETO}+finetuned"): "Placeto, fine-tuned",
    ("ppo", PPO): "Placeto by PPO, zero-shot",
    ("ppo", f"{PPO}+finetuned"): "Placeto by PPO, fine-tuned",
    ("rnn", RNN): "RNN, zero-shot",
    ("rnn", f"{RNN}+finetuned"): "RNN, fine-tuned",
    ("terminal", "terminal"): "Placeto with terminal rewards, zero-shot",
}
CLASSICAL: dict[tuple[Kind, str], str] = {
    **{("rivals", name): name.replace("_", " ") for name in RIVALS},
    ("reference", SEARCH): f"{SEARCH}, long",
}
TUNED = ("", "+finetuned")  # behind a name: as it was trained, and after fine-tuning
TRAINED: dict[Kind, str] = {"placeto": PLACETO, "ppo": PPO, "rnn": RNN}  # judged zero-shot and fine-tuned
OWN: tuple[Kind, ...] = ("placeto", "ppo")  # trainings of Placeto
COLOURS: dict[Kind, str] = {"random": GREY, "placeto": BLUE, "ppo": GREEN, "rnn": ORANGE}


@dataclass(frozen=True)
class Results:
    """The pieces of a study, and what follows from them."""

    settings: Settings
    pieces: Sequence[Piece]

    @cached_property
    def families(self) -> list[str]:
        """Those with anything done."""
        return list(dict.fromkeys(piece.family for piece in self.pieces))

    @cached_property
    def best_seconds(self) -> dict[str, float]:
        """Of each problem, the least step time of any fitting placement."""
        best: dict[str, float] = {}
        for record in (record for piece in self.pieces for record in piece.records if record.fits):
            best[record.problem] = min(best.get(record.problem, math.inf), record.step_seconds)
        return best

    def ratio(self, record: Record) -> float:
        """Step time over the best known; infinite if the placement does not fit."""
        return record.step_seconds / self.best_seconds[record.problem] if record.fits else math.inf

    def ratios(self, family: str, kind: Kind, placer: str) -> list[Floats]:
        """The (graphs,) ratios of each seed."""
        chosen = (piece for piece in self.pieces if (piece.family, piece.kind) == (family, kind))
        found = [[self.ratio(r) for r in piece.records if r.placer == placer] for piece in chosen]
        return [np.array(each) for each in found if each]

    def standing(self, families: Sequence[str], kind: Kind, placer: str) -> Estimate:
        """Geometric mean of the ratios of placements that fit; its interval is over the seeds of each family."""
        strata = []
        for family in families:
            seeds = [each[np.isfinite(each)] for each in self.ratios(family, kind, placer)]
            strata.append(np.array([geometric_mean(each) for each in seeds if len(each)]))
        return estimate([stratum for stratum in strata if len(stratum)])

    def lag(self, families: Sequence[str], kind: Kind) -> Estimate:
        """Zero-shot step times over those after fine-tuning on the same graph; an interval like that of `standing`."""
        strata = []
        for family in families:
            pairs = zip(*(self.ratios(family, kind, f"{TRAINED[kind]}{ending}") for ending in TUNED), strict=True)
            seeds = [(before / after)[np.isfinite(before) & np.isfinite(after)] for before, after in pairs]
            strata.append(np.array([geometric_mean(each) for each in seeds if len(each)]))
        return estimate([stratum for stratum in strata if len(stratum)])

    def fitting(self, families: Sequence[str], kind: Kind, placer: str) -> float:
        """Share of the placements that fit."""
        every = [np.isfinite(each) for family in families for each in self.ratios(family, kind, placer)]
        return float(np.concatenate(every).mean()) if every else math.nan

    def training(self, family: str, kind: Kind) -> list[Sequence[Point]]:
        """How the training of each seed went."""
        return [piece.training for piece in self.pieces if (piece.family, piece.kind) == (family, kind)]

    def searches(self, family: str, placer: str) -> list[Record]:
        """What learning from scratch gave, of each seed and graph."""
        of = (piece for piece in self.pieces if (piece.family, piece.kind) == (family, "scratch"))
        return [record for piece in of for record in piece.records if record.placer == placer]


def ended(training: Sequence[Point], simulations: float = math.inf) -> float:
    """Geometric mean of step time over bound in the latest updates within so many simulations; NaN without any."""
    within = [point for point in training if point.simulations <= simulations]
    latest = within[-max(1, int(LATEST * len(training))) :]
    return _mean(np.array([point.over_bound for point in latest if point.over_bound is not None]))


def save_document(results: Results, folder: Path, command: str) -> Path:
    """Write `placeto.md` and its plots into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = len(results.families)
    for name, paint, height in (("distributions", _distributions, 3.2), ("rewards", _rewards, 0.5 + 2.0 * rows)):

        def painted(figure: Figure, paint: object = paint) -> None:
            paint(figure, results)  # type: ignore[operator]

        write_whole(folder / f"placeto_{name}.png", drawn(painted, height, "png", dpi=90, facecolor="white"))
    path = folder / "placeto.md"
    write_whole(path, document(results, command))
    return path


def save_records(results: Results, path: Path) -> None:
    """Write the study's size and all that was measured as one JSON document."""
    write_whole(path, msgspec.json.encode({"settings": results.settings, "pieces": results.pieces}))


def document(results: Results, command: str) -> str:
    """The study in Markdown."""
    seeds = len({piece.seed for piece in results.pieces if piece.kind == "placeto"})
    minutes = sum(piece.seconds for piece in results.pieces) / 60
    size = ", ".join(f"{name} {value}" for name, value in asdict(results.settings).items())
    tuned = results.settings.simulations
    return "\n".join(
        [
            "# Placeto: does a policy serve graphs that it never saw?",
            "",
            "Placeto (Addanki et al. 2019, section 4) trains a policy on graphs of a family, and asks of it on other",
            "graphs of the family: is it, unchanged, as good as one optimised on the graph, and better than a random",
            "placement or the RNN of ColocRL (Mirhoseini et al. 2017) trained in the same way? Do rewards for every",
            "improvement teach it more than one at the end? Does it need fewer simulations than the RNN?",
            "",
            f"    {command}",
            "",
            f"Done: {', '.join(results.families)}, {seeds} seeds, {minutes:.0f} minutes on one core, shared or not. "
            f"Size: {size}.",
            "The size is ours, a fraction of the paper's. Times are relative to the best known of each graph, the",
            "least step time in this study, annealing's included. Means are geometric over graphs, with 95% intervals",
            "over seeds in [brackets]: each seed trains anew, and few make a coarse interval.",
            "",
            "## Step time on unseen graphs, over the best known",
            "",
            *_standings(results),
            "",
            f"Fine-tuned ones may simulate {tuned} placements of the graph, and so may the classical ones; the long",
            f"annealing {results.settings.reference_simulations:,}; zero-shot and random placements are not simulated.",
            *_efforts(results),
            "Both are trained by REINFORCE as published. Placeto by PPO is our recipe (`placeto_clipped`): more",
            "episodes, a network of averages, and imitation of the best placement known of each graph. On a single",
            "graph all learn by PPO; Placeto imitates its best there, too, and pays once for a placement that it comes",
            "back to.",
            "",
            "![Cumulative distributions of step time over the best known](placeto_distributions.png)",
            "",
            "## Is the policy, unchanged, as good as one optimised on the graph?",
            "",
            *_lags(results),
            "",
            "Step time zero-shot over that of the same policy fine-tuned on the graph; asked for is 1.1 or less.",
            "",
            "## Rewards: improvement against terminal",
            "",
            *_reward_table(results),
            "",
            "Step time over the lower bound, of the placements in which the latest tenth of the episodes end.",
            "With rewards for improvements an episode simulates each of its steps; with terminal ones, its end.",
            "",
            "![Learning curves of both rewards](placeto_rewards.png)",
            "",
            "## From scratch on a graph",
            "",
            *_scratch_table(results),
            "",
            f"Simulations are the median over graphs and seeds, out of {results.settings.scratch_simulations:,}. "
            f"Near means at most {NEAR - 1:.0%} slower than the best known.",
            "",
            "## Where Placeto wins, and where it loses",
            "",
            *_sentences(results),
            "",
        ]
    )


def _standings(results: Results) -> list[str]:
    """A row per method, a column per family, and one for all."""
    columns = _columns(results)
    heads = [*columns, "fit"]
    lines = [row(["", *heads]), row(["---"] + ["---:"] * len(heads))]
    for (kind, placer), label in (METHODS | CLASSICAL).items():
        cells = [estimated(results.standing(families, kind, placer)) for families in columns.values()]
        lines.append(row([label, *cells, f"{results.fitting(results.families, kind, placer):.0%}"]))
    return lines


def _lags(results: Results) -> list[str]:
    """A row per training, a column per family, and one for all."""
    columns = _columns(results)
    lines = [row(["", *columns]), row(["---"] + ["---:"] * len(columns))]
    for kind, placer in TRAINED.items():
        cells = [estimated(results.lag(families, kind)) for families in columns.values()]
        lines.append(row([METHODS[kind, placer].removesuffix(", zero-shot"), *cells]))
    return lines


def _columns(results: Results) -> dict[str, list[str]]:
    """The families of each column: one, and all if there are several."""
    columns = {family: [family] for family in results.families}
    return columns | {"all": results.families} if len(columns) > 1 else columns


def _efforts(results: Results) -> list[str]:
    """How many simulations training took."""
    said = []
    for kind, label in (("placeto", "Placeto"), ("ppo", "Placeto by PPO"), ("rnn", "the RNN")):
        ends = [piece.training[-1] for piece in results.pieces if piece.kind == kind and piece.training]
        if ends:
            simulations, episodes = (np.mean([getattr(end, x) for end in ends]) for x in ("simulations", "episodes"))
            said.append(f"{label} {simulations:,.0f} ({episodes:,.0f} placements to their end)")
    return [f"Simulations of each training: {', '.join(said)}."] if said else []


def _reward_table(results: Results) -> list[str]:
    heads = ("", "reward", "episodes", "simulations", "at the end", "at the same number of simulations")
    lines = [row(heads), row(["---", "---"] + ["---:"] * 4)]
    for family in results.families:
        kinds: dict[str, Kind] = {"improvement": "placeto", "terminal": "terminal"}
        trainings = {reward: results.training(family, kind) for reward, kind in kinds.items()}
        if not all(trainings.values()):
            continue
        shared = min(float(np.mean([each[-1].simulations for each in seeds])) for seeds in trainings.values())
        for reward, seeds in trainings.items():
            simulations = np.mean([each[-1].simulations for each in seeds])
            ends = _over(ended(each) for each in seeds)
            same = _over(ended(each, shared) for each in seeds)
            lines.append(row([family, reward, f"{seeds[0][-1].episodes:,}", f"{simulations:,.0f}", ends, same]))
    return lines


def _scratch_table(results: Results) -> list[str]:
    heads = ("", "", "best, over the best known", "simulations until its best", "came near", "simulations until near")
    lines = [row(heads), row(["---", "---"] + ["---:"] * 4)]
    for family in results.families:
        for placer, label in ((f"{PLACETO}+finetuned", "Placeto"), (f"{RNN}+finetuned", "RNN")):
            records = results.searches(family, placer)
            if not records:
                continue
            to_best = [until(record.curve, record.step_seconds) for record in records]
            near = np.array([until(r.curve, NEAR * results.best_seconds[r.problem]) for r in records])
            reached = near[np.isfinite(near)]
            median = f"{np.median(reached):,.0f}" if len(reached) else "-"
            cells = [f"{np.median(to_best):,.0f}", f"{len(reached)} of {len(near)}", median]
            lines.append(row([family, label, estimated(_scratch(results, records)), *cells]))
    return lines


def _scratch(results: Results, records: Sequence[Record]) -> Estimate:
    """Geometric mean over graphs, with its interval over seeds."""
    seeds = dict.fromkeys(record.seed for record in records)
    per_seed = [np.array([results.ratio(record) for record in records if record.seed == seed]) for seed in seeds]
    fitting = [each[np.isfinite(each)] for each in per_seed]
    return estimate([np.array([geometric_mean(each) for each in fitting if len(each)])])


def _sentences(results: Results) -> list[str]:
    """Placeto beside each other method, family by family, whoever wins."""
    methods = METHODS | CLASSICAL
    mine = [key for key in methods if key[0] in OWN]
    others = [key for key in methods if key[0] not in OWN]
    said = []
    for key in mine:
        for family in results.families:
            own = results.standing([family], *key)
            theirs = {methods[other]: results.standing([family], *other).value for other in others}
            if own.count:
                said.append(f"- {family}, {methods[key]}: {_compared(own.value, theirs)}.")
    return [*said, "", "In parentheses: Placeto's step time over theirs."]


def _compared(own: float, theirs: Mapping[str, float]) -> str:
    """Whom a ratio to the best known is above, at, and below; what is NaN is left out."""
    ratios = {label: own / value for label, value in theirs.items() if math.isfinite(value)}
    words = {
        "slower than": {label: ratio for label, ratio in ratios.items() if ratio >= 1 + SAME},
        "as fast as": {label: ratio for label, ratio in ratios.items() if abs(ratio - 1) < SAME},
        "faster than": {label: ratio for label, ratio in ratios.items() if ratio <= 1 - SAME},
    }
    said = (
        f"{word} {', '.join(f'{who} ({ratio:.2f})' for who, ratio in some.items())}"
        for word, some in words.items()
        if some
    )
    return "; ".join(said)


def _distributions(figure: Figure, results: Results) -> None:
    """A panel per family: share of the graphs and seeds whose step time is at most so many times the best known."""
    panels = figure.subplots(1, len(results.families), sharey=True, squeeze=False)[0]
    for axes, family in zip(panels, results.families, strict=True):
        for (kind, placer), label in METHODS.items():
            if kind in COLOURS and (seeds := results.ratios(family, kind, placer)):
                ratios = np.concatenate(seeds)
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


def _rewards(figure: Figure, results: Results) -> None:
    """A row per family: both rewards against simulations, and against episodes."""
    rows = figure.subplots(len(results.families), 2, sharey="row", squeeze=False)
    for (left, right), family in zip(rows, results.families, strict=True):
        curves: dict[str, tuple[Kind, str]] = {"improvement": ("placeto", BLUE), "terminal": ("terminal", ORANGE)}
        for label, (kind, colour) in curves.items():
            if seeds := results.training(family, kind):
                middle, low, high = _band(seeds)
                for axes, x in ((left, _binned(seeds, "simulations")), (right, _binned(seeds, "episodes"))):
                    axes.plot(x, middle, color=colour, label=label)
                    axes.fill_between(x, low, high, color=colour, alpha=0.2, linewidth=0)
        left.set_xscale("log")
        left.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
        left.set_ylabel(f"{family}\nstep time / bound")
        for axes in (left, right):
            axes.grid()
    _name_axes(rows[-1])
    rows[0][0].legend(fontsize=8)


def _name_axes(panels: Sequence[Axes]) -> None:
    for axes, name in zip(panels, ("simulations", "episodes"), strict=True):
        axes.set_xlabel(name)


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


def _over(values: Iterable[float]) -> str:
    """The geometric mean of a value per seed, with its interval."""
    given = np.array(list(values))
    return estimated(estimate([given[np.isfinite(given)]] if np.isfinite(given).any() else []))
