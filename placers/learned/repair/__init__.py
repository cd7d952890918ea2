"""Large-neighbourhood search with a learned policy: what it frees of a plan, and how it places that again."""
