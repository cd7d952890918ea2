"""Labels: the best known placements of training problems, found by searches that start at the policy, and learned."""
