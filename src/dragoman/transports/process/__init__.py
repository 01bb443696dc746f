"""Child processes: start them, stream their bytes, end them, and leave nothing behind."""
