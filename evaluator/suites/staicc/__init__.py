"""Define the suites of StaICC (Cho & Inoue 2025): ten datasets, diagnostics, and two modes of demonstrations."""
