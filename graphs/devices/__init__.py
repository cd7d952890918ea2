"""Devices and links: the catalogue, clusters of servers, topologies, and clusters in files."""
