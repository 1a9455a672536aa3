"""A run directory's model over HTTP: an API, a page, and a queue that shares the model fairly."""
