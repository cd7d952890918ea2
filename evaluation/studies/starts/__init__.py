"""The study of starts: what cheap placers find and take, and with which of them a search begins."""
