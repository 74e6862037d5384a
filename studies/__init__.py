"""Programs that check the study itself: its timing accuracy, error rates, repeatability, replication and scaling."""
