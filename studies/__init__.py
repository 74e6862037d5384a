"""Programs that measure the study itself: how well it measures, how often its rules err, whether others find the same."""
