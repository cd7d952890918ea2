"""Random problems to train on: graphs of many kinds that no model was captured for, on random clusters."""
