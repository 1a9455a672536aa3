"""A sentence's attention to look at: its weights, what is picked of them, and a page."""
