"""StaICC (Cho & Inoue 2025): the benchmark of ten datasets, its diagnostics and its demonstration modes."""
