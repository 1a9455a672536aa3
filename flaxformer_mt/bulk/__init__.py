"""Files and streams of any size through a translator: formats, windows, progress, resuming."""
