"""How policies do on kinds of problems that they were not trained on."""
