"""The study of grain: what a search finds with few large units, and with many small ones."""
