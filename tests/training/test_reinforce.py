"""REINFORCE as Placeto is trained: its returns, its baseline, that it learns, repeats and resumes exactly."""

import numpy as np
import pytest
import torch

from envs.gym.iterative import EpisodeStart, PlacetoEnv
from envs.simulation.simulator import Outcome, simulate
from graphs.cluster import Cluster, Device
from graphs.foundation.errors import InputError
from graphs.op_graph import Floats
from graphs.problem import Problem
from placers.learned.learned_placer import LearnedPlacer
from placers.learned.placeto.policy import PlacetoPolicy
from placers.learned.placeto.states import Relatives, States
from placers.learned.settings import Reinforce
from tests.oracle.toys import Toy, random_graph, toy_cluster, toy_graph
from training.learning import reinforce
from training.learning.advantage import surrogate
from training.learning.reinforce import ReinforceTrainer, returns_of

SMALL = "placeto:rounds=2"


def bandit(ops: int = 1) -> Problem:
    """A chain of ops of 4 s on the slow device and 1 s on the fast one; an output of a byte takes 1 s and more."""
    slow, fast = (Device(f"gpu:{i}", "gpu", speed, 1.0, 100.0) for i, speed in enumerate((1.0, 4.0)))
    apart = np.ones((2, 2))
    cluster = Cluster("unequal", (slow, fast), apart, apart, np.array([[0, 1], [2, 3]]))
    return Problem(toy_graph([4] * ops, [(i, i + 1) for i in range(ops - 1)]), cluster)


def problems() -> list[Problem]:
    sizes = ((4, 2), (6, 3), (5, 2))
    return [Problem(random_graph(ops, seed=ops), toy_cluster(devices, memory=1e4)) for ops, devices in sizes]


def settings(updates: int, **changed: float | bool) -> Reinforce:
    return Reinforce(updates=updates, problems_per_update=2, **changed)  # type: ignore[arg-type]


def test_returns_are_what_is_still_to_come() -> None:
    assert returns_of(np.array([1.0, 0.0, 2.0]), 1.0).tolist() == [3.0, 2.0, 2.0]
    assert returns_of(np.array([1.0, 0.0, 2.0]), 0.5).tolist() == [1.5, 1.0, 2.0]


def test_a_baseline_is_the_mean_return_of_each_step_over_the_latest_episodes() -> None:
    problem = problems()[0]
    trainer = ReinforceTrainer(
        PlacetoPolicy.new(SMALL, 0), [problem], settings(9, episodes=3, baseline_updates=2, discount=0.5)
    )
    seen = []
    for _ in range(4):
        buffer = trainer._collect(*trainer._begin())
        returns = np.array([returns_of(np.array(paid), 0.5) for paid in buffer.rewards.values()])
        gained: dict[int, list[Floats]] = {0: []}
        advantages = trainer._advantages(buffer, dict(enumerate(returns)), gained)
        trainer.problems[0].returns.extend(gained[0])
        trainer.updates += 1  # other draws
        seen.append(returns.mean(axis=0))
        np.testing.assert_allclose(gained[0], [seen[-1]])
        np.testing.assert_allclose(list(advantages.values()), returns - np.mean(seen[-2:], axis=0))


def test_parts_of_episodes_have_the_baselines_of_their_own_steps() -> None:
    given = settings(9, episodes=2, baseline_updates=2, steps=3, normalised=True)
    trainer = ReinforceTrainer(PlacetoPolicy.new(SMALL, 0), [problems()[0]], given)
    trainer.problems[0].returns.append(np.array([1.0, 2.0, 3.0, 8.0]))
    episodes, steps = trainer._begin()
    trainer._collect(episodes, steps)
    buffer = trainer._collect(episodes, steps)
    assert (buffer.start, len(buffer.decisions)) == (3, 1), "four steps are three and one"
    advantages = trainer._advantages(buffer, {0: np.array([4.0]), 1: np.array([0.0])}, {0: []})
    # less the mean of 8 and (4 + 0) / 2 that is -1 and -5, whose standard deviation is 2
    assert {i: each.tolist() for i, each in advantages.items()} == {0: [-0.5], 1: [-2.5]}
    assert not trainer._collect(episodes, steps).decisions


def test_an_update_learns_after_every_part_and_remembers_whole_episodes() -> None:
    trainer = ReinforceTrainer(PlacetoPolicy.new(SMALL, 0), problems()[:2], settings(9, episodes=2, steps=4, epochs=3))
    trainer.update()
    steps = next(iter(trainer.optimizer.state.values()))["step"]
    assert steps == 2 * 3, "six steps at most are two parts, three epochs each"
    assert [len(each) for problem in trainer.problems for each in problem.returns] == [4, 6]


def test_a_later_epoch_stops_where_the_ratio_has_left_the_clip() -> None:
    log_ratio = torch.log(torch.tensor([1.0, 1.5, 1.5, 0.5, 0.5])).requires_grad_()
    gain = surrogate(log_ratio, torch.tensor([2.0, 2.0, -2.0, 2.0, -2.0]), 0.2)
    assert gain.tolist() == pytest.approx([2.0, 2.4, -3.0, 1.0, -1.6])
    gain.sum().backward()  # type: ignore[no-untyped-call]
    assert log_ratio.grad is not None
    assert log_ratio.grad.tolist() == pytest.approx([2.0, 0.0, -3.0, 1.0, 0.0])


@pytest.mark.parametrize("advantage", [-1.0, 0.0, 1.0])
def test_what_was_all_but_impossible_and_has_become_likely_leaves_numbers(advantage: float) -> None:
    log_ratio = torch.tensor([500.0], requires_grad=True)
    gain = surrogate(log_ratio, torch.tensor([advantage]), 0.2)
    gain.sum().backward()  # type: ignore[no-untyped-call]
    assert torch.isfinite(gain).all()
    assert log_ratio.grad is not None
    assert torch.isfinite(log_ratio.grad).all()


@pytest.mark.parametrize(("every", "simulations"), [(1, 7), (2, 4), (4, 3), (6, 2), (9, 2)])
def test_improvements_paid_for_several_steps_at_once_add_up_to_the_same(every: int, simulations: int) -> None:
    problem = problems()[1]
    rules = EpisodeStart("improvement", every=every, longest_seconds=1e3)
    trainer = ReinforceTrainer(PlacetoPolicy.new(SMALL, 0), [problem], settings(1), rules=rules)
    episodes, steps = trainer._begin()
    start = episodes[0].outcome
    buffer = trainer._collect(episodes, steps)
    end = episodes[0].outcome
    assert start is not None
    assert end is not None
    assert trainer.simulations == simulations == rules.simulations(6)
    assert sum(buffer.rewards[0]) == pytest.approx(start.step_seconds - end.step_seconds)
    assert [i for i, paid in enumerate(buffer.rewards[0], 1) if paid and i % every and i < 6] == []


@pytest.mark.parametrize("reward", ["improvement", "terminal"])
def test_rewards_are_those_of_the_environment(reward: str) -> None:
    problem = problems()[1]
    trainer = ReinforceTrainer(PlacetoPolicy.new(SMALL, 0), [problem], settings(1), rules=EpisodeStart(reward=reward))
    episodes, steps = trainer._begin()
    buffer = trainer._collect(episodes, steps)
    env = PlacetoEnv(problem, reward=reward)
    env.reset(seed=0, options={"placement": buffer.decisions[0][0].state.placement})
    expected = [env.step(each.device)[1] for step in buffer.decisions for each in step if each.episode == 0]
    assert buffer.rewards[0] == pytest.approx(expected)
    units = len(expected)
    assert trainer.simulations == len(episodes) * (units + 1 if reward == "improvement" else 1)


@pytest.mark.parametrize("shape", [SMALL, "placeto:devices=2,rounds=2"])
@pytest.mark.parametrize("reward", ["improvement", "terminal"])
def test_it_learns_which_of_two_devices_is_faster(shape: str, reward: str) -> None:
    given = settings(30, episodes=8, learning_rate=1e-2, final_learning_rate=1e-3)
    trainer = ReinforceTrainer(
        PlacetoPolicy.new(shape, 1), [bandit()], given, rules=EpisodeStart(reward=reward), seed=1
    )
    lines = [trainer.update() for _ in range(30)]
    assert lines[0].entropy > 0.3
    assert lines[-1].step_over_bound == 1.0
    assert lines[-1].entropy < 0.3
    assert simulate(bandit(), LearnedPlacer(trainer.policy, "placeto").place(bandit()).plan).step_seconds == 1.0


def test_it_finds_the_known_optimum_of_a_diamond(four_ops_two_devices: Toy) -> None:
    problem = four_ops_two_devices.problem
    given = settings(60, episodes=8, learning_rate=1e-2, final_learning_rate=1e-3)
    rules = EpisodeStart(reward="terminal", start="single")
    trainer = ReinforceTrainer(PlacetoPolicy.new(SMALL, 0), [problem], given, rules=rules)
    lines = [trainer.update() for _ in range(60)]
    assert lines[-1].step_over_bound < lines[0].step_over_bound
    plan = LearnedPlacer(trainer.policy, "placeto").place(problem).plan
    assert simulate(problem, plan).step_seconds == four_ops_two_devices.best_seconds
    assert trainer.mdp.best[trainer.problems[0].prepared].value == four_ops_two_devices.best_seconds


def test_the_gradient_does_not_depend_on_how_it_is_portioned(monkeypatch: pytest.MonkeyPatch) -> None:
    grads = []
    for nodes in (1, 30, 10**6):
        monkeypatch.setattr(reinforce, "NODES_AT_ONCE", nodes)
        trainer = ReinforceTrainer(PlacetoPolicy.new(SMALL, 0), problems(), settings(5))
        trainer.update()
        grads.append(torch.cat([p.grad.flatten() for p in trainer.policy.parameters() if p.grad is not None]))
    for other in grads[1:]:
        torch.testing.assert_close(grads[0], other, rtol=1e-4, atol=1e-6)


def test_the_entropy_bonus_makes_it_undecided_where_nothing_else_is_to_be_learned() -> None:
    equal = Problem(toy_graph([1], []), toy_cluster(2))
    ends = []
    for bonus in (0.0, 1.0):
        given = settings(40, entropy=bonus, final_entropy=bonus, learning_rate=1e-2)
        policy = PlacetoPolicy.new("placeto:devices=2", 0)
        last = policy.network.classify[-1]
        assert isinstance(last, torch.nn.Linear)
        torch.nn.init.constant_(last.bias[:1], 1.0)  # prefers the first
        trainer = ReinforceTrainer(policy, [equal], given, rules=EpisodeStart(reward="terminal"))
        lines = [trainer.update() for _ in range(40)]
        assert lines[0].entropy < 0.65
        ends.append((lines[0].entropy, lines[-1].entropy))
    assert ends[0][0] == ends[0][1]
    assert ends[1][1] == pytest.approx(np.log(2), abs=1e-2)


def test_a_placement_that_is_remembered_is_not_simulated_again() -> None:
    counts = []
    for remember in (False, True):
        given, rules = settings(3, episodes=8), EpisodeStart("improvement", every=1)
        trainer = ReinforceTrainer(PlacetoPolicy.new(SMALL, 0), [bandit()], given, rules=rules, remember=remember)
        paid = [dict(trainer._collect(*trainer._begin()).rewards)]
        lines = [trainer.update() for _ in range(3)]
        counts.append((trainer.simulations, paid, [line.ep_rew_mean for line in lines]))
    (always, _, _), (once, _, _) = counts
    assert (always, once) == (4 * 8 * 2, 2), "a start and a step, of eight episodes; or both devices once"
    assert counts[0][1:] == counts[1][1:], "they are paid the same"


def test_what_is_noted_need_not_be_simulated() -> None:
    given, rules = settings(1, episodes=4), EpisodeStart("terminal", start="best")
    trainer = ReinforceTrainer(PlacetoPolicy.new(SMALL, 0), [bandit()], given, rules=rules, remember=True)
    for device, seconds in ((0, 4.0), (1, 1.0)):
        trainer.note(0, np.array([device]), Outcome(seconds, np.array([0.0, 0.0]), fits=True))
    trainer.update(count=9)
    assert trainer.simulations == 0


def indifferent(imitation: float, updates: int = 9) -> ReinforceTrainer[Relatives, States]:
    """A policy for two equal devices that is given a faster placement, on the second one, than there can be."""
    equal = Problem(toy_graph([1], []), toy_cluster(2))
    given = settings(updates, entropy=0.0, imitation=imitation, learning_rate=1e-2, gradient_norm=1e3)
    policy = PlacetoPolicy.new("placeto:devices=2", 0)
    trainer = ReinforceTrainer(policy, [equal], given, rules=EpisodeStart(reward="terminal"))
    trainer.note(0, np.array([1]), Outcome(0.5, np.array([0.0, 0.0]), fits=True))
    return trainer


def test_the_best_placement_known_is_imitated() -> None:
    for imitation, follows in ((0.0, False), (1.0, True)):
        trainer = indifferent(imitation, updates=40)
        lines = [trainer.update() for _ in range(40)]
        assert (lines[-1].entropy < 0.3) == follows
        if follows:
            plan = LearnedPlacer(trainer.policy, "placeto").place(trainer.problems[0].prepared.problem).plan
            assert plan.per_unit(trainer.problems[0].prepared.problem).tolist() == [1]


def test_imitation_fades_linearly_to_nothing() -> None:
    norms = [indifferent(1.0).update(progress=progress).gradient_norm for progress in (0.0, 0.75, 1.0)]
    assert norms[0] > 0.0
    assert norms == pytest.approx([norms[0], norms[0] / 4, 0.0], rel=1e-4, abs=1e-9)


def test_nothing_is_imitated_before_a_placement_is_known() -> None:
    trainer = ReinforceTrainer(PlacetoPolicy.new(SMALL, 0), problems()[:2], settings(1), rules=EpisodeStart("terminal"))
    trainer.note(1, np.array([1, 0, 1, 0, 1, 0]), Outcome(1.0, np.array([0.0, 0.0]), fits=True))
    episodes, _ = trainer._begin()
    states = [episode.progress for episode in sorted(episodes, key=lambda each: each.progress.index)]
    states[1].current = 2
    devices, counted = trainer._best_devices(states)
    assert (devices[1].item(), counted.tolist()) == (1, [False, True])


def test_relative_returns_are_in_units_of_the_lower_bound() -> None:
    for relative, scale in ((False, 1.0), (True, 1 / 3)):  # three ops of 1 s at best, one after the other
        given = settings(1, relative=relative)
        rules = EpisodeStart(reward="terminal", longest_seconds=1e3)
        line = ReinforceTrainer(PlacetoPolicy.new(SMALL, 0), [bandit(3)], given, rules=rules).update()
        assert line.ep_rew_mean == pytest.approx(-line.step_over_bound * 3 * scale)


def test_the_gradient_s_norm_is_clipped() -> None:
    for limit in (1e-3, 1e3):
        trainer = ReinforceTrainer(PlacetoPolicy.new(SMALL, 0), problems(), settings(5, gradient_norm=limit))
        before = trainer.update().gradient_norm
        norm = torch.cat([p.grad.flatten() for p in trainer.policy.parameters() if p.grad is not None]).norm()
        assert float(norm) == pytest.approx(min(before, limit), rel=1e-3)


def test_rates_and_bonus_fall_linearly() -> None:
    trainer = ReinforceTrainer(PlacetoPolicy.new(SMALL, 0), [bandit()], settings(3))
    assert [trainer.update().learning_rate for _ in range(3)] == pytest.approx([1e-3, 5.5e-4, 1e-4])


def test_a_policy_needs_problems_of_its_number_of_devices() -> None:
    with pytest.raises(InputError, match="at least one problem"):
        ReinforceTrainer(PlacetoPolicy.new(SMALL, 0), [])
    with pytest.raises(InputError, match="every is 0; expected 1 or more"):
        EpisodeStart(every=0)
    with pytest.raises(InputError, match="for 3 devices, cluster 'unequal' has 2"):
        ReinforceTrainer(PlacetoPolicy.new("placeto:devices=3", 0), [bandit()])


def test_the_best_placement_of_a_problem_is_one_that_fits() -> None:
    trainer = ReinforceTrainer(PlacetoPolicy.new(SMALL, 0), [bandit()], settings(1))
    for device, seconds, fits in ((0, 4.0, True), (1, 1.0, False), (1, 3.0, True), (0, 3.5, True)):
        trainer.note(0, np.array([device]), Outcome(seconds, np.array([0.0, 0.0]), fits))
    known = trainer.problems[0].prepared.incumbent
    assert known.placement is not None
    assert (known.value, known.placement.tolist()) == (3.0, [1])
