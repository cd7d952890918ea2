"""What heuristic and searching placers share: the graph of units, what units hold in memory, which plan is better."""
