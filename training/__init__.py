"""Floor 3, how deciders learn: recipes, rollouts, PPO, fine-tuning, checkpoints and run folders."""
