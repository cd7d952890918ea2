"""How much of the released policy is luck of its seed, and what one cluster alone would give."""
