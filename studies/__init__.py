"""Programs that check the study itself: timing accuracy, error rates, repeatability, replication."""
