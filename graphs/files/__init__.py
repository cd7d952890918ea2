"""Graphs by what names them: files, specs, suites and splits of families."""
