"""Files and streams of any size through a translator: forms, windows, progress, going on."""
