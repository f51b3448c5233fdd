"""Write the report: one self-contained HTML page from the record and the tables of a run."""
