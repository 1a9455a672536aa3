"""HTML files that stand by themselves."""
