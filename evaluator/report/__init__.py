"""The last stage: the record of a run and its tables go in; one HTML page that needs nothing else comes out."""
