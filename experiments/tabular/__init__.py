"""Libraries that work on tables, and tables with results that are known beforehand."""
