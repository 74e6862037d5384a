"""Golden files: verdicts, pages, plans and settings for known nodes, to detect unintended changes."""
