"""Which index every op is divided by: costs of choices, and their exact minimum by elimination."""
