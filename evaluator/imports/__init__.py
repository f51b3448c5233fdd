"""Read answers that another tool computed, so that they are measured as a run's are."""
