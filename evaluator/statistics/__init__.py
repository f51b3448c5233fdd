"""General statistics: correlations, ranking curves and analysis of variance."""
