"""Real processes, from the command line to the results."""
