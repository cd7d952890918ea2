"""What the command line says of itself: `placelab` alone, `--help`, examples, and errors in the words of its flags."""

import importlib
import inspect
import shlex
from contextlib import suppress
from pathlib import Path

import pytest

import placelab
from evaluation.commands import command_line
from evaluation.commands.flag_values import KINDS, OTHERS, completions, names_for
from evaluation.commands.verb_help import EXAMPLES, FIRST_STEPS, HEADINGS
from evaluation.commands.wording import in_flags
from graphs.files.load import load_cluster
from graphs.foundation import by_name
from graphs.foundation.errors import InputError
from graphs.op_graph.optimizers import OPTIMIZERS
from graphs.transforms.mixed_precision import PRECISIONS
from placelab.verbs import VERBS
from tests.placers.stand_in import release
from training.recipe import load_recipe

LINES = [(verb, line) for verbs in EXAMPLES.values() for verb, lines in verbs.items() for line in lines]


def call(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as stop:
        command_line.run(VERBS, "about", arguments)
    captured = capsys.readouterr()
    assert isinstance(stop.value.code, int)
    return stop.value.code, captured.out, captured.err


def test_every_verb_has_a_heading_and_an_example() -> None:
    assert set(HEADINGS) == set(VERBS)
    assert {verb for verb, _ in LINES} == set(VERBS)


@pytest.mark.parametrize(("verb", "line"), LINES)
def test_an_example_is_a_command_and_fits_into_80_columns(verb: str, line: str) -> None:
    program, *words = shlex.split(line)
    assert (program, words[0]) == ("placelab", verb)
    assert len(line) <= 78
    app = command_line.parser({verb: VERBS[verb]}, "about")
    _, bound, _ = app.parse_args(words, exit_on_error=False, print_error=False)
    for name, value in bound.arguments.items():
        for each in value if isinstance(value, list) else [value]:
            check(name, str(each))
    if verb == "train":
        load_recipe(str(bound.arguments["recipe"]), bound.arguments.get("set", ()))


@pytest.mark.parametrize("verb", ["place", "cache"])
def test_the_help_of_a_verb_is_that_among_all(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    command_line.parser(VERBS, "about")([verb, "--help"])
    among_all = capsys.readouterr().out
    assert call(capsys, verb, "--help") == (0, among_all, "")
    assert "Example" in among_all


def check(parameter: str, value: str) -> None:
    """Raise InputError for a spec that names nothing."""
    kind = KINDS.get(parameter, ("",))[0]
    specs = [] if value.startswith(("my_model", "mine.")) else by_name.specs(value)
    for spec in specs if kind in ("families", "placers", "clusters", "suites") else []:
        if kind == "clusters":
            load_cluster(spec)
        elif kind == "suites":
            assert spec in names_for("suite")
        else:
            by_name.check({"families": "graphs.families", "placers": "placers"}[kind], spec)


def test_the_first_steps_work_as_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    release(monkeypatch, tmp_path / "..")
    monkeypatch.chdir(tmp_path)
    code, out, _ = call(capsys)
    assert code == 0
    for line in FIRST_STEPS:
        assert f"  {line}\n" in out
        assert call(capsys, *shlex.split(line)[1:])[0] == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["first.html", "first.plan.json"]


@pytest.mark.parametrize("verb", VERBS)
def test_help_says_which_names_flags_take_and_gives_an_example(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = call(capsys, verb, "--help")
    assert code == 0
    assert call(capsys, "help", verb)[1] == out
    words = out.replace(",", " ").split()
    for parameter in inspect.signature(VERBS[verb]).parameters:
        assert set(names_for(parameter)) <= set(words), parameter
    assert f"placelab {verb}" in out.partition("Example")[2]


def test_names_of_optimizers_are_those_that_there_are() -> None:
    assert set(OTHERS["optimizer"]) == set(OPTIMIZERS)
    assert set(OTHERS["precision"]) == set(PRECISIONS)


def test_a_word_becomes_a_name_or_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").mkdir()
    for name in ("mine.graph.json", "model.py", "notes.md", "mine.toml", ".hidden.py"):
        (tmp_path / name).touch()
    (tmp_path / "runs" / "a.py").touch()
    assert "metis" in completions("placer", "me")
    assert "heft,metis" in completions("placers", "heft,m")
    assert [word for word in completions("graph", "m") if word.startswith("m")] == ["mine.graph.json", "model.py"]
    assert [word for word in completions("cluster", "mi") if word[:2] == "mi"] == [
        "mixed",
        "mine.graph.json",
        "mine.toml",
    ]
    assert "runs/" in completions("graph", "")
    assert "runs/a.py" in completions("graph", "runs/")
    assert "./model.py" in completions("graph", "./mo")
    assert completions("seed", "1") == []


@pytest.mark.parametrize(
    ("sentence", "shown"),
    [
        ("budget is -1; expected a whole number >= 0", "--budget is -1; expected a whole number >= 0"),
        ("cost_model: expected text", "--cost-model: expected text"),
        ("leave out `training=False`, or `freeze`", "leave out --no-training, or --freeze"),
        ("resume it with `resume=True`", "resume it with --resume"),
        ("with `groups=None` or `cost_model='recorded:file=F'`", "with --groups none or --cost-model recorded:file=F"),
        ("`placelab train released` makes it", "`placelab train released` makes it"),
        ("leave `again` out; a budget is given", "leave `again` out; a budget is given"),
        ("graph 'x' is odd", "graph 'x' is odd"),
    ],
)
def test_a_sentence_about_keywords_is_shown_in_flags(sentence: str, shown: str) -> None:
    assert in_flags(sentence, {"budget", "cost_model", "training", "freeze", "resume", "groups", "graph"}) == shown


def test_python_keeps_its_words_where_the_command_line_has_flags(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(InputError, match="`freeze=1` is about training; leave out `training=False`, or `freeze`"):
        placelab.capture("rnnlm", freeze=1, training=False)
    code, _, err = call(capsys, "capture", "rnnlm", "--freeze", "1", "--no-training")
    assert code == 2
    assert err.endswith("placelab: --freeze 1 is about training; leave out --no-training, or --freeze\n")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("place", "place needs GRAPH, as in: placelab place my_model.py:model --cluster v100x4 --out mine.plan.json"),
        ("place --cluster", "--cluster needs a value"),
        ("profile rnnlm", "profile needs --out, as in: placelab profile "),
        ("place rnnlm --clustr p100x2", "Did you mean --cluster?"),
        ("place rnnlm --batch 1.5", "--batch is '1.5'; expected a whole number >= 1"),
        ("place rnnlm --groups all", "--groups is 'all'; expected a whole number, or one of auto, modules, none"),
        ("place rnnlm extra", "'extra' is one word too many"),
        ("export rnnlm x.plan.json --to vllmm", "unknown value of --to 'vllmm'; did you mean 'vllm'?"),
        ("place rnnlm --plans placement --placer heft", "--plans placement is about plans without a placer"),
    ],
)
def test_wrong_use_is_answered_in_the_words_of_the_command_line(
    words: str, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with suppress(ImportError):  # once something has imported it, cyclopts checks types by it as well
        importlib.import_module("pydantic")
    code, out, err = call(capsys, *words.split())
    assert (code, out) == (2, "")
    assert sentence in err.splitlines()[-1]


def test_no_verb_has_a_flag_whose_name_lists_would_complete_wrongly() -> None:
    parameters = {name for verb in VERBS.values() for name in inspect.signature(verb).parameters}
    assert set(KINDS) | set(OTHERS) <= parameters
