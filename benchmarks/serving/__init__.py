"""`flaxformer-mt serve` as a process, under load and under attack; pictures of its page."""
