"""Output for readers: pages, figures, PDFs and editions, from verdicts and data."""
