"""Libraries for tables, and random tables with known results."""
