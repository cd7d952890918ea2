"""Gymnasium environments over problems: Placeto's MDP, GDP's one-shot, and many episodes at once."""
