"""One module per experiment: what the work is. No clock, loop, file name or verdict in here."""
