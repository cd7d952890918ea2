"""Training policies of whole plans: random chains of layers, labels by search, imitation, REINFORCE."""
