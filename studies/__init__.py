"""Programs that measure the study itself: how well it measures, how often it errs, whether others find the same."""
