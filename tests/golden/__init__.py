"""Golden files: verdicts, pages, plans and settings of known nodes, to detect unintended changes."""
