"""What decides how good a policy gets: variants of one small recipe, a change each, judged on unseen graphs."""
