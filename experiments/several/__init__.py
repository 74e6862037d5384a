"""Data-parallel training by several processes: how they are started, and what each does."""
