"""Small models made on the spot, so that a first run needs no download."""
