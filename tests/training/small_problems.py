"""Few and small random problems to train on, and a network as small."""

from training.problems.random.settings import World
from training.recipe import ProblemSet

NETWORK = "sequential:width=16,heads=2,hidden=16,sage_layers=1"
PROBLEMS = ProblemSet(world=World(problems=6, units=(8, 12), devices=(2, 3), held_out=("fan", "tiles")))
