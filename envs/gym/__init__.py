"""Gymnasium environments over problems: Placeto's MDP, GDP's one-shot, pipelines, and many episodes at once."""
