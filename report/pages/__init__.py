"""What readers see: pages, figures, PDFs and editions, made from verdicts and data."""
