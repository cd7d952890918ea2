"""What one op costs and how that is known: profiles and how they are taken, tables of times and efficiencies."""
