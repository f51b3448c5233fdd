"""General statistics: rank correlation, ranking curves and analysis of variance."""
