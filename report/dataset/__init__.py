"""The dataset: tidy tables with an id for each number, which judge, report and readers share."""
