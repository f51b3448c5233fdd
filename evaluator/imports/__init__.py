"""Read answers that another tool computed, so that they can be measured like the answers of a run."""
