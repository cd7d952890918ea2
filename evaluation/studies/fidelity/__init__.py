"""The study of fidelity: plans of all kinds, predicted by the simulator and measured on processes with a core each."""
