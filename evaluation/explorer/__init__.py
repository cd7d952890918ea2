"""A step in the browser: graph, plan, timeline and memory in one page, and what changes when a module moves."""
