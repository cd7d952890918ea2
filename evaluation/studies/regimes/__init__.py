"""The study of regimes: trained policies against search, at equal processor seconds, by how large problems are."""
