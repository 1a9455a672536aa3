"""What stays in a translation as it is in the source: URLs, addresses, placeholders, emoji."""
