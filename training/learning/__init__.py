"""Trainers: PPO, REINFORCE and the trainer of whole plans, and what they learn from."""
