"""General statistics: correlations, paired tests, tests by betting, selective prediction and analysis of variance."""
