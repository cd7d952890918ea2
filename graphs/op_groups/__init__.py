"""Op groups: ops that are placed together, by modules, by name, or by coarsening."""
